"""Looking after what is kept: is all of it there and right, and what of it is of no more use."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, select

from turnout.artifacts.store import ArtifactStore, Blob
from turnout.core.errors import ArtifactCorrupt, ArtifactNotFound
from turnout.core.identity import Digest
from turnout.registry import audit, uploads
from turnout.registry.database import Database
from turnout.registry.records import StoredFile
from turnout.registry.tables import adapters, aliases, versions
from turnout.registry.versions import referenced_blobs

BATCH = 100
"""Blobs that one transaction deletes; other writers wait for it."""

UNFINISHED = timedelta(hours=1)
"""How long nothing must have been written to an unfinished file before it is taken for given up."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and with what."""

    subject: str
    what: str


@dataclass(frozen=True, slots=True)
class Verification:
    """How many versions were checked, and all that is wrong."""

    checked: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Collected:
    """What was of no more use, and its bytes."""

    deleted: tuple[Digest, ...]
    nbytes: int


def verify(database: Database, store: ArtifactStore) -> Verification:
    """Read and hash the files of every live version, and check the audit's chain and where aliases point.

    Takes as long as reading all of it does. Raises ArtifactStoreFailure.
    """
    with database.read() as connection:
        users = _users(connection)
        faults = [*_audit_faults(connection), *_alias_faults(connection)]
    broken = {file: what for file in users if (what := _file_fault(store, file)) is not None}
    with database.read() as connection:
        # What was deleted meanwhile may be gone by right.
        needed = referenced_blobs(connection)
    for file, what in broken.items():
        if file.digest in needed:
            faults.extend(Fault(version, f"{name}: {what}") for version, name in users[file])
    checked = {version for using in users.values() for version, _ in using}
    return Verification(len(checked), tuple(faults))


def collect(
    database: Database, store: ArtifactStore, actor: str, older_than: timedelta, *, dry_run: bool = False
) -> Collected:
    """Delete stored bytes that no live version has and nobody has put for so long; or, with `dry_run`, only name them.

    Deleting holds the registry's lock, in which a push looks for its bytes: it finds them for good or not at all.
    What is killed halfway leaves nothing wrong, but the audit lacks what it deleted last.
    """
    before = datetime.now(UTC) - older_than
    garbage = _garbage(database, store, before)
    if dry_run:
        return _collected(garbage)
    store.sweep_incoming(max(older_than, UNFINISHED))
    deleted: list[Blob] = []
    for start in range(0, len(garbage), BATCH):
        with database.write(actor) as write:
            needed = _needed(write.connection, before)
            batch = [blob for blob in garbage[start : start + BATCH] if blob.digest not in needed]
            for blob in batch:
                store.delete(blob.digest)
            if batch:
                digests = [blob.digest for blob in batch]
                nbytes = sum(blob.size for blob in batch)
                audit.record(write, "artifacts.collect", None, "artifacts", deleted=digests, nbytes=nbytes)
        deleted += batch
    with database.append() as connection:
        uploads.forget(connection, _microseconds(before))
    return _collected(deleted)


def _garbage(database: Database, store: ArtifactStore, before: datetime) -> list[Blob]:
    old = [blob for blob in store.list_blobs() if blob.modified <= before]
    with database.read() as connection:
        needed = _needed(connection, before)
    return sorted((blob for blob in old if blob.digest not in needed), key=lambda blob: blob.digest)


def _needed(connection: Connection, before: datetime) -> set[Digest]:
    return referenced_blobs(connection) | uploads.recent(connection, _microseconds(before))


def _microseconds(time: datetime) -> int:
    return int(time.timestamp() * 10**6)


def _collected(blobs: list[Blob]) -> Collected:
    return Collected(tuple(blob.digest for blob in blobs), sum(blob.size for blob in blobs))


def _users(connection: Connection) -> dict[StoredFile, list[tuple[str, str]]]:
    """Each file that any live version has, with those versions and what they call it."""
    users = defaultdict(list)
    kept = select(adapters.c.tenant, adapters.c.name, versions.c.number, versions.c.files).join(adapters)
    ordered = kept.where(versions.c.deleted_at.is_(None)).order_by(versions.c.id)
    for row in connection.execute(ordered):
        for name, (digest, nbytes) in row.files.items():
            users[StoredFile(Digest(digest), nbytes)].append((f"{row.tenant}/{row.name}@{row.number}", name))
    return users


def _file_fault(store: ArtifactStore, file: StoredFile) -> str | None:
    try:
        nbytes = sum(len(chunk) for chunk in store.read(file.digest))
    except ArtifactNotFound:
        return f"{file.digest} is not in the artefact store"
    except ArtifactCorrupt:
        return f"what the artefact store has as {file.digest} no longer has that digest"
    return None if nbytes == file.nbytes else f"{file.digest} has {nbytes} bytes, the registry says {file.nbytes}"


def _audit_faults(connection: Connection) -> Iterator[Fault]:
    for fault in audit.verify(connection):
        yield Fault(f"audit entry {fault.sequence}", fault.what)


def _alias_faults(connection: Connection) -> Iterator[Fault]:
    """Aliases whose version is not there, those of deleted adapters included."""
    same = (versions.c.adapter_id == aliases.c.adapter_id) & (versions.c.number == aliases.c.number)
    dangling = (
        select(adapters.c.tenant, adapters.c.name, aliases.c.alias, aliases.c.number)
        .select_from(aliases)
        .join(adapters, adapters.c.id == aliases.c.adapter_id)
        .outerjoin(versions, same & versions.c.deleted_at.is_(None))
        .where(versions.c.id.is_(None))
        .order_by(adapters.c.tenant, adapters.c.name, aliases.c.alias)
    )
    for row in connection.execute(dangling):
        yield Fault(f"{row.tenant}/{row.name}@{row.alias}", f"points at version {row.number}, which is not there")
