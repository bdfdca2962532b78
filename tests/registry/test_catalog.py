"""The catalogue against a plain dictionary, and under threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from turnout.core.adapter import AdapterState, LoraModule
from turnout.core.errors import AdapterExists, InvalidRequest, ModelNotFound
from turnout.core.identity import Digest, VersionRef
from turnout.registry.catalog import Catalog
from turnout.routing.snapshot import Snapshot

MODEL, TOKENIZER = Digest("sha256:base"), Digest("sha256:tokenizer")
BASE_NAMES = frozenset({"org/base", "alias"})


def new_catalog() -> Catalog:
    return Catalog(VersionRef("org/base", 0, MODEL), BASE_NAMES, MODEL, TOKENIZER)


def weights(letter: str, *warnings: str) -> AdapterState:
    module = LoraModule(0, "q_proj", 1, 1.0, np.ones((1, 4), np.float32), np.ones((4, 1), np.float32))
    return AdapterState(Digest(f"sha256:{letter}"), MODEL, "float32", (module,), 6, warnings)


class CatalogMachine(RuleBasedStateMachine):
    """Registers and unregisters at random; `live` and `history` say what must be there."""

    names = st.sampled_from(["x", "y", "x@1", "适"])
    letters = st.sampled_from("ABC")

    def __init__(self) -> None:
        super().__init__()
        self.catalog = new_catalog()
        self.live: dict[str, str] = {}
        self.history: dict[str, list[str]] = {}
        self.seen: list[tuple[Snapshot, dict[str, tuple[VersionRef, ...]]]] = []

    def ref(self, name: str, letter: str) -> VersionRef:
        return VersionRef(name, self.history[name].index(letter) + 1, Digest(f"sha256:{letter}"))

    @rule(name=names, letter=letters, warning=st.text(max_size=1), replace=st.booleans())
    def register(self, name: str, letter: str, warning: str, replace: bool) -> None:
        if name in self.live and not replace:
            with pytest.raises(AdapterExists):
                self.catalog.register(name, weights(letter), "/somewhere", replace=replace)
            return
        registration = self.catalog.register(name, weights(letter, warning), f"/{letter}", replace=replace)
        history = self.history.setdefault(name, [])
        if letter not in history:
            history.append(letter)
        replaced = registration.replaced
        assert (replaced and replaced.ref) == (self.ref(name, self.live[name]) if name in self.live else None)
        self.live[name] = letter
        assert registration.version.ref == self.ref(name, letter)
        assert registration.version.path == f"/{letter}"
        assert registration.version.state.warnings == (warning,)

    @rule(name=names)
    def unregister(self, name: str) -> None:
        if name in self.live:
            assert self.catalog.unregister(name).ref == self.ref(name, self.live.pop(name))
        else:
            with pytest.raises(ModelNotFound, match=name):
                self.catalog.unregister(name)

    @rule(name=st.sampled_from(["org/base", "alias", "alias@0", "org/base@sha256:abcd"]), replace=st.booleans())
    def take_the_bases_name(self, name: str, replace: bool) -> None:
        with pytest.raises(AdapterExists):
            self.catalog.register(name, weights("A"), "/a", replace=replace)

    @rule(name=st.sampled_from(["", "..", "a\nb"]), replace=st.booleans())
    def take_a_bad_name(self, name: str, replace: bool) -> None:
        with pytest.raises(InvalidRequest):
            self.catalog.register(name, weights("A"), "/a", replace=replace)

    @invariant()
    def shows_exactly_what_is_live(self) -> None:
        snapshot = self.catalog.snapshot()
        expected = {name: (self.ref(name, letter),) for name, letter in self.live.items()}
        assert dict(snapshot.adapters) == expected
        assert (snapshot.base.number, snapshot.base_names) == (0, BASE_NAMES)
        assert (snapshot.model_revision, snapshot.tokenizer_revision) == (MODEL, TOKENIZER)
        assert [version.ref for version in self.catalog.listing()] == [expected[name][0] for name in sorted(expected)]
        for letter in "ABC":
            assert self.catalog.refers_to(Digest(f"sha256:{letter}")) == (letter in self.live.values())
        self.seen.append((snapshot, expected))

    @invariant()
    def never_changes_what_somebody_holds(self) -> None:
        for snapshot, adapters in self.seen:
            assert dict(snapshot.adapters) == adapters

    @invariant()
    def keeps_one_copy_of_each_digests_tensors(self) -> None:
        copies = {(version.ref.digest, id(version.state.modules)) for version in self.catalog.listing()}
        assert len(copies) == len({digest for digest, _ in copies})


TestCatalog = CatalogMachine.TestCase


def test_a_number_never_means_other_bytes_even_after_the_name_was_dropped() -> None:
    catalog = new_catalog()
    numbers = []
    for letter in "ABACB":
        numbers.append(catalog.register("x", weights(letter), "/x", replace=False).version.ref.number)
        catalog.unregister("x")
    assert numbers == [1, 2, 1, 3, 2]


def test_a_snapshot_cannot_be_edited() -> None:
    catalog = new_catalog()
    catalog.register("x", weights("A"), "/x", replace=False)
    with pytest.raises(TypeError):
        catalog.snapshot().adapters["y"] = ()  # type: ignore[index]


def test_threads_never_share_a_number_and_exactly_one_takes_a_free_name() -> None:
    catalog = new_catalog()

    def replace(index: int) -> int:
        return catalog.register("shared", weights(f"s{index}"), "/x", replace=True).version.ref.number

    def take(index: int) -> bool:
        try:
            catalog.register("taken", weights(f"t{index}"), "/x", replace=False)
        except AdapterExists:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(replace, range(200)))
        taken = list(threads.map(take, range(200)))
    assert sorted(numbers) == list(range(1, 201))
    assert taken.count(True) == 1
    assert [version.ref.name for version in catalog.listing()] == ["shared", "taken"]
