"""Which adapters are loaded (warm, in RAM) and which of them are hot (in the arena); who holds them."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.core.adapter import TARGETS, AdapterState, aligned, empty_buffer, places
from turnout.core.identity import Digest
from turnout.engine.arena import Arena, Region


@dataclass(frozen=True, slots=True)
class LoraTable:
    """Where one adapter's tensors lie within its own region. Arrays are [layers, 7], see kernels.LoraSegments."""

    a_offsets: NDArray[np.int64]
    b_offsets: NDArray[np.int64]
    ranks: NDArray[np.int32]
    scales: NDArray[np.float32]
    size: int
    """Elements of the region."""


@dataclass(slots=True)
class Loaded:
    """One set of weights in RAM, and its region while it is hot."""

    digest: Digest
    state: AdapterState | None
    table: LoraTable
    region: Region | None = None
    leases: int = 0
    """Requests, waiting or running, which the weights are promised to."""
    pins: int = 0
    """Running sequences, which the region is promised to."""
    last_use: int = 0
    drained: list[Callable[[], None]] = field(default_factory=list)
    unloading: bool = False


def lay_out(state: AdapterState, layers: int) -> LoraTable:
    """The table of an adapter whose buffer is its region."""
    shape = (layers, len(TARGETS))
    a_offsets, b_offsets = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    ranks, scales = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    starts, size = places(state.modules)
    for module, (a_start, b_start) in zip(state.modules, starts, strict=True):
        place = (module.layer, TARGETS.index(module.target))
        a_offsets[place] = a_start
        b_offsets[place] = b_start
        ranks[place] = module.rank
        scales[place] = module.scale
    return LoraTable(a_offsets, b_offsets, ranks, scales, size)


class Residency:
    """Adapters by digest. The base is one of them, of size zero and never unloaded: nothing below asks for "none".

    The engine's thread owns it.
    """

    def __init__(self, arena: Arena, base: Digest, layers: int) -> None:
        self._arena = arena
        self._layers = layers
        self._base = base
        self._clock = itertools.count(1)
        nothing = AdapterState(base, base, "float32", (), empty_buffer(0, "float32"), 0)
        self._loaded = {base: Loaded(base, None, lay_out(nothing, layers), Region(0, 0))}

    def load(self, state: AdapterState) -> None:
        """Keep an adapter's weights in RAM. A digest that is being unloaded is kept after all."""
        loaded = self._loaded.get(state.digest)
        if loaded is None:
            self._loaded[state.digest] = Loaded(state.digest, state, lay_out(state, self._layers))
            return
        loaded.unloading = False
        self._tell_drained(loaded)

    def unload(self, digest: Digest, drained: Callable[[], None]) -> None:
        """Free the weights as soon as no request has a lease on them, then call `drained`."""
        loaded = self._loaded.get(digest)
        if loaded is None:
            drained()
            return
        loaded.unloading = True
        loaded.drained.append(drained)
        self._free_if_drained(loaded)

    def lease(self, digest: Digest) -> None:
        """Promise the weights of a loaded digest to one more request."""
        self._loaded[digest].leases += 1

    def end_lease(self, digest: Digest) -> None:
        """Take one promise back."""
        loaded = self._loaded[digest]
        loaded.leases -= 1
        self._free_if_drained(loaded)

    def pin(self, digest: Digest) -> bool:
        """Make a loaded digest hot, and keep it so for one more sequence.

        Evicts least-recently-used adapters which no sequence pins. False if those that are pinned leave no room.
        """
        loaded = self._loaded[digest]
        if loaded.region is None and not self._make_hot(loaded):
            return False
        loaded.pins += 1
        loaded.last_use = next(self._clock)
        return True

    def unpin(self, digest: Digest) -> None:
        """Let go of a pinned digest."""
        self._loaded[digest].pins -= 1

    def hot(self, digest: Digest) -> tuple[LoraTable, int]:
        """The table of a pinned digest and where its region starts in the arena, in elements."""
        loaded = self._loaded[digest]
        if loaded.region is None or loaded.pins == 0:
            raise RuntimeError(f"{digest} is used by a step without being pinned")
        return loaded.table, loaded.region.start

    def counts(self) -> tuple[int, int, int]:
        """How many adapters are loaded, how many are hot, and how many leases requests hold; the base not counted."""
        adapters = [loaded for loaded in self._loaded.values() if loaded.digest != self._base]
        return len(adapters), sum(a.region is not None for a in adapters), sum(a.leases for a in adapters)

    def holds(self) -> dict[Digest, tuple[int, int]]:
        """Leases and pins by digest, the base's too, for checks."""
        return {digest: (loaded.leases, loaded.pins) for digest, loaded in self._loaded.items()}

    def _make_hot(self, loaded: Loaded) -> bool:
        evictable = sorted(
            (a for a in self._loaded.values() if a.region is not None and a.pins == 0 and a.digest != self._base),
            key=lambda a: a.last_use,
        )
        free = self._arena.capacity - self._arena.used
        if free + sum(a.region.size for a in evictable if a.region) < aligned(loaded.table.size):
            return False
        region = self._arena.allocate(loaded.table.size)
        while region is None:
            self._evict(evictable.pop(0))
            region = self._arena.allocate(loaded.table.size)
        self._copy(loaded, region)
        loaded.region = region
        return True

    def _copy(self, loaded: Loaded, region: Region) -> None:
        assert loaded.state is not None
        # torch reads numpy's uint16 bit patterns as what they are: bfloat16.
        self._arena.write(region, torch.from_numpy(loaded.state.buffer).view(self._arena.buffer.dtype))

    def _evict(self, loaded: Loaded) -> None:
        assert loaded.region is not None and loaded.pins == 0
        self._arena.free(loaded.region)
        loaded.region = None

    def _free_if_drained(self, loaded: Loaded) -> None:
        if not loaded.unloading or loaded.leases:
            return
        if loaded.region is not None:
            self._evict(loaded)
        del self._loaded[loaded.digest]
        self._tell_drained(loaded)

    @staticmethod
    def _tell_drained(loaded: Loaded) -> None:
        callbacks, loaded.drained = loaded.drained, []
        for drained in callbacks:
            drained()

    def check(self) -> None:
        """Raise AssertionError unless counts are sane and the arena holds exactly the hot adapters' bytes."""
        self._arena.check()
        hot = 0
        for loaded in self._loaded.values():
            assert loaded.leases >= loaded.pins >= 0, f"{loaded.digest} is pinned more often than leased"
            assert loaded.pins == 0 or loaded.region is not None, f"{loaded.digest} is pinned but not hot"
            hot += loaded.region.size if loaded.region else 0
        assert hot == self._arena.used, "the arena's bytes and the hot adapters' differ"
