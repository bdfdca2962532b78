"""Which weights gave which answer."""

import io
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from turnout.api.auth import Gate
from turnout.api.registry.query import instant
from turnout.api.registry.reach import Sight, sight
from turnout.core.identity import parse_digest
from turnout.registry import lineage
from turnout.registry.directory import Directory
from turnout.registry.keys import Key
from turnout.registry.lineage import LineageRecord
from turnout.registry.lineage_files import as_json, to_jsonl, to_parquet

Format = Literal["jsonl", "parquet"]

_MEDIA_TYPES = {"jsonl": "application/jsonl", "parquet": "application/vnd.apache.parquet"}
_CHUNK = 1 << 20


def router(directory: Directory, gate: Gate) -> APIRouter:
    """`/lineage` and `/lineage/{request_id}`."""
    routes = APIRouter(prefix="/lineage", tags=["lineage"])
    admin = Depends(sight(directory, gate, "admin"))

    @routes.get("", response_class=StreamingResponse)
    def export(
        caller: Annotated[Sight, admin],
        since: Annotated[str | None, Query(description="From this time on, as in 2026-03-01T00:00:00Z.")] = None,
        until: Annotated[str | None, Query(description="Before this time.")] = None,
        digest: Annotated[str | None, Query(description="Only what these weights served.")] = None,
        format: Format = "jsonl",
    ) -> StreamingResponse:
        """Give the records as a file, by time."""
        # By way of a file here, so that a slow reader holds no transaction open.
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it is sent)
        try:
            with directory.database.read() as connection:
                records = lineage.export(
                    connection,
                    since=None if since is None else instant(since, "since"),
                    until=None if until is None else instant(until, "until"),
                    tenant=caller.tenant,
                    digest=None if digest is None else parse_digest(digest),
                )
                _write(file, _in_reach(records, caller.key), format)
        except BaseException:
            file.close()
            raise
        headers = {"Content-Length": str(file.tell())}
        return StreamingResponse(_content(file), headers=headers, media_type=_MEDIA_TYPES[format])

    @routes.get("/{request_id:path}")
    def show(request_id: str, caller: Annotated[Sight, admin]) -> dict[str, list[Any]]:
        """Show what served a request, by its X-Request-ID; clients choose ids too, so there may be several."""
        with directory.database.read() as connection:
            found = lineage.find(connection, request_id, tenant=caller.tenant)
        return {"data": [as_json(record) for record in _in_reach(found, caller.key)]}

    return routes


def _in_reach(records: Iterable[LineageRecord], key: Key) -> Iterator[LineageRecord]:
    """Those of adapters that the key may use; the base is open to all."""
    for record in records:
        other = record.owner not in (None, record.tenant)
        name = f"{record.owner}/{record.adapter}" if other else record.adapter
        if record.owner is None or key.may_use(name):
            yield record


def _write(file: IO[bytes], records: Iterable[LineageRecord], kind: Format) -> None:
    if kind == "parquet":
        to_parquet(records, file)
        return
    text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
    to_jsonl(records, text)
    text.detach()


def _content(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while chunk := file.read(_CHUNK):
            yield chunk
