"""Adapter weights in memory, for tests that need no files."""

from collections.abc import Sequence

from turnout.core.adapter import AdapterState, Dtype, LoraModule, pack
from turnout.core.identity import Digest


def state_of(
    digest: str, base: Digest, dtype: Dtype, modules: Sequence[LoraModule] = (), untouched: int = 0
) -> AdapterState:
    """The modules, packed, under this digest."""
    packed, buffer = pack(modules, dtype)
    return AdapterState(Digest(digest), base, dtype, packed, buffer, untouched)
