"""The arena: bytes stay what they are, space is never lost to fragmentation."""

import random

import torch

from turnout.core.adapter import ALIGNMENT, aligned
from turnout.engine.arena import Arena, Region


def arena(capacity: int) -> Arena:
    return Arena(capacity, torch.float32, torch.device("cpu"))


def test_ten_thousand_rounds_of_all_ranks_always_fit_what_sums_to_the_budget() -> None:
    """Loads and evictions of ranks 1 to 256: what fits by its sum fits, and nobody's weights change."""
    pick = random.Random(0)
    width = 24  # elements per rank and adapter
    store = arena(aligned(256 * width) * 4)
    held: dict[int, tuple[Region, int]] = {}
    for tag in range(10_000):
        size = pick.randint(1, 256) * width
        while store.used + aligned(size) > store.capacity:
            evicted = pick.choice(list(held))
            store.free(held.pop(evicted)[0])
        region = store.allocate(size)
        assert region is not None, f"{size} did not fit although {store.capacity - store.used} are free"
        store.write(region, torch.full((size,), float(tag)))
        held[tag] = (region, size)
        store.check()
        probe = pick.choice(list(held))
        region, size = held[probe]
        assert bool((store.buffer[region.start : region.start + size] == float(probe)).all())


def test_what_cannot_fit_is_refused_and_changes_nothing() -> None:
    store = arena(ALIGNMENT * 2)
    kept = store.allocate(ALIGNMENT)
    assert kept is not None
    assert store.allocate(ALIGNMENT + 1) is None
    assert store.used == ALIGNMENT


def test_regions_of_no_size_are_told_apart() -> None:
    store = arena(ALIGNMENT)
    one, two = store.allocate(0), store.allocate(0)
    assert one is not None and two is not None
    store.free(one)
    store.free(two)
    assert store.allocate(ALIGNMENT) is not None
