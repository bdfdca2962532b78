"""Where an adapter's weights can be, and what is told of their moves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from turnout.core.identity import Digest

Tier = Literal["remote", "cold", "warm", "hot"]
"""In the artefact store alone; in files on this machine; in RAM; in the device's arena. The highest one counts."""

Reason = Literal["request", "prefetch", "pinned", "push", "admin", "room", "unload"]
"""What weights move for: up for a request, a forecast or hint, a pin, a push or an operator; down to make room for
others, by an operator, or because no version has them any more."""


@dataclass(frozen=True, slots=True)
class Move:
    """Weights that have moved. `seconds` is how long it took, the checks included and waiting for room left out."""

    digest: Digest
    source: Tier
    target: Tier
    reason: Reason
    nbytes: int
    seconds: float


Observer = Callable[[Move], None]
"""Is told of every move, on any thread; it must return at once and never raise."""
