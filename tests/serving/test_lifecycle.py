"""Loading and unloading: order, failures, shared digests, races; the fake engine shows every moment in between."""

import asyncio
import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.adapters import marker_adapter
from tests.support.bases import write_alphabet_base
from tests.support.engines import PATIENCE, TOKENIZER, Answer, Bench
from tests.support.states import state_of
from turnout.artifacts.signatures import sign
from turnout.artifacts.store import open_store
from turnout.core.adapter import CONFIG_FILE, WEIGHTS_FILE, AdapterState, LoraModule
from turnout.core.engine import EngineInfo
from turnout.core.errors import (
    AdapterExists,
    AdapterFileError,
    AdapterPathNotFound,
    AdapterTensorError,
    AdapterTooLarge,
    ArtifactCorrupt,
    ArtifactNotFound,
    EngineStopped,
    InvalidRequest,
    ModelNotFound,
    SignatureInvalid,
    TurnoutError,
)
from turnout.core.fake import FakeEngine
from turnout.core.identity import Digest, VersionRef
from turnout.core.request import Request, SamplingParams
from turnout.registry.adapters import delete_adapter
from turnout.registry.database import open_database
from turnout.registry.directory import Directory
from turnout.registry.records import Said, StoredFile, Version
from turnout.registry.versions import Pushed, find_versions
from turnout.routing.resolve import AdapterAsk, plain_version, resolve
from turnout.serving.lifecycle import Lifecycle
from turnout.serving.publishing import Publisher
from turnout.serving.version_files import VersionFiles
from turnout.serving.weights import READERS, Weights

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
    """The use cases over a fake engine and a real registry, and adapters whose weights' text decides their digest."""

    def __init__(self, root: Path) -> None:
        self.root = root / "adapters"
        self.root.mkdir()
        self.engine = HeldEngine()
        self.database = open_database(root / "registry.db")
        base = VersionRef("base", 0, MODEL)
        self.directory = Directory(self.database, base, frozenset({"base"}), TOKENIZER)
        files = VersionFiles(self.directory, open_store(root / "store"), self.read, root / "checkouts")
        self.weights = Weights(self.engine, files.read_version, self.directory.is_live)
        self.directory.on_change(self.weights.settle)
        self.publisher = Publisher(self.directory, files, self.weights)
        self.lifecycle = Lifecycle(self.directory, self.publisher, (self.root,))
        self.reads: list[str] = []
        self.gate: Callable[[str], object] = lambda content: None

    def close(self) -> None:
        self.lifecycle.close()
        self.weights.close()
        self.directory.close()
        self.database.close()
        self.engine.close()

    def read(self, folder: Path) -> AdapterState:
        content = (folder / WEIGHTS_FILE).read_text()
        self.reads.append(content)
        self.gate(content)
        if content.startswith("bad"):
            raise AdapterTensorError(f"{folder}/{WEIGHTS_FILE} is bad")
        module = LoraModule(0, "q_proj", 1, 1.0, np.ones((1, 4), np.float32), np.ones((4, 1), np.float32))
        return state_of(digest_of(content), MODEL, "float32", [module], 6)

    def write(self, content: str) -> Path:
        folder = self.root / content
        if not folder.exists():  # else a reader might meet it half-written
            folder.mkdir()
            (folder / CONFIG_FILE).write_text("{}")
            (folder / WEIGHTS_FILE).write_text(content)
        return folder

    async def load(self, name: str, content: str, *, replace: bool = False) -> Version:
        return await self.lifecycle.load("tester", name, self.write(content), replace=replace)

    async def unload(self, name: str) -> None:
        await self.lifecycle.unload("tester", name)

    def submit(self, name: str, request_id: str, output: int = 4) -> Answer:
        route = resolve(AdapterAsk(model=name), self.directory.snapshot())
        answer = Answer(Request(request_id, route, (1, 2), SamplingParams(output), 0.0))
        self.engine.submit(answer.request, answer.listen)
        return answer

    @property
    def routable(self) -> dict[str, Digest]:
        plain = {name: plain_version(each) for (_, name), each in self.directory.snapshot().adapters.items()}
        return {name: version.digest for name, version in plain.items() if version is not None}

    def check(self, expected: dict[str, str]) -> None:
        """The plain names mean exactly these contents, and the engine has the weights of every live version alone."""
        assert self.routable == {name: digest_of(content) for name, content in expected.items()}
        adapters = self.directory.snapshot().adapters.values()
        assert self.engine.loaded == {MODEL, *(version.digest for each in adapters for version in each.versions)}


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    yard.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_loaded_adapter_is_a_version_in_the_registry(yard: Yard) -> None:
    version = await yard.load("org/x", "A")
    assert (version.number, version.digest, version.created_by) == (1, digest_of("A"), "tester")
    assert (version.facts.adapted, version.facts.untouched, version.facts.norms) == (1, 6, {"0.q_proj": 4.0})
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
    await yard.unload("x")
    yard.check({})
    with pytest.raises(ModelNotFound):
        yard.submit("x", "late")
    assert (yard.engine.stats().leases, yard.engine.stats().adapters_loaded) == (4, 1)
    yard.engine.step(4)
    assert {(answer.wait().finished.digest, len(answer.tokens)) for answer in running} == {(digest_of("A"), 4)}
    assert (yard.engine.stats().leases, yard.engine.stats().adapters_loaded) == (0, 0)


async def test_a_request_routed_before_an_unload_and_submitted_after_it_is_not_found(yard: Yard) -> None:
    await yard.load("x", "A")
    route = resolve(AdapterAsk(model="x"), yard.directory.snapshot())
    await yard.unload("x")
    with pytest.raises(ModelNotFound):
        yard.engine.submit(Request("r", route, (1,), SamplingParams(1), 0.0), lambda event: None)


async def test_replacing_makes_a_new_version_and_keeps_the_old_one(yard: Yard) -> None:
    await yard.load("x", "A")
    old = yard.submit("x", "old")
    assert (await yard.load("x", "B", replace=True)).number == 2
    yard.check({"x": "B"})
    new, by_number = yard.submit("x", "new"), yard.submit("x@1", "by-number")
    yard.engine.step(4)
    assert (old.wait().finished.digest, new.wait().finished.digest) == (digest_of("A"), digest_of("B"))
    assert by_number.wait().finished.digest == digest_of("A")


async def test_replacing_by_an_earlier_version_brings_that_back(yard: Yard) -> None:
    for content in ("A", "B", "A", "C", "B"):
        await yard.load("x", content, replace=True)
        yard.check({"x": content})
    assert yard.directory.snapshot().adapters["default", "x"].last_number == 3


async def test_replacing_weights_by_themselves_changes_nothing(yard: Yard) -> None:
    await yard.load("x", "A")
    assert (await yard.load("x", "A", replace=True)).number == 1
    yard.check({"x": "A"})
    assert (yard.engine.unloads, yard.reads) == ([], ["A"])


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
    await yard.load("x", "A")
    await yard.load("y", "A")
    assert yard.engine.stats().adapters_loaded == 1
    await yard.unload("x")
    yard.check({"y": "A"})
    await yard.unload("y")
    yard.check({})
    assert yard.engine.unloads == [digest_of("A")]


async def test_a_digests_last_name_goes_while_another_name_comes_with_it(yard: Yard) -> None:
    await yard.load("x", "A")
    yard.engine.hold = True
    coming = asyncio.create_task(yard.load("y", "A"))
    await until(lambda: yard.engine.held)
    await yard.unload("x")
    yard.engine.held[0].set_result(None)
    await coming
    yard.check({"y": "A"})
    yard.submit("y", "r")


async def test_weights_come_back_while_the_last_request_for_them_drains(yard: Yard) -> None:
    await yard.load("x", "A")
    running = yard.submit("x", "r")
    await yard.unload("x")
    assert (await yard.load("x", "A")).number == 1
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
            await yard.lifecycle.load("tester", name, path)
        yard.check({"taken": "T"})
    for path in (bad, huge):
        with pytest.raises(TurnoutError):
            await yard.lifecycle.load("tester", "taken", path, replace=True)
        yard.check({"taken": "T"})
    with pytest.raises(ModelNotFound):
        await yard.unload("x")
    assert (await yard.lifecycle.load("tester", "x", good)).number == 1
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
    (outside / CONFIG_FILE).write_text("{}")
    (outside / WEIGHTS_FILE).write_text("A")
    (yard.root / "link-out").symlink_to(outside)
    paths = [outside, yard.root / "link-out", yard.root / ".." / "outside", yard.root / "missing", Path("outside")]
    messages = set()
    for path in paths:
        with pytest.raises(AdapterPathNotFound) as caught:
            await yard.lifecycle.load("tester", "x", path)
        messages.add(caught.value.message.replace(str(path), "PATH"))
    assert len(messages) == 1
    assert yard.reads == []


async def test_a_link_out_of_the_roots_is_not_followed(yard: Yard, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("A")
    folder = yard.write("linked")
    (folder / WEIGHTS_FILE).unlink()
    (folder / WEIGHTS_FILE).symlink_to(secret)
    with pytest.raises(AdapterFileError, match="link out of"):
        await yard.lifecycle.load("tester", "x", folder)
    assert yard.reads == []


@pytest.mark.parametrize("stage", ["reading", "taken in by the engine"])
async def test_a_load_goes_on_though_its_caller_has_left_and_the_next_one_waits_for_it(yard: Yard, stage: str) -> None:
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
    following = asyncio.create_task(yard.load("x", "B", replace=True))
    release.set()
    yard.engine.hold = False
    for held in yard.engine.held:
        held.set_result(None)
    assert (await following).number == 2
    yard.check({"x": "B"})


async def test_reading_blocks_neither_the_event_loop_nor_unloads_of_other_names(yard: Yard) -> None:
    await yard.load("served", "S")
    release = threading.Event()
    yard.gate = lambda content: release.wait(PATIENCE)
    loads = [asyncio.create_task(yard.load(f"x{i}", f"A{i}")) for i in range(2 * READERS)]
    await until(lambda: len(yard.reads) == 1 + READERS)
    await asyncio.wait_for(yard.unload("served"), PATIENCE / 2)
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
        asyncio.create_task(yard.unload("x")),
        asyncio.create_task(yard.load("x", "last")),
    ]
    await until(lambda: yard.reads)
    slow.set()
    first, second, gone, last = await asyncio.gather(*calls)
    assert (first.number, second.number, gone, last.number) == (1, 2, None, 3)
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
            await yard.unload(name)
            del expected[name]

    def draw() -> asyncio.Task[None]:
        name = dice.choice("xyz")
        if dice.random() < 0.4:
            return asyncio.create_task(unload(name))
        return asyncio.create_task(load(name, dice.choice("AB"), dice.random() < 0.5))

    for _ in range(20):
        await asyncio.gather(*(draw() for _ in range(6)))
        yard.check(expected)
    assert yard.engine.stats().leases == 0


async def test_an_engine_that_has_stopped_loads_nothing(yard: Yard) -> None:
    await yard.load("x", "A")
    yard.engine.close()
    with pytest.raises(EngineStopped):
        await yard.load("y", "B")
    assert yard.routable == {"x": digest_of("A")}


async def test_a_version_is_brought_when_it_is_first_asked_for_and_once(yard: Yard, tmp_path: Path) -> None:
    await yard.load("x", "A")
    later = Weights(yard.engine, yard.publisher.files.read_version, yard.directory.is_live)
    yard.engine.unload(digest_of("A")).result(PATIENCE)
    yard.reads.clear()
    version = resolve(AdapterAsk(model="x"), yard.directory.snapshot()).version
    await asyncio.gather(*(later.ensure(version) for _ in range(16)))
    assert yard.reads == ["A"]
    yard.submit("x", "r")
    later.close()


async def test_weights_that_are_not_what_they_should_be_serve_nobody_and_are_tried_again(yard: Yard) -> None:
    await yard.load("x", "A")
    wrong = replace(resolve(AdapterAsk(model="x"), yard.directory.snapshot()).version, digest=digest_of("B"))
    for _ in range(2):
        with pytest.raises(ArtifactCorrupt, match="should be"):
            await yard.weights.ensure(wrong)
    yard.check({"x": "A"})


async def test_an_adapter_deleted_by_another_server_leaves_the_engine(yard: Yard, tmp_path: Path) -> None:
    await yard.load("x", "A")
    with closing(open_database(tmp_path / "registry.db")) as other, other.write("other") as write:
        delete_adapter(write, "default", "x")
    await until(lambda: not yard.routable)
    yard.check({})


def test_publishing_at_start_on_several_threads(yard: Yard) -> None:
    contents = {f"x{i}": "AB"[i % 2] for i in range(20)}
    folders = {content: yard.write(content) for content in "AB"}

    def publish(name: str) -> Pushed:
        return yard.publisher.publish("server", "default", name, folders[contents[name]])

    with ThreadPoolExecutor(8) as threads:
        assert all(pushed.created and pushed.version.number == 1 for pushed in threads.map(publish, contents))
        yard.check(contents)
        yard.reads.clear()
        assert not any(pushed.created for pushed in threads.map(publish, contents))
    assert yard.reads == []
    with pytest.raises(AdapterTensorError) as caught:
        yard.publisher.publish("server", "default", "y", yard.write("bad"))
    assert caught.value.message == f"{WEIGHTS_FILE} is bad"
    with pytest.raises(AdapterExists):
        yard.publisher.publish("server", "default", "base@x", folders["A"])
    yard.check(contents)


def test_a_push_of_files_that_the_store_lacks_is_refused(yard: Yard) -> None:
    with pytest.raises(ArtifactNotFound):
        yard.publisher.push("tester", "default", "x", {WEIGHTS_FILE: StoredFile(digest_of("A"), 1)})
    yard.check({})


def test_a_signature_of_other_files_keeps_a_version_out(yard: Yard, tmp_path: Path) -> None:
    key = tmp_path / "private.pem"
    private = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    yard.publisher.publish("tester", "default", "known", yard.write("A"))
    yard.publisher.publish("tester", "default", "known", yard.write("B"))
    with yard.database.read() as connection:
        a, b = (version.files for version in find_versions(connection, "default", "known"))
    signature = sign(yard.write("A"), a, key)
    for files, said in ((b, Said(signature=signature)), (a, Said(signature={**signature, "bundle": {}}))):
        with pytest.raises(SignatureInvalid):
            yard.publisher.push("tester", "default", "x", files, said)
    assert "x" not in yard.routable
    assert yard.publisher.push("tester", "default", "x", a, Said(signature=signature)).version.signature == signature


@pytest.fixture(scope="module")
def markers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("markers")
    write_alphabet_base(folder / "base")
    for letter in "AB":
        marker_adapter(folder / "adapters" / letter, ord(letter))
    return folder


async def test_on_the_real_engine_names_change_under_running_requests_and_nothing_leaks(
    markers: Path, tmp_path: Path
) -> None:
    with Bench(markers / "base") as bench, ExitStack() as closing_:
        database = closing_.enter_context(closing(open_database(tmp_path / "registry.db")))
        base = VersionRef("base", 0, bench.revision)
        directory = closing_.enter_context(closing(Directory(database, base, frozenset({"base"}), TOKENIZER)))
        files = VersionFiles(directory, open_store(tmp_path / "store"), bench.read, tmp_path / "checkouts")
        weights = closing_.enter_context(closing(Weights(bench.engine, files.read_version, directory.is_live)))
        directory.on_change(weights.settle)
        publisher = Publisher(directory, files, weights)
        lifecycle = closing_.enter_context(closing(Lifecycle(directory, publisher, (markers,))))
        streams: list[tuple[str, Answer]] = []
        letter = ""
        for round_ in range(60):
            letter = "AB"[round_ % 2]
            await lifecycle.load("tester", "x", markers / "adapters" / letter, replace=True)
            route = resolve(AdapterAsk(model="x"), directory.snapshot())
            await weights.ensure(route.version)
            streams.append((letter, bench.ask(route.version.digest, b"ABC", output=5)))
            if round_ % 3 == 0:
                await lifecycle.unload("tester", "x")
        for letter, stream in streams:
            assert bytes(await asyncio.to_thread(lambda stream=stream: stream.wait().tokens)) == 5 * letter.encode()
        assert directory.snapshot().adapters["default", "x"].last_number == 2
        await lifecycle.unload("tester", "x")
        bench.settle()
        await until(lambda: bench.engine.stats().adapters_loaded == 0)
        stats = bench.engine.stats()
        assert (stats.adapters_hot, stats.adapter_bytes_used, stats.leases) == (0, 0, 0)
        assert stats.kv_blocks_free == stats.kv_blocks_total
