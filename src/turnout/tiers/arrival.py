"""Weights that come from outside, as a push brings them, and not because they were asked for."""

from collections.abc import Callable
from dataclasses import dataclass

from turnout.core.adapter import AdapterState
from turnout.tiers.source import Allocate


@dataclass(frozen=True, slots=True)
class Arrival:
    """`allocate` gives the memory to read them into, once there is room; `enter` has the engine take them.

    `enter` raises AdapterTooLarge, EngineStopped.
    """

    allocate: Allocate
    enter: Callable[[AdapterState], None]
