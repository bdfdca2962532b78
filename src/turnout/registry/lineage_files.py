"""Lineage records as files for other programs: JSON Lines and Parquet. The fields are those of LineageRecord."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import IO, Any

from turnout.core.errors import SettingsError
from turnout.registry.lineage import LineageRecord, columns

ROW_GROUP = 10_000
"""Records in a row group of a Parquet file: what is held in memory at a time."""


def as_json(record: LineageRecord) -> dict[str, Any]:
    """The record as a JSON object; `at` becomes ISO 8601 in UTC."""
    return {**columns(record), "at": _time(record).isoformat(timespec="microseconds").replace("+00:00", "Z")}


def to_jsonl(records: Iterable[LineageRecord], file: IO[str]) -> int:
    """Write one JSON object a line; returns how many."""
    count = 0
    for record in records:
        file.write(json.dumps(as_json(record), separators=(",", ":")) + "\n")
        count += 1
    return count


def to_parquet(records: Iterable[LineageRecord], file: IO[bytes]) -> int:
    """Write a Parquet file, of which nothing need be held in memory; returns how many records.

    `at` is a timestamp and `timings` a map. Raises SettingsError without pyarrow.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError("Parquet needs pyarrow: pip install 'turnout[parquet]', or export as jsonl") from error
    text, whole = pa.string(), pa.int64()
    kinds = {
        "at": pa.timestamp("us", tz="UTC"),
        "number": whole,
        "prompt_tokens": whole,
        "completion_tokens": whole,
        "timings": pa.map_(text, pa.float64()),
    }
    schema = pa.schema([(name, kinds.get(name, text)) for name in LineageRecord.__dataclass_fields__])
    count = 0
    with pq.ParquetWriter(file, schema) as writer:
        for group in _groups(records):
            rows = [{**columns(record), "timings": list(record.timings.items())} for record in group]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count


def _groups(records: Iterable[LineageRecord]) -> Iterator[list[LineageRecord]]:
    source = iter(records)
    while group := list(islice(source, ROW_GROUP)):
        yield group


def _time(record: LineageRecord) -> datetime:
    seconds, microseconds = divmod(record.at, 10**6)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
