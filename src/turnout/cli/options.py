"""What many commands take."""

import json
import math
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from turnout.core.errors import InvalidRequest

Url = Annotated[
    str | None,
    typer.Option(help="The server.", envvar="TURNOUT_URL", show_default="http://127.0.0.1:8000"),
]
Tenant = Annotated[str | None, typer.Option(help="Whose adapters; the key's own if not given.")]
Json = Annotated[bool, typer.Option("--json", help="Print the API's JSON, for scripts.")]
Reason = Annotated[str, typer.Option(help="Why, for the history.")]
VersionOf = Annotated[
    str,
    typer.Argument(metavar="ADAPTER@VERSION", help="As legal@4, legal@1.4.0, legal@production or legal@sha256:9f2c."),
]
AdapterOrVersion = Annotated[
    str, typer.Argument(metavar="ADAPTER[@VERSION]", help="An adapter as legal, or a version as legal@4.")
]
AdapterName = Annotated[str, typer.Argument(metavar="ADAPTER", help="Its name.")]


def pairs(option: str, entries: Iterable[str]) -> dict[str, str]:
    """`key=value` entries of a repeated option. Raises InvalidRequest."""
    found: dict[str, str] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not (key and equals and value):
            raise InvalidRequest(f"{option} takes NAME=VALUE, not {entry!r}")
        if key in found:
            raise InvalidRequest(f"{option} says {key!r} twice")
        found[key] = value
    return found


def numbers(option: str, entries: Iterable[str]) -> dict[str, float]:
    """`key=number` entries of a repeated option. Raises InvalidRequest."""
    return {key: _number(option, key, value) for key, value in pairs(option, entries).items()}


def values(option: str, entries: Iterable[str]) -> dict[str, Any]:
    """`key=value` entries, the value read as JSON if it is JSON, else as text. Raises InvalidRequest."""
    return {key: _value(value) for key, value in pairs(option, entries).items()}


def names(entries: Iterable[str]) -> list[str]:
    """What a repeated option lists, each entry with commas or without."""
    return [name.strip() for entry in entries for name in entry.split(",") if name.strip()]


def _number(option: str, key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidRequest(f"{option} {key} must be a number, not {text!r}")
    return number


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text
