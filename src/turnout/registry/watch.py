"""Noticing that the registry has changed, whoever changed it."""

import logging
import threading
from collections.abc import Callable

import psycopg
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from turnout.registry.database import CHANNEL, Database, revision

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.25
"""How often SQLite is asked; and how soon a watcher of either kind ends."""

RETRY_SECONDS = 1.0
"""How long to wait when the database cannot be reached."""


class Watcher:
    """Calls `on_change` on a thread of its own, soon after every change that others or this process commit.

    PostgreSQL tells of changes; SQLite is asked. While the database cannot be reached, it says so once and tries again.
    """

    def __init__(self, database: Database, seen: int, on_change: Callable[[], None]) -> None:
        """`seen`: the revision that the caller knows already."""
        self._database = database
        self._seen = seen
        self._on_change = on_change
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turnout-registry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; no call comes after this returns."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        watch = self._listen if self._database.engine.name == "postgresql" else self._poll
        reachable = True
        while not self._stop.is_set():
            try:
                watch()
            except (psycopg.Error, SQLAlchemyError) as error:
                if reachable:
                    logger.warning("the registry cannot be reached, so its changes are not seen: %s", error)
                reachable = False
                self._stop.wait(RETRY_SECONDS)
            else:
                reachable = True

    def _poll(self) -> None:
        self._look()
        self._stop.wait(POLL_SECONDS)

    def _listen(self) -> None:
        url = make_url(self._database.engine.url).set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            while not self._stop.is_set():
                # Also once at first: something may have changed before it listened.
                self._look()
                for _ in connection.notifies(timeout=POLL_SECONDS, stop_after=1):
                    pass

    def _look(self) -> None:
        with self._database.read() as connection:
            current = revision(connection)
        if current != self._seen:
            self._on_change()
            self._seen = current
