"""The registry's tests run on SQLite and on PostgreSQL."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import event

from tests.support.postgresql import postgresql, scratch_database
from turnout.registry import audit
from turnout.registry.database import Database, open_database
from turnout.registry.tenants import create_tenant


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a new registry may be: a file's path, or the URL of an empty database."""
    if request.param == "sqlite":
        yield str(tmp_path / "registry.db")
    else:
        with scratch_database(request.getfixturevalue("postgresql_server")) as url:
            yield url


@pytest.fixture
def database(location: str) -> Iterator[Database]:
    opened = open_database(location)
    yield opened
    opened.close()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """One registry of each kind for the many tests that keep to a tenant of their own."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            location = str(tmp_path_factory.mktemp("shared") / "registry.db")
        else:
            location = stack.enter_context(scratch_database(request.getfixturevalue("postgresql_server")))
        database = stack.enter_context(closing(open_database(location)))
        if request.param == "sqlite":
            # As on PostgreSQL here: nobody minds what a power cut would take.
            event.listen(
                database.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF")
            )
            database.engine.dispose()
        yield database
        with database.read() as connection:
            assert list(audit.verify(connection)) == []


@pytest.fixture
def tenant(shared: Database) -> str:
    """A tenant that no other test knows."""
    name = f"tenant-{uuid.uuid4().hex}"
    with shared.write("tester") as write:
        create_tenant(write, name)
    return name
