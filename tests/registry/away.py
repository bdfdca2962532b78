"""Taking a table away from a database for a while, so that what needs it fails."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from turnout.registry.database import Database

PATIENCE = 20
"""Seconds after which a test that waits gives up."""


@contextmanager
def away(database: Database, table: str) -> Iterator[None]:
    """Without this table, until the block is left."""
    with database.append() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO away")
    yield
    with database.append() as connection:
        connection.exec_driver_sql(f"ALTER TABLE away RENAME TO {table}")


def until(ready: Callable[[], bool]) -> None:
    """Until this is so."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def wait_for(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Until the log says this."""
    until(lambda: words in caplog.text)
