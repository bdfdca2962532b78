"""What is known of one set of weights that is in RAM, comes there or leaves it."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from turnout.core.identity import Digest
from turnout.core.tiers import Reason, Tier

State = Literal["loading", "warm", "leaving", "cancelled"]
"""Loading: being read, or waiting for its turn or for room. Warm: the engine has it, hot or not. Leaving: the engine
was told to let it go. Cancelled: nobody waits for the load any more, which ends as soon as it can."""


def promise() -> "Future[None]":
    """A future that only its maker ends: who waits for it may go away, and cancels it for nobody else."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


@dataclass(slots=True, eq=False)
class Entry:
    """One digest on its way through RAM. The lock of Tiers guards all of it.

    `nbytes` are the bytes of warm memory that are taken for it. `leases` counts requests that wait for it or run on it.
    `wanted`: it comes or stays although no request asks, for an operator or the kept set did. `found` is the tier where
    its load began.
    """

    digest: Digest
    reason: Reason
    last_use: float
    state: State = "loading"
    nbytes: int = 0
    leases: int = 0
    wanted: bool = False
    found: Tier = "remote"
    reload_seconds: float = 0.0
    done: "Future[None]" = field(default_factory=promise)
    """Ends when the weights are in the engine, or with the load's error."""
    left: "Future[None]" = field(default_factory=promise)
    """Ends when the engine has freed them."""

    @property
    def idle(self) -> bool:
        """Whether it may leave: it is there and no request has a lease on it."""
        return self.state == "warm" and self.leases == 0
