"""A real engine on a small base, and listeners that tests can wait for."""

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from turnout import adapters
from turnout.core.adapter import AdapterState, Dtype
from turnout.core.errors import TurnoutError
from turnout.core.events import Event, Failed, Finished, Prefilled, PromptScored, Token, TokenLogprob
from turnout.core.identity import Digest, Route, VersionRef
from turnout.core.request import Request, SamplingParams
from turnout.engine import EngineConfig, LocalEngine
from turnout.kernels import select
from turnout.kernels.interface import Kernels
from turnout.models.config import read_config
from turnout.models.spec import DecoderSpec
from turnout.models.weights import load_weights, model_revision

PATIENCE = 60.0
"""Seconds after which a test that waits is taken to hang."""

TOKENIZER = Digest("sha256:tokenizer")


@dataclass(eq=False)
class Answer:
    """Collects one request's events."""

    request: Request
    events: list[Event] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def listen(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, patience: float = PATIENCE) -> "Answer":
        """Until the last event."""
        self._wait_for(lambda: bool(self.events) and isinstance(self.events[-1], Finished | Failed), patience)
        return self

    def wait_tokens(self, count: int) -> "Answer":
        """Until so many tokens are there."""
        self._wait_for(lambda: len(self.tokens) >= count)
        return self

    def _wait_for(self, condition: Any, patience: float = PATIENCE) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, patience), f"nothing more after {self.events}"

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events if isinstance(event, Token)]

    @property
    def logprobs(self) -> list[TokenLogprob]:
        return [event.logprob for event in self.events if isinstance(event, Token) and event.logprob]

    @property
    def prompt_logprobs(self) -> tuple[TokenLogprob, ...]:
        return next(event.logprobs for event in self.events if isinstance(event, PromptScored))

    @property
    def finished(self) -> Finished:
        last = self.events[-1]
        assert isinstance(last, Finished), last
        return last

    @property
    def cached_tokens(self) -> int:
        return next(event.cached_tokens for event in self.events if isinstance(event, Prefilled))

    @property
    def error(self) -> TurnoutError:
        last = self.events[-1]
        assert isinstance(last, Failed), last
        return last.error


class Bench:
    """An engine on `folder`'s base, checking its books after every step."""

    def __init__(
        self,
        folder: Path,
        *,
        dtype: Dtype = "float32",
        kernels: Kernels | None = None,
        max_rank: int = 256,
        **config: Any,
    ) -> None:
        torch_dtype = getattr(torch, dtype)
        self.dtype = dtype
        self.spec = DecoderSpec.from_config(read_config(folder))
        self.revision = model_revision(folder)
        self.kernels = kernels or select("cpu", torch_dtype)
        self.max_rank = max_rank
        self.engine = LocalEngine(
            load_weights(folder, self.spec, self.kernels, torch_dtype, torch.device("cpu")),
            self.kernels,
            model_revision=self.revision,
            dtype=dtype,
            device=torch.device("cpu"),
            config=EngineConfig(**{"check": True, "kv_memory": 8 << 20, "adapter_memory": 8 << 20, **config}),
        )
        self._ids = itertools.count()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def read(self, folder: Path) -> AdapterState:
        return adapters.load(folder, self.spec, self.revision, self.dtype, self.max_rank)

    def load(self, folder: Path) -> Digest:
        state = self.read(folder)
        self.engine.load(state).result(PATIENCE)
        return state.digest

    def ask(self, digest: Digest | None, prompt: Sequence[int], output: int = 8, **sampling: Any) -> Answer:
        """Submit one request, greedy unless told otherwise; None is the base."""
        version = VersionRef("base", 0, self.revision) if digest is None else VersionRef("adapter", 1, digest)
        route = Route("default", version, self.revision, TOKENIZER, "test")
        params = SamplingParams(output, **{"temperature": 0.0, **sampling})
        answer = Answer(Request(str(next(self._ids)), route, tuple(prompt), params, time.monotonic()))
        self.engine.submit(answer.request, answer.listen)
        return answer

    def settle(self) -> None:
        """Until the engine has done all it was told and holds nothing; raises if it never does."""
        # Messages take effect in order: when this one has, so have those before it.
        self.engine.unload(Digest("sha256:nobody")).result(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while (stats := self.engine.stats()).running or stats.waiting or stats.leases:
            assert time.monotonic() < deadline, stats
            threading.Event().wait(0.001)
