"""The audit: an append-only log in which every entry's hash covers the entry before it."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from turnout.registry.database import Write
from turnout.registry.tables import audit, state

GENESIS = "0" * 64
"""What stands for the hash before the first entry's."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what to what, and when. `at` in microseconds since 1970; `tenant` None for what concerns the server."""

    sequence: int
    at: int
    actor: str
    action: str
    tenant: str | None
    subject: str
    detail: Mapping[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class AuditFault:
    """What is wrong with the log, at which entry."""

    sequence: int
    what: str


def record(write: Write, action: str, tenant: str | None, subject: str, **detail: Any) -> None:
    """Append an entry to the log, in the writer's transaction."""
    last, before = head(write.connection)
    sequence = last + 1
    fields = {
        "sequence": sequence,
        "at": write.now,
        "actor": write.actor,
        "action": action,
        "tenant": tenant,
        "subject": subject,
        "detail": detail,
    }
    digest = _hash(before, fields)
    write.connection.execute(insert(audit).values(**fields, hash=digest))
    write.connection.execute(update(state).values(audit_sequence=sequence, audit_hash=digest))


def entries(
    connection: Connection, *, tenant: str | None = None, after: int = 0, limit: int = 1000
) -> list[AuditEntry]:
    """The log in its order, from behind entry `after`; with `tenant`, what concerns that one."""
    wanted = select(audit).where(audit.c.sequence > after).order_by(audit.c.sequence).limit(limit)
    if tenant is not None:
        wanted = wanted.where(audit.c.tenant == tenant)
    return [_entry(row) for row in connection.execute(wanted)]


def own_entries(connection: Connection, tenant: str, *, after: int = 0, limit: int = 1000) -> list[AuditEntry]:
    """What concerns the tenant, numbered by itself from 1 and without hashes, for the tenant's own eyes.

    The numbers and hashes of the whole log would tell how much others do.
    """
    wanted = select(audit).where(audit.c.tenant == tenant).order_by(audit.c.sequence).offset(after).limit(limit)
    rows = connection.execute(wanted)
    return [replace(_entry(row), sequence=number, hash="") for number, row in enumerate(rows, after + 1)]


def verify(connection: Connection) -> Iterator[AuditFault]:
    """Every place where the log is not what was written: an entry changed, removed, added or moved.

    Whoever can write to the database can also rebuild the whole chain; against that, keep `head` somewhere else.
    """
    expected, before = 1, GENESIS
    for row in connection.execute(select(audit).order_by(audit.c.sequence)):
        if row.sequence != expected:
            yield AuditFault(expected, f"entries {expected} to {row.sequence - 1} are missing")
        elif row.hash != _hash(before, _fields(row)):
            yield AuditFault(row.sequence, "the entry, or the one before it, is not what was written")
        expected, before = row.sequence + 1, row.hash
    last, digest = head(connection)
    if (expected - 1, before) != (last, digest):
        yield AuditFault(expected, f"the log should end with entry {last}, hash {digest}")


def head(connection: Connection) -> tuple[int, str]:
    """Number and hash of the last entry, which stand for the whole log."""
    end = connection.execute(select(state.c.audit_sequence, state.c.audit_hash)).one()
    return end.audit_sequence, end.audit_hash


def _hash(before: str, fields: Mapping[str, Any]) -> str:
    written = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{before}\n{written}".encode()).hexdigest()


def _fields(row: Row[Any]) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name != "hash"}


def _entry(row: Row[Any]) -> AuditEntry:
    return AuditEntry(**row._mapping)
