"""Loads that failed, remembered so that a broken adapter is not read again for every request."""

import copy
from dataclasses import dataclass

from turnout.core.errors import TurnoutError
from turnout.core.identity import Digest

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Failure:
    """The latest error, how many loads failed in a row, and when (`time.monotonic()`) the next one may begin."""

    error: TurnoutError
    times: int
    until: float


class Failures:
    """By digest. After each failure in a row the pause before the next load doubles, from 1 to 60 seconds."""

    def __init__(self) -> None:
        self._failures: dict[Digest, Failure] = {}

    def get(self, digest: Digest) -> Failure | None:
        """What is remembered of it."""
        return self._failures.get(digest)

    def note(self, digest: Digest, error: TurnoutError, now: float) -> None:
        """A load failed."""
        last = self._failures.get(digest)
        times = last.times + 1 if last else 1
        # 2**6 is beyond the longest pause already; more would overflow some day.
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(times - 1, 6))
        self._failures[digest] = Failure(bare(error), times, now + pause)

    def forget(self, digest: Digest) -> None:
        """A load succeeded, or no version has these weights any more."""
        self._failures.pop(digest, None)

    def raise_if_paused(self, digest: Digest, now: float) -> None:
        """Raise the remembered error while no new load may begin."""
        failure = self._failures.get(digest)
        if failure is not None and now < failure.until:
            raise bare(failure.error)


def bare(error: TurnoutError) -> TurnoutError:
    """A copy without its traceback and causes, whose frames may hold the memory of a whole adapter."""
    return copy.copy(error)
