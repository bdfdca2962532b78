"""Keeping authorisation failures in the audit, however many there are."""

import logging
import threading
from dataclasses import dataclass

from turnout.registry import audit
from turnout.registry.database import Database, now
from turnout.registry.worker import Worker

logger = logging.getLogger(__name__)

ACTION = "authorization.failure"

BATCH_SECONDS = 1.0
"""Failures of this time become one transaction, and repeats one entry."""

MAX_DISTINCT = 256
"""Failures told apart in a batch. Of further ones the audit says how many there were, and no more."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Who was refused what. `what` is one of our own phrases, such as "expired key" or "scope admin is missing".

    Nothing that a caller can make up goes in here, so that a flood of failures is a flood of the same few.
    """

    what: str
    key_prefix: str | None = None
    tenant: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class _Tally:
    """How often, and when for the first and the last time."""

    count: int
    first: int
    last: int


_OTHERS = Failure("various, too many to tell apart")


class FailureLog:
    """Takes failures from any thread without waiting for the database, and writes them to the audit."""

    def __init__(self, database: Database, *, batch_seconds: float = BATCH_SECONDS) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._tallies: dict[Failure, _Tally] = {}
        self._worker = Worker("authorization failures", self._write, pause=batch_seconds)

    def record(self, failure: Failure) -> None:
        """Have this kept."""
        at = now()
        with self._lock:
            _add(self._tallies, failure, _Tally(1, at, at))
        self._worker.wake()

    def close(self) -> None:
        """Write what is left; call it when no more failures come."""
        self._worker.close()
        lost = sum(tally.count for tally in self._tallies.values())
        if lost:
            logger.error(
                "the audit lacks %d authorization failures: the registry's database could not be reached", lost
            )

    def _write(self) -> None:
        with self._lock:
            batch, self._tallies = self._tallies, {}
        if not batch:
            return
        try:
            with self._database.write("server") as write:
                for failure, tally in batch.items():
                    audit.record(
                        write,
                        ACTION,
                        failure.tenant,
                        failure.key_prefix or "no key",
                        what=failure.what,
                        address=failure.address,
                        count=tally.count,
                        first=tally.first,
                        last=tally.last,
                    )
        except BaseException:
            self._put_back(batch)
            raise

    def _put_back(self, batch: dict[Failure, _Tally]) -> None:
        with self._lock:
            for failure, tally in self._tallies.items():
                _add(batch, failure, tally)
            self._tallies = batch


def _add(tallies: dict[Failure, _Tally], failure: Failure, more: _Tally) -> None:
    if failure not in tallies and len(tallies) >= MAX_DISTINCT:
        failure = _OTHERS
    so_far = tallies.get(failure, _Tally(0, more.first, more.last))
    tallies[failure] = _Tally(so_far.count + more.count, so_far.first, more.last)
