"""One command's talk with a server: the client, and what becomes of errors."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from turnout.cli.output import advise, plain
from turnout.core.errors import (
    AdapterPathNotFound,
    InvalidRequest,
    ServerUnreachable,
    SettingsError,
    TurnoutError,
    Unauthorized,
    UnexpectedAnswer,
)

if TYPE_CHECKING:
    from rich.progress import TaskID

    from turnout.client import Client
    from turnout.client.push import Progress

REFUSED = 1
WRONG_USAGE = 2
NO_CONNECTION = 3

_EXITS: dict[type[TurnoutError], int] = {
    InvalidRequest: WRONG_USAGE,
    SettingsError: WRONG_USAGE,
    AdapterPathNotFound: WRONG_USAGE,
    ServerUnreachable: NO_CONNECTION,
    UnexpectedAnswer: NO_CONNECTION,
}


@contextmanager
def session(url: str | None, tenant: str | None, as_json: bool) -> Iterator["Client"]:
    """A client, whose errors are told on stderr and end the command by their exit code."""
    # Imported here: `turnout --help` shall not wait for it.
    from turnout.client import Client  # noqa: PLC0415

    try:
        with Client(url, tenant=tenant) as client:
            yield client
    except TurnoutError as error:
        _tell(error, as_json)
        raise typer.Exit(exit_code(error)) from error


def exit_code(error: TurnoutError) -> int:
    """REFUSED, WRONG_USAGE or NO_CONNECTION."""
    return next((code for kind, code in _EXITS.items() if isinstance(error, kind)), REFUSED)


@contextmanager
def progress_bar(as_json: bool) -> Iterator["Progress | None"]:
    """A bar on stderr for each file that is sent; None, and no bar, for scripts."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def report(file: str, sent: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(plain(file), total=total)
            bars.update(tasks[file], completed=sent)

        yield report


def _tell(error: TurnoutError, as_json: bool) -> None:
    if as_json:
        told = {"message": error.message, "param": error.param, "code": error.code}
        typer.echo(json.dumps({"error": told}, indent=2), err=True)
    else:
        typer.echo(f"{typer.style('error:', fg='red', bold=True)} {plain(error.message)} ({error.code})", err=True)
        if isinstance(error, Unauthorized):
            advise("The key is taken from TURNOUT_API_KEY, else from the file that a server on this machine writes.")
