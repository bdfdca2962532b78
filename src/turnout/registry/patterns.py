"""Patterns of adapter names."""

from turnout.core.errors import InvalidRequest

MAX_PATTERN_LENGTH = 255


def matches(pattern: str, name: str) -> bool:
    """Whether `name` fits `pattern` as a whole: `*` stands for any characters or none, everything else for itself.

    Case counts, and brackets and question marks mean nothing: names may hold them.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    *middle, last = rest
    if not name.startswith(first):
        return False
    at = len(first)
    for part in middle:
        # The earliest place is the best one: it leaves the most for the parts behind.
        found = name.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return name.endswith(last) and len(name) - len(last) >= at


def check_pattern(pattern: str) -> None:
    """Raise InvalidRequest for a pattern that no name could fit, or only by mistake."""
    if not pattern or len(pattern) > MAX_PATTERN_LENGTH or not pattern.isprintable() or pattern != pattern.strip():
        raise InvalidRequest(
            f"{pattern!r} is no pattern of adapter names; write 1 to {MAX_PATTERN_LENGTH} visible characters, "
            "as in legal, support-* or *",
            param="patterns",
        )
