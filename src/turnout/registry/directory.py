"""The registry as a running server knows it: in memory, swapped whole when the registry changes."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from turnout.core.identity import Digest, VersionRef
from turnout.registry.database import Database, Write
from turnout.registry.keyring import KeyRing, Member, read_keys
from turnout.registry.picture import read_picture
from turnout.registry.watch import Watcher
from turnout.routing.snapshot import Adapter, Snapshot


@dataclass(frozen=True, slots=True)
class View:
    """All of one moment. `live` counts the versions for this base that have a digest."""

    revision: int
    snapshot: Snapshot
    keys: KeyRing
    live: Mapping[Digest, int]


class Directory:
    """Answers from memory what routes and keys there are; changes go to the database and are seen at once.

    Reading is lock-free. What other servers change is seen soon after they commit.
    """

    def __init__(
        self,
        database: Database,
        base: VersionRef,
        base_names: frozenset[str],
        tokenizer_revision: Digest,
        static_keys: tuple[Member, ...] = (),
    ) -> None:
        self.database = database
        self._nothing = Snapshot(base, base_names, base.digest, tokenizer_revision, {})
        self._static_keys = static_keys
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._view = self._after(View(0, self._nothing, KeyRing({}), {}))
        self._watcher = Watcher(database, self._view.revision, self.refresh)

    def snapshot(self) -> Snapshot:
        """What routes are resolved against; it does not change under its reader."""
        return self._view.snapshot

    def keys(self) -> KeyRing:
        """All keys."""
        return self._view.keys

    def is_live(self, digest: Digest) -> bool:
        """Whether any version has these weights now."""
        return self._view.live.get(digest, 0) > 0

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have this called after every change, on whichever thread sees it first. Before the server serves."""
        self._listeners.append(listener)

    @contextmanager
    def write(self, actor: str) -> Iterator[Write]:
        """A transaction, as `Database.write`; once it has committed, this server knows of it."""
        with self.database.write(actor) as write:
            yield write
        if write.has_changes:
            self.refresh()

    def refresh(self) -> None:
        """Look at the registry again."""
        with self._lock:
            view = self._after(self._view)
            if view.revision <= self._view.revision:
                return
            self._view = view
        for listener in self._listeners:
            listener()

    def close(self) -> None:
        """Watch no longer."""
        self._watcher.close()

    def _after(self, view: View) -> View:
        """The next view: only what has changed is read, for there may be very many adapters."""
        with self.database.read() as connection:
            picture = read_picture(connection, view.revision)
            keys = read_keys(connection, self._static_keys)
        adapters = dict(view.snapshot.adapters)
        live = Counter(view.live)
        for gone in picture.gone:
            live.subtract(_digests(adapters.pop(gone, None)))
        for each in map(self._for_this_base, picture.adapters):
            live.subtract(_digests(adapters.get((each.tenant, each.name))))
            live.update(_digests(each))
            adapters[each.tenant, each.name] = each
        snapshot = replace(self._nothing, adapters=MappingProxyType(adapters))
        return View(picture.revision, snapshot, keys, live)

    def _for_this_base(self, adapter: Adapter) -> Adapter:
        revision = self._nothing.model_revision
        if all(version.model_revision == revision for version in adapter.versions):
            return adapter
        fitting = tuple(version for version in adapter.versions if version.model_revision == revision)
        return replace(adapter, versions=fitting)


def _digests(adapter: Adapter | None) -> list[Digest]:
    return [] if adapter is None else [version.digest for version in adapter.versions]
