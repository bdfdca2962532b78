"""Which version of an adapter is meant by what stands behind the `@`."""

import re

from turnout.core.errors import InvalidRequest, ModelNotFound
from turnout.routing.snapshot import Adapter, VersionSummary

MIN_DIGEST_DIGITS = 4

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{1,64})")
_ALIAS = re.compile(r"(?!sha256|v?[0-9]+\Z)[a-z][a-z0-9._-]{0,62}")
_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMANTIC = re.compile(
    r"(?:(?:0|[1-9][0-9]*)\.){2}(?:0|[1-9][0-9]*)"
    rf"(?:-{_IDENTIFIER}(?:\.{_IDENTIFIER})*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
MAX_SEMANTIC_LENGTH = 128


def check_alias(alias: str) -> None:
    """Raise InvalidRequest for what cannot be an alias, so that a selector never has two meanings."""
    if not _ALIAS.fullmatch(alias):
        raise InvalidRequest(
            f"{alias!r} cannot be an alias; use up to 63 lower-case letters, digits, dots, underscores and dashes, "
            "beginning with a letter, and nothing that looks like a version's number or digest",
            param="alias",
        )


def check_semantic_version(text: str) -> None:
    """Raise InvalidRequest for what is no semantic version 2.0."""
    if len(text) > MAX_SEMANTIC_LENGTH or not _SEMANTIC.fullmatch(text):
        raise InvalidRequest(
            f"{text!r} is not a semantic version; write it like 1.4.0 or 2.0.0-rc.1, "
            f"with at most {MAX_SEMANTIC_LENGTH} characters",
            param="semantic_version",
        )


def select_version(adapter: Adapter, selector: str) -> VersionSummary:
    """The live version that `selector` means: a number, a semantic version, `sha256:<prefix>` or an alias.

    Raises ModelNotFound, and InvalidRequest for a prefix that is too short or fits several versions.
    """
    check_selector(selector, "version")
    found = find_version(adapter, selector, "version")
    if found is None:
        raise ModelNotFound(f"{adapter} has no version or alias {selector!r}", param="version")
    return found


def check_selector(selector: str, param: str) -> None:
    """Raise InvalidRequest for a digest prefix that is too short to mean anything, whatever versions there are."""
    digits = _DIGEST.fullmatch(selector)
    if digits is not None and len(digits[1]) < MIN_DIGEST_DIGITS:
        raise InvalidRequest(f"a digest prefix has at least {MIN_DIGEST_DIGITS} hexadecimal digits", param=param)


def find_version(adapter: Adapter, selector: str, param: str) -> VersionSummary | None:
    """The same, None if there is none. Raises InvalidRequest for a digest prefix that fits several versions."""
    if _DIGEST.fullmatch(selector):
        fitting = [version for version in adapter.versions if version.digest.startswith(selector)]
        if len(fitting) > 1:
            raise InvalidRequest(f"'{selector}' fits more than one version; give more digits", param=param)
        return fitting[0] if fitting else None
    number = int(selector) if _NUMBER.fullmatch(selector) else adapter.aliases.get(selector)
    return next((each for each in adapter.versions if number == each.number or selector == each.semantic_version), None)
