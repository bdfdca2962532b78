"""Aliases: promotion with gates and signatures, rollback, history."""

import pytest

from tests.registry.samples import new_version
from turnout.core.errors import (
    GateNotMet,
    InvalidRequest,
    ModelNotFound,
    NothingToRollBack,
    SignatureRequired,
)
from turnout.registry import audit
from turnout.registry.adapters import show_adapter
from turnout.registry.aliases import history, promote, remove_alias, rollback
from turnout.registry.database import Database
from turnout.registry.tenants import require_signed
from turnout.registry.versions import delete_version, push


@pytest.fixture
def legal(shared: Database, tenant: str) -> str:
    """A tenant with four versions of `legal`, of which the last is signed."""
    with shared.write("tester") as write:
        push(write, tenant, "legal", new_version("a", metrics={"f1": 0.85}))
        push(write, tenant, "legal", new_version("b", metrics={"f1": 0.9, "loss": 0.3}))
        push(write, tenant, "legal", new_version("c"))
        push(write, tenant, "legal", new_version("d", signature={"value": "s"}))
    return tenant


def move(database: Database, tenant: str, *steps: str) -> list[int]:
    """Where production points after each step: a promotion of a selector, or `back`."""
    numbers = []
    for step in steps:
        with database.write("tester") as write:
            if step == "back":
                numbers.append(rollback(write, tenant, "legal", "production", "worse").number)
            else:
                numbers.append(promote(write, tenant, "legal", step, "production", "better").number)
        with database.read() as connection:
            assert show_adapter(connection, tenant, "legal").aliases["production"] == numbers[-1]
    return numbers


def test_rollbacks_in_a_row_go_further_back(shared: Database, legal: str) -> None:
    assert move(shared, legal, "1", "2", "3", "back", "back") == [1, 2, 3, 2, 1]
    with pytest.raises(NothingToRollBack, match="promote one instead"):
        move(shared, legal, "back")


def test_what_was_rolled_back_from_is_not_returned_to(shared: Database, legal: str) -> None:
    assert move(shared, legal, "1", "2", "back", "4", "back") == [1, 2, 1, 4, 1]


def test_a_rollback_passes_over_deleted_versions(shared: Database, legal: str) -> None:
    move(shared, legal, "1", "2", "3")
    with shared.write("tester") as write:
        delete_version(write, legal, "legal", "2")
    assert move(shared, legal, "back") == [1]
    with shared.write("tester") as write:
        push(write, legal, "legal", new_version("b"))
    with pytest.raises(NothingToRollBack):
        move(shared, legal, "back")


def test_a_rollback_never_stays_where_it_is(shared: Database, legal: str) -> None:
    move(shared, legal, "3", "1", "2", "1")
    with shared.write("tester") as write:
        delete_version(write, legal, "legal", "2")
    assert move(shared, legal, "back") == [3]


def test_an_alias_and_its_own_selector_may_promote(shared: Database, legal: str) -> None:
    move(shared, legal, "2")
    with shared.write("tester") as write:
        assert promote(write, legal, "legal", "production", "staging", "the same").number == 2


def test_promoting_what_is_there_changes_nothing(shared: Database, legal: str) -> None:
    move(shared, legal, "1", "2")
    with shared.read() as connection:
        before = audit.head(connection), history(connection, legal, "legal")
    with shared.write("tester") as write:
        assert promote(write, legal, "legal", "2", "production", "again").number == 2
        assert not write.has_changes
    with shared.read() as connection:
        assert (audit.head(connection), history(connection, legal, "legal")) == before
    assert move(shared, legal, "back") == [1]


@pytest.mark.parametrize(
    ("selector", "requirement", "words"),
    [
        ("1", "f1>=0.9", "f1 must be >= 0.9, found 0.85"),
        ("2", "f1>0.9", "f1 must be > 0.9, found 0.9"),
        ("2", "loss < 0.3", "loss must be < 0.3, found 0.3"),
        ("2", "loss<=0.29", "loss must be <= 0.29, found 0.3"),
        ("1", "f1==0.8", "f1 must be == 0.8, found 0.85"),
        ("3", "f1>=0", "f1 must be >= 0.0, found missing"),
    ],
)
def test_a_gate_that_is_not_met_names_metric_wanted_and_found(
    shared: Database, legal: str, selector: str, requirement: str, words: str
) -> None:
    with shared.write("tester") as write, pytest.raises(GateNotMet) as raised:
        promote(write, legal, "legal", selector, "production", "better", [requirement])
    assert words in raised.value.message
    with shared.read() as connection:
        assert show_adapter(connection, legal, "legal").aliases == {}


def test_every_gate_must_hold_and_all_faults_are_named(shared: Database, legal: str) -> None:
    with shared.write("tester") as write:
        with pytest.raises(GateNotMet, match=r"loss must be < 0\.2, found 0\.3; bleu must be > 1\.0, found missing"):
            promote(write, legal, "legal", "2", "production", "", ["f1>=0.9", "loss<0.2", "bleu>1"])
        assert promote(write, legal, "legal", "2", "production", "", ["f1>=0.9", "loss<1e0"]).number == 2


@pytest.mark.parametrize(
    "requirement", ["", "f1", "f1>", "f1=0.9", "f1=>0.9", ">=0.9", "f1>=a", "f1>=nan", "f1>=1e999", "a b>1"]
)
def test_a_requirement_that_cannot_be_read_is_refused(shared: Database, legal: str, requirement: str) -> None:
    with shared.write("tester") as write, pytest.raises(InvalidRequest, match="cannot be read"):
        promote(write, legal, "legal", "2", "production", "better", [requirement])


def test_a_signed_alias_takes_no_unsigned_version(shared: Database, legal: str) -> None:
    move(shared, legal, "1", "2")
    with shared.write("tester") as write:
        require_signed(write, legal, ["production"])
    for step in ("3", "back"):
        with pytest.raises(SignatureRequired, match="has no signature"):
            move(shared, legal, step)
    assert move(shared, legal, "4") == [4]
    with shared.write("tester") as write:
        assert promote(write, legal, "legal", "3", "staging", "free").number == 3


def test_the_history_says_who_when_why_and_from_where_to_where(shared: Database, legal: str) -> None:
    with shared.write("alice") as write:
        promote(write, legal, "legal", "1", "production", "first", ["f1>0.5"])
        at = write.now
    with shared.write("bob") as write:
        promote(write, legal, "legal", "2", "production", "second")
        rollback(write, legal, "legal", "production", "worse")
        remove_alias(write, legal, "legal", "production", "retired")
    with shared.read() as connection:
        first, *others = history(connection, legal, "legal")
    assert (first.alias, first.kind, first.before, first.after) == ("production", "promote", None, 1)
    assert (first.reason, first.requirements, first.created_by, first.created_at) == ("first", ("f1>0.5",), "alice", at)
    assert [(entry.kind, entry.before, entry.after, entry.reason, entry.created_by) for entry in others] == [
        ("promote", 1, 2, "second", "bob"),
        ("rollback", 2, 1, "worse", "bob"),
        ("remove", 1, None, "retired", "bob"),
    ]


def test_an_alias_has_no_past_after_its_removal(shared: Database, legal: str) -> None:
    move(shared, legal, "1", "2")
    with shared.write("tester") as write:
        remove_alias(write, legal, "legal", "production", "retired")
    move(shared, legal, "3")
    with pytest.raises(NothingToRollBack):
        move(shared, legal, "back")


def test_aliases_have_their_own_pasts(shared: Database, legal: str) -> None:
    move(shared, legal, "1")
    with shared.write("tester") as write:
        promote(write, legal, "legal", "2", "staging", "try")
        promote(write, legal, "legal", "3", "staging", "try")
    move(shared, legal, "4")
    with shared.write("tester") as write:
        assert rollback(write, legal, "legal", "staging", "worse").number == 2
    assert move(shared, legal, "back") == [1]


def test_what_does_not_exist_is_not_found(shared: Database, legal: str) -> None:
    with shared.write("tester") as write:
        with pytest.raises(ModelNotFound, match="no version or alias '9'"):
            promote(write, legal, "legal", "9", "production", "")
        with pytest.raises(ModelNotFound, match="no alias 'staging'"):
            rollback(write, legal, "legal", "staging", "")
        with pytest.raises(ModelNotFound, match="no alias 'staging'"):
            remove_alias(write, legal, "legal", "staging", "")
        with pytest.raises(ModelNotFound, match="no adapter"):
            promote(write, legal, "other", "1", "production", "")
        with pytest.raises(InvalidRequest, match="cannot be an alias"):
            promote(write, legal, "legal", "1", "v2", "")
        with pytest.raises(InvalidRequest, match="NUL"):
            promote(write, legal, "legal", "1", "production", "\0")
