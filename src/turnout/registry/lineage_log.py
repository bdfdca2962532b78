"""Keeping lineage records, and for no longer than asked, beside serving."""

import logging
import threading
from collections.abc import Sequence

from sqlalchemy import insert
from sqlalchemy.exc import DataError, IntegrityError

from turnout.registry import tables
from turnout.registry.database import Database, now
from turnout.registry.lineage import LineageRecord, columns, expire_some
from turnout.registry.worker import Worker

logger = logging.getLogger(__name__)

CAPACITY = 10_000
"""Records that wait while the database cannot be reached."""

BATCH_SECONDS = 0.1
"""Records of this time become one transaction."""

BATCH_ROWS = 500

RETENTION_SECONDS = 600.0
"""How often it is looked for records that are too old."""


class LineageLog:
    """Takes records from any thread without waiting for the database, and inserts them in batches.

    They stay queued until the database has said that it has them, so a connection lost at that moment makes two of one.
    A record that finds no room, because the database has been away for long, is dropped; the log tells how many were.
    """

    def __init__(self, database: Database, *, capacity: int = CAPACITY) -> None:
        self._database = database
        self._capacity = capacity
        self._lock = threading.Lock()
        self._waiting: list[LineageRecord] = []
        self._dropped = 0
        self._told = 0
        self._worker = Worker("lineage", self._write, pause=BATCH_SECONDS)

    @property
    def dropped(self) -> int:
        """How many records are lost."""
        return self._dropped

    def put(self, record: LineageRecord) -> None:
        """Have this kept; never waits for the database."""
        with self._lock:
            fits = len(self._waiting) < self._capacity
            if fits:
                self._waiting.append(record)
            else:
                self._dropped += 1
            first_lost = self._dropped == self._told + 1
        if fits:
            self._worker.wake()
        elif first_lost:
            logger.error("lineage: %d records wait for the registry's database; further ones are lost", self._capacity)

    def close(self) -> None:
        """Write what is left; call it when no more records come."""
        self._worker.close()
        self._dropped += len(self._waiting)
        self._tell_dropped()

    def _write(self) -> None:
        while batch := self._next():
            refused = self._insert(batch)
            with self._lock:
                del self._waiting[: len(batch)]
                self._dropped += refused
            self._tell_dropped()

    def _next(self) -> list[LineageRecord]:
        with self._lock:
            return self._waiting[:BATCH_ROWS]

    def _insert(self, batch: Sequence[LineageRecord]) -> int:
        """Insert these; returns how many the database does not take, whatever is tried."""
        try:
            with self._database.append() as connection:
                connection.execute(insert(tables.lineage), [columns(record) for record in batch])
        except (DataError, IntegrityError) as error:
            if len(batch) == 1:
                # Without the statement, which has the whole record in it.
                why = type(error.orig).__name__
                logger.error("lineage: the database refuses the record of %s: %s", batch[0].request_id, why)  # noqa: TRY400
                return 1
            # One bad record must not hold up the others.
            return sum(self._insert([record]) for record in batch)
        return 0

    def _tell_dropped(self) -> None:
        with self._lock:
            new, self._told = self._dropped - self._told, self._dropped
        if new:
            logger.error("lineage: %d records are lost", new)


class Retention:
    """Deletes lineage records that are older than `keep` microseconds, from now on and until it is closed."""

    def __init__(self, database: Database, keep: int) -> None:
        self._database = database
        self._keep = keep
        self._worker = Worker("lineage retention", self._work, every=RETENTION_SECONDS)
        self._worker.wake()

    def close(self) -> None:
        """Stop; at most one batch of deletions is waited for."""
        self._worker.close()

    def _work(self) -> None:
        if expire_some(self._database, now() - self._keep):
            self._worker.wake()
