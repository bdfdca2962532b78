"""From the engine's thread to the event loop, with one wake-up for however many events a step brings."""

import asyncio
from collections import deque

from turnout.core.engine import Listener
from turnout.core.events import Event

Delivery = tuple[int, Event]
"""Which of a mailbox's requests an event is about, and the event."""


class Mailbox:
    """Deliveries for one reader. Lives on the event loop."""

    def __init__(self) -> None:
        self._deliveries: list[Delivery] = []
        self._filled = asyncio.Event()

    def put(self, delivery: Delivery) -> None:
        """Add one and wake the reader."""
        self._deliveries.append(delivery)
        self._filled.set()

    async def take(self) -> list[Delivery]:
        """All there are, in order; waits for the first."""
        await self._filled.wait()
        self._filled.clear()
        taken, self._deliveries = self._deliveries, []
        return taken


class EventBridge:
    """Hands events to a server's event loop. Its listeners are called from the engine's thread alone."""

    def __init__(self) -> None:
        self._crossing: deque[tuple[Mailbox, Delivery]] = deque()
        self._wake_is_due = False

    def listener(self, mailbox: Mailbox, index: int) -> Listener:
        """A listener that delivers to `mailbox` under `index`; asked for on the loop."""
        loop = asyncio.get_running_loop()

        def listen(event: Event) -> None:
            self._crossing.append((mailbox, (index, event)))
            if not self._wake_is_due:
                self._wake_is_due = True
                loop.call_soon_threadsafe(self._arrive)

        return listen

    def _arrive(self) -> None:
        # Cleared before reading: an event that comes in between wakes the loop once more, and finds nothing or itself.
        self._wake_is_due = False
        while self._crossing:
            mailbox, delivery = self._crossing.popleft()
            mailbox.put(delivery)
