"""The fake keeps the Engine protocol's promises: what both engines owe is asked of the fake and of the real one."""

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.adapters import marker_adapter
from tests.support.bases import write_alphabet_base
from tests.support.engines import PATIENCE, TOKENIZER, Answer, Bench
from tests.support.states import state_of
from turnout.core.adapter import AdapterState
from turnout.core.engine import Engine, EngineInfo
from turnout.core.errors import EngineFailure, EngineStopped, ModelNotFound, Overloaded
from turnout.core.events import Failed, Finished, Prefilled, PromptScored, Token, TokenLogprob
from turnout.core.fake import FakeEngine
from turnout.core.identity import Digest, Route, VersionRef
from turnout.core.request import Request, SamplingParams

MODEL = Digest("sha256:base")
INFO = EngineInfo(MODEL, "float32", context_length=64, vocab_size=320, kernels="none")


def adapter(letter: str) -> AdapterState:
    return state_of(f"sha256:{letter}", MODEL, "float32")


@dataclass
class Asker:
    """Any engine, two adapters that fit it, and a way to ask."""

    engine: Engine
    states: tuple[AdapterState, AdapterState]
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def ask(self, digest: Digest | None, prompt: Sequence[int] = (65, 66), output: int = 8, **sampling: Any) -> Answer:
        base = self.engine.info.model_revision
        version = VersionRef("base", 0, base) if digest is None else VersionRef("x", 1, digest)
        params = SamplingParams(output, **{"temperature": 0.0, **sampling})
        route = Route("default", version, base, TOKENIZER, "test")
        answer = Answer(Request(str(next(self._ids)), route, tuple(prompt), params, time.monotonic()))
        self.engine.submit(answer.request, answer.listen)
        return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alphabet")
    write_alphabet_base(folder / "base")
    marker_adapter(folder / "a", ord("A"))
    marker_adapter(folder / "b", ord("B"))
    return folder


@pytest.fixture(params=["fake", "local"])
def asker(request: pytest.FixtureRequest, folder: Path) -> Iterator[Asker]:
    if request.param == "fake":
        with closing(FakeEngine(INFO)) as engine:
            yield Asker(engine, (adapter("a"), adapter("b")))
    else:
        with Bench(folder / "base") as bench:
            yield Asker(bench.engine, (bench.read(folder / "a"), bench.read(folder / "b")))


def test_a_request_is_answered_with_its_weights_named(asker: Asker) -> None:
    for state in asker.states:
        asker.engine.load(state).result(PATIENCE)
    digests = [None, *(state.digest for state in asker.states)]
    for digest, answer in [(digest, asker.ask(digest)) for digest in digests]:
        finished = answer.wait().finished
        assert finished.digest == (digest or asker.engine.info.model_revision)
        assert (finished.reason, len(answer.tokens)) == ("length", 8)


def test_events_come_in_the_promised_order_and_logprobs_as_asked(asker: Asker) -> None:
    answer = asker.ask(None, prompt=(65, 66, 67), output=3, logprobs=2, prompt_logprobs=1).wait()
    assert [type(event) for event in answer.events] == [PromptScored, Prefilled, Token, Token, Token, Finished]
    assert [logprob.token for logprob in answer.prompt_logprobs] == [66, 67]
    assert {len(logprob.top) for logprob in answer.prompt_logprobs} == {1}
    assert [logprob.token for logprob in answer.logprobs] == answer.tokens
    assert {len(logprob.top) for logprob in answer.logprobs} == {2}
    assert asker.ask(None, output=3).wait().logprobs == []


def test_scoring_alone_generates_nothing(asker: Asker) -> None:
    answer = asker.ask(None, output=0, prompt_logprobs=0).wait()
    assert [type(event) for event in answer.events] == [PromptScored, Prefilled, Finished]
    assert answer.finished.reason == "length"


def test_a_stop_token_ends_a_request_and_is_reported(asker: Asker) -> None:
    first = asker.ask(None, output=1).wait().tokens
    answer = asker.ask(None, stop_token_ids=frozenset(first)).wait()
    assert (answer.tokens, answer.finished.reason) == (first, "stop")


def test_the_context_bounds_prompt_and_output_together(asker: Asker) -> None:
    context = asker.engine.info.context_length
    answer = asker.ask(None, prompt=(65,) * (context - 2), output=99).wait()
    assert (len(answer.tokens), answer.finished.reason) == (2, "length")


def test_unloaded_weights_are_refused_before_and_after(asker: Asker) -> None:
    state = asker.states[0]
    with pytest.raises(ModelNotFound):
        asker.ask(state.digest)
    asker.engine.load(state).result(PATIENCE)
    running = asker.ask(state.digest, output=30)
    drained = asker.engine.unload(state.digest)
    with pytest.raises(ModelNotFound):
        asker.ask(state.digest)
    assert len(running.wait().tokens) == 30
    drained.result(PATIENCE)
    assert asker.engine.stats().adapters_loaded == 0
    asker.engine.unload(state.digest).result(PATIENCE)


def test_loading_twice_is_loading_once_and_a_load_outlives_an_earlier_unload(asker: Asker) -> None:
    state = asker.states[0]
    futures = [asker.engine.load(state), asker.engine.load(state)]
    running = asker.ask(state.digest, output=30)
    futures += [asker.engine.unload(state.digest), asker.engine.load(state)]
    for future in futures:
        future.result(PATIENCE)
    assert asker.engine.stats().adapters_loaded == 1
    assert len(asker.ask(state.digest).wait().tokens) == 8
    running.wait()
    asker.engine.unload(state.digest).result(PATIENCE)
    assert asker.engine.stats().adapters_loaded == 0


def test_the_base_stays(asker: Asker) -> None:
    with pytest.raises(ValueError, match="base"):
        asker.engine.unload(asker.engine.info.model_revision)


def test_aborting_what_is_unknown_or_over_does_nothing(asker: Asker) -> None:
    answer = asker.ask(None).wait()
    asker.engine.abort(answer.request.id)
    asker.engine.abort("nosuch")
    assert len(asker.ask(None).wait().tokens) == 8


def test_a_closed_engine_fails_what_it_holds_and_takes_no_more(asker: Asker) -> None:
    held = [asker.ask(None, output=60) for _ in range(3)]
    asker.engine.close()
    for answer in held:
        assert isinstance(answer.wait().events[-1], Finished) or isinstance(answer.error, EngineStopped)
    assert not asker.engine.stats().accepting
    with pytest.raises(EngineStopped):
        asker.ask(None)
    with pytest.raises(EngineStopped):
        asker.engine.load(asker.states[0])
    with pytest.raises(EngineStopped):
        asker.engine.unload(asker.states[0].digest)
    asker.engine.close()


def test_a_stepped_fake_plays_the_rounds_it_is_given() -> None:
    with closing(FakeEngine(INFO, stepped=True)) as engine:
        engine.step(2)
        one = Asker(engine, (adapter("a"), adapter("b"))).ask(None, output=4)
        assert one.wait_tokens(2).tokens == [65, 66]
        assert (engine.stats().running, engine.stats().steps) == (1, 2)
        engine.step(2)
        assert one.wait().tokens == [65, 66, 65, 66]
        assert engine.wait_idle()
        assert (engine.stats().running, engine.stats().steps) == (0, 4)


def test_a_script_gives_the_tokens_and_repeats() -> None:
    with closing(FakeEngine(INFO, script=lambda request: [len(request.prompt), 7])) as engine:
        answer = Asker(engine, (adapter("a"), adapter("b"))).ask(None, prompt=(1, 2, 3), output=5, logprobs=2).wait()
    assert answer.tokens == [3, 7, 3, 7, 3]
    assert answer.logprobs[0] == TokenLogprob(3, -1.0, ((3, -1.0), (2, -2.0)))


def test_a_fault_ends_one_request_after_so_many_tokens() -> None:
    def fault(request: Request, tokens: int) -> EngineFailure | None:
        return EngineFailure("injected") if tokens == 3 and request.prompt == (9,) else None

    with closing(FakeEngine(INFO, fault=fault)) as engine:
        asker = Asker(engine, (adapter("a"), adapter("b")))
        broken, whole = asker.ask(None, prompt=(9,)), asker.ask(None)
        assert len(whole.wait().tokens) == 8
        assert len(broken.wait().tokens) == 3
        assert isinstance(broken.error, EngineFailure)
        assert engine.stats().running == 0


def test_the_queue_is_bounded_and_ids_are_unique() -> None:
    with closing(FakeEngine(INFO, max_waiting=1, stepped=True)) as engine:
        asker = Asker(engine, (adapter("a"), adapter("b")))
        first = asker.ask(None)
        with pytest.raises(Overloaded):
            asker.ask(None)
        assert engine.requests == [first.request]
    with closing(FakeEngine(INFO, stepped=True)) as engine:
        engine.submit(first.request, first.listen)
        with pytest.raises(ValueError, match="in use"):
            engine.submit(first.request, first.listen)


def test_an_aborted_request_gets_no_further_event_and_holds_nothing() -> None:
    with closing(FakeEngine(INFO, stepped=True)) as engine:
        asker = Asker(engine, (adapter("a"), adapter("b")))
        engine.load(asker.states[0])
        answer = asker.ask(asker.states[0].digest)
        engine.step()
        answer.wait_tokens(1)
        drained = engine.unload(asker.states[0].digest)
        assert (engine.stats().leases, engine.stats().adapters_loaded, drained.done()) == (1, 1, False)
        assert engine.loaded == {MODEL}
        engine.abort(answer.request.id)
        drained.result(PATIENCE)
        assert (engine.stats().leases, engine.stats().adapters_loaded) == (0, 0)
        assert engine.aborted == [answer.request.id]
        assert [type(event) for event in answer.events] == [Prefilled, Token]


def test_weights_loaded_again_while_they_drain_stay() -> None:
    with closing(FakeEngine(INFO, stepped=True)) as engine:
        asker = Asker(engine, (adapter("a"), adapter("b")))
        engine.load(asker.states[0])
        asker.ask(asker.states[0].digest, output=1)
        drained = engine.unload(asker.states[0].digest)
        engine.load(asker.states[0])
        assert drained.done()
        engine.step()
        assert engine.wait_idle()
        assert engine.loaded == {MODEL, asker.states[0].digest}


def test_a_listener_may_abort_its_own_request() -> None:
    with closing(FakeEngine(INFO)) as engine:
        events: list[object] = []

        def listen(event: object) -> None:
            events.append(event)
            engine.abort("r")

        route = Route("default", VersionRef("base", 0, MODEL), MODEL, TOKENIZER, "test")
        engine.submit(Request("r", route, (1,), SamplingParams(1), 0.0), listen)
        assert engine.wait_idle()
        assert [type(event) for event in events] == [Prefilled]


def test_closing_a_stepped_fake_fails_what_waits_for_steps() -> None:
    engine = FakeEngine(INFO, stepped=True)
    answer = Asker(engine, (adapter("a"), adapter("b"))).ask(None)
    assert not engine.wait_idle(timeout=0)
    engine.close()
    assert [type(event) for event in answer.events] == [Failed]
