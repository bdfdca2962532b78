"""An engine without a model, for tests of everything above the engine."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from turnout.core.adapter import AdapterState
from turnout.core.engine import EngineInfo, EngineStats, Listener
from turnout.core.errors import EngineStopped, ModelNotFound, Overloaded, TurnoutError
from turnout.core.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Phases,
    Prefilled,
    PromptScored,
    Token,
    TokenLogprob,
)
from turnout.core.identity import Digest
from turnout.core.request import Request

Script = Callable[[Request], Sequence[int]]
"""The tokens of a request's answer, at least one; they repeat until something ends the request."""

Fault = Callable[[Request, int], TurnoutError | None]
"""The error, if any, which the request meets after so many tokens."""


def echo(request: Request) -> Sequence[int]:
    """The default script: the prompt's own tokens."""
    return request.prompt


@dataclass(slots=True)
class _Active:
    request: Request
    listener: Listener
    script: Sequence[int]
    output: list[int] = field(default_factory=list)


class FakeEngine:
    """Implements core.engine.Engine: answers every request with `script(request)`.

    A thread of its own plays rounds, one token of each active request in each. With `stepped` it plays only the
    rounds that `step` allows; rounds allowed before a request came wait for it. A request ends as in any engine: at a
    stop token, `max_tokens` or the context's end; or with `fault`'s error. Log-probabilities are made up: -1 for every
    token, and -1, -2, … for it and the ids below it as alternatives.

    `max_waiting` bounds all active requests, for none waits here. `requests` are those accepted, `aborted` the ids
    of those which an abort ended.
    """

    def __init__(
        self,
        info: EngineInfo,
        *,
        script: Script = echo,
        fault: Fault | None = None,
        max_waiting: int = 1024,
        stepped: bool = False,
    ) -> None:
        self.info = info
        self.requests: list[Request] = []
        self.aborted: list[str] = []
        self._script = script
        self._fault = fault
        self._max_waiting = max_waiting
        self._stepped = stepped
        self._allowed = 0
        self._steps = 0
        self._loaded = {info.model_revision}
        self._draining: dict[Digest, list[Future[None]]] = {}
        self._active: dict[str, _Active] = {}
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    @property
    def loaded(self) -> frozenset[Digest]:
        """The digests that may be asked for, the base's among them."""
        with self._changed:
            return frozenset(self._loaded)

    def submit(self, request: Request, listener: Listener) -> None:
        """See Engine.submit."""
        with self._changed:
            self._raise_if_closed()
            if request.route.version.digest not in self._loaded:
                raise ModelNotFound(f"the weights of {request.route.version} are not loaded", param="model")
            if len(self._active) >= self._max_waiting:
                raise Overloaded("the queue is full; try again in a second")
            if request.id in self._active:
                raise ValueError(f"request id {request.id} is in use")
            self.requests.append(request)
            self._active[request.id] = _Active(request, listener, self._script(request))
            self._changed.notify_all()

    def abort(self, request_id: str) -> None:
        """See Engine.abort."""
        with self._changed:
            if request_id in self._active:
                self.aborted.append(request_id)
                self._end(request_id)

    def load(self, state: AdapterState) -> "Future[None]":
        """See Engine.load."""
        done: Future[None] = Future()
        with self._changed:
            self._raise_if_closed()
            self._loaded.add(state.digest)
            drained = self._draining.pop(state.digest, [])
        for future in (done, *drained):
            future.set_result(None)
        return done

    def unload(self, digest: Digest) -> "Future[None]":
        """See Engine.unload."""
        if digest == self.info.model_revision:
            raise ValueError("the base model cannot be unloaded")
        done: Future[None] = Future()
        with self._changed:
            self._raise_if_closed()
            self._loaded.discard(digest)
            self._draining.setdefault(digest, []).append(done)
            self._free_if_drained(digest)
        return done

    def stats(self) -> EngineStats:
        """See Engine.stats; KV blocks and bytes are not imitated."""
        with self._changed:
            adapters = (self._loaded | self._draining.keys()) - {self.info.model_revision}
            return EngineStats(
                running=len(self._active),
                adapters_loaded=len(adapters),
                adapters_hot=len(adapters),
                leases=sum(self._leases(digest) for digest in adapters),
                steps=self._steps,
                accepting=not self._closed,
            )

    def close(self) -> None:
        """See Engine.close."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def step(self, rounds: int = 1) -> None:
        """Allow so many more rounds."""
        with self._changed:
            self._allowed += rounds
            self._changed.notify_all()

    def wait_idle(self, timeout: float = 10.0) -> bool:
        """Wait until no request is active; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._active, timeout)

    def _run(self) -> None:
        while True:
            # Outside the lock, so that a long answer does not keep other threads from it.
            time.sleep(0)
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._active and self._may_play()))
                if self._closed:
                    self._fail_all()
                    return
                self._allowed -= 1
                self._steps += 1
                for active in list(self._active.values()):
                    self._tell(active, self._play(active))

    def _may_play(self) -> bool:
        return self._allowed > 0 or not self._stepped

    def _fail_all(self) -> None:
        for active in list(self._active.values()):
            self._tell(active, [Failed(EngineStopped("the server is shutting down"))])

    def _tell(self, active: _Active, events: Sequence[Event]) -> None:
        for event in events:
            # Asked each time: the listener itself may abort.
            if self._active.get(active.request.id) is not active:
                return
            if isinstance(event, Finished | Failed):
                self._end(active.request.id)
            active.listener(event)

    def _play(self, active: _Active) -> list[Event]:
        request, output = active.request, active.output
        sampling = request.sampling
        events: list[Event] = []
        if not output:
            if sampling.prompt_logprobs is not None:
                scored = (_logprob(token, sampling.prompt_logprobs) for token in request.prompt[1:])
                events.append(PromptScored(tuple(scored)))
            events.append(Prefilled(0, Phases()))
        error = self._fault(request, len(output)) if self._fault else None
        if error is not None:
            return [*events, Failed(error)]
        if sampling.max_tokens > 0:
            token = active.script[len(output) % len(active.script)]
            output.append(token)
            events.append(Token(token, None if sampling.logprobs is None else _logprob(token, sampling.logprobs)))
        reason = self._finish_reason(request, output)
        if reason is not None:
            events.append(Finished(reason, request.route.version.digest, Phases()))
        return events

    def _finish_reason(self, request: Request, output: Sequence[int]) -> FinishReason | None:
        if output and output[-1] in request.sampling.stop_token_ids:
            return "stop"
        full = len(request.prompt) + len(output) >= self.info.context_length
        return "length" if full or len(output) >= request.sampling.max_tokens else None

    def _end(self, request_id: str) -> None:
        ended = self._active.pop(request_id)
        self._free_if_drained(ended.request.route.version.digest)
        self._changed.notify_all()

    def _leases(self, digest: Digest) -> int:
        return sum(active.request.route.version.digest == digest for active in self._active.values())

    def _free_if_drained(self, digest: Digest) -> None:
        if self._leases(digest) == 0:
            for future in self._draining.pop(digest, []):
                future.set_result(None)

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise EngineStopped("the server is shutting down")


def _logprob(token: int, alternatives: int) -> TokenLogprob:
    return TokenLogprob(token, -1.0, tuple((max(token - i, 0), -1.0 - i) for i in range(alternatives)))
