"""`legal@4`: an adapter's name, and which version of it."""

from typing import NamedTuple

from turnout.core.errors import InvalidRequest


class Reference(NamedTuple):
    """`selector` is a number, semantic version, alias or `sha256:<prefix>`; None where only the adapter is meant."""

    name: str
    selector: str | None


def parse_reference(text: str) -> Reference:
    """Split at the last `@`, for names may hold one too. Raises InvalidRequest for an empty part."""
    name, at, selector = text.rpartition("@")
    if not at:
        name, selector = text, ""
    if not name or (at and not selector):
        raise InvalidRequest(f"{text!r} names no adapter; write it as legal, or legal@4 for a version")
    return Reference(name, selector or None)


def parse_version(text: str) -> tuple[str, str]:
    """Name and selector. Raises InvalidRequest where the latter is missing."""
    name, selector = parse_reference(text)
    if selector is None:
        raise InvalidRequest(f"which version of {name!r}? write {name}@4, {name}@1.4.0 or {name}@production")
    return name, selector
