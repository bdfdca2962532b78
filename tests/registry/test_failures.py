"""Authorisation failures in the audit: folded, none lost, nobody held up."""

import threading
from collections import Counter
from contextlib import closing

import pytest

from tests.registry.away import away, until, wait_for
from turnout.registry import audit, failures, worker
from turnout.registry.audit import AuditEntry
from turnout.registry.database import Database, now, revision
from turnout.registry.failures import MAX_DISTINCT, Failure, FailureLog

EXPIRED = Failure("expired key", "0123456789ab", "default", "192.0.2.1")
UNKNOWN = Failure("unknown key", address="192.0.2.2")


def entries(database: Database) -> list[AuditEntry]:
    with database.read() as connection:
        assert list(audit.verify(connection)) == []
        return audit.entries(connection)


def counts(database: Database) -> Counter[tuple[str, str, str | None]]:
    found: Counter[tuple[str, str, str | None]] = Counter()
    for entry in entries(database):
        found[entry.subject, entry.detail["what"], entry.detail["address"]] += entry.detail["count"]
    return found


def test_an_entry_says_who_was_refused_what_and_how_often(database: Database) -> None:
    before = now()
    with closing(FailureLog(database)) as log:
        log.record(EXPIRED)
    (entry,) = entries(database)
    assert (entry.actor, entry.action, entry.tenant) == ("server", "authorization.failure", "default")
    assert entry.subject == "0123456789ab"
    first, last = entry.detail["first"], entry.detail["last"]
    assert entry.detail == {"what": "expired key", "address": "192.0.2.1", "count": 1, "first": first, "last": last}
    assert before <= first == last <= entry.at


def test_repeats_of_a_batch_are_one_entry_and_none_is_lost(database: Database) -> None:
    # The first failure is a batch, all after it are the next one at the latest: it is not written before `close`.
    with closing(FailureLog(database, batch_seconds=3600)) as log:
        threads = [
            threading.Thread(target=lambda: [log.record(failure) for _ in range(200) for failure in (EXPIRED, UNKNOWN)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts(database) == {
        ("0123456789ab", "expired key", "192.0.2.1"): 800,
        ("no key", "unknown key", "192.0.2.2"): 800,
    }
    assert len(entries(database)) <= 4
    with database.read() as connection:
        assert revision(connection) == 1, "failures are no reason for servers to look again"


def test_a_flood_from_everywhere_makes_a_bounded_batch(database: Database) -> None:
    with closing(FailureLog(database, batch_seconds=3600)) as log:
        for number in range(3 * MAX_DISTINCT):
            log.record(Failure("unknown key", address=f"2001:db8::{number:x}"))
    found = counts(database)
    assert found.total() == 3 * MAX_DISTINCT
    assert len(found) <= 2 * (MAX_DISTINCT + 1)
    assert found["no key", "various, too many to tell apart", None] >= MAX_DISTINCT - 1


def test_whoever_is_refused_does_not_wait_for_writers(database: Database) -> None:
    log = FailureLog(database)
    with database.write("tester"):
        for _ in range(100):
            log.record(EXPIRED)
    log.close()
    assert counts(database).total() == 100


def test_failures_wait_for_a_database_that_fails(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(failures, "MAX_DISTINCT", 2)
    log = FailureLog(database, batch_seconds=0)
    with away(database, "audit"):
        log.record(EXPIRED)
        wait_for(caplog, "authorization failures: the registry's database fails")
        for number in range(10):
            log.record(EXPIRED)
            log.record(Failure("unknown key", address=f"192.0.2.{number}"))
    log.close()
    found = counts(database)
    assert found.total() == 21
    assert found["0123456789ab", "expired key", "192.0.2.1"] == 11
    assert caplog.text.count("database fails") == 1
    assert "lacks" not in caplog.text


def test_failures_that_come_while_a_batch_fails_are_added_to_it(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.01)
    with closing(FailureLog(database, batch_seconds=0)) as log:
        with database.write("tester") as write:
            log.record(EXPIRED)
            until(lambda: not log._tallies)  # it is on its way, and waits for its turn
            for _ in range(5):
                log.record(EXPIRED)
            write.connection.exec_driver_sql("ALTER TABLE audit RENAME TO away")
        wait_for(caplog, "authorization failures: the registry's database fails")
        with database.append() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO audit")
    (entry,) = entries(database)
    assert entry.detail["count"] == 6


def test_failures_that_cannot_be_kept_are_counted_at_the_end(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    log = FailureLog(database)
    with away(database, "audit"):
        for _ in range(3):
            log.record(EXPIRED)
        log.close()
    assert "the audit lacks 3 authorization failures" in caplog.text
    assert entries(database) == []
