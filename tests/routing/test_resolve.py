"""References to versions, held to an oracle that writes down every spelling there is."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnout.core.errors import AdapterConflict, InvalidRequest, ModelNotFound, TurnoutError
from turnout.core.identity import Digest, Route, VersionRef
from turnout.routing.resolve import AdapterAsk, Caller, not_found, resolve
from turnout.routing.snapshot import Adapter, Snapshot, VersionSummary

MODEL, TOKENIZER = Digest("sha256:" + "f" * 64), Digest("sha256:" + "e" * 64)
BASE = VersionRef("org/base", 0, MODEL)


def digest(head: str) -> Digest:
    return Digest("sha256:" + head.ljust(64, "0"))


def version(name: str, number: int, head: str, owner: str = "default") -> VersionRef:
    return VersionRef(name, number, digest(head), owner)


def snapshot(*versions: VersionRef, base_names: frozenset[str] = frozenset({"org/base", "alias"})) -> Snapshot:
    adapters: dict[tuple[str, str], Adapter] = {}
    for ref in versions:
        key = ref.owner or "", ref.name
        known = adapters.get(key, Adapter(1, *key, False, frozenset(), 0, 0, (), {}))
        summary = VersionSummary(ref.number, None, ref.digest, MODEL, 0)
        adapters[key] = replace(known, versions=(*known.versions, summary))
    return Snapshot(BASE, base_names, MODEL, TOKENIZER, adapters)


def changed(picture: Snapshot, owner: str, name: str, **changes: Any) -> Snapshot:
    key = owner, name
    return replace(picture, adapters={**picture.adapters, key: replace(picture.adapters[key], **changes)})


SQL_1, SQL_2, SQL_3 = version("sql", 1, "abcd1"), version("sql", 2, "abcd2"), version("sql", 3, "1234")
TONE = version("tone", 1, "1234")
PICTURE = snapshot(SQL_1, SQL_2, SQL_3, TONE)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("sql", SQL_3),
        ("sql@1", SQL_1),
        ("sql@2", SQL_2),
        ("sql@sha256:1234", SQL_3),
        ("sql@sha256:abcd2", SQL_2),
        (f"sql@{SQL_1.digest}", SQL_1),
        ("tone@sha256:1234", TONE),
        ("org/base", BASE),
        ("alias", BASE),
        ("org/base@0", BASE),
        ("alias@0", BASE),
        ("alias@sha256:ffff", BASE),
    ],
)
@pytest.mark.parametrize("place", ["model", "header", "field"])
def test_every_spelling_means_the_same_in_every_place(reference: str, expected: VersionRef, place: str) -> None:
    assert resolve(AdapterAsk(**{place: reference}), PICTURE).version == expected


UNKNOWN_NAMES = ["nosuch", "SQL", " sql", "@1", "@", "sql@", "\ud800", "a\nb"]
UNKNOWN_NUMBERS = [
    "sql@0",
    "sql@4",
    "sql@01",
    "sql@-1",
    "sql@٢",
    "sql@1@1",
    "sql@" + "9" * 5000,
    "org/base@1",
    "alias@2",
]
UNKNOWN_DIGESTS = ["sql@sha256:abcd9", "sql@sha256:ABCD1", "sql@sha256:wxyz", "sql@sha256:", "sql@sha256:" + "0" * 65]
NO_SELECTORS = ["sql@latest", "sql@abcd1", "sql:1", "sql@sha512:abcd1"]


@pytest.mark.parametrize("reference", [*UNKNOWN_NAMES, *UNKNOWN_NUMBERS, *UNKNOWN_DIGESTS, *NO_SELECTORS])
@pytest.mark.parametrize(("place", "param"), [("model", "model"), ("header", "X-Adapter-ID"), ("field", "adapter_id")])
def test_what_names_nothing_is_not_found_and_betrays_no_other_name(reference: str, place: str, param: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve(AdapterAsk(**{place: reference}), snapshot(SQL_1, SQL_2, SQL_3, version("secret-name", 1, "99")))
    assert caught.value.message == f"the model {reference!r} does not exist"
    assert caught.value.message.isprintable()
    assert caught.value.param == param


@pytest.mark.parametrize("reference", ["sql@sha256:abcd", "sql@sha256:abc", "nosuch@sha256:abc", ""])
def test_a_reference_that_cannot_be_meant_is_the_callers_mistake(reference: str) -> None:
    for place, param in (("model", "model"), ("header", "X-Adapter-ID"), ("field", "adapter_id")):
        with pytest.raises(InvalidRequest) as caught:
            resolve(AdapterAsk(**{place: reference}), PICTURE)
        assert caught.value.param == param


def test_whole_names_come_before_any_splitting() -> None:
    split_alike = version("sql@1", 1, "77")
    by_digest = version("sql@sha256:abcd2", 1, "88")
    picture = snapshot(SQL_1, SQL_2, split_alike, by_digest, version("base:sql", 1, "99"))
    assert resolve(AdapterAsk(model="sql@1"), picture).version == split_alike
    assert resolve(AdapterAsk(model="sql@sha256:abcd2"), picture).version == by_digest
    assert resolve(AdapterAsk(model="sql@1@1"), picture).version == split_alike
    assert resolve(AdapterAsk(model="sql@2"), picture).version == SQL_2
    assert resolve(AdapterAsk(model="base:sql"), picture).version.name == "base:sql"


@pytest.mark.parametrize(
    ("ask", "expected", "reason"),
    [
        (AdapterAsk(), BASE, "base model by default"),
        (AdapterAsk(model="alias"), BASE, "model field"),
        (AdapterAsk(model="sql@1"), SQL_1, "model field"),
        (AdapterAsk(model="org/base", header="sql"), SQL_3, "X-Adapter-ID header, latest version"),
        (AdapterAsk(model="alias@0", field="tone"), TONE, "adapter_id field, latest version"),
        (AdapterAsk(model="sql", header="sql@3", field="sql@sha256:1234"), SQL_3, "X-Adapter-ID header"),
        (AdapterAsk(model="alias", header="org/base", field="alias@0"), BASE, "X-Adapter-ID header"),
    ],
)
def test_the_route_says_which_place_decided(ask: AdapterAsk, expected: VersionRef, reason: str) -> None:
    assert resolve(ask, PICTURE) == Route("default", expected, MODEL, TOKENIZER, reason)


@pytest.mark.parametrize(
    "ask",
    [
        AdapterAsk(model="sql", header="tone"),
        AdapterAsk(model="sql", header="sql@1"),
        AdapterAsk(model="sql", field="alias"),
        AdapterAsk(header="sql", field="org/base"),
        AdapterAsk(model="alias", header="sql@1", field="sql@2"),
        AdapterAsk(model="tone@sha256:1234", header="sql@sha256:1234"),
    ],
)
def test_two_that_disagree_are_refused(ask: AdapterAsk) -> None:
    with pytest.raises(AdapterConflict):
        resolve(ask, PICTURE)


@pytest.mark.parametrize("ask", [AdapterAsk(model="sql", header="nosuch"), AdapterAsk(model="nosuch", field="sql")])
def test_one_unknown_reference_is_enough_to_refuse(ask: AdapterAsk) -> None:
    with pytest.raises(ModelNotFound):
        resolve(ask, PICTURE)


# Pieces that make names and selectors run into each other as often as possible.
PIECES = ["a", "b", "@", ":", "/", " ", "0", "1", "2", "sha256:", "abcd", "é", "适", "\U0001f600", "\u202e"]
names = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
heads = st.text("ab", min_size=1, max_size=6)


@st.composite
def pictures(draw: st.DrawFn) -> Snapshot:
    versions = []
    base_names = frozenset(draw(st.sets(names, min_size=1, max_size=2)))
    for name in draw(st.sets(names, max_size=5)) - base_names:
        for number, head in enumerate(draw(st.lists(heads, min_size=1, max_size=3, unique_by=digest)), 1):
            versions.append(version(name, number, head))
    return snapshot(*versions, base_names=base_names)


Outcome = VersionRef | type[TurnoutError]


def spellings(picture: Snapshot) -> dict[str, Outcome]:
    """Every reference that means something, whole names last so that they win."""
    meanings: dict[str, set[VersionRef]] = {}
    series: dict[str, tuple[VersionRef, ...]] = {
        adapter.name: tuple(VersionRef(adapter.name, each.number, each.digest, "default") for each in adapter.versions)
        for adapter in picture.adapters.values()
    }
    series |= dict.fromkeys(picture.base_names, (picture.base,))
    for name, versions in series.items():
        for ref in versions:
            for selector in (str(ref.number), *(ref.digest[:end] for end in range(len("sha256:") + 4, 72))):
                meanings.setdefault(f"{name}@{selector}", set()).add(ref)
    outcomes: dict[str, Outcome] = {
        reference: next(iter(refs)) if len(refs) == 1 else InvalidRequest for reference, refs in meanings.items()
    }
    return outcomes | {name: versions[-1] for name, versions in series.items()}


def expected_outcome(reference: str, picture: Snapshot) -> Outcome:
    if not reference:
        return InvalidRequest
    known = spellings(picture)
    if reference in known:
        return known[reference]
    too_short = ("@sha256:" + "".join(digits) for digits in _short_prefixes())
    return InvalidRequest if any(reference.endswith(end) for end in too_short) else ModelNotFound


def _short_prefixes() -> list[str]:
    digits = "0123456789abcdef"
    return [a + b + c for a in digits for b in ("", *digits) for c in ("", *digits)]


def outcome(ask: AdapterAsk, picture: Snapshot) -> Outcome:
    try:
        return resolve(ask, picture).version
    except TurnoutError as error:
        return type(error)


@given(st.data())
def test_a_reference_means_what_the_list_of_all_spellings_says(data: st.DataObject) -> None:
    picture = data.draw(pictures())
    reference = data.draw(st.sampled_from(sorted(spellings(picture))) | names | st.text(max_size=6))
    assert outcome(AdapterAsk(model=reference), picture) == expected_outcome(reference, picture)


@given(st.data())
def test_three_places_decide_as_the_rules_say(data: st.DataObject) -> None:
    picture = data.draw(pictures())
    reference = st.none() | st.sampled_from(sorted(spellings(picture))) | names
    model, header, field = (data.draw(reference) for _ in range(3))
    found = {
        place: expected_outcome(reference, picture)
        for place, reference in (("header", header), ("field", field), ("model", model))
        if reference is not None
    }
    errors = [what for what in found.values() if not isinstance(what, VersionRef)]
    asked_beside_model = {what for place, what in found.items() if place != "model"}
    if errors:
        expected: Outcome = errors[0]
    elif asked_beside_model and found.get("model") == picture.base:
        expected = AdapterConflict if len(asked_beside_model) > 1 else next(iter(asked_beside_model))
    elif any(one != other for one, other in combinations(found.values(), 2)):
        expected = AdapterConflict
    else:
        expected = next(iter(found.values()), picture.base)
    assert outcome(AdapterAsk(model, header, field), picture) == expected


@given(st.text(), st.text(), st.text())
@example("a@1", "@", "sha256:")
def test_nothing_a_caller_sends_raises_anything_else(model: str, header: str, field: str) -> None:
    outcome(AdapterAsk(model, header, field), PICTURE)


def reached(reference: str, picture: Snapshot, caller: Caller) -> VersionRef | str:
    try:
        return resolve(AdapterAsk(model=reference), picture, caller).version
    except ModelNotFound as error:
        return error.message


def test_a_plain_name_means_production_and_without_it_the_highest_number() -> None:
    promoted = changed(PICTURE, "default", "sql", aliases={"production": 2, "staging": 1})
    route = resolve(AdapterAsk(model="sql"), promoted)
    assert (route.version, route.reason) == (SQL_2, "model field, alias production")
    route = resolve(AdapterAsk(model="sql@staging"), promoted)
    assert (route.version, route.reason) == (SQL_1, "model field, alias staging")
    assert resolve(AdapterAsk(model="sql"), PICTURE).reason == "model field, latest version"


def test_production_at_a_version_for_another_base_is_no_route() -> None:
    # The snapshot has the versions for this base alone.
    promoted = changed(PICTURE, "default", "sql", aliases={"production": 7})
    assert reached("sql", promoted, Caller()) == "the model 'sql' does not exist"
    assert reached("sql@3", promoted, Caller()) == SQL_3


def test_a_semantic_version_is_a_selector() -> None:
    one, two, three = PICTURE.adapters["default", "sql"].versions
    picture = changed(PICTURE, "default", "sql", versions=(one, replace(two, semantic_version="2.1.0"), three))
    assert reached("sql@2.1.0", picture, Caller()) == SQL_2
    assert reached("sql@2.1", picture, Caller()) == "the model 'sql@2.1' does not exist"


ACME_LEGAL, GLOBEX_LEGAL = version("legal", 1, "aa", "acme"), version("legal", 1, "bb", "globex")
TENANTS = snapshot(ACME_LEGAL, GLOBEX_LEGAL, version("own", 1, "cc", "acme"))


def test_each_tenant_has_its_own_names() -> None:
    assert reached("legal", TENANTS, Caller("acme")) == ACME_LEGAL
    assert reached("legal", TENANTS, Caller("globex")) == GLOBEX_LEGAL
    assert reached("legal", TENANTS, Caller("other")) == "the model 'legal' does not exist"


@pytest.mark.parametrize("change", [{"public": True}, {"shared_with": frozenset({"globex"})}])
def test_others_adapters_are_named_with_their_owner_where_they_are_open(change: dict[str, Any]) -> None:
    globex = Caller("globex")
    for reference in ("acme/legal", "acme/legal@1", "acme/nosuch", "acme/own"):
        assert reached(reference, TENANTS, globex) == f"the model {reference!r} does not exist"
    opened = changed(TENANTS, "acme", "legal", **change)
    route = resolve(AdapterAsk(model="acme/legal@1"), opened, globex)
    assert (route.version, route.tenant, route.served_by) == (ACME_LEGAL, "globex", "acme/legal@1")
    assert reached("acme/own", opened, globex) == "the model 'acme/own' does not exist"
    assert reached("legal", opened, globex) == GLOBEX_LEGAL


def test_an_adapter_of_ones_own_comes_before_anothers_with_that_name() -> None:
    own = version("acme/legal", 1, "dd", "globex")
    picture = changed(snapshot(ACME_LEGAL, own), "acme", "legal", public=True)
    assert reached("acme/legal", picture, Caller("globex")) == own


def test_a_key_reaches_the_names_that_its_patterns_allow() -> None:
    caller = Caller("acme", may_use=lambda name: name == "own")
    assert reached("own", TENANTS, caller) == version("own", 1, "cc", "acme")
    assert reached("legal", TENANTS, caller) == "the model 'legal' does not exist"
    assert reached("org/base", TENANTS, caller) == BASE


def test_the_default_of_a_key_stands_in_for_the_base() -> None:
    caller = Caller("acme", default="legal@1")
    for ask in (AdapterAsk(), AdapterAsk(model="alias")):
        route = resolve(ask, TENANTS, caller)
        assert (route.version, route.reason) == (ACME_LEGAL, "default of the key")
    assert resolve(AdapterAsk(model="own"), TENANTS, caller).version.name == "own"
    assert resolve(AdapterAsk(header="alias"), TENANTS, caller).version == BASE
    gone = Caller("acme", default="legal@9")
    assert reached("alias", TENANTS, gone) == not_found(AdapterAsk(), gone).message
