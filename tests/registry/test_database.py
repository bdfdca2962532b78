"""Opening, reading and writing the registry's database, and noticing changes."""

import queue
import threading
from contextlib import closing

import pytest
from alembic import command
from sqlalchemy import insert, select, update

from turnout.core.errors import SettingsError
from turnout.registry import audit
from turnout.registry.database import Database, open_database, revision
from turnout.registry.migrations import configuration
from turnout.registry.tables import state, tenants
from turnout.registry.watch import Watcher


def add_tenant(database: Database, name: str) -> None:
    with database.write("tester") as write:
        write.connection.execute(insert(tenants).values(name=name, created_at=write.now, signed_aliases=[]))
        audit.record(write, "tenant.create", name, name)
        write.changed()


def names(database: Database) -> set[str]:
    with database.read() as connection:
        return set(connection.execute(select(tenants.c.name)).scalars())


def test_the_migrations_make_exactly_the_tables(database: Database) -> None:
    with database.engine.connect() as connection:
        command.check(configuration(connection))


def test_what_is_written_is_there_after_opening_again(location: str) -> None:
    with closing(open_database(location)) as first:
        add_tenant(first, "acme")
    with closing(open_database(location)) as second:
        assert names(second) == {"default", "acme"}


def test_an_error_undoes_the_whole_write(database: Database) -> None:
    with database.read() as connection:
        before = revision(connection), audit.head(connection)
    with pytest.raises(RuntimeError, match="changed my mind"), database.write("tester") as write:
        write.connection.execute(insert(tenants).values(name="acme", created_at=0, signed_aliases=[]))
        audit.record(write, "tenant.create", "acme", "acme")
        write.changed()
        raise RuntimeError("changed my mind")
    with database.read() as connection:
        assert (revision(connection), audit.head(connection)) == before
    assert names(database) == {"default"}


def test_a_reader_sees_one_moment(database: Database) -> None:
    with database.read() as connection:
        before = revision(connection)
        add_tenant(database, "acme")
        assert set(connection.execute(select(tenants.c.name)).scalars()) == {"default"}
        assert revision(connection) == before
    with database.read() as connection:
        assert revision(connection) == before + 1


def test_writers_take_turns(database: Database) -> None:
    def work(worker: int) -> None:
        for i in range(5):
            add_tenant(database, f"tenant-{worker}-{i}")

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(database)) == 41
    with database.read() as connection:
        assert audit.head(connection)[0] == 40
        assert list(audit.verify(connection)) == []


def test_two_servers_may_open_an_empty_registry_at_once(location: str) -> None:
    opened: list[Database] = []
    threads = [threading.Thread(target=lambda: opened.append(open_database(location))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [names(database) for database in opened] == [{"default"}] * 4
    for database in opened:
        database.close()


def test_a_watcher_hears_of_another_servers_changes(location: str) -> None:
    heard: queue.Queue[set[str]] = queue.Queue()
    with closing(open_database(location)) as writer, closing(open_database(location)) as reader:
        with reader.read() as connection:
            seen = revision(connection)
        with closing(Watcher(reader, seen, lambda: heard.put(names(reader)))):
            add_tenant(writer, "acme")
            assert heard.get(timeout=20) == {"default", "acme"}
            add_tenant(writer, "globex")
            assert heard.get(timeout=20) == {"default", "acme", "globex"}


def test_a_registry_of_a_newer_turnout_is_refused(location: str) -> None:
    with closing(open_database(location)) as database, database.append() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SettingsError, match="newer Turnout"):
        open_database(location)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("mysql://localhost/x", "mysql:// is not supported"),
        ("postgresql://127.0.0.1:1/none", "cannot open postgresql"),
        ("/nowhere/at/all/registry.db", "unable to open"),
        ("://", "neither a file's path"),
    ],
)
def test_a_registry_that_cannot_be_opened_is_named(location: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        open_database(location)


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE audit SET actor = 'nobody' WHERE sequence = 2",
        "UPDATE audit SET detail = '{\"a\": 1}' WHERE sequence = 2",
        "DELETE FROM audit WHERE sequence = 2",
        "DELETE FROM audit WHERE sequence = 1",
        "DELETE FROM audit WHERE sequence = 4",
        "UPDATE audit SET sequence = 5 WHERE sequence = 4",
    ],
)
def test_an_audit_entry_changed_or_gone_is_found(database: Database, spoil: str) -> None:
    for name in ("a", "b", "c", "d"):
        add_tenant(database, name)
    with database.read() as connection:
        assert list(audit.verify(connection)) == []
    with database.append() as connection:
        connection.exec_driver_sql(spoil)
    with database.read() as connection:
        assert list(audit.verify(connection)) != []


def test_two_audit_entries_swapped_are_found(database: Database) -> None:
    for name in ("a", "b", "c", "d"):
        add_tenant(database, name)
    with database.append() as connection:
        for old, new in ((2, 99), (3, 2), (99, 3)):
            connection.exec_driver_sql(f"UPDATE audit SET sequence = {new} WHERE sequence = {old}")
    with database.read() as connection:
        assert audit_faults(connection) != []


def audit_faults(connection: object) -> list[audit.AuditFault]:
    return list(audit.verify(connection))  # type: ignore[arg-type]


def test_the_end_of_the_chain_is_kept_apart(database: Database) -> None:
    add_tenant(database, "a")
    with database.append() as connection:
        connection.execute(update(state).values(audit_hash="f" * 64))
    with database.read() as connection:
        assert [fault.sequence for fault in audit.verify(connection)] == [2]
