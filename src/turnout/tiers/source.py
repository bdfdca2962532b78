"""Where weights come from, as this room sees it."""

from collections.abc import Callable
from typing import Protocol

from turnout.core.adapter import AdapterState, Dtype, Weights
from turnout.core.identity import VersionRef
from turnout.core.tiers import Tier

Allocate = Callable[[int, Dtype], Weights]
"""Gives a buffer of so many elements, once there is room for it."""

Proceed = Callable[[], None]
"""Returns while a load is to go on, and raises once it is not."""


class Source(Protocol):
    """A version's weights on disk or in the store. Called on several threads at once."""

    def tier(self, version: VersionRef) -> Tier:
        """`cold` if its files are on this machine's disk, else `remote`."""
        ...

    def read(self, version: VersionRef, allocate: Allocate, proceed: Proceed) -> AdapterState:
        """The weights, read into memory from `allocate`, which is asked once; `proceed` is called now and then.

        Raises what is wrong with the files, and unchanged what `allocate` and `proceed` raise.
        """
        ...
