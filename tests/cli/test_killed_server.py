"""A server killed in the midst of changes, started again, has every change that it had acknowledged, and no half one.

TURNOUT_CRASHES is how many times it is killed for each database.
"""

import itertools
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.adapters import marker_adapter
from tests.support.bases import write_alphabet_base
from tests.support.postgresql import postgresql, scratch_database
from turnout import Client
from turnout.core.errors import ServerUnreachable, TurnoutError, UnexpectedAnswer

CRASHES = int(os.environ.get("TURNOUT_CRASHES", "3"))
NAMES = ("x", "y")
State = dict[str, Any]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("killed")
    base = write_alphabet_base(root / "base")
    return {"base": base, **{letter: marker_adapter(root / letter, ord(letter)) for letter in "ABCDEFGH"}}


@pytest.fixture(params=["sqlite", "postgresql"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "registry.db")
    else:
        with postgresql() as server, scratch_database(server) as url:
            yield url


@contextmanager
def running(base: Path, registry: str, home: Path) -> Iterator[tuple["subprocess.Popen[str]", Client]]:
    """A server, and an operator's client of it; it is killed on leaving."""
    command = [sys.executable, "-m", "turnout", "serve", "--base", str(base), "--port", "0", "--threads", "1"]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TURNOUT_HOME": str(home)}
    with subprocess.Popen(
        [*command, "--registry", registry, "--dtype", "float32"], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stderr is not None
            found = next(filter(None, (re.search(r"listening on (http://\S+)", line) for line in process.stderr)), None)
            assert found is not None, "the server did not start"
            with Client(found[1], key=(home / "admin-token").read_text()) as client:
                yield process, client
        finally:
            process.kill()


def state(client: Client) -> State:
    return {
        adapter["name"]: (adapter["aliases"], [version["digest"] for version in adapter["versions"]])
        for adapter in client.adapters.list()
    }


def operation(dice: random.Random, client: Client, folders: dict[str, Path]) -> tuple[str | None, Callable[[], object]]:
    """The adapter that it changes, if any, and the call."""
    name, letter = dice.choice(NAMES), dice.choice("ABCDEFGH")
    version = f"{name}@{dice.randint(1, 6)}"
    calls: list[tuple[str | None, Callable[[], object]]] = [
        (name, lambda: client.adapters.push(folders[letter], name=name)),
        (name, lambda: client.adapters.push(folders[letter], name=name)),
        (name, lambda: client.adapters.promote(version, "production")),
        (name, lambda: client.adapters.rollback(name)),
        (name, lambda: client.adapters.delete_version(version)),
        (name, lambda: client.adapters.delete(name)),
        (None, lambda: client.adapters.gc(older_than="1s")),
    ]
    return dice.choice(calls)


def test_what_was_acknowledged_outlives_a_kill(folders: dict[str, Path], registry: str, tmp_path: Path) -> None:
    dice = random.Random(20)
    acknowledged: State = {}
    begun: str | None = None
    for _ in range(CRASHES + 1):
        with running(folders["base"], registry, tmp_path) as (process, client):
            check = client.adapters.verify()
            assert check["faults"] == []
            after = state(client)
            changed = {name for name in NAMES if after.get(name) != acknowledged.get(name)}
            # What was begun may have been done though nobody heard of it; nothing else may have changed.
            assert changed <= {begun}
            acknowledged = after
            killer = threading.Timer(dice.uniform(0.05, 1.5), process.kill)
            killer.start()
            try:
                for _ in itertools.count():
                    begun, call = operation(dice, client, folders)
                    try:
                        call()
                    except (ServerUnreachable, UnexpectedAnswer):
                        break
                    except TurnoutError:
                        pass  # refused, such as a rollback of what has no past
                    acknowledged, begun = state(client), None
            except (ServerUnreachable, UnexpectedAnswer):
                pass
            finally:
                killer.join()
