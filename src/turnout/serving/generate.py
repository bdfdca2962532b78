"""The use case: a request's route is resolved, its prompts run, its choices come back as text."""

import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, fields, replace

from turnout.core.engine import Engine
from turnout.core.errors import EngineFailure, ModelNotFound, TurnoutError
from turnout.core.events import Event, Failed, Finished, Phases
from turnout.core.identity import DEFAULT_TENANT, Route
from turnout.core.request import Request, SamplingParams
from turnout.registry.database import now
from turnout.registry.directory import Directory
from turnout.registry.keys import Key
from turnout.registry.lineage import LineageRecord
from turnout.routing.resolve import AdapterAsk, Caller, not_found, resolve
from turnout.serving.bridge import EventBridge, Mailbox
from turnout.serving.choice import Choice, Piece
from turnout.serving.limits import Admission, Limiter
from turnout.serving.prompts import Prompt, output_limit
from turnout.serving.weights import Weights
from turnout.telemetry.metrics import Metrics
from turnout.telemetry.phases import Timings
from turnout.text.tokenizer import Tokenizer

SEEDS = 1 << 64


def caller_of(key: Key) -> Caller:
    """A key's owner, as routes are resolved for it."""
    return Caller(key.tenant or DEFAULT_TENANT, key.may_use, key.default_adapter)


@dataclass(frozen=True, slots=True)
class Ask:
    """A checked request for text. `arrived` is `time.monotonic()` when it came in.

    Every prompt gets `n` choices; choice i of prompt p has index p * n + i, and `seed + i` for a seed. `max_tokens`
    None means `default_max_tokens`, and where that is None too, the rest of the context. `sampling` has everything
    else; its `max_tokens` is not read.
    """

    id: str
    arrived: float
    key: Key
    adapter: AdapterAsk
    prompts: tuple[Prompt, ...]
    sampling: SamplingParams
    max_tokens: int | None
    default_max_tokens: int | None
    n: int = 1
    stop: tuple[str, ...] = ()
    echo: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of all prompts, of all choices (stop tokens included), and of prompts found in the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Generator:
    """Starts generations. One per server, used on its event loop alone."""

    def __init__(
        self,
        engine: Engine,
        directory: Directory,
        weights: Weights,
        tokenizer: Tokenizer,
        metrics: Metrics,
        keep: Callable[[LineageRecord], None],
        *,
        keep_prompts: bool = False,
    ) -> None:
        """`keep` takes the record of every generation that ends, with its prompts if `keep_prompts`."""
        self._engine = engine
        self._directory = directory
        self._weights = weights
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._keep = keep
        self._keep_prompts = keep_prompts
        self._limiter = Limiter()
        self._bridge = EventBridge()
        self._count = itertools.count()

    async def start(self, ask: Ask) -> "Generation":
        """Resolve the route, have its weights brought, and hand all choices to the engine.

        Whatever is wrong is raised here, before any output: ModelNotFound, AdapterConflict, InvalidRequest,
        ContextLengthExceeded, RateLimited, Overloaded, EngineStopped, and what `Weights.ensure` raises.
        """
        caller = caller_of(ask.key)
        route = resolve(ask.adapter, self._directory.snapshot(), caller)
        context_length = self._engine.info.context_length
        limits = [
            output_limit(prompt, ask.max_tokens, ask.default_max_tokens, context_length) for prompt in ask.prompts
        ]
        reserved = sum(len(prompt.tokens) + ask.n * limit for prompt, limit in zip(ask.prompts, limits, strict=True))
        resolved = time.monotonic()
        admission = self._limiter.admit(ask.key, reserved, int(resolved * 1e6))
        try:
            await self._weights.ensure(route.version)
            return self._submitted(ask, route, limits, resolved, admission)
        except ModelNotFound as error:
            admission.finish(0)
            # It was deleted since the route was made. A moment later the answer would have been this one.
            raise not_found(ask.adapter, caller) from error
        except BaseException:
            admission.finish(0)
            raise

    def _submitted(
        self, ask: Ask, route: Route, limits: list[int], resolved: float, admission: Admission
    ) -> "Generation":
        mailbox = Mailbox()
        choices = [
            self._choice(ask, route, p * ask.n + i, prompt, limits[p], i)
            for p, prompt in enumerate(ask.prompts)
            for i in range(ask.n)
        ]
        try:
            for choice in choices:
                self._engine.submit(choice.request, self._bridge.listener(mailbox, choice.index))
        except TurnoutError:
            for choice in choices:
                self._engine.abort(choice.request.id)
            raise
        return Generation(
            ask, route, choices, mailbox, self._engine, self._metrics, resolved, admission, over=self._over
        )

    def _over(self, generation: "Generation") -> None:
        self._keep(generation.lineage(with_prompt=self._keep_prompts))

    def _choice(self, ask: Ask, route: Route, index: int, prompt: Prompt, limit: int, number: int) -> Choice:
        sampling = replace(ask.sampling, max_tokens=limit)
        if sampling.seed is not None:
            sampling = replace(sampling, seed=(sampling.seed + number) % SEEDS)
        # Two callers may send one request id; the engine's are unique.
        request = Request(f"{ask.id}-{next(self._count)}", route, prompt.tokens, sampling, ask.arrived)
        return Choice(index, request, self._tokenizer, ask.stop, prompt.text if ask.echo else None)


class Generation:
    """Choices on their way. Read `pieces` to the end, or `close` to stop; closing twice does no harm."""

    def __init__(
        self,
        ask: Ask,
        route: Route,
        choices: list[Choice],
        mailbox: Mailbox,
        engine: Engine,
        metrics: Metrics,
        resolved: float,
        admission: Admission,
        over: "Callable[[Generation], None]",
    ) -> None:
        """`over` is called once, when nothing more comes."""
        self.route = route
        self._ask = ask
        self._choices = choices
        self._mailbox = mailbox
        self._engine = engine
        self._metrics = metrics
        self._resolved = resolved
        self._loaded = time.monotonic()
        self._ended = self._loaded
        self._admission = admission
        self._failed = False
        self._over: Callable[[Generation], None] | None = over

    @property
    def limit_headers(self) -> Mapping[str, str]:
        """The `x-ratelimit-*` headers of the answer."""
        return self._admission.headers

    async def pieces(self) -> AsyncIterator[Piece]:
        """What the choices bring, as it comes; each choice's last piece has its finish reason.

        Raises EngineFailure and the like when a choice fails; the others are then dropped too.
        """
        try:
            while not self.done:
                deliveries = await self._mailbox.take()
                for index, event in deliveries:
                    self._take(self._choices[index], event)
                if self.done:
                    self._ended = time.monotonic()
                    self._metrics.finished(self.timings, self.usage.prompt_tokens, self.usage.completion_tokens)
                for index in dict.fromkeys(index for index, _ in deliveries):
                    piece = self._choices[index].piece()
                    if piece is not None:
                        yield piece
        except TurnoutError:
            self._failed = True
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Drop what has not ended; the engine frees what it holds before its next step."""
        for choice in self._choices:
            if not choice.done:
                self._engine.abort(choice.request.id)
        over, self._over = self._over, None
        if over is not None:
            usage = self.usage
            self._admission.finish(usage.prompt_tokens + usage.completion_tokens)
            over(self)

    def lineage(self, *, with_prompt: bool) -> LineageRecord:
        """Which weights gave this answer, for the record."""
        version, usage = self.route.version, self.usage
        outcome = "failed" if self._failed else "finished" if self.done else "aborted"
        return LineageRecord(
            request_id=self._ask.id,
            at=now() - int((time.monotonic() - self._ask.arrived) * 1e6),
            tenant=self.route.tenant,
            key_prefix=self._ask.key.prefix,
            owner=version.owner,
            adapter=version.name,
            number=version.number,
            digest=version.digest,
            model_revision=self.route.model_revision,
            tokenizer_revision=self.route.tokenizer_revision,
            reason=self.route.reason,
            outcome=outcome,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            timings=self.timings.as_milliseconds(),
            prompt="\n".join(prompt.text for prompt in self._ask.prompts) if with_prompt else None,
        )

    @property
    def choices(self) -> int:
        """How many there are."""
        return len(self._choices)

    @property
    def done(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.done for choice in self._choices)

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage(
            prompt_tokens=sum(len(prompt.tokens) for prompt in self._ask.prompts),
            completion_tokens=sum(choice.tokens for choice in self._choices),
            cached_tokens=sum(choice.cached_tokens for choice in self._choices[:: self._ask.n]),
        )

    @property
    def timings(self) -> Timings:
        """Phases of an ended generation; where there are several choices, the longest of each."""
        longest = {
            field.name: max(getattr(choice.phases, field.name) for choice in self._choices) for field in fields(Phases)
        }
        # Weights may be brought before the engine is asked, and by the engine into its arena.
        longest["adapter_load"] += self._loaded - self._resolved
        return Timings(self._resolved - self._ask.arrived, Phases(**longest), self._ended - self._ask.arrived)

    def _take(self, choice: Choice, event: Event) -> None:
        if choice.done:
            return  # it stopped at a stop string; the engine's last words crossed the abort
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Finished) and event.digest != self.route.version.digest:
            raise EngineFailure(
                f"the answer was made with {event.digest}, not with {self.route.version.digest} as routed"
            )
        if choice.take(event, time.monotonic()):
            self._engine.abort(choice.request.id)
