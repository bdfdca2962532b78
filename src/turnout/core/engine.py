"""The engine as the rest of Turnout knows it."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from turnout.core.adapter import AdapterState, Dtype
from turnout.core.events import Event
from turnout.core.identity import Digest
from turnout.core.request import Request

Listener = Callable[[Event], None]
"""Takes a request's events in order. Called on the engine's thread: it must return at once and never raise."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is fixed for an engine's life. `context_length` is in tokens, prompt and output together."""

    model_revision: Digest
    dtype: Dtype
    context_length: int
    vocab_size: int
    kernels: str


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A consistent picture of the engine after its latest step."""

    running: int = 0
    waiting: int = 0
    kv_blocks_total: int = 0
    kv_blocks_free: int = 0
    """Blocks no sequence holds; those that only the prefix cache keeps count as free."""
    adapters_loaded: int = 0
    adapters_hot: int = 0
    adapter_bytes_used: int = 0
    adapter_bytes_total: int = 0
    leases: int = 0
    """References that requests hold on adapters (the base not counted)."""
    steps: int = 0
    preemptions: int = 0
    prefix_hit_tokens: int = 0
    prefix_lookup_tokens: int = 0
    accepting: bool = True
    """False once the engine takes no more requests."""


class Engine(Protocol):
    """Runs requests on the base model and any mix of loaded adapters.

    All methods may be called from any thread. They take effect in the order of the calls: a request submitted
    before its adapter's `unload` is served to its end, one submitted after it fails.
    """

    @property
    def info(self) -> EngineInfo:
        """What is fixed for this engine's life."""
        ...

    def submit(self, request: Request, listener: Listener) -> None:
        """Queue a request whose adapter is loaded; its events go to `listener`.

        Raises ModelNotFound for a digest that is not loaded, Overloaded when the queue is full, and EngineStopped
        after `close`.
        """
        ...

    def abort(self, request_id: str) -> None:
        """Drop a request, freeing what it holds before the next step. It gets no further events.

        A request that is unknown or has ended is ignored: the abort may have crossed its last event.
        """
        ...

    def load(self, state: AdapterState) -> "Future[None]":
        """Make an adapter's weights available; done when requests for its digest may be submitted.

        Loading a digest that is loaded already changes nothing. Fails with AdapterTooLarge when the weights
        alone exceed the adapter memory. Raises EngineStopped after `close`.
        """
        ...

    def unload(self, digest: Digest) -> "Future[None]":
        """Refuse the digest from now on; done when its last request has ended and its memory is freed.

        A digest that is not loaded is done at once. Raises EngineStopped after `close`.
        """
        ...

    def stats(self) -> EngineStats:
        """The picture after the latest step."""
        ...

    def close(self) -> None:
        """Stop the engine; requests it still holds fail with EngineStopped. Returns when its thread has ended."""
        ...
