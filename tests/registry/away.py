"""Taking a table away from a database for a while, so that what needs it fails."""

import time
from collections.abc import Iterator
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


def wait_for(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Until the log says this."""
    deadline = time.monotonic() + PATIENCE
    while words not in caplog.text:
        assert time.monotonic() < deadline, caplog.text
        time.sleep(0.005)
