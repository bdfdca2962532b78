"""Brings weights into RAM and the engine when they are asked for, and lets them go when others need the room."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Literal

from turnout.core.adapter import AdapterState, Dtype, Weights, buffer_bytes, empty_buffer
from turnout.core.engine import Engine
from turnout.core.errors import (
    AdapterInUse,
    AdapterNotResident,
    AdapterPinned,
    AdapterTooLarge,
    ArtifactCorrupt,
    EngineStopped,
    LoadCancelled,
    Overloaded,
    TurnoutError,
)
from turnout.core.identity import Digest, VersionRef
from turnout.core.tiers import Move, Observer, Reason, Tier, Use, ignore
from turnout.tiers.arrival import Arrival
from turnout.tiers.entry import Entry
from turnout.tiers.failures import Failure, Failures, bare
from turnout.tiers.lease import Lease
from turnout.tiers.shelf import Shelf
from turnout.tiers.source import Source

logger = logging.getLogger(__name__)

Swap = Literal["warm", "hot", "cold"]
"""What may be in RAM: as many as there is room for; those kept, and no others; one at a time."""

READERS = 4
"""Adapters read at the same time."""

NO_DIGEST = Digest("")


class Tiers:
    """Knows every digest that is in RAM, comes there or leaves it, and promises those in use to their requests.

    A digest is read once, however many ask for it and whoever shares it. Weights stay until others need the room, and
    those of no version any more go at once; never while a request has a lease on them. `is_live`: whether any version
    has a digest. From any thread.
    """

    def __init__(
        self,
        engine: Engine,
        source: Source,
        is_live: Callable[[Digest], bool],
        *,
        warm_memory: int,
        swap: Swap = "warm",
        max_waiting: int = 1024,
        moved: Observer = ignore,
        used: Callable[[Use], None] = ignore,
    ) -> None:
        """`warm_memory` is in bytes; `max_waiting` bounds the requests that wait for loads."""
        self._engine = engine
        self._source = source
        self._is_live = is_live
        self._swap = swap
        self._max_waiting = max_waiting
        self._moved = moved
        self._used = used
        # Guards all below, and is never held across a wait for anything but itself.
        self._changed = threading.Condition()
        self._shelf = Shelf(warm_memory, single=swap == "cold")
        self._failures = Failures()
        self._for_room: deque[Entry] = deque()
        self._waiting = 0
        self._closed = False
        self._workers = ThreadPoolExecutor(READERS, thread_name_prefix="turnout-adapters")

    async def lease(self, version: VersionRef) -> Lease:
        """The promise that requests for this version may be submitted until it ends; brings the weights if need be.

        Raises Overloaded, EngineStopped, AdapterNotResident, AdapterTooLarge, and what reading raises; while an
        adapter that could not be read is not tried again, its last error.
        """
        if version.is_base:
            return Lease(lambda: None)
        began = time.monotonic()
        while True:
            with self._changed:
                entry = self._entry(version, "request")
                if entry.state == "warm":
                    self._tell_use(entry, "warm", began)
                    return self._lease(entry, began)
                if self._waiting >= self._max_waiting:
                    raise Overloaded(f"{self._waiting} requests wait for adapters; try again in a second")
                lease = None if entry.state == "leaving" else self._lease(entry, began)
                self._waiting += 1
            try:
                await asyncio.wrap_future(entry.left if lease is None else entry.done)
            except BaseException:
                if lease is not None:
                    lease.end()
                raise
            finally:
                with self._changed:
                    self._waiting -= 1
            if lease is not None:
                self._tell_use(entry, entry.found, began)
                return lease

    def bring(self, version: VersionRef, reason: Reason = "asked") -> "Future[None]":
        """Load a version though no request asks; done when it is in the engine. Raises as `lease` does."""
        with self._changed:
            entry = self._entry(version, reason)
            entry.wanted = True
            return entry.done

    def evict(self, version: VersionRef) -> "Future[None]":
        """Let a version's weights go; done when the engine has freed them. What is not in RAM is done at once.

        Raises AdapterInUse while requests run on them, AdapterPinned if they are kept.
        """
        with self._changed:
            entry = self._shelf.get(version.digest)
            if entry is None:
                gone: Future[None] = Future()
                gone.set_result(None)
                return gone
            if entry.digest in self._shelf.kept:
                raise AdapterPinned(f"{version} is pinned, so it stays; unpin it first")
            if entry.leases or entry.state == "loading":
                raise AdapterInUse(f"{version} is in use by {entry.leases} requests or being loaded; try again later")
            if entry.state == "warm":
                self._leave(entry, "asked")
            return entry.left

    def keep(self, versions: Sequence[VersionRef]) -> None:
        """Have these stay in RAM, and brought there now; those kept before and not named are as any other."""
        with self._changed:
            self._shelf.kept = frozenset(version.digest for version in versions)
            for version in versions:
                if self._shelf.get(version.digest) is None:
                    self._begin(version, "asked").wanted = True

    @contextmanager
    def arrival(self) -> Iterator[Arrival]:
        """Take in weights that no version has yet. They stay until the block ends, and then if a version has them.

        What is used in the block blocks its thread.
        """
        entry = Entry(NO_DIGEST, "asked", time.monotonic(), wanted=True)
        leases: list[Lease] = []
        try:
            yield Arrival(partial(self._allocate, entry), lambda state: leases.append(self._enter(entry, state)))
        finally:
            for lease in leases:
                lease.end()
            with self._changed:
                # What became of it is among the others now; what did not is in nobody's way any more.
                if self._shelf.get(entry.digest) is not entry and entry.state == "loading":
                    self._shelf.give_back(entry)
                    self._changed.notify_all()

    def settle(self) -> None:
        """Let go what no version has any more; running requests end on the weights they hold."""
        with self._changed:
            for entry in self._shelf:
                if entry.idle:
                    self._leave_if_gone(entry)

    @property
    def used(self) -> int:
        """Bytes of warm memory that are taken."""
        with self._changed:
            return self._shelf.used

    def failure(self, digest: Digest) -> Failure | None:
        """The latest load of this digest, if it failed."""
        with self._changed:
            return self._failures.get(digest)

    def check(self) -> None:
        """Raise AssertionError unless the books agree with each other."""
        with self._changed:
            self._shelf.check()

    def entries(self) -> tuple[Entry, ...]:
        """What there is in RAM or on its way."""
        with self._changed:
            return tuple(self._shelf)

    def close(self) -> None:
        """Let the threads end; loads that have not ended fail with EngineStopped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _entry(self, version: VersionRef, reason: Reason) -> Entry:
        entry = self._shelf.get(version.digest)
        if entry is not None:
            return entry
        if self._closed:
            raise EngineStopped("the server is shutting down")
        if self._swap == "hot" and version.digest not in self._shelf.kept:
            raise AdapterNotResident(
                f"{version} is not in the set of adapters that this server keeps (--swap hot); pin the adapter, or "
                "ask a server that swaps",
                param="model",
            )
        self._failures.raise_if_paused(version.digest, time.monotonic())
        return self._begin(version, reason)

    def _begin(self, version: VersionRef, reason: Reason) -> Entry:
        entry = Entry(version.digest, reason, time.monotonic())
        self._shelf.add(entry)
        self._workers.submit(self._load, entry, version).add_done_callback(partial(self._not_begun, entry))
        return entry

    def _lease(self, entry: Entry, now: float) -> Lease:
        entry.leases += 1
        entry.last_use = now
        return Lease(partial(self._end, entry))

    def _load(self, entry: Entry, version: VersionRef) -> None:
        began = time.monotonic()
        try:
            self._into_engine(entry, version)
        except TurnoutError as error:
            self._failed(entry, bare(error))
        except Exception:
            logger.exception("loading %s failed", version)
            self._failed(entry, TurnoutError(f"loading {version} failed unexpectedly; the server's log says how"))
        else:
            self._arrived(entry, time.monotonic() - began)

    def _into_engine(self, entry: Entry, version: VersionRef) -> None:
        self._proceed(entry)
        entry.found = self._source.tier(version)
        state = self._source.read(version, partial(self._allocate, entry), partial(self._proceed, entry))
        if state.digest != version.digest:
            raise ArtifactCorrupt(f"the weights of {version} are {state.digest}, and should be {version.digest}")
        self._engine.load(state).result()

    def _not_begun(self, entry: Entry, load: "Future[None]") -> None:
        if load.cancelled():
            self._failed(entry, EngineStopped("the server is shutting down"))

    def _arrived(self, entry: Entry, seconds: float) -> None:
        with self._changed:
            entry.state = "warm"
            entry.reload_seconds = seconds
            self._failures.forget(entry.digest)
            self._leave_if_gone(entry)
            self._changed.notify_all()
        self._moved(Move(entry.digest, entry.found, "warm", entry.nbytes, seconds, entry.reason))
        entry.done.set_result(None)

    def _failed(self, entry: Entry, error: TurnoutError) -> None:
        with self._changed:
            self._shelf.drop(entry)
            self._shelf.give_back(entry)
            # How large it is costs little to find out, and what room there is may change.
            if not isinstance(error, LoadCancelled | EngineStopped | AdapterTooLarge):
                self._failures.note(entry.digest, error, time.monotonic())
            self._changed.notify_all()
        if entry.wanted and not self._closed:
            logger.warning("the adapter %s could not be loaded: %s", entry.digest, error)
        entry.done.set_exception(error)

    def _proceed(self, entry: Entry) -> None:
        with self._changed:
            self._raise_if_unwanted(entry)

    def _raise_if_unwanted(self, entry: Entry) -> None:
        if self._closed:
            raise EngineStopped("the server is shutting down")
        if entry.leases == 0 and not entry.wanted:
            # From here on it cannot be found: whoever asks next begins anew.
            entry.state = "cancelled"
            self._shelf.drop(entry)
            raise LoadCancelled("nobody waits for this load any more")

    def _allocate(self, entry: Entry, elements: int, dtype: Dtype) -> Weights:
        nbytes = buffer_bytes(elements, dtype)
        with self._changed:
            self._for_room.append(entry)
            try:
                # In the order they came, so that a large one is not passed over by small ones for ever.
                while not (self._for_room[0] is entry and self._make_room(nbytes)):
                    self._changed.wait()
                    self._raise_if_unwanted(entry)
                self._shelf.take(entry, nbytes)
            finally:
                self._for_room.remove(entry)
                self._changed.notify_all()
        return empty_buffer(elements, dtype)

    def _make_room(self, nbytes: int) -> bool:
        """Whether there is room; if not, as many are told to leave as it takes, and some may be in use still."""
        if nbytes > self._shelf.most():
            raise AdapterTooLarge(
                f"the adapter takes {nbytes} bytes, and of the {self._shelf.budget} of --warm-memory those that are "
                f"pinned leave {self._shelf.most()}; start with more, or pin fewer"
            )
        evictable = sorted(self._shelf.evictable(), key=lambda entry: entry.last_use, reverse=True)
        while self._shelf.coming() < nbytes and evictable:
            self._leave(evictable.pop(), "room")
        return self._shelf.room() >= nbytes

    def _end(self, entry: Entry) -> None:
        with self._changed:
            entry.leases -= 1
            if entry.leases == 0:
                self._leave_if_gone(entry)
                self._changed.notify_all()

    def _leave_if_gone(self, entry: Entry) -> None:
        if entry.idle and not self._is_live(entry.digest):
            self._leave(entry, "gone")

    def _leave(self, entry: Entry, reason: Reason) -> None:
        self._shelf.leave(entry)
        began = time.monotonic()
        try:
            freed = self._engine.unload(entry.digest)
        except EngineStopped:
            self._left(entry, reason, began)  # it holds nothing any more
            return
        freed.add_done_callback(lambda _: self._left(entry, reason, began))

    def _left(self, entry: Entry, reason: Reason, began: float) -> None:
        nbytes = entry.nbytes
        with self._changed:
            self._shelf.give_back(entry)
            self._shelf.drop(entry)
            self._changed.notify_all()
        self._moved(Move(entry.digest, "warm", "cold", nbytes, time.monotonic() - began, reason))
        entry.left.set_result(None)

    def _enter(self, entry: Entry, state: AdapterState) -> Lease:
        while True:
            with self._changed:
                known = self._shelf.get(state.digest)
                if known is None:
                    entry.digest = state.digest
                    self._shelf.add(entry)
                    lease = self._lease(entry, time.monotonic())
                    break
                if known.state != "leaving":
                    return self._lease(known, time.monotonic())
            known.left.result()
        try:
            self._engine.load(state).result()
        except TurnoutError as error:
            self._failed(entry, bare(error))
            raise
        self._arrived(entry, 0.0)
        return lease

    def _tell_use(self, entry: Entry, found: Tier, began: float) -> None:
        self._used(Use(entry.digest, found, time.monotonic() - began))
