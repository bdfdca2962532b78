"""Versions' weights: into the engine when they are asked for, and out when no version has them any more."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

from turnout.core.adapter import AdapterState
from turnout.core.engine import Engine
from turnout.core.errors import ArtifactCorrupt, EngineStopped
from turnout.core.identity import Digest, VersionRef

READERS = 4
"""Adapters read at the same time."""


class Weights:
    """Knows which digests are in the engine, or on their way.

    `read` gives a version's weights, or raises; it is called on threads of its own. `is_live`: whether any version
    has a digest. A digest is in the engine once, whoever shares it, and stays for as long as it is live.
    """

    def __init__(
        self, engine: Engine, read: Callable[[VersionRef], AdapterState], is_live: Callable[[Digest], bool]
    ) -> None:
        self._engine = engine
        self._read = read
        self._is_live = is_live
        # Never held across a wait: it makes one step of asking whether a digest is needed and unloading it.
        self._lock = threading.Lock()
        self._loads: dict[Digest, Future[None]] = {}
        self._arriving: Counter[Digest] = Counter()
        self._workers = ThreadPoolExecutor(READERS, thread_name_prefix="turnout-adapters")

    async def ensure(self, version: VersionRef) -> None:
        """Return when requests for this version may be submitted; many may wait for one at once.

        Raises what `read` raises, EngineStopped, AdapterTooLarge.
        """
        if version.is_base:
            return
        with self._lock:
            load = self._loads.get(version.digest)
            if load is None:
                load = self._loads[version.digest] = self._workers.submit(self._load, version)
                load.add_done_callback(lambda ended: self._ended(version.digest, ended))
        if not load.done() or load.exception() is not None:
            # Whoever gives up waiting takes nothing from the others.
            await asyncio.shield(asyncio.wrap_future(load))

    @contextmanager
    def arriving(self, state: AdapterState) -> Iterator[None]:
        """Have the engine hold these weights, live or not, until the block ends.

        Raises AdapterTooLarge, EngineStopped.
        """
        with self._lock:
            self._arriving[state.digest] += 1
        try:
            self._engine.load(state).result()
            loaded: Future[None] = Future()
            loaded.set_result(None)
            with self._lock:
                self._loads.setdefault(state.digest, loaded)
            yield
        finally:
            with self._lock:
                self._arriving[state.digest] -= 1
            self.settle()

    def settle(self) -> None:
        """Unload what is no longer live; running requests end on the weights they hold."""
        # An engine that has stopped holds nothing any more.
        with self._lock, suppress(EngineStopped):
            for digest in [digest for digest, load in self._loads.items() if load.done()]:
                if not self._arriving[digest] and not self._is_live(digest):
                    del self._loads[digest]
                    self._engine.unload(digest)

    def close(self) -> None:
        """Let the threads end. Loads that have not begun are cancelled."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _load(self, version: VersionRef) -> None:
        state = self._read(version)
        if state.digest != version.digest:
            raise ArtifactCorrupt(f"the weights of {version} are {state.digest}, and should be {version.digest}")
        self._engine.load(state).result()

    def _ended(self, digest: Digest, load: "Future[None]") -> None:
        if load.cancelled() or load.exception() is not None:
            with self._lock:
                if self._loads.get(digest) is load:
                    del self._loads[digest]
        # It may have been deleted while it was on its way.
        self.settle()
