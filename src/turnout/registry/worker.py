"""A thread that does one kind of work on the registry's database, beside those who serve."""

import logging
import threading
from collections.abc import Callable

import psycopg
from sqlalchemy.exc import SQLAlchemyError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""How long to wait when the database cannot be reached."""


class Worker:
    """Runs `work` whenever it was woken, at least `pause` seconds after the last time, and `every` so many seconds.

    While the database fails it says so once and tries again. `close` has the work done a last time.
    """

    def __init__(self, name: str, work: Callable[[], None], *, pause: float = 0.0, every: float | None = None) -> None:
        """`name` says what the work is, for the log."""
        self._name = name
        self._work = work
        self._pause = pause
        self._every = every
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=f"turnout-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Have the work done soon; never waits."""
        self._woken.set()

    def close(self) -> None:
        """Have the work done once more, and end the thread. More than once is fine."""
        self._closing.set()
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._woken.wait(self._every)
            # Cleared before the work, so that what comes while it runs wakes it again.
            self._woken.clear()
            if self._attempt():
                self._closing.wait(self._pause)
            else:
                self._woken.set()
                self._closing.wait(RETRY_SECONDS)
        self._attempt()

    def _attempt(self) -> bool:
        try:
            self._work()
        except (psycopg.Error, SQLAlchemyError) as error:
            if not self._failing:
                logger.warning("%s: the registry's database fails, so this waits: %s", self._name, error)
            self._failing = True
        else:
            self._failing = False
        return not self._failing
