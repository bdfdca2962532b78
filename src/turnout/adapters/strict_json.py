"""JSON objects from files nobody vouches for: bounded in size, no duplicate keys, no NaN."""

import json
from pathlib import Path
from typing import Any, NoReturn

from turnout.adapters.files import refuse_pointer
from turnout.core.errors import AdapterFileError

_LARGEST_FILE = 16 << 20
"""Bytes; thousands of times the size of any real adapter's configuration."""


def read_object(path: Path, where: str) -> dict[str, Any]:
    """The JSON object that a file holds. Raises AdapterFileError naming `where` for any other content."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise AdapterFileError(f"{where} cannot be read: {error.strerror}") from error
    if len(text) > _LARGEST_FILE:
        raise AdapterFileError(f"{where} is larger than {_LARGEST_FILE} bytes, so it is no adapter configuration")
    refuse_pointer(text, where)
    return parse_object(text, where)


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """The JSON object in `text`, which is UTF-8. Raises AdapterFileError naming `where` for anything else.

    Two equal keys in one object are refused, for programs differ on which of them counts.
    """
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AdapterFileError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise AdapterFileError(f"{where} holds a JSON {type(value).__name__}, expected an object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key!r}")
        found[key] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
