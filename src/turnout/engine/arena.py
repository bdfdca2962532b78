"""One flat buffer for the weights of all hot adapters; each takes exactly the bytes of its own ranks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from turnout.core.adapter import ALIGNMENT, aligned


@dataclass(slots=True)
class Region:
    """Part of the arena, in elements. `start` changes when the arena compacts; hold the region, not the number."""

    start: int
    size: int


class Arena:
    """First-fit allocation in one tensor, with compaction, so that free space is never lost to fragmentation.

    Only the engine's thread uses it, between steps: compaction moves weights, and the next step's offsets are
    built from the regions as they then are.
    """

    def __init__(self, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        self.buffer: Tensor = torch.zeros(capacity, dtype=dtype, device=device)
        self._regions: list[Region] = []  # ordered by start

    @property
    def capacity(self) -> int:
        """Elements in all."""
        return self.buffer.numel()

    @property
    def used(self) -> int:
        """Elements in regions."""
        return sum(region.size for region in self._regions)

    def allocate(self, size: int) -> Region | None:
        """A region of at least `size` elements, or None if all free space together is too small."""
        size = aligned(size)
        if size > self.capacity - self.used:
            return None
        region = self._first_fit(size)
        if region is None:
            self._compact()
            region = self._first_fit(size)
        return region

    def free(self, region: Region) -> None:
        """Give a region back."""
        # By identity: regions of size 0 may be equal in all their numbers.
        self._regions = [other for other in self._regions if other is not region]

    def write(self, region: Region, values: Tensor) -> None:
        """Copy one-dimensional `values` into the region."""
        self.buffer[region.start : region.start + values.numel()].copy_(values)

    def _first_fit(self, size: int) -> Region | None:
        end = 0
        for index, region in enumerate(self._regions):
            if region.start - end >= size:
                return self._insert(index, end, size)
            end = region.start + region.size
        if self.capacity - end >= size:
            return self._insert(len(self._regions), end, size)
        return None

    def _insert(self, index: int, start: int, size: int) -> Region:
        region = Region(start, size)
        self._regions.insert(index, region)
        return region

    def _compact(self) -> None:
        end = 0
        for region in self._regions:
            if region.start != end:
                moved = self.buffer[region.start : region.start + region.size]
                if end + region.size > region.start:
                    moved = moved.clone()  # source and target overlap
                self.buffer[end : end + region.size].copy_(moved)
                region.start = end
            end += region.size

    def check(self) -> None:
        """Raise AssertionError unless regions are ordered, aligned, disjoint and inside the buffer."""
        end = 0
        for region in self._regions:
            assert region.start >= end and region.start % ALIGNMENT == 0, "regions overlap or are not aligned"
            end = region.start + region.size
        assert end <= self.capacity, "a region reaches past the arena"
