"""Loading and unloading adapters while the server serves."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from turnout.adapters.paths import contained
from turnout.core.adapter import AdapterState
from turnout.core.engine import Engine
from turnout.core.identity import Digest
from turnout.registry.catalog import Catalog, Version

Read = Callable[[Path], AdapterState]
"""Reads and checks the adapter in a folder; raises AdapterError. Called on several threads at once."""

READERS = 4
"""Adapters read at the same time."""


class Lifecycle:
    """Brings adapters in and takes them out, so that a name is routable only while its weights are in the engine.

    Calls for one name take effect one after the other, in the order they came; those for different names at once.
    Files are read, hashed and checked on worker threads. A load that fails or is cancelled leaves nothing behind.

    Unloading refuses new requests at once and does not wait for running ones: they end on the weights they hold,
    which are freed with the last of them.

    Several names may mean one digest, which the engine holds once. `_lock` makes one step of asking whether anything
    needs a digest and unloading it; it is never held across a wait.
    """

    def __init__(self, engine: Engine, catalog: Catalog, read: Read, roots: tuple[Path, ...]) -> None:
        self._engine = engine
        self._catalog = catalog
        self._read = read
        self._roots = roots
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._lock = threading.Lock()
        self._arriving: list[Digest] = []
        self._workers = ThreadPoolExecutor(READERS, thread_name_prefix="turnout-adapters")

    async def load(self, name: str, path: Path, *, replace: bool = False) -> Version:
        """Read the adapter at `path`, which must lie under one of the roots, and make it routable as `name`.

        With `replace`, the name's live version is dropped in the same moment.
        Raises InvalidRequest, AdapterExists, AdapterPathNotFound, EngineStopped, or an AdapterError for what is
        wrong with the adapter.
        """
        async with self._turn(name):
            self._catalog.check_free(name, replace=replace)
            loop = asyncio.get_running_loop()
            folder, state = await loop.run_in_executor(self._workers, self._read_contained, path)
            with self._arrival(state.digest):
                await asyncio.wrap_future(self._engine.load(state))
                registration = self._catalog.register(name, state, str(folder), replace=replace)
            if registration.replaced is not None:
                with self._lock:
                    self._unload_unless_needed(registration.replaced.ref.digest)
            return registration.version

    def load_now(self, name: str, path: Path) -> Version:
        """`load` on the caller's thread, for start-up, before there is an event loop."""
        self._catalog.check_free(name, replace=False)
        folder, state = self._read_contained(path)
        with self._arrival(state.digest):
            self._engine.load(state).result()
            return self._catalog.register(name, state, str(folder), replace=False).version

    async def unload(self, name: str) -> Version:
        """Make `name` unknown; its weights go once no name and no running request needs them.

        Raises ModelNotFound, EngineStopped.
        """
        async with self._turn(name):
            with self._lock:
                version = self._catalog.unregister(name)
                self._unload_unless_needed(version.ref.digest)
            return version

    def close(self) -> None:
        """Let the worker threads end. Loads whose reading has not begun are cancelled."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _read_contained(self, path: Path) -> tuple[Path, AdapterState]:
        folder = contained(path, self._roots)
        return folder, self._read(folder)

    def _turn(self, name: str) -> asyncio.Lock:
        """The name's lock, which is forgotten when the last call that holds or awaits it has ended."""
        return self._turns.setdefault(name, asyncio.Lock())

    @contextmanager
    def _arrival(self, digest: Digest) -> Iterator[None]:
        """Keep a digest in the engine until a name refers to it, even if its last other name goes meanwhile."""
        with self._lock:
            self._arriving.append(digest)
        try:
            yield
        finally:
            with self._lock:
                self._arriving.remove(digest)
                self._unload_unless_needed(digest)

    def _unload_unless_needed(self, digest: Digest) -> None:
        if digest not in self._arriving and not self._catalog.refers_to(digest):
            self._engine.unload(digest)
