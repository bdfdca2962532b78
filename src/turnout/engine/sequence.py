"""One request's state inside the engine."""

from dataclasses import dataclass, field

import numpy as np

from turnout.core.engine import Listener
from turnout.core.events import Phases, TokenLogprob
from turnout.core.identity import Digest, StateKey, StateRoot
from turnout.core.request import Request, SamplingParams


@dataclass(slots=True)
class Clock:
    """When things happened to a sequence, by `time.monotonic()`; 0 while they have not."""

    arrived: float
    admitted: float = 0.0
    prefilled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    adapter_wait_began: float = 0.0
    adapter_load: float = 0.0
    cache_lookup: float = 0.0

    def phases(self) -> Phases:
        """The phases so far, of a sequence whose prompt has its state; without tokens there are no token phases."""
        generated = self.first_token > 0
        return Phases(
            queue=self.admitted - self.arrived,
            adapter_load=self.adapter_load,
            cache_lookup=self.cache_lookup,
            prefill=self.prefilled - self.admitted,
            first_token=self.first_token - self.arrived if generated else 0.0,
            decode=self.last_token - self.first_token if generated else 0.0,
        )


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way: its tokens, how many of them have state, and the blocks which hold that state.

    `tokens` is prompt and output together. State exists for the first `computed` of them; the rest is pending:
    the prompt (or after a preemption everything) in chunks at first, then the one newest token per step.
    """

    request: Request
    listener: Listener
    root: StateKey
    tokens: list[int]
    clock: Clock
    generator: np.random.Generator
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    filed_blocks: int = 0
    last_key: StateKey = StateKey(b"")
    cached_tokens: int = 0
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    overtaken: int = 0
    """How many steps admitted others while this one waited for room for its adapter."""

    @classmethod
    def start(cls, request: Request, listener: Listener, layout_revision: str) -> "Sequence":
        """A sequence that has not been admitted."""
        route = request.route
        root = StateRoot(route.model_revision, route.tokenizer_revision, layout_revision, route.version.digest).key()
        # A seedless generator takes fresh entropy; the generator travels with the sequence through preemptions.
        return cls(
            request=request,
            listener=listener,
            root=root,
            tokens=list(request.prompt),
            clock=Clock(request.arrived),
            generator=np.random.default_rng(request.sampling.seed),
            last_key=root,
        )

    @property
    def digest(self) -> Digest:
        """The weights that serve it."""
        return self.request.route.version.digest

    @property
    def sampling(self) -> SamplingParams:
        """How its tokens are chosen."""
        return self.request.sampling

    @property
    def pending(self) -> int:
        """Tokens without state."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        """Tokens of output so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def output(self) -> list[int]:
        """The output so far."""
        return self.tokens[len(self.request.prompt) :]

    def forget_state(self) -> None:
        """After its blocks were taken away: everything is pending again."""
        self.computed = 0
        self.blocks = []
        self.filed_blocks = 0
        self.last_key = self.root
        self.prompt_logprobs = []
