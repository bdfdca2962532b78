"""Loading and unloading: order, failures, shared digests, races; the fake engine shows every moment in between."""

import asyncio
import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.support.adapters import marker_adapter
from tests.support.bases import write_alphabet_base
from tests.support.engines import PATIENCE, TOKENIZER, Answer, Bench
from turnout.core.adapter import AdapterState, LoraModule
from turnout.core.engine import EngineInfo
from turnout.core.errors import (
    AdapterExists,
    AdapterPathNotFound,
    AdapterTensorError,
    AdapterTooLarge,
    EngineStopped,
    InvalidRequest,
    ModelNotFound,
    TurnoutError,
)
from turnout.core.fake import FakeEngine
from turnout.core.identity import Digest, VersionRef
from turnout.core.request import Request, SamplingParams
from turnout.registry.catalog import Catalog, Version
from turnout.routing.resolve import AdapterAsk, resolve
from turnout.serving.lifecycle import READERS, Lifecycle

MODEL = Digest("sha256:base")
INFO = EngineInfo(MODEL, "float32", context_length=64, vocab_size=320, kernels="none")


def digest_of(content: str) -> Digest:
    return Digest("sha256:" + hashlib.sha256(content.encode()).hexdigest())


class HeldEngine(FakeEngine):
    """Finishes a load only when told so; may refuse one as too large."""

    def __init__(self) -> None:
        super().__init__(INFO, stepped=True)
        self.hold = False
        self.held: list[Future[None]] = []
        self.too_large: set[Digest] = set()
        self.unloads: list[Digest] = []

    def load(self, state: AdapterState) -> "Future[None]":
        promise: Future[None] = Future()
        if state.digest in self.too_large:
            promise.set_exception(AdapterTooLarge("too large"))
            return promise
        done = super().load(state)
        if not self.hold:
            return done
        self.held.append(promise)
        return promise

    def unload(self, digest: Digest) -> "Future[None]":
        self.unloads.append(digest)
        return super().unload(digest)


class Yard:
    """A lifecycle over a fake engine, and adapters whose single file's text decides their digest."""

    def __init__(self, root: Path) -> None:
        self.root = root / "adapters"
        self.root.mkdir()
        self.engine = HeldEngine()
        self.catalog = Catalog(VersionRef("base", 0, MODEL), frozenset({"base"}), MODEL, TOKENIZER)
        self.lifecycle = Lifecycle(self.engine, self.catalog, self.read, (self.root,))
        self.reads: list[str] = []
        self.gate: Callable[[str], object] = lambda content: None

    def close(self) -> None:
        self.lifecycle.close()
        self.engine.close()

    def read(self, folder: Path) -> AdapterState:
        content = (folder / "weights").read_text()
        self.reads.append(content)
        self.gate(content)
        if content.startswith("bad"):
            raise AdapterTensorError(f"{folder} is bad")
        module = LoraModule(0, "q_proj", 1, 1.0, np.ones((1, 4), np.float32), np.ones((4, 1), np.float32))
        return AdapterState(digest_of(content), MODEL, "float32", (module,), 6)

    def write(self, content: str) -> Path:
        folder = self.root / content
        if not folder.exists():  # else a reader might meet it half-written
            folder.mkdir()
            (folder / "weights").write_text(content)
        return folder

    async def load(self, name: str, content: str, *, replace: bool = False) -> Version:
        return await self.lifecycle.load(name, self.write(content), replace=replace)

    def submit(self, name: str, request_id: str, output: int = 4) -> Answer:
        route = resolve(AdapterAsk(model=name), self.catalog.snapshot())
        answer = Answer(Request(request_id, route, (1, 2), SamplingParams(output), 0.0))
        self.engine.submit(answer.request, answer.listen)
        return answer

    @property
    def routable(self) -> dict[str, Digest]:
        return {name: versions[-1].digest for name, versions in self.catalog.snapshot().adapters.items()}

    def check(self, expected: dict[str, str]) -> None:
        """Catalogue and engine agree, and hold exactly these names and contents."""
        assert self.routable == {name: digest_of(content) for name, content in expected.items()}
        assert self.engine.loaded == {MODEL, *self.routable.values()}


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    yard.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_loaded_adapter_is_routable_and_says_where_it_came_from(yard: Yard) -> None:
    version = await yard.load("org/x", "A")
    assert version == yard.catalog.listing()[0]
    assert (str(version.ref), version.ref.digest) == ("org/x@1", digest_of("A"))
    assert version.path == str((yard.root / "A").resolve())
    yard.check({"org/x": "A"})
    yard.engine.step(4)
    assert yard.submit("org/x", "r").wait().finished.digest == digest_of("A")


async def test_a_name_is_routable_only_after_its_weights_are_there(yard: Yard) -> None:
    yard.engine.hold = True
    load = asyncio.create_task(yard.load("x", "A"))
    await until(lambda: yard.engine.held)
    assert yard.routable == {}
    yard.engine.held[0].set_result(None)
    await load
    yard.check({"x": "A"})


async def test_unload_refuses_at_once_and_running_requests_end_on_their_weights(yard: Yard) -> None:
    await yard.load("x", "A")
    running = [yard.submit("x", f"r{i}") for i in range(4)]
    assert (await yard.lifecycle.unload("x")).ref.digest == digest_of("A")
    yard.check({})
    with pytest.raises(ModelNotFound):
        yard.submit("x", "late")
    assert (yard.engine.stats().leases, yard.engine.stats().adapters_loaded) == (4, 1)
    yard.engine.step(4)
    assert {(answer.wait().finished.digest, len(answer.tokens)) for answer in running} == {(digest_of("A"), 4)}
    assert (yard.engine.stats().leases, yard.engine.stats().adapters_loaded) == (0, 0)


async def test_a_request_routed_before_an_unload_and_submitted_after_it_is_not_found(yard: Yard) -> None:
    await yard.load("x", "A")
    route = resolve(AdapterAsk(model="x"), yard.catalog.snapshot())
    await yard.lifecycle.unload("x")
    with pytest.raises(ModelNotFound):
        yard.engine.submit(Request("r", route, (1,), SamplingParams(1), 0.0), lambda event: None)


async def test_replacing_drops_the_old_weights_and_leaves_their_requests_alone(yard: Yard) -> None:
    await yard.load("x", "A")
    old = yard.submit("x", "old")
    version = await yard.load("x", "B", replace=True)
    assert str(version.ref) == "x@2"
    yard.check({"x": "B"})
    new = yard.submit("x", "new")
    yard.engine.step(4)
    assert (old.wait().finished.digest, new.wait().finished.digest) == (digest_of("A"), digest_of("B"))
    assert yard.engine.stats().adapters_loaded == 1


async def test_replacing_weights_by_themselves_changes_nothing(yard: Yard) -> None:
    await yard.load("x", "A")
    assert str((await yard.load("x", "A", replace=True)).ref) == "x@1"
    yard.check({"x": "A"})
    assert yard.engine.unloads == []


async def test_the_old_version_serves_until_the_new_one_is_there(yard: Yard) -> None:
    await yard.load("x", "A")
    yard.engine.hold = True
    replacing = asyncio.create_task(yard.load("x", "B", replace=True))
    await until(lambda: yard.engine.held)
    assert yard.routable == {"x": digest_of("A")}
    yard.submit("x", "meanwhile")
    yard.engine.held[0].set_result(None)
    await replacing
    yard.check({"x": "B"})


async def test_two_names_for_one_digest_are_independent_and_share_one_copy(yard: Yard) -> None:
    one, other = await yard.load("x", "A"), await yard.load("y", "A")
    assert one.state.modules is other.state.modules
    assert yard.engine.stats().adapters_loaded == 1
    await yard.lifecycle.unload("x")
    yard.check({"y": "A"})
    await yard.lifecycle.unload("y")
    yard.check({})
    assert yard.engine.unloads == [digest_of("A")]


async def test_a_digests_last_name_goes_while_another_name_comes_with_it(yard: Yard) -> None:
    await yard.load("x", "A")
    yard.engine.hold = True
    coming = asyncio.create_task(yard.load("y", "A"))
    await until(lambda: yard.engine.held)
    await yard.lifecycle.unload("x")
    yard.engine.held[0].set_result(None)
    await coming
    yard.check({"y": "A"})
    yard.submit("y", "r")


async def test_weights_come_back_while_the_last_request_for_them_drains(yard: Yard) -> None:
    await yard.load("x", "A")
    running = yard.submit("x", "r")
    await yard.lifecycle.unload("x")
    assert str((await yard.load("x", "A")).ref) == "x@1"
    yard.engine.step(4)
    running.wait()
    yard.check({"x": "A"})


async def test_what_fails_leaves_no_name_and_no_memory(yard: Yard, tmp_path: Path) -> None:
    await yard.load("taken", "T")
    yard.engine.too_large.add(digest_of("huge"))
    good, bad, huge = yard.write("A"), yard.write("bad"), yard.write("huge")
    for name, path, error in [
        ("x", bad, AdapterTensorError),
        ("x", huge, AdapterTooLarge),
        ("x", yard.root / "missing", AdapterPathNotFound),
        ("", good, InvalidRequest),
        ("../x", good, InvalidRequest),
        ("base", good, AdapterExists),
        ("taken", good, AdapterExists),
    ]:
        with pytest.raises(error):
            await yard.lifecycle.load(name, path)
        yard.check({"taken": "T"})
    for path in (bad, huge):
        with pytest.raises(TurnoutError):
            await yard.lifecycle.load("taken", path, replace=True)
        yard.check({"taken": "T"})
    with pytest.raises(ModelNotFound):
        await yard.lifecycle.unload("x")
    assert str((await yard.lifecycle.load("x", good)).ref) == "x@1"
    yard.check({"taken": "T", "x": "A"})


async def test_a_name_that_cannot_be_had_costs_no_reading(yard: Yard) -> None:
    await yard.load("x", "A")
    for name in ("x", "base", ""):
        with suppress(TurnoutError):
            await yard.load(name, "B")
    assert yard.reads == ["A"]


async def test_what_lies_elsewhere_and_what_is_not_there_look_alike(yard: Yard, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "weights").write_text("A")
    (yard.root / "link-out").symlink_to(outside)
    paths = [outside, yard.root / "link-out", yard.root / ".." / "outside", yard.root / "missing", Path("outside")]
    messages = set()
    for path in paths:
        with pytest.raises(AdapterPathNotFound) as caught:
            await yard.lifecycle.load("x", path)
        messages.add(caught.value.message.replace(str(path), "PATH"))
    assert len(messages) == 1
    assert yard.reads == []


@pytest.mark.parametrize("stage", ["reading", "taken in by the engine"])
async def test_a_cancelled_load_leaves_nothing_and_its_name_free(yard: Yard, stage: str) -> None:
    release = threading.Event()
    if stage == "reading":
        yard.gate = lambda content: release.wait(PATIENCE)
    else:
        yard.engine.hold = True
    load = asyncio.create_task(yard.load("x", "A"))
    await until(lambda: yard.reads if stage == "reading" else yard.engine.held)
    load.cancel()
    with pytest.raises(asyncio.CancelledError):
        await load
    release.set()
    yard.engine.hold = False
    yard.check({})
    await yard.load("x", "B")
    yard.check({"x": "B"})


async def test_reading_blocks_neither_the_event_loop_nor_unloads_of_other_names(yard: Yard) -> None:
    await yard.load("served", "S")
    release = threading.Event()
    yard.gate = lambda content: release.wait(PATIENCE)
    loads = [asyncio.create_task(yard.load(f"x{i}", f"A{i}")) for i in range(2 * READERS)]
    await until(lambda: len(yard.reads) == 1 + READERS)
    await asyncio.wait_for(yard.lifecycle.unload("served"), PATIENCE / 2)
    yard.check({})
    release.set()
    await asyncio.gather(*loads)
    yard.check({f"x{i}": f"A{i}" for i in range(2 * READERS)})


async def test_sixteen_loads_of_one_name_read_once_and_one_wins(yard: Yard) -> None:
    replies = await asyncio.gather(*(yard.load("x", "A") for _ in range(16)), return_exceptions=True)
    assert [type(reply) for reply in replies].count(Version) == 1
    assert [type(reply) for reply in replies].count(AdapterExists) == 15
    assert yard.reads == ["A"]
    yard.check({"x": "A"})


async def test_calls_for_one_name_take_effect_in_the_order_they_came(yard: Yard) -> None:
    slow = threading.Event()
    yard.gate = lambda content: slow.wait(PATIENCE) if content == "slow" else None
    calls = [
        asyncio.create_task(yard.load("x", "slow")),
        asyncio.create_task(yard.load("x", "quick", replace=True)),
        asyncio.create_task(yard.lifecycle.unload("x")),
        asyncio.create_task(yard.load("x", "last")),
    ]
    await until(lambda: yard.reads)
    slow.set()
    replies = await asyncio.gather(*calls)
    assert [reply.ref.number for reply in replies] == [1, 2, 2, 3]
    yard.check({"x": "last"})


@pytest.mark.parametrize("seed", range(3))
async def test_races_end_as_the_replies_say(yard: Yard, seed: int) -> None:
    dice = random.Random(seed)
    expected: dict[str, str] = {}

    async def load(name: str, content: str, replace: bool) -> None:
        with suppress(AdapterExists):
            await yard.load(name, content, replace=replace)
            expected[name] = content

    async def unload(name: str) -> None:
        with suppress(ModelNotFound):
            await yard.lifecycle.unload(name)
            del expected[name]

    def draw() -> asyncio.Task[None]:
        name = dice.choice("xyz")
        if dice.random() < 0.4:
            return asyncio.create_task(unload(name))
        return asyncio.create_task(load(name, dice.choice("AB"), dice.random() < 0.5))

    for _ in range(100):
        tasks = [draw() for _ in range(6)]
        # Cancelled half-way, a call has not replied and must have had no effect.
        doomed = dice.choice(tasks)
        for _ in range(dice.randrange(20)):
            await asyncio.sleep(0)
        doomed.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        yard.check(expected)
    assert yard.engine.stats().leases == 0


async def test_an_engine_that_has_stopped_loads_nothing(yard: Yard) -> None:
    await yard.load("x", "A")
    yard.engine.close()
    with pytest.raises(EngineStopped):
        await yard.load("y", "B")
    assert yard.routable == {"x": digest_of("A")}


def test_start_up_loads_on_several_threads_before_there_is_an_event_loop(yard: Yard) -> None:
    contents = {f"x{i}": "AB"[i % 2] for i in range(20)}
    folders = {content: yard.write(content) for content in "AB"}
    with ThreadPoolExecutor(8) as threads:
        versions = list(threads.map(lambda name: yard.lifecycle.load_now(name, folders[contents[name]]), contents))
    assert [version.ref.number for version in versions] == [1] * 20
    yard.check(contents)
    with pytest.raises(AdapterExists):
        yard.lifecycle.load_now("x0", folders["A"])
    with pytest.raises(AdapterTensorError):
        yard.lifecycle.load_now("y", yard.write("bad"))

    async def later() -> None:
        for name in contents:
            await yard.lifecycle.unload(name)

    asyncio.run(later())
    yard.check({})


@pytest.fixture(scope="module")
def markers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("markers")
    write_alphabet_base(folder / "base")
    for letter in "AB":
        marker_adapter(folder / "adapters" / letter, ord(letter))
    return folder


async def test_on_the_real_engine_names_change_under_running_requests_and_nothing_leaks(markers: Path) -> None:
    with Bench(markers / "base") as bench:
        catalog = Catalog(VersionRef("base", 0, bench.revision), frozenset({"base"}), bench.revision, TOKENIZER)
        lifecycle = Lifecycle(bench.engine, catalog, bench.read, (markers,))
        streams: list[tuple[str, Answer]] = []
        letter = ""
        for round_ in range(200):
            letter = "AB"[round_ % 2]
            await lifecycle.load("x", markers / "adapters" / letter, replace=True)
            route = resolve(AdapterAsk(model="x"), catalog.snapshot())
            streams.append((letter, bench.ask(route.version.digest, b"ABC", output=5)))
            if round_ % 3 == 0:
                await lifecycle.unload("x")
        for letter, stream in streams:
            assert bytes(await asyncio.to_thread(lambda stream=stream: stream.wait().tokens)) == 5 * letter.encode()
        assert str(catalog.listing()[0].ref) == "x@2"
        await lifecycle.unload("x")
        bench.settle()
        await until(lambda: bench.engine.stats().adapters_loaded == 0)
        stats = bench.engine.stats()
        assert (stats.adapters_hot, stats.adapter_bytes_used, stats.leases) == (0, 0, 0)
        assert stats.kv_blocks_free == stats.kv_blocks_total
        lifecycle.close()
