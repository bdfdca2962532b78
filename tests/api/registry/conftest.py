from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.registry.world import World, world
from tests.artifacts.conftest import s3_server, s3_url  # noqa: F401 (fixtures)
from tests.support.postgresql import postgresql, scratch_database


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """For tests that keep to names of their own."""
    folder = tmp_path_factory.mktemp("shared")
    with world(str(folder / "registry.db"), folder / "store") as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[World]:
    with world(str(tmp_path / "registry.db"), tmp_path / "store") as made:
        yield made


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world on each database."""
    if request.param == "sqlite":
        with world(str(tmp_path / "registry.db"), tmp_path / "store") as made:
            yield made
    else:
        server = request.getfixturevalue("postgresql_server")
        with scratch_database(server) as url, world(url, tmp_path / "store") as made:
            yield made
