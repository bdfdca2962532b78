"""Where an adapter's weights are, and what is told of it to those who watch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from turnout.core.identity import Digest

Tier = Literal["remote", "cold", "warm", "hot"]
"""In the artefact store, on this machine's disk, in RAM, in the engine's arena. Each holds what the later ones hold."""

Reason = Literal["request", "prefetch", "asked", "room", "gone"]
"""Up: a request needs it, it may be needed soon, an operator asked. Down: others needed the room, an operator asked,
no version has these weights any more."""


@dataclass(frozen=True, slots=True)
class Move:
    """Weights went from one tier into another, in so many seconds."""

    digest: Digest
    source: Tier
    target: Tier
    nbytes: int
    seconds: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class Use:
    """A request asked for weights, which were in this tier, and had to wait so many seconds for them."""

    digest: Digest
    found: Tier
    seconds: float


Observer = Callable[[Move], None]
"""Is told of moves on whichever thread made them; it returns at once and never raises."""


def ignore(event: object) -> None:
    """The observer of whoever does not watch."""
