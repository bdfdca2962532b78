"""The scheduler with real pools and no model: whatever comes, everyone is served and the books agree."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.states import state_of
from turnout.core.adapter import AdapterState, LoraModule, aligned
from turnout.core.identity import Digest, Route, VersionRef
from turnout.core.request import Request, SamplingParams
from turnout.engine.arena import Arena
from turnout.engine.blocks import BlockPool
from turnout.engine.residency import Residency
from turnout.engine.scheduler import PATIENCE, Chunk, Scheduler
from turnout.engine.sequence import Sequence

BASE = Digest("sha256:base")
BLOCK = 4
WIDTH = 64


def adapter(name: str, rank: int) -> AdapterState:
    module = LoraModule(
        0, "q_proj", rank, 1.0, np.zeros((rank, WIDTH), np.float32), np.zeros((WIDTH, rank), np.float32)
    )
    return state_of(name, BASE, "float32", [module], untouched=6)


def sequence(number: int, digest: str, prompt: int, output: int) -> Sequence:
    route = Route("default", VersionRef("x", 1, Digest(digest)), BASE, Digest("t"), "test")
    tokens = tuple(range(prompt))
    request = Request(str(number), route, tokens, SamplingParams(output, temperature=0), arrived=0.0)
    return Sequence.start(request, lambda event: None, "layout")


class Bench:
    """A scheduler, stepped by hand: every step computes its chunks and gives each its next token."""

    def __init__(self, *, blocks: int, arena: int, adapters: list[AdapterState], **limits: int) -> None:
        self.pool = BlockPool(blocks, BLOCK)
        self.residency = Residency(Arena(arena, torch.float32, torch.device("cpu")), BASE, layers=1)
        for state in adapters:
            self.residency.load(state)
        limits = {"max_batch_tokens": 8, "max_sequences": 4} | limits
        self.limits = limits
        self.scheduler = Scheduler(self.pool, self.residency, **limits)
        self.finished: list[str] = []

    def step(self) -> list[Chunk]:
        chunks = self.scheduler.schedule()
        self.scheduler.check()
        assert sum(chunk.stop - chunk.start for chunk in chunks) <= self.limits["max_batch_tokens"]
        assert len(self.scheduler.running) <= self.limits["max_sequences"]
        seen = [chunk.sequence.request.id for chunk in chunks]
        assert len(seen) == len(set(seen))
        for chunk in chunks:
            served = chunk.sequence
            assert chunk.start == served.computed < chunk.stop <= len(served.tokens)
            self.residency.hot(served.digest)  # raises unless pinned
            end = chunk.reaches_end
            self.scheduler.commit(chunk)
            if end:
                served.tokens.append(1000 + len(served.tokens))
                if served.generated == served.sampling.max_tokens:
                    self.scheduler.remove(served)
                    self.finished.append(served.request.id)
        self.scheduler.check()
        return chunks


ask = st.tuples(st.sampled_from([BASE, "a", "b", "c"]), st.integers(1, 14), st.integers(1, 10))


@settings(max_examples=200, deadline=None)
@given(
    asks=st.lists(ask, min_size=1, max_size=14),
    gaps=st.lists(st.integers(0, 3), min_size=14, max_size=14),
    aborts=st.sets(st.integers(0, 13), max_size=4),
    blocks=st.integers(6, 20),
    room=st.integers(1, 3),
)
def test_everyone_is_served_and_nothing_leaks(asks, gaps, aborts, blocks, room) -> None:
    """Too few blocks, too little room for adapters, people who leave: all end, and all is free afterwards."""
    states = [adapter(name, rank=1) for name in "abc"]
    size = aligned(WIDTH) * 2
    bench = Bench(blocks=blocks, arena=size * room, adapters=states)
    live: dict[str, Sequence] = {}
    for number, (digest, prompt, output) in enumerate(asks):
        live[str(number)] = sequence(number, digest, prompt, output)
        bench.scheduler.add(live[str(number)])
        for _ in range(gaps[number]):
            bench.step()
        if number in aborts and str(number) not in bench.finished:
            bench.scheduler.remove(live.pop(str(number)))
            bench.scheduler.check()
    steps = 0
    while list(bench.scheduler):
        assert bench.step(), "sequences wait and nothing runs"
        steps += 1
        assert steps < 3000, "somebody is never served"
    assert set(live) <= set(bench.finished)
    assert bench.pool.free == bench.pool.total
    assert all(holds == (0, 0) for holds in bench.residency.holds().values())


def test_a_cold_adapter_is_served_however_busy_the_hot_ones_are() -> None:
    """Room for one adapter, endless requests for `a`: the one for `b` is overtaken PATIENCE times at most."""
    size = aligned(WIDTH) * 2
    bench = Bench(blocks=400, arena=size, adapters=[adapter("a", 1), adapter("b", 1)], max_sequences=2)
    number = 0

    def flood() -> None:
        nonlocal number
        while len(bench.scheduler.waiting) < 3:
            number += 1
            bench.scheduler.add(sequence(number, "a", 2, 3))

    flood()
    bench.step()
    cold = sequence(99_999, "b", 2, 1)
    bench.scheduler.add(cold)
    admitted_past = 0
    while cold.request.id not in bench.finished:
        before = len(bench.scheduler.running)
        flood()
        bench.step()
        admitted_past += len(bench.scheduler.running) > before
        assert cold.overtaken <= PATIENCE
        assert number < 1000


def test_decoding_goes_on_while_a_long_prompt_is_read_in_chunks() -> None:
    bench = Bench(blocks=400, arena=0, adapters=[])
    decoding = sequence(1, BASE, 2, 30)
    bench.scheduler.add(decoding)
    bench.step()
    bench.scheduler.add(sequence(2, BASE, 100, 1))
    while "2" not in bench.finished:
        before = decoding.generated
        bench.step()
        assert decoding.generated == before + 1


def test_out_of_blocks_the_youngest_is_recomputed_and_loses_no_token() -> None:
    bench = Bench(blocks=6, arena=0, adapters=[])
    for number in (1, 2):
        bench.scheduler.add(sequence(number, BASE, 8, 10))
    for _ in range(200):
        if not list(bench.scheduler):
            break
        bench.step()
    assert bench.scheduler.preemptions > 0
    assert bench.finished == ["1", "2"]


def test_a_repeated_prompt_is_not_computed_twice() -> None:
    bench = Bench(blocks=50, arena=aligned(WIDTH) * 4, adapters=[adapter("a", 1)])
    first = sequence(1, "a", 14, 1)
    bench.scheduler.add(first)
    while "1" not in bench.finished:
        bench.step()
    again, other = sequence(2, "a", 14, 1), sequence(3, BASE, 14, 1)
    bench.scheduler.add(again)
    bench.scheduler.add(other)
    bench.step()
    assert again.cached_tokens == 12  # three full blocks of four
    assert other.cached_tokens == 0
