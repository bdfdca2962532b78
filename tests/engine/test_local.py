"""The rules, on a real engine, a real (small) model and real adapter files."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.adapters import peft_logits, random_adapter
from tests.support.bases import write_random_base
from tests.support.engines import PATIENCE, Answer, Bench
from turnout.core.errors import AdapterTooLarge, EngineFailure, EngineStopped, ModelNotFound, Overloaded
from turnout.core.identity import Digest
from turnout.kernels import native, select

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PROMPT = [256, *b"The quick brown fox jumps over the lazy dog."]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return write_random_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def folders(base, tmp_path_factory) -> list[Path]:
    """Eight adapters of different ranks, targets and layers."""
    root = tmp_path_factory.mktemp("adapters")
    return [
        random_adapter(
            root / f"a{seed}",
            base,
            rank=(1, 4, 16, 3)[seed % 4],
            targets=(ALL, ("q_proj", "v_proj"), ("k_proj", "down_proj"))[seed % 3],
            layers=None if seed % 2 else [1],
            seed=seed,
        )
        for seed in range(8)
    ]


def assert_same(got: Answer, alone: Answer) -> None:
    """The same tokens, except from where the two likeliest lay within 1e-4 of each other."""
    for index, (one, other) in enumerate(zip(got.tokens, alone.tokens, strict=True)):
        if one != other:
            best = alone.logprobs[index].top
            assert best[0][1] - best[1][1] < 1e-4, f"token {index}: {one} instead of {other}"
            return


def test_every_distribution_is_pefts(base, folders) -> None:
    """Prompt and output positions, through chunked prefill and decode, the whole vocabulary."""
    with Bench(base, max_batch_tokens=16, max_sequences=4) as bench:
        for folder in folders:
            answer = bench.ask(
                bench.load(folder), PROMPT, 6, logprobs=bench.spec.vocab_size, prompt_logprobs=bench.spec.vocab_size
            ).wait()
            ids = [*PROMPT, *answer.tokens]
            expected = torch.log_softmax(peft_logits(base, folder, ids), -1)
            for position, entry in enumerate([*answer.prompt_logprobs, *answer.logprobs]):
                got = torch.empty(bench.spec.vocab_size)
                got[[token for token, _ in entry.top]] = torch.tensor([value for _, value in entry.top])
                assert (got - expected[position]).abs().max() < 1e-4
                assert entry.token == ids[position + 1]


ask = st.tuples(st.integers(-1, 7), st.integers(1, 44), st.integers(1, 12))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asks=st.lists(ask, min_size=64, max_size=64), data=st.data())
def test_nobodys_traffic_changes_anybodys_tokens(base, folders, alone, asks, data) -> None:
    """64 requests over 8 adapters and the base, interleaved, with evictions and preemptions: each as if alone."""
    limits = {
        "max_batch_tokens": data.draw(st.sampled_from([16, 64, 512])),
        "max_sequences": data.draw(st.sampled_from([3, 16])),
        "kv_memory": data.draw(st.sampled_from([1 << 16, 8 << 20])),
        "adapter_memory": data.draw(st.sampled_from([1 << 18, 8 << 20])),
    }
    with Bench(base, **limits) as bench:
        digests = {index: bench.load(folder) for index, folder in enumerate(folders)}
        answers = [bench.ask(digests.get(adapter), PROMPT[-length:], output) for adapter, length, output in asks]
        for answer, (adapter, length, output) in zip(answers, asks, strict=True):
            assert_same(answer.wait(), alone(adapter, length, output))
        assert all(answer.finished.digest == answer.request.route.version.digest for answer in answers)
        bench.settle()
        assert bench.engine.stats().kv_blocks_free == bench.engine.stats().kv_blocks_total


@pytest.fixture(scope="module")
def alone(base, folders):
    """What a request gives on an engine that has never served another."""
    known: dict[tuple[int, int, int], Answer] = {}

    def answer(adapter: int, length: int, output: int) -> Answer:
        key = (adapter, length, output)
        if key not in known:
            with Bench(base) as bench:
                digest = bench.load(folders[adapter]) if adapter >= 0 else None
                known[key] = bench.ask(digest, PROMPT[-length:], output, logprobs=2).wait()
        return known[key]

    return answer


@pytest.mark.parametrize("name", [cpu.name for cpu in native.instruction_sets()])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asks=st.lists(ask, min_size=32, max_size=32), data=st.data())
def test_native_kernels_give_the_same_bits_alone_and_in_a_crowd(monkeypatch, base, folders, name, asks, data) -> None:
    """Whatever the neighbours, the chunks a prompt is read in, what comes from the cache or is computed again."""
    limits = {
        "max_batch_tokens": data.draw(st.sampled_from([16, 64, 512])),
        "max_sequences": data.draw(st.sampled_from([3, 16])),
        "kv_memory": data.draw(st.sampled_from([1 << 15, 8 << 20])),
    }

    monkeypatch.setenv("TURNOUT_CPU", name)

    def logprobs(answer: Answer) -> list[tuple[int, float]]:
        return [(entry.token, entry.logprob) for entry in answer.wait().logprobs]

    with Bench(base, dtype="bfloat16", **limits) as crowd, Bench(base, dtype="bfloat16") as alone:
        assert crowd.kernels.name == f"native-{name}"
        digests = {index: crowd.load(folder) for index, folder in enumerate(folders)}
        for folder in folders:
            alone.load(folder)
        answers = [
            crowd.ask(digests.get(adapter), PROMPT[-length:], output, logprobs=0) for adapter, length, output in asks
        ]
        for answer, (adapter, length, output) in zip(answers, asks, strict=True):
            # Scoring the prompt as well keeps this one from using the prefix cache.
            single = alone.ask(digests.get(adapter), PROMPT[-length:], output, logprobs=0, prompt_logprobs=0)
            assert logprobs(answer) == logprobs(single)


def test_seeded_sampling_is_the_same_alone_and_in_a_batch(base, folders) -> None:
    sampling = {"temperature": 1.0, "top_p": 0.95, "seed": 11}
    with Bench(base) as bench:
        digests = [bench.load(folder) for folder in folders]
        first = bench.ask(digests[0], PROMPT, 20, **sampling).wait().tokens
        crowd = [bench.ask(digest, PROMPT, 20, temperature=1.0) for digest in digests * 2]
        again = bench.ask(digests[0], PROMPT, 20, **sampling).wait().tokens
        for other in crowd:
            other.wait()
    assert first == again


def test_equal_prompts_of_two_adapters_share_no_state(base, folders) -> None:
    with Bench(base) as bench:
        one, two = bench.load(folders[0]), bench.load(folders[1])
        assert bench.ask(one, PROMPT).wait().cached_tokens == 0
        assert bench.ask(two, PROMPT).wait().cached_tokens == 0
        assert bench.ask(None, PROMPT).wait().cached_tokens == 0
        assert bench.ask(one, PROMPT).wait().cached_tokens == len(PROMPT) // 16 * 16


def test_state_from_the_cache_gives_the_same_tokens(base, folders) -> None:
    with Bench(base) as bench:
        digest = bench.load(folders[0])
        cold = bench.ask(digest, PROMPT, 12, logprobs=2).wait()
        warm = bench.ask(digest, PROMPT, 12).wait()
        assert warm.cached_tokens > 0
        assert_same(warm, cold)


def test_new_weights_never_meet_the_state_of_old_ones(base, tmp_path) -> None:
    """Same files but for lora_alpha: another function, another digest, no hit; back again, a hit is right."""
    one = random_adapter(tmp_path / "one", base, alpha=8, targets=("k_proj", "v_proj"), seed=1)
    two = random_adapter(tmp_path / "two", base, alpha=16, targets=("k_proj", "v_proj"), seed=1)
    with Bench(base) as cold:
        expected = {folder: cold.ask(cold.load(folder), PROMPT, 16, logprobs=2).wait() for folder in (one, two)}
    with Bench(base) as bench:
        for folder, cached in ((one, 0), (two, 0), (one, 32), (two, 32)):
            digest = bench.load(folder)
            answer = bench.ask(digest, PROMPT, 16).wait()
            assert answer.cached_tokens == cached
            assert_same(answer, expected[folder])
            bench.engine.unload(digest).result(PATIENCE)


def test_unload_while_decoding_drains(base, folders) -> None:
    with Bench(base) as bench:
        digest = bench.load(folders[0])
        undisturbed = bench.ask(digest, PROMPT, 100, logprobs=2).wait()
        running = [bench.ask(digest, PROMPT, 100) for _ in range(4)]
        running[0].wait_tokens(5)
        unloaded = bench.engine.unload(digest)
        with pytest.raises(ModelNotFound):
            bench.ask(digest, PROMPT)
        for answer in running:
            assert_same(answer.wait(), undisturbed)
        unloaded.result(PATIENCE)
        stats = bench.engine.stats()
        assert (stats.adapters_loaded, stats.adapters_hot, stats.adapter_bytes_used, stats.leases) == (0, 0, 0, 0)


def test_an_adapter_in_use_is_not_evicted_by_others(base, folders) -> None:
    """Room for little more than one adapter: the others take turns around the one that decodes."""
    with Bench(base, adapter_memory=170_000) as bench:
        digests = [bench.load(folder) for folder in folders]
        undisturbed = bench.ask(digests[0], PROMPT, 60, logprobs=2).wait()
        decoding = bench.ask(digests[0], PROMPT, 60)
        others = [bench.ask(digest, PROMPT, 3, logprobs=2) for digest in digests[1:] * 3]
        assert_same(decoding.wait(), undisturbed)
        for index, answer in enumerate(others):
            assert_same(answer.wait(), others[index % 7].wait())


def test_an_abort_frees_before_the_next_step_and_says_nothing_more(base, folders) -> None:
    with Bench(base) as bench:
        digest = bench.load(folders[0])
        streams = [bench.ask(digest, PROMPT, 200) for _ in range(3)]
        streams[0].wait_tokens(3)
        for stream in streams:
            bench.engine.abort(stream.request.id)
        bench.engine.abort("never heard of")
        bench.engine.unload(digest).result(PATIENCE)
        stats = bench.engine.stats()
        assert (stats.running, stats.waiting, stats.leases) == (0, 0, 0)
        assert stats.kv_blocks_free == stats.kv_blocks_total
        assert not any(type(event).__name__ in ("Finished", "Failed") for s in streams for event in s.events)


def test_two_hundred_rounds_of_load_and_unload_leave_memory_where_it_was(base, tmp_path) -> None:
    folder = random_adapter(tmp_path / "big", base, rank=64, targets=ALL)
    process = psutil.Process()
    with Bench(base) as bench:

        def round_trip() -> None:
            digest = bench.load(folder)
            bench.ask(digest, PROMPT, 2).wait()
            bench.engine.unload(digest).result(PATIENCE)

        for _ in range(20):
            round_trip()
        before = process.memory_info().rss
        for _ in range(200):
            round_trip()
        size = bench.read(folder).nbytes
        # Were each round's weights kept, this would have grown by 200 times their size.
        assert process.memory_info().rss - before < 20 * size
        assert bench.engine.stats().adapter_bytes_used == 0


class Faulty:
    """The reference kernels, but attention raises while armed."""

    def __init__(self) -> None:
        self._real = select("cpu", torch.float32)
        self.name = self._real.name
        self.armed = False

    def __getattr__(self, name: str):
        return getattr(self._real, name)

    def attention(self, *args, **kwargs):
        if self.armed:
            raise ValueError("injected")
        return self._real.attention(*args, **kwargs)


def test_a_step_that_fails_costs_its_requests_and_no_others(base, caplog) -> None:
    kernels = Faulty()
    with Bench(base, kernels=kernels, max_sequences=2) as bench:
        good = bench.ask(None, PROMPT, 12, logprobs=2).wait()
        lost = [bench.ask(None, PROMPT, 200) for _ in range(2)]
        waiting = bench.ask(None, PROMPT, 12)
        lost[0].wait_tokens(2)
        lost[1].wait_tokens(2)
        with caplog.at_level("ERROR"):
            kernels.armed = True
            for answer in lost:
                assert isinstance(answer.wait().error, EngineFailure)
            kernels.armed = False
        assert any(answer.request.id in record.getMessage() for record in caplog.records for answer in lost)
        # The one that waited may have been caught by a later failing step, but then says so; a new one is served.
        waiting.wait()
        assert_same(bench.ask(None, PROMPT, 12).wait(), good)
        bench.settle()
        assert bench.engine.stats().kv_blocks_free == bench.engine.stats().kv_blocks_total


def test_output_that_is_not_finite_fails_alone(base, tmp_path) -> None:
    """Finite weights whose products overflow: their owner gets an error, the neighbours their usual tokens."""
    folder = random_adapter(tmp_path / "huge", base, alpha=1e30, targets=ALL)
    with Bench(base) as bench:
        digest = bench.load(folder)
        quiet = bench.ask(None, PROMPT, 30, logprobs=2).wait()
        neighbour = bench.ask(None, PROMPT, 30)
        huge = [bench.ask(digest, PROMPT, 30) for _ in range(3)]
        for answer in huge:
            assert isinstance(answer.wait().error, EngineFailure)
        assert_same(neighbour.wait(), quiet)


def test_the_queue_is_bounded_and_opens_again(base) -> None:
    with Bench(base, max_sequences=1, max_waiting=2) as bench:
        running = bench.ask(None, PROMPT, 150).wait_tokens(1)
        waiting = [bench.ask(None, PROMPT, 1) for _ in range(2)]
        with pytest.raises(Overloaded):
            bench.ask(None, PROMPT, 1)
        bench.engine.abort(waiting[0].request.id)
        bench.engine.abort(running.request.id)
        waiting[1].wait()
        bench.ask(None, PROMPT, 1).wait()


def test_what_never_fits_is_refused_at_load(base, tmp_path, folders) -> None:
    folder = random_adapter(tmp_path / "big", base, rank=64, targets=ALL)
    with Bench(base, adapter_memory=200_000) as bench:
        with pytest.raises(AdapterTooLarge, match="adapter-memory"):
            bench.load(folder)
        with pytest.raises(ModelNotFound):
            bench.ask(bench.read(folder).digest, PROMPT)
        assert bench.ask(bench.load(folders[1]), PROMPT).wait().tokens


def test_output_stops_at_the_context(base) -> None:
    with Bench(base) as bench:
        length = bench.engine.info.context_length
        answer = bench.ask(None, [65] * (length - 5), 1000).wait()
        assert len(answer.tokens) == 5 and answer.finished.reason == "length"


def test_a_pool_smaller_than_the_context_bounds_it(base) -> None:
    with Bench(base, kv_memory=1 << 16) as bench:
        length = bench.engine.info.context_length
        assert length < bench.spec.context_length
        assert len(bench.ask(None, [65] * (length - 1), 5).wait().tokens) == 1


def test_out_of_kv_blocks_requests_wait_for_each_other_and_lose_nothing(base, folders) -> None:
    with Bench(base) as roomy:
        digests = [roomy.load(folder) for folder in folders]
        expected = [roomy.ask(digest, PROMPT, 60, logprobs=2).wait() for digest in digests]
    with Bench(base, kv_memory=1 << 17) as tight:
        answers = [tight.ask(tight.load(folder), PROMPT, 60, prompt_logprobs=0) for folder in folders]
        for answer, alone in zip(answers, expected, strict=True):
            assert_same(answer.wait(), alone)
            assert len(answer.prompt_logprobs) == len(PROMPT) - 1
        assert tight.engine.stats().preemptions > 0


def written_state(bench: Bench, digest: Digest | None) -> torch.Tensor:
    """Keys and values [2, layers, tokens, ...] that a prompt leaves in a fresh engine's cache."""
    bench.ask(digest, PROMPT, 1).wait()
    kv = bench.engine._loop._runner.kv
    return torch.stack([kv.k, kv.v]).flatten(2, 3)[:, :, : len(PROMPT)].clone()


@pytest.mark.parametrize(
    ("targets", "layers", "same", "different"),
    [
        (("q_proj",), [1], [("k", 0), ("v", 0), ("k", 1), ("v", 1)], []),
        (("q_proj", "k_proj"), None, [("v", 0)], [("k", 0), ("k", 1), ("v", 1)]),
        (("v_proj",), [1], [("k", 0), ("v", 0), ("k", 1)], [("v", 1)]),
        (("up_proj",), [0], [("k", 0), ("v", 0)], [("k", 1), ("v", 1)]),
        (("gate_proj", "down_proj"), None, [("k", 0), ("v", 0)], [("k", 1), ("v", 1)]),
    ],
)
def test_what_an_adapter_leaves_alone_is_the_bases_bit_for_bit(
    base, tmp_path, targets, layers, same, different
) -> None:
    folder = random_adapter(tmp_path / "part", base, targets=targets, layers=layers, seed=3)
    with Bench(base) as plain, Bench(base) as adapted:
        one, two = written_state(plain, None), written_state(adapted, adapted.load(folder))
    for half, layer in same:
        assert torch.equal(one["kv".index(half), layer], two["kv".index(half), layer])
    for half, layer in different:
        assert not torch.equal(one["kv".index(half), layer], two["kv".index(half), layer])


def test_scoring_alone_generates_nothing(base) -> None:
    with Bench(base) as bench:
        answer = bench.ask(None, PROMPT, 0, prompt_logprobs=0).wait()
        assert answer.tokens == [] and len(answer.prompt_logprobs) == len(PROMPT) - 1
        single = bench.ask(None, PROMPT[:1], 0, prompt_logprobs=0).wait()
        assert single.prompt_logprobs == ()


def test_stop_tokens_end_a_sequence(base) -> None:
    with Bench(base) as bench:
        free = bench.ask(None, PROMPT, 10).wait().tokens
        stopped = bench.ask(None, PROMPT, 10, stop_token_ids=frozenset({free[3]})).wait()
        assert stopped.tokens == free[: free.index(free[3]) + 1]
        assert stopped.finished.reason == "stop"


def test_many_threads_at_the_door(base, folders) -> None:
    """Loads, unloads, requests and aborts from eight threads: every request ends or was refused, nothing leaks."""
    with Bench(base, adapter_memory=1 << 18) as bench:
        states = [bench.read(folder) for folder in folders[:4]]

        def worker(seed: int) -> int:
            pick = np.random.default_rng(seed)
            served = 0
            for _ in range(25):
                state = states[pick.integers(4)]
                bench.engine.load(state).result(PATIENCE)
                try:
                    answer = bench.ask(state.digest, PROMPT[: pick.integers(1, 40)], int(pick.integers(1, 6)))
                except ModelNotFound:
                    continue  # another thread unloaded it in between
                if pick.random() < 0.3:
                    bench.engine.abort(answer.request.id)
                else:
                    served += bool(answer.wait().tokens)
                if pick.random() < 0.3:
                    bench.engine.unload(state.digest)
            return served

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(worker, range(8))) > 50
        for state in states:
            bench.engine.unload(state.digest).result(PATIENCE)
        bench.settle()
        stats = bench.engine.stats()
        assert (stats.adapters_loaded, stats.adapter_bytes_used) == (0, 0)
        assert stats.kv_blocks_free == stats.kv_blocks_total


def test_closing_fails_what_is_left(base) -> None:
    bench = Bench(base)
    answer = bench.ask(None, PROMPT, 200).wait_tokens(1)
    bench.engine.close()
    assert isinstance(answer.wait().error, EngineStopped)
    with pytest.raises(EngineStopped):
        bench.ask(None, PROMPT)
    bench.engine.close()
