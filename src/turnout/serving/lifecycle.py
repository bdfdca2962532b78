"""Loading and unloading adapters of this machine by name and folder, as vLLM's users do; the default tenant's."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from turnout.adapters.files import adapter_folder
from turnout.adapters.paths import contained
from turnout.artifacts.adapter_files import adapter_files
from turnout.core.errors import AdapterExists, AdapterFileError, AdapterPathNotFound, ModelNotFound
from turnout.core.identity import DEFAULT_TENANT
from turnout.registry import aliases
from turnout.registry.adapters import delete_adapter
from turnout.registry.directory import Directory
from turnout.registry.names import check_name
from turnout.registry.records import Version
from turnout.routing.resolve import PRODUCTION
from turnout.serving.publishing import Publisher
from turnout.serving.weights import READERS

Result = TypeVar("Result")


class Lifecycle:
    """A name is routable when `load` returns, and unknown when `unload` does.

    Calls for one name take effect one after the other, in the order they came; those for different names at once. A
    call goes on to its end even if its caller waits no longer. Unloading refuses new requests at once and does not wait
    for running ones: they end on the weights they hold.
    """

    def __init__(self, directory: Directory, publisher: Publisher, roots: tuple[Path, ...]) -> None:
        self._directory = directory
        self._publisher = publisher
        self._roots = roots
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running: set[asyncio.Future[Any]] = set()
        self._workers = ThreadPoolExecutor(READERS, thread_name_prefix="turnout-loads")
        self._unloads = ThreadPoolExecutor(1, thread_name_prefix="turnout-unloads")

    async def load(self, actor: str, name: str, path: Path, *, replace: bool = False) -> Version:
        """Make the adapter at `path`, which must lie under one of the roots, what `name` means.

        A name that has an adapter gets a new version, with `replace` alone. Raises InvalidRequest, AdapterExists,
        AdapterPathNotFound, EngineStopped, or an AdapterError for what is wrong with the adapter.
        """

        def load() -> Future[Version]:
            return self._workers.submit(self._load, actor, name, path, replace)

        return await self._in_turn(name, load)

    async def unload(self, actor: str, name: str) -> None:
        """Delete the adapter; pushed again, it counts its versions on. Raises ModelNotFound."""

        def unload() -> Future[None]:
            # Apart from the loads, not to wait until those are read.
            return self._unloads.submit(self._unload, actor, name)

        await self._in_turn(name, unload)

    def close(self) -> None:
        """Let the worker threads end. Calls that have not begun are cancelled."""
        for workers in (self._workers, self._unloads):
            workers.shutdown(wait=False, cancel_futures=True)

    async def _in_turn(self, name: str, begin: "Callable[[], Future[Result]]") -> Result:
        # The name's lock is forgotten when the last call that holds or awaits it has ended.
        turn = self._turns.setdefault(name, asyncio.Lock())

        async def whole() -> Result:
            async with turn:
                return await asyncio.wrap_future(begin())

        task = asyncio.ensure_future(whole())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    def _load(self, actor: str, name: str, path: Path, replace: bool) -> Version:
        check_name(name)
        self._publisher.check_name(name)
        if not replace and (DEFAULT_TENANT, name) in self._directory.snapshot().adapters:
            raise AdapterExists(
                f"an adapter {name!r} is loaded already; unload it first, or set load_inplace to replace it",
                param="lora_name",
            )
        folder = adapter_folder(path, self._roots)
        self._check_links(folder)
        version = self._publisher.publish(actor, DEFAULT_TENANT, name, folder).version
        self._point(actor, name, version)
        return version

    def _unload(self, actor: str, name: str) -> None:
        if (DEFAULT_TENANT, name) not in self._directory.snapshot().adapters:
            raise ModelNotFound(f"the adapter {name!r} does not exist", param="lora_name")
        with self._directory.write(actor) as write:
            delete_adapter(write, DEFAULT_TENANT, name)

    def _point(self, actor: str, name: str, version: Version) -> None:
        """Have the plain name mean this version, which may be an earlier one that comes back."""
        adapter = self._directory.snapshot().adapters[DEFAULT_TENANT, name]
        latest = adapter.latest is not None and adapter.latest.number == version.number
        if latest and PRODUCTION not in adapter.aliases:
            return
        with self._directory.write(actor) as write:
            aliases.promote(write, DEFAULT_TENANT, name, str(version.number), PRODUCTION, "loaded in place")

    def _check_links(self, folder: Path) -> None:
        for file in adapter_files(folder):
            try:
                contained(file, self._roots)
            except AdapterPathNotFound:
                raise AdapterFileError(f"{str(file)!r} is a link out of this server's adapter folders") from None
