"""What commands print: tables and sentences for people, JSON for scripts."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 4096
"""Columns where no terminal sets them: a line in a pipe is a row, however long."""


def show_json(value: Any) -> None:
    """The API's JSON, on stdout."""
    typer.echo(json.dumps(value, indent=2))


def say(text: str) -> None:
    """What was done, on stdout."""
    typer.echo(plain(text))


def advise(text: str) -> None:
    """What to know or do next, on stderr."""
    typer.echo(plain(text), err=True)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows under headers, on stdout."""
    shown = Table(*headers, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for row in rows:
        shown.add_row(*(Text(cell(value)) for value in row))
    _print(shown)


def facts(rows: Iterable[tuple[str, Any]]) -> None:
    """Names and values, on stdout; what is empty is left out."""
    shown = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, "", [], {}):
            shown.add_row(name, Text(cell(value)))
    _print(shown)


def cell(value: Any) -> str:
    """A value in one line."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={cell(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return plain(str(value))


def plain(text: str) -> str:
    """`text` in one line, without characters that would do something to the terminal: others wrote it."""
    return "".join(_harmless(character) for character in text)


def short(digest: str) -> str:
    """Enough of a digest to tell it apart, and to be a selector."""
    return digest[: len("sha256:") + 12]


def when(time: str | None) -> str:
    """An ISO 8601 time to the second."""
    return "-" if time is None else time[:19].replace("T", " ") + "Z"


def size(number: int) -> str:
    """A number of bytes for people."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _harmless(character: str) -> str:
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return " " if character in "\n\t" else f"\\u{ord(character):04x}"
    return character


def _print(shown: Table) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    with console.capture() as lines:
        console.print(shown)
    for line in lines.get().splitlines():
        typer.echo(line.rstrip())  # columns are padded, the last one too
