"""The registry's database: SQLite in a file, or PostgreSQL; how it is opened, read and written.

Writers take turns, by the lock on the row of `state`: the audit's chain has one end, and what a writer has read stays
true until it commits. Readers wait for nobody.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, select, update
from sqlalchemy.exc import ArgumentError, OperationalError

from turnout.core.errors import SettingsError
from turnout.registry.migrations import migrate
from turnout.registry.tables import adapters, state

CHANNEL = "turnout_registry"
"""PostgreSQL's channel on which writers tell of new revisions."""

BUSY_SECONDS = 30
"""How long a writer waits for its turn on SQLite."""


@dataclass(frozen=True, slots=True)
class Write:
    """One transaction that changes the registry: all of it or nothing.

    `actor` is who does it, for the records; `now` in microseconds since 1970.
    """

    connection: Connection
    actor: str
    now: int
    _changes: list[int | None] = field(default_factory=list)

    def changed(self, adapter: int | None = None) -> None:
        """Say that what servers depend on is different now, so that they look again; which adapter, if one is."""
        self._changes.append(adapter)

    @property
    def has_changes(self) -> bool:
        """Whether `changed` was called."""
        return bool(self._changes)


@dataclass(frozen=True, slots=True)
class Database:
    """An open registry, whose tables are those of this version of Turnout."""

    engine: Engine

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One moment's picture, however much is read of it."""
        options = {"isolation_level": _SNAPSHOT[self.engine.name]}
        with self.engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, actor: str) -> Iterator[Write]:
        """A transaction of one's own, which is committed on leaving and undone if an error leaves it."""
        with self.engine.connect().execution_options(turnout_writes=True) as connection, connection.begin():
            revision = connection.execute(select(state.c.revision).with_for_update()).scalar_one()
            write = Write(connection, actor, now())
            yield write
            if write.has_changes:
                connection.execute(update(state).values(revision=revision + 1))
                changed = adapters.c.id.in_([each for each in write._changes if each is not None])
                connection.execute(update(adapters).where(changed).values(revision=revision + 1))
                if self.engine.name == "postgresql":
                    connection.exec_driver_sql(f"NOTIFY {CHANNEL}")

    @contextmanager
    def append(self) -> Iterator[Connection]:
        """A transaction for rows that nothing else depends on; it takes no turn among the writers on PostgreSQL."""
        with self.engine.connect().execution_options(turnout_writes=True) as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()


_SNAPSHOT = {"sqlite": "SERIALIZABLE", "postgresql": "REPEATABLE READ"}


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def revision(connection: Connection) -> int:
    """How many changes there have been."""
    count: int = connection.execute(select(state.c.revision)).scalar_one()
    return count


def open_database(location: str | Path) -> Database:
    """Open the registry at a path (SQLite's file) or URL, bringing its tables up to date. Raises SettingsError."""
    url = _url(location)
    engine = create_engine(url, **_options(url))
    if engine.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    try:
        migrate(engine)
    except OperationalError as error:
        engine.dispose()
        where = url.render_as_string(hide_password=True)
        raise SettingsError(f"--registry: cannot open {where}: {_first_line(error.orig)}") from error
    except SettingsError:
        engine.dispose()
        raise
    return Database(engine)


def _url(location: str | Path) -> URL:
    if isinstance(location, Path) or "://" not in location:
        return URL.create("sqlite", database=str(location))
    try:
        url = make_url(location)
    except ArgumentError as error:
        raise SettingsError("--registry: neither a file's path nor a postgresql://user@host/database URL") from error
    if url.drivername == "sqlite":
        return url
    if url.drivername in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise SettingsError(f"--registry: {url.drivername}:// is not supported; give a file's path or a postgresql:// URL")


def _options(url: URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": BUSY_SECONDS, "check_same_thread": False}}
    # A connection that a restarted server has closed is replaced before it is used.
    return {"pool_pre_ping": True, "connect_args": {"connect_timeout": 10}}


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Transactions are begun by `_begin_sqlite` alone, not by the driver's guess from the statement.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    # With WAL, anything less could lose the last commits when the machine loses power.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("turnout_writes", False)
    # A writer takes the lock before it reads: what it would find in between could not be written any more.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _first_line(error: object) -> str:
    return str(error).strip().splitlines()[0]
