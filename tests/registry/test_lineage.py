"""Lineage: kept beside serving, found by request, exported, expired; nothing lost in silence."""

import io
import json
import sys
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import insert

from tests.registry.away import away, until, wait_for
from turnout.core.errors import SettingsError
from turnout.core.identity import Digest
from turnout.registry import lineage, tables, worker
from turnout.registry.database import Database, now
from turnout.registry.lineage import LineageRecord
from turnout.registry.lineage_files import as_json, to_jsonl, to_parquet
from turnout.registry.lineage_log import LineageLog, Retention

RECORD = LineageRecord(
    request_id="req-1",
    at=1_700_000_000_000_001,
    tenant="default",
    key_prefix="0123456789ab",
    owner="acme",
    adapter="légal/de",
    number=3,
    digest=Digest("sha256:" + "d" * 64),
    model_revision=Digest("sha256:" + "a" * 64),
    tokenizer_revision=Digest("sha256:" + "b" * 64),
    reason="model in the body",
    outcome="stop",
    prompt_tokens=12,
    completion_tokens=34,
    timings={"queue": 0.25, "decode": 12.5},
)
BASE = replace(RECORD, key_prefix=None, owner=None, adapter="base", number=0, prompt="a \x00, an é and a \U0001f600\n")
# What the database takes from nobody: a column that must hold something holds nothing.
BAD = replace(RECORD, request_id="bad", adapter=None)  # type: ignore[arg-type]


def many(count: int, **changes: Any) -> list[LineageRecord]:
    return [replace(RECORD, request_id=f"req-{number}", at=number, **changes) for number in range(count)]


def store(database: Database, records: list[LineageRecord]) -> None:
    with database.append() as connection:
        connection.execute(insert(tables.lineage), [lineage.columns(record) for record in records])


def everything(database: Database, **which: Any) -> list[LineageRecord]:
    with database.read() as connection:
        return list(lineage.export(connection, **which))


def test_a_request_id_leads_to_the_exact_weights(database: Database) -> None:
    with closing(LineageLog(database)) as log:
        log.put(RECORD)
        log.put(BASE)
    with database.read() as connection:
        # Clients chose one id twice: the newer is found first.
        assert lineage.find(connection, "req-1") == [BASE, RECORD]
        assert lineage.find(connection, "req-1", tenant="default") == [BASE, RECORD]
        assert lineage.find(connection, "req-1", tenant="acme") == []
        assert lineage.find(connection, "req-2") == []


def test_a_record_is_there_without_closing_the_log(database: Database) -> None:
    with closing(LineageLog(database)) as log:
        for record in (RECORD, BASE):
            log.put(record)
            until(lambda record=record: record in everything(database))  # type: ignore[misc]


def test_records_of_many_threads_are_all_kept(database: Database) -> None:
    def work(worker: int) -> None:
        for number in range(200):
            log.put(replace(RECORD, request_id=f"{worker}-{number}"))

    with closing(LineageLog(database)) as log:
        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {record.request_id for record in everything(database)} == {f"{w}-{n}" for w in range(8) for n in range(200)}
    assert log.dropped == 0


def test_records_wait_for_a_database_that_fails_and_what_finds_no_room_is_counted(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.01)
    records = many(15)
    with closing(LineageLog(database, capacity=10)) as log:
        with away(database, "lineage"):
            log.put(records[0])
            wait_for(caplog, "lineage: the registry's database fails")
            for record in records[1:]:
                log.put(record)
            assert log.dropped == 5
            assert caplog.text.count("10 records wait for the registry's database; further ones are lost") == 1
        wait_for(caplog, "5 records are lost")
        log.put(BASE)
    assert everything(database) == [*records[:10], BASE]
    assert log.dropped == 5


def test_a_record_that_had_to_wait_needs_no_other_to_be_kept(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.01)
    with closing(LineageLog(database)) as log:
        with away(database, "lineage"):
            log.put(RECORD)
            wait_for(caplog, "lineage: the registry's database fails")
        until(lambda: everything(database) == [RECORD])


def test_records_that_cannot_be_kept_are_counted_at_the_end(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    log = LineageLog(database)
    with away(database, "lineage"):
        for record in many(3):
            log.put(record)
        log.close()
    assert log.dropped == 3
    assert "3 records are lost" in caplog.text


def test_a_record_that_the_database_refuses_does_not_hold_up_others(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(LineageLog(database)) as log, database.write("tester"):
        # On SQLite, meanwhile they come together; on PostgreSQL as they please.
        for record in (RECORD, BAD, BASE):
            log.put(record)
    assert sorted(everything(database), key=lambda record: record.number) == [BASE, RECORD]
    assert log.dropped == 1
    assert "refuses the record of bad" in caplog.text


def test_an_export_is_by_time_and_of_what_was_asked_for(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "EXPORT_ROWS", 7)
    records = many(50)
    other = many(20, tenant="acme", digest=Digest("sha256:" + "e" * 64))
    store(database, records[::-1] + other)
    assert everything(database, tenant="default") == records
    assert everything(database, digest=other[0].digest) == other
    assert everything(database, since=10, until=20, tenant="acme") == other[10:20]
    assert [record.at for record in everything(database)] == sorted([*range(50), *range(20)])


def test_json_lines_hold_every_field() -> None:
    file = io.StringIO()
    assert to_jsonl(iter([RECORD, BASE]), file) == 2
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert lines == [as_json(RECORD), as_json(BASE)]
    assert set(lines[0]) == set(LineageRecord.__dataclass_fields__)
    assert lines[0]["at"] == "2023-11-14T22:13:20.000001Z"
    assert lines[1]["prompt"] == BASE.prompt


def test_a_parquet_file_holds_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.registry.lineage_files.ROW_GROUP", 2)
    file = io.BytesIO()
    assert to_parquet(iter([RECORD, BASE, RECORD]), file) == 3
    read = pq.ParquetFile(file)
    assert read.num_row_groups == 2
    rows = read.read().to_pylist(maps_as_pydicts="strict")
    at = datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)
    assert rows == [{**lineage.columns(record), "at": at} for record in (RECORD, BASE, RECORD)]


def test_nothing_exported_is_an_empty_file_of_the_same_form() -> None:
    file = io.BytesIO()
    assert to_parquet([], file) == 0
    assert pq.read_table(file).column_names == list(LineageRecord.__dataclass_fields__)


def test_without_pyarrow_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SettingsError, match=r"pip install 'turnout\[parquet\]'"):
        to_parquet([RECORD], io.BytesIO())


def test_expiry_deletes_what_is_older_and_nothing_else(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "EXPIRE_ROWS", 7)
    records = many(50)
    store(database, records)
    assert lineage.expire(database, 30) == 30
    assert everything(database) == records[30:]
    assert lineage.expire(database, 30) == 0


def test_retention_deletes_by_itself(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "EXPIRE_ROWS", 7)
    young = replace(RECORD, at=now())
    store(database, [*many(50), young])
    with closing(Retention(database, keep=3600 * 10**6)):
        until(lambda: everything(database) == [young])
