"""What an adapter may be called."""

import unicodedata

from turnout.core.errors import InvalidRequest

MAX_NAME_LENGTH = 255

_UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of controls, invisible marks, surrogates, and separators of lines and paragraphs."""


def check_name(name: str) -> None:
    """Raise InvalidRequest for a name that could not be told apart from another, shown, or sent in a header or URL.

    Slashes, colons, spaces within and letters of any script are fine. A name is never used as a path, yet one
    that reads like a way out of a folder is refused all the same.
    """
    fault = _fault(name)
    if fault is not None:
        raise InvalidRequest(f"the adapter's name {fault}", param="lora_name")


def _fault(name: str) -> str | None:
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
    if any(unicodedata.category(character) in _UNPRINTABLE for character in name):
        return "holds control characters or others that cannot be seen; leave them out"
    if name != name.strip():
        # Header values lose them on the way, so the name could not be asked for.
        return "begins or ends with a space; leave it out"
    if not unicodedata.is_normalized("NFC", name):
        # Refused rather than normalised: a name comes back byte for byte as it was given.
        return "is not in Unicode's normal form NFC; send it as " + repr(unicodedata.normalize("NFC", name))
    if not {"", ".", ".."}.isdisjoint(name.replace("\\", "/").split("/")):
        return "reads like a path: no part between slashes may be empty, '.' or '..'"
    return None


def check_text(text: str, param: str) -> None:
    """Raise InvalidRequest for a note or reason that no database can keep as it is."""
    if any(character == "\0" or unicodedata.category(character) == "Cs" for character in text):
        raise InvalidRequest(f"{param} holds a NUL or half of a surrogate pair; leave it out", param=param)
