"""The Engine protocol on this machine's own model, and the thread that owns it."""

import logging
import math
import threading
from concurrent.futures import Future
from dataclasses import replace

import torch

from turnout.core.adapter import AdapterState, Dtype
from turnout.core.engine import EngineInfo, EngineStats, Listener
from turnout.core.errors import (
    AdapterBaseMismatch,
    AdapterTooLarge,
    EngineStopped,
    ModelNotFound,
    Overloaded,
    SettingsError,
)
from turnout.core.identity import Digest
from turnout.core.request import Request
from turnout.engine.arena import Arena
from turnout.engine.config import EngineConfig
from turnout.engine.loop import EngineLoop
from turnout.engine.messages import Abort, Close, Load, Submit, Unload
from turnout.engine.residency import Residency
from turnout.engine.runner import Runner
from turnout.kernels.interface import Kernels
from turnout.models.decoder import DecoderWeights, KVCache
from turnout.models.spec import DecoderSpec

logger = logging.getLogger(__name__)


class LocalEngine:
    """Implements core.engine.Engine.

    This object stands at the door: under one lock it knows which digests may be asked for and how many requests
    wait. Everything else belongs to the loop's thread and is reached through its inbox alone.
    """

    def __init__(
        self,
        weights: DecoderWeights,
        kernels: Kernels,
        *,
        model_revision: Digest,
        dtype: Dtype,
        device: torch.device,
        config: EngineConfig,
    ) -> None:
        torch_dtype = getattr(torch, dtype)
        spec = weights.spec
        kv = _allocate_kv(spec, config, torch_dtype, device)
        blocks = kv.k.shape[1]
        arena = Arena(config.adapter_memory // torch_dtype.itemsize, torch_dtype, device)
        self.info = EngineInfo(
            model_revision=model_revision,
            dtype=dtype,
            context_length=min(spec.context_length, blocks * config.block_size),
            vocab_size=spec.vocab_size,
            kernels=kernels.name,
        )
        self._capacity = arena.capacity
        self._max_waiting = config.max_waiting
        self._lock = threading.Lock()
        self._known = {model_revision}
        self._waiting = 0
        self._closed = False
        self._loop = EngineLoop(
            Runner(weights, kernels, kv),
            Residency(arena, model_revision, spec.layers),
            arena,
            self.info,
            config,
            on_begun=self._begun,
        )
        self._thread = threading.Thread(target=self._run, name="turnout-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request, listener: Listener) -> None:
        """See Engine.submit; ModelNotFound for a digest that is not loaded."""
        digest = request.route.version.digest
        with self._lock:
            self._raise_if_closed()
            if digest not in self._known:
                raise ModelNotFound(f"the weights of {request.route.version} are not loaded", param="model")
            if self._waiting >= self._max_waiting:
                raise Overloaded(
                    f"{self._waiting} requests are waiting, which is all the queue takes; try again in a second"
                )
            self._waiting += 1
            self._loop.inbox.put(Submit(request, listener))

    def abort(self, request_id: str) -> None:
        """See Engine.abort."""
        self._loop.inbox.put(Abort(request_id))

    def load(self, state: AdapterState) -> "Future[None]":
        """See Engine.load; AdapterBaseMismatch for weights checked against another base or cast to another type."""
        done = _promise()
        refusal = self._refusal(state)
        if refusal is not None:
            done.set_exception(refusal)
            return done
        with self._lock:
            self._raise_if_closed()
            self._known.add(state.digest)
            self._loop.inbox.put(Load(state, done))
        return done

    def unload(self, digest: Digest) -> "Future[None]":
        """See Engine.unload."""
        done = _promise()
        with self._lock:
            self._raise_if_closed()
            if digest == self.info.model_revision:
                raise ValueError("the base model cannot be unloaded")
            self._known.discard(digest)
            self._loop.inbox.put(Unload(digest, done))
        return done

    def stats(self) -> EngineStats:
        """See Engine.stats."""
        return replace(self._loop.stats, accepting=not self._closed)

    def close(self) -> None:
        """See Engine.close."""
        with self._lock:
            self._closed = True
        self._loop.inbox.put(Close())
        self._thread.join()

    def _refusal(self, state: AdapterState) -> AdapterBaseMismatch | AdapterTooLarge | None:
        if (state.model_revision, state.dtype) != (self.info.model_revision, self.info.dtype):
            return AdapterBaseMismatch(
                f"the adapter was read for base {state.model_revision} in {state.dtype}, "
                f"this engine runs {self.info.model_revision} in {self.info.dtype}"
            )
        size = state.buffer.size
        if size > self._capacity:
            return AdapterTooLarge(
                f"the adapter needs {size} elements of adapter memory and there are {self._capacity}; "
                "start with a larger --adapter-memory"
            )
        return None

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise EngineStopped("the server is shutting down")

    def _begun(self) -> None:
        with self._lock:
            self._waiting -= 1

    def _run(self) -> None:
        try:
            self._loop.run()
        except Exception:
            logger.critical("the engine's thread died", exc_info=True)
            raise
        finally:
            with self._lock:
                self._closed = True
            self._loop.fail_all(EngineStopped("the server is shutting down"))


def _promise() -> "Future[None]":
    done: Future[None] = Future()
    # From here on it cannot be cancelled: who waits may go away, the engine's thread keeps its word.
    done.set_running_or_notify_cancel()
    return done


def _allocate_kv(spec: DecoderSpec, config: EngineConfig, dtype: torch.dtype, device: torch.device) -> KVCache:
    """As many blocks as fit into `kv_memory`. Raises SettingsError if that is none."""
    block = (config.block_size, spec.kv_heads, spec.head_dim)
    block_bytes = 2 * spec.layers * math.prod(block) * dtype.itemsize
    blocks = config.kv_memory // block_bytes
    if blocks < 1:
        raise SettingsError(
            f"--kv-memory of {config.kv_memory} bytes is less than one block of {block_bytes}; give it more"
        )
    shape = (spec.layers, blocks, *block)
    return KVCache(torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
