"""The use case: a request's route is resolved, its prompts run, its choices come back as text."""

import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields, replace

from turnout.core.engine import Engine
from turnout.core.errors import EngineFailure, ModelNotFound, TurnoutError
from turnout.core.events import Event, Failed, Finished, Phases
from turnout.core.identity import Route
from turnout.core.request import Request, SamplingParams
from turnout.registry.catalog import Catalog
from turnout.routing.resolve import AdapterAsk, not_found, resolve
from turnout.serving.bridge import EventBridge, Mailbox
from turnout.serving.choice import Choice, Piece
from turnout.serving.prompts import Prompt, output_limit
from turnout.telemetry.metrics import Metrics
from turnout.telemetry.phases import Timings
from turnout.text.tokenizer import Tokenizer

SEEDS = 1 << 64


@dataclass(frozen=True, slots=True)
class Ask:
    """A checked request for text. `arrived` is `time.monotonic()` when it came in.

    Every prompt gets `n` choices; choice i of prompt p has index p * n + i, and `seed + i` for a seed. `max_tokens`
    None means `default_max_tokens`, and where that is None too, the rest of the context. `sampling` has everything
    else; its `max_tokens` is not read.
    """

    id: str
    arrived: float
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

    def __init__(self, engine: Engine, catalog: Catalog, tokenizer: Tokenizer, metrics: Metrics) -> None:
        self._engine = engine
        self._catalog = catalog
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._bridge = EventBridge()
        self._count = itertools.count()

    def start(self, ask: Ask) -> "Generation":
        """Resolve the route and hand all choices to the engine; whatever is wrong is raised here, before any output.

        Raises ModelNotFound, AdapterConflict, InvalidRequest, ContextLengthExceeded, Overloaded, EngineStopped.
        """
        route = resolve(ask.adapter, self._catalog.snapshot())
        context_length = self._engine.info.context_length
        limits = [
            output_limit(prompt, ask.max_tokens, ask.default_max_tokens, context_length) for prompt in ask.prompts
        ]
        mailbox = Mailbox()
        choices = [
            self._choice(ask, route, p * ask.n + i, prompt, limits[p], i)
            for p, prompt in enumerate(ask.prompts)
            for i in range(ask.n)
        ]
        generation = Generation(ask, route, choices, mailbox, self._engine, self._metrics)
        try:
            for choice in choices:
                self._engine.submit(choice.request, self._bridge.listener(mailbox, choice.index))
        except ModelNotFound as error:
            generation.close()
            # It was unloaded since the route was made. A moment later the answer would have been this one.
            raise not_found(ask.adapter) from error
        except TurnoutError:
            generation.close()
            raise
        return generation

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
        self, ask: Ask, route: Route, choices: list[Choice], mailbox: Mailbox, engine: Engine, metrics: Metrics
    ) -> None:
        self.route = route
        self._ask = ask
        self._choices = choices
        self._mailbox = mailbox
        self._engine = engine
        self._metrics = metrics
        self._resolved = time.monotonic()
        self._ended = self._resolved

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
        finally:
            self.close()

    def close(self) -> None:
        """Drop what has not ended; the engine frees what it holds before its next step."""
        for choice in self._choices:
            if not choice.done:
                self._engine.abort(choice.request.id)

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
