"""The registry's tests run on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgresql import postgresql, scratch_database
from turnout.registry.database import Database, open_database


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
