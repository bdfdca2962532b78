"""The catalogue of adapters and their versions, in memory."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from turnout.core.adapter import AdapterState
from turnout.core.errors import AdapterExists, ModelNotFound
from turnout.core.identity import Digest, VersionRef
from turnout.registry.names import check_name
from turnout.routing.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Version:
    """One live version. `path` is where it was read from, `created` when, in seconds since 1970."""

    ref: VersionRef
    state: AdapterState
    path: str
    created: int


@dataclass(frozen=True, slots=True)
class Registration:
    """What `register` did: `version` is live now, and `replaced` was live under its name before."""

    version: Version
    replaced: Version | None


class Catalog:
    """Names to versions. Writers take turns; reading is lock-free, for the snapshot is swapped whole.

    A name has one live version. Versions count from 1 within their name, and for the catalogue's life a number
    stands for one digest: a digest that comes back gets its number back, any other the next, even if the name was
    dropped in between. So `name@1` always means the same bytes.
    """

    def __init__(
        self, base: VersionRef, base_names: frozenset[str], model_revision: Digest, tokenizer_revision: Digest
    ) -> None:
        self._lock = threading.Lock()
        self._live: Mapping[str, Version] = {}
        self._numbers: dict[str, dict[Digest, int]] = {}
        self._snapshot = Snapshot(base, base_names, model_revision, tokenizer_revision, MappingProxyType({}))

    def snapshot(self) -> Snapshot:
        """The current picture; it does not change under its reader."""
        return self._snapshot

    def listing(self) -> tuple[Version, ...]:
        """All live versions, by name."""
        live = self._live
        return tuple(live[name] for name in sorted(live))

    def refers_to(self, digest: Digest) -> bool:
        """Whether any name means this digest now."""
        return any(version.ref.digest == digest for version in self._live.values())

    def check_free(self, name: str, *, replace: bool) -> None:
        """Raise what `register` would raise for this name now: a look before the work of reading an adapter."""
        check_name(name)
        if any(name == base or name.startswith(f"{base}@") for base in self._snapshot.base_names):
            raise AdapterExists(f"{name!r} means the base model; choose another name", param="lora_name")
        if name in self._live and not replace:
            raise AdapterExists(
                f"an adapter {name!r} is loaded already; unload it first, or set load_inplace to replace it",
                param="lora_name",
            )

    def register(self, name: str, state: AdapterState, path: str, *, replace: bool) -> Registration:
        """Make `name` mean these weights, from the next snapshot on.

        With `replace`, the name's live version is dropped in the same moment. Raises InvalidRequest for a bad name,
        AdapterExists for one that is taken.
        """
        with self._lock:
            self.check_free(name, replace=replace)
            numbers = self._numbers.setdefault(name, {})
            number = numbers.setdefault(state.digest, len(numbers) + 1)
            ref = VersionRef(name, number, state.digest)
            version = Version(ref, self._shared(state), path, int(time.time()))
            replaced = self._live.get(name)
            self._publish({**self._live, name: version})
        return Registration(version, replaced)

    def unregister(self, name: str) -> Version:
        """Drop a name; returns what it meant. Raises ModelNotFound."""
        with self._lock:
            dropped = self._live.get(name)
            if dropped is None:
                raise ModelNotFound(f"the adapter {name!r} does not exist", param="lora_name")
            self._publish({other: version for other, version in self._live.items() if other != name})
        return dropped

    def _shared(self, state: AdapterState) -> AdapterState:
        """`state` on the tensors of a live version with the same digest, so that a second name costs no memory."""
        twins = (version.state for version in self._live.values() if version.ref.digest == state.digest)
        twin = next(twins, state)
        return replace(state, modules=twin.modules)

    def _publish(self, live: Mapping[str, Version]) -> None:
        self._live = live
        adapters = {name: (version.ref,) for name, version in live.items()}
        self._snapshot = replace(self._snapshot, adapters=MappingProxyType(adapters))
