"""A PostgreSQL server of the tests' own, on loopback, with its data in a temporary folder."""

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

SERVER = "TURNOUT_TEST_POSTGRESQL"


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of a running server: the one named in TURNOUT_TEST_POSTGRESQL, else one made from the local programs."""
    if given := os.environ.get(SERVER):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="turnout-pg-") as folder, _cluster(Path(folder)) as url:
        yield url


@contextmanager
def scratch_database(server: str) -> Iterator[str]:
    """The URL of a new, empty database, dropped afterwards."""
    name = f"turnout_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield server.rpartition("/")[0] + "/" + name
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    # The server refuses to run as root, so root's tests run it as the user that Debian's package makes for it.
    as_user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    if as_user:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"

    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, **as_user)

    run(_program("initdb"), "-D", data, "-U", "turnout", "--auth=trust", "--no-sync", "--encoding=UTF8")
    port = _free_port()
    options = f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    pg_ctl = [_program("pg_ctl"), "-D", data, "-w", "-l", folder / "log"]
    run(*pg_ctl, "-o", options, "start")
    try:
        yield f"postgresql://turnout@127.0.0.1:{port}/postgres"
    finally:
        run(*pg_ctl, "-m", "immediate", "stop")


def _program(name: str) -> str:
    found = shutil.which(name) or next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))[::-1]), None)
    if found is None:
        pytest.fail(f"PostgreSQL's {name} is not installed; install it, or set {SERVER} to the URL of a scratch server")
    return str(found)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
