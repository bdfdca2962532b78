"""Lineage: for each served request, which exact weights gave the answer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, Row, delete, select

from turnout.core.identity import Digest
from turnout.registry import tables
from turnout.registry.database import Database

EXPORT_ROWS = 1000
"""Rows that an export holds at a time."""

EXPIRE_ROWS = 5000
"""Rows that one transaction deletes."""

_COLUMNS = [column for column in tables.lineage.c if column.name != "id"]


@dataclass(frozen=True, slots=True)
class LineageRecord:
    """What served one request. `at` is when it came, in microseconds since 1970; `timings` are milliseconds by phase.

    `owner` is the adapter's tenant; for the base it is None, and `number` 0. `prompt` is None unless prompts are kept.
    """

    request_id: str
    at: int
    tenant: str
    key_prefix: str | None
    owner: str | None
    adapter: str
    number: int
    digest: Digest
    model_revision: Digest
    tokenizer_revision: Digest
    reason: str
    outcome: str
    prompt_tokens: int
    completion_tokens: int
    timings: Mapping[str, float]
    prompt: str | None = None


def columns(record: LineageRecord) -> dict[str, Any]:
    """The record as a row of the table, without the row's id."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {**values, "timings": dict(record.timings)}


def find(connection: Connection, request_id: str, *, tenant: str | None = None) -> list[LineageRecord]:
    """The records with this request id, newest first; with `tenant`, of its requests alone.

    There may be several, for clients choose ids too.
    """
    wanted = select(*_COLUMNS).where(tables.lineage.c.request_id == request_id).order_by(tables.lineage.c.id.desc())
    if tenant is not None:
        wanted = wanted.where(tables.lineage.c.tenant == tenant)
    return [_record(row) for row in connection.execute(wanted)]


def export(
    connection: Connection,
    *,
    since: int | None = None,
    until: int | None = None,
    tenant: str | None = None,
    digest: Digest | None = None,
) -> Iterator[LineageRecord]:
    """Records by time, from `since` on and before `until`; read as they are asked for, however many there are."""
    lineage = tables.lineage.c
    wanted = select(*_COLUMNS).order_by(lineage.at, lineage.id)
    if since is not None:
        wanted = wanted.where(lineage.at >= since)
    if until is not None:
        wanted = wanted.where(lineage.at < until)
    if tenant is not None:
        wanted = wanted.where(lineage.tenant == tenant)
    if digest is not None:
        wanted = wanted.where(lineage.digest == digest)
    for row in connection.execute(wanted, execution_options={"yield_per": EXPORT_ROWS}):
        yield _record(row)


def expire(database: Database, before: int) -> int:
    """Delete the records from before this time; returns how many. Transactions are short, so others get their turn."""
    total = 0
    while gone := expire_some(database, before):
        total += gone
    return total


def expire_some(database: Database, before: int) -> int:
    """Delete some of the records from before this time, in one transaction; returns how many, 0 if none are left."""
    lineage = tables.lineage.c
    oldest = select(lineage.id).where(lineage.at < before).order_by(lineage.at).limit(EXPIRE_ROWS)
    with database.append() as connection:
        return connection.execute(delete(tables.lineage).where(lineage.id.in_(oldest))).rowcount


def _record(row: Row[Any]) -> LineageRecord:
    return LineageRecord(**row._mapping)
