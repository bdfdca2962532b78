"""Everything that a version needs is there and right, and garbage goes, whatever happens meanwhile.

TURNOUT_CRASHES is how many collections of garbage are killed for each database.
"""

import os
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from tests.registry.samples import digest_of, new_version
from tests.registry.writers import processes
from turnout.artifacts.store import ArtifactStore, Blob, open_store
from turnout.core.errors import ArtifactNotFound
from turnout.core.identity import Digest
from turnout.registry import audit, tables, uploads
from turnout.registry.adapters import delete_adapter
from turnout.registry.aliases import promote
from turnout.registry.database import Database, open_database
from turnout.registry.records import StoredFile
from turnout.registry.upkeep import BATCH, Collected, Fault, collect, verify
from turnout.registry.versions import delete_version, push, referenced_blobs

CRASHES = int(os.environ.get("TURNOUT_CRASHES", "8"))
AT_ONCE = timedelta(0)
HOUR = timedelta(hours=1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return open_store(tmp_path / "store")


def put(store: ArtifactStore, content: str) -> Digest:
    digest = digest_of(content)
    store.put([content.encode()], digest)
    return digest


def push_stored(database: Database, store: ArtifactStore, name: str, content: str) -> Digest:
    """Push a version with one file, as a publisher does: what the store lacks within the transaction is refused."""
    digest = put(store, content)
    with database.write("tester") as write:
        if not store.has(digest):
            raise ArtifactNotFound("collected")
        push(write, "default", name, new_version(content, files={"weights": StoredFile(digest, len(content))}))
    return digest


def kept(store: ArtifactStore) -> set[Digest]:
    return {blob.digest for blob in store.list_blobs()}


def where(store: ArtifactStore, digest: Digest) -> Path:
    name = digest.removeprefix("sha256:")
    return Path(store.where) / "sha256" / name[:2] / name


def make_old(store: ArtifactStore, *digests: Digest) -> None:
    for digest in digests:
        os.utime(where(store, digest), (0, 0))


def test_what_is_right_has_no_faults(database: Database, store: ArtifactStore) -> None:
    push_stored(database, store, "legal", "one")
    push_stored(database, store, "legal", "two")
    with database.write("tester") as write:
        promote(write, "default", "legal", "2", "production", "")
    assert (verify(database, store).checked, verify(database, store).faults) == (2, ())


def test_missing_changed_and_miscounted_files_are_found(database: Database, store: ArtifactStore) -> None:
    missing = push_stored(database, store, "legal", "missing")
    changed = push_stored(database, store, "legal", "changed")
    put(store, "counted")
    for name in ("counted", "again"):
        with database.write("tester") as write:
            files = {"weights": StoredFile(digest_of("counted"), 8)}
            push(write, "default", name, new_version("counted", files=files))
    store.delete(missing)
    where(store, changed).chmod(0o600)
    where(store, changed).write_text("changes")
    assert verify(database, store).checked == 4
    counted = f"weights: {digest_of('counted')} has 7 bytes, the registry says 8"
    assert set(verify(database, store).faults) == {
        Fault("default/legal@1", f"weights: {missing} is not in the artefact store"),
        Fault("default/legal@2", f"weights: what the artefact store has as {changed} no longer has that digest"),
        Fault("default/counted@1", counted),
        Fault("default/again@1", counted),
    }


def test_deleted_versions_are_not_checked(database: Database, store: ArtifactStore) -> None:
    store.delete(push_stored(database, store, "legal", "one"))
    with database.write("tester") as write:
        delete_version(write, "default", "legal", "1")
    assert verify(database, store).checked == 0
    assert verify(database, store).faults == ()


def test_a_changed_audit_and_an_alias_into_nothing_are_found(database: Database, store: ArtifactStore) -> None:
    push_stored(database, store, "legal", "one")
    push_stored(database, store, "gone", "two")
    with database.write("tester") as write:
        promote(write, "default", "legal", "1", "dev", "")
        delete_adapter(write, "default", "gone")
    with database.append() as connection:
        connection.execute(update(tables.aliases).values(number=7))
        connection.execute(insert(tables.aliases).values(adapter_id=2, alias="left", number=1))
        connection.execute(delete(tables.audit).where(tables.audit.c.sequence == 2))
    assert verify(database, store).faults == (
        Fault("audit entry 2", "entries 2 to 2 are missing"),
        Fault("default/gone@left", "points at version 1, which is not there"),
        Fault("default/legal@dev", "points at version 7, which is not there"),
    )


def test_only_garbage_is_collected(database: Database, store: ArtifactStore) -> None:
    used = push_stored(database, store, "legal", "used")
    deleted = push_stored(database, store, "legal", "deleted")
    with database.write("tester") as write:
        delete_version(write, "default", "legal", "2")
    unused, new = put(store, "unused"), put(store, "new")
    make_old(store, used, deleted, unused)
    garbage = Collected(tuple(sorted([deleted, unused])), len("deleted") + len("unused"))
    assert collect(database, store, "tester", HOUR, dry_run=True) == garbage
    assert kept(store) == {used, deleted, unused, new}
    assert collect(database, store, "tester", HOUR) == garbage
    assert kept(store) == {used, new}
    assert collect(database, store, "tester", HOUR) == Collected((), 0)
    with database.read() as connection:
        last = audit.entries(connection)[-1]
    assert (last.action, last.detail["deleted"], last.detail["nbytes"]) == (
        "artifacts.collect", list(garbage.deleted), garbage.nbytes
    )  # fmt: skip


def test_what_was_uploaded_lately_stays_however_old_the_stored_file_is(
    database: Database, store: ArtifactStore
) -> None:
    uploaded = put(store, "uploaded")
    make_old(store, uploaded)
    with database.write("key") as write:
        uploads.record(write, uploaded)
    assert collect(database, store, "tester", HOUR) == Collected((), 0)
    with database.append() as connection:
        connection.execute(update(tables.uploads).values(uploaded_at=0))
    assert collect(database, store, "tester", HOUR).deleted == (uploaded,)
    with database.read() as connection:
        assert uploads.held(connection, "key", "default", lambda _: True) == set()


def test_what_comes_into_use_while_garbage_is_listed_stays(database: Database, store: ArtifactStore) -> None:
    uploaded, pushed, unused = put(store, "uploaded"), put(store, "pushed"), put(store, "unused")
    make_old(store, uploaded, pushed, unused)

    class Meanwhile:
        """The store, in which something happens just after its listing."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def sweep_incoming(self, older_than: timedelta) -> int:
            with database.write("key") as write:
                uploads.record(write, uploaded)
            push_stored(database, store, "legal", "pushed")
            return 0

    assert collect(database, Meanwhile(), "tester", HOUR).deleted == (unused,)  # type: ignore[arg-type]
    assert kept(store) == {uploaded, pushed}


def test_unfinished_files_are_swept(database: Database, store: ArtifactStore) -> None:
    left = Path(store.where) / "incoming" / "left"
    left.write_bytes(b"half")
    collect(database, store, "tester", HOUR)
    assert left.exists()
    os.utime(left, (0, 0))
    collect(database, store, "tester", HOUR)
    assert not left.exists()


def test_pushing_while_garbage_is_collected_loses_nothing(database: Database, store: ArtifactStore) -> None:
    """Contents come and go, so that what is pushed is often just what is being collected."""
    done = threading.Event()
    failures: list[BaseException] = []

    def push_and_delete(worker: int) -> None:
        try:
            for number in range(12):
                content = f"{number % 3}"
                try:
                    push_stored(database, store, f"of {worker}", content)
                except ArtifactNotFound:
                    continue
                if number % 4 == 3:
                    with database.write("tester") as write:
                        delete_adapter(write, "default", f"of {worker}")
        except BaseException as error:
            failures.append(error)
            raise

    def collect_on_and_on() -> None:
        while not done.is_set():
            collect(database, store, "collector", AT_ONCE)

    pushers = [threading.Thread(target=push_and_delete, args=(worker,)) for worker in range(2)]
    collector = threading.Thread(target=collect_on_and_on)
    for thread in (*pushers, collector):
        thread.start()
    for thread in pushers:
        thread.join()
    done.set()
    collector.join()
    assert failures == []
    assert verify(database, store).faults == ()


class Telling:
    """The store, which says so before and after each deletion."""

    def __init__(self, store: ArtifactStore, out: Connection) -> None:
        self._store = store
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def delete(self, digest: Digest) -> None:
        self._out.send(digest)
        self._store.delete(digest)
        self._out.send(digest)


def collect_telling(location: str, folder: str, out: Connection) -> None:
    """Collect garbage until killed."""
    with closing(open_database(location)) as database:
        collect(database, Telling(open_store(folder), out), "killed", AT_ONCE)  # type: ignore[arg-type]


def test_a_killed_collection_leaves_nothing_wrong(location: str, database: Database, store: ArtifactStore) -> None:
    used = {push_stored(database, store, "legal", f"used {number}") for number in range(5)}
    garbage: set[Digest] = set()
    for crash in range(CRASHES):
        garbage |= {put(store, f"garbage {crash} {number}") for number in range(10)}
        into, out = processes.Pipe(duplex=False)
        process = processes.Process(target=collect_telling, args=(location, store.where, out))
        process.start()
        out.close()
        for _ in range(1 + 2 * (crash % 8)):
            into.recv()
        process.kill()
        process.join()
        into.close()
        assert process.exitcode == -9
        # As a writer, which waits until a PostgreSQL server has finished what a killed client had sent.
        with database.write("checker") as write:
            assert referenced_blobs(write.connection) == used
        assert used <= kept(store) <= used | garbage
        assert verify(database, store).faults == ()
        used.add(push_stored(database, store, "legal", f"used {crash} more"))
    assert garbage & kept(store)
    collect(database, store, "tester", AT_ONCE)
    assert kept(store) == used


def test_much_garbage_is_collected_in_several_transactions(database: Database, tmp_path: Path) -> None:
    blobs = [Blob(digest_of(number), 3, LONG_AGO) for number in range(BATCH + 1)]

    class Listed:
        """A store of blobs without bytes, which are the most of what takes time."""

        def __init__(self) -> None:
            self.deleted: list[Digest] = []

        def list_blobs(self) -> list[Blob]:
            return blobs

        def sweep_incoming(self, older_than: timedelta) -> int:
            return 0

        def delete(self, digest: Digest) -> None:
            self.deleted.append(digest)

    store = Listed()
    found = collect(database, store, "tester", HOUR)  # type: ignore[arg-type]
    assert list(found.deleted) == store.deleted == sorted(blob.digest for blob in blobs)
    with database.read() as connection:
        counts = [len(entry.detail["deleted"]) for entry in audit.entries(connection)]
    assert (counts, found.nbytes) == ([BATCH, 1], 3 * (BATCH + 1))
