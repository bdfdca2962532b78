"""Versions: pushing, numbering, deleting, coming back."""

from dataclasses import asdict
from typing import Any

import pytest

from tests.registry.samples import BASE, digest_of, new_version
from turnout.core.errors import InvalidRequest, ModelNotFound, TenantNotFound, VersionExists, VersionInUse
from turnout.registry import audit
from turnout.registry.aliases import promote, remove_alias
from turnout.registry.database import Database, revision
from turnout.registry.records import Claims, Facts, StoredFile, Version
from turnout.registry.versions import Pushed, delete_version, list_versions, push, referenced_blobs, show_version


def push_one(database: Database, tenant: str, content: object, **said: Any) -> Pushed:
    with database.write("tester") as write:
        return push(write, tenant, "legal", new_version(content, **said))


def delete_one(database: Database, tenant: str, selector: str) -> None:
    with database.write("tester") as write:
        delete_version(write, tenant, "legal", selector)


def listed(database: Database, tenant: str) -> list[Version]:
    with database.read() as connection:
        return list_versions(connection, tenant, "legal")


def test_numbers_count_from_one(shared: Database, tenant: str) -> None:
    assert [push_one(shared, tenant, content).version.number for content in "abc"] == [1, 2, 3]


def test_everything_said_is_read_back(shared: Database, tenant: str) -> None:
    push_one(shared, tenant, "parent")
    new = new_version(
        "child",
        note="trained on the new corpus ✓",
        parent=1,
        semantic_version="1.0.0-rc.1+x",
        signature={"key": "k", "value": "v"},
        flags=("experimental",),
    )
    claims = Claims(
        {"f1": 0.1 + 0.2, "loss": 1e-300}, "corpus-7", digest_of("corpus"), {"lr": 1e-4}, "nlp", "Apache-2.0"
    )
    new = type(new)(**{name: getattr(new, name) for name in asdict(new)} | {"claims": claims})
    with shared.write("somebody") as write:
        pushed = push(write, tenant, "legal", new)
    with shared.read() as connection:
        shown = show_version(connection, tenant, "legal", "1.0.0-rc.1+x")
    assert shown == pushed.version
    assert {name: getattr(shown, name) for name in asdict(new)} == {name: getattr(new, name) for name in asdict(new)}
    assert (shown.number, shown.created_by) == (2, "somebody")
    assert isinstance(shown.facts, Facts)


def test_the_same_weights_again_are_the_same_version(shared: Database, tenant: str) -> None:
    first = push_one(shared, tenant, "a", note="first")
    with shared.read() as connection:
        before = revision(connection), audit.head(connection)
    again = push_one(shared, tenant, "a", note="again")
    with shared.read() as connection:
        assert (revision(connection), audit.head(connection)) == before
    assert (first.created, again.created) == (True, False)
    assert again.version == first.version


def test_a_deleted_version_comes_back_under_its_number_with_what_is_said_now(shared: Database, tenant: str) -> None:
    for content in "ab":
        push_one(shared, tenant, content, note="first")
    delete_one(shared, tenant, "1")
    assert push_one(shared, tenant, "c").version.number == 3
    back = push_one(shared, tenant, "a", note="again", signature={"value": "s"})
    assert (back.created, back.version.number, back.version.note) == (True, 1, "again")
    assert back.version.signature == {"value": "s"}
    assert [version.number for version in listed(shared, tenant)] == [1, 2, 3]


def test_a_number_is_never_given_twice(shared: Database, tenant: str) -> None:
    for content in "abc":
        push_one(shared, tenant, content)
        delete_one(shared, tenant, "sha256:" + digest_of(content)[7:])
    assert listed(shared, tenant) == []
    assert push_one(shared, tenant, "d").version.number == 4


def test_a_semantic_version_is_one_versions_for_good(shared: Database, tenant: str) -> None:
    push_one(shared, tenant, "a", semantic_version="1.0.0")
    with pytest.raises(VersionExists, match=r"1\.0\.0 is version 1"):
        push_one(shared, tenant, "b", semantic_version="1.0.0")
    delete_one(shared, tenant, "1.0.0")
    with pytest.raises(VersionExists, match=r"1\.0\.0 is version 1"):
        push_one(shared, tenant, "b", semantic_version="1.0.0")
    with pytest.raises(VersionExists, match=r"version 1, 1\.0\.0, for good"):
        push_one(shared, tenant, "a", semantic_version="1.0.1")
    assert push_one(shared, tenant, "a").version.semantic_version == "1.0.0"
    with shared.write("tester") as write:
        assert push(write, tenant, "other", new_version("b", semantic_version="1.0.0")).created


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"semantic_version": "1.0.0"}, "without a semantic version"),
        ({"model_revision": digest_of("another base")}, "another base model"),
        ({"signature": {"value": "s"}}, "without a signature"),
    ],
)
def test_a_push_that_would_go_unheard_is_refused(
    shared: Database, tenant: str, said: dict[str, Any], words: str
) -> None:
    push_one(shared, tenant, "a")
    with pytest.raises(VersionExists, match=words):
        push_one(shared, tenant, "a", **said)
    delete_one(shared, tenant, "1")
    assert push_one(shared, tenant, "a", **said).version.number == 1


@pytest.mark.parametrize("parent", [0, -1, 2, 3, 9])
def test_a_parent_is_an_earlier_live_version(shared: Database, tenant: str, parent: int) -> None:
    for content in "ab":
        push_one(shared, tenant, content)
    delete_one(shared, tenant, "2")
    with pytest.raises(InvalidRequest, match="parent"):
        push_one(shared, tenant, "c", parent=parent)
    assert push_one(shared, tenant, "c", parent=1).version.parent == 1


def test_a_version_that_comes_back_cannot_descend_from_its_descendant(shared: Database, tenant: str) -> None:
    push_one(shared, tenant, "a")
    push_one(shared, tenant, "b", parent=1)
    delete_one(shared, tenant, "1")
    with pytest.raises(InvalidRequest, match="parent"):
        push_one(shared, tenant, "a", parent=2)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"metrics": {"f1": float("nan")}}, "finite"),
        ({"metrics": {"f1": float("inf")}}, "finite"),
        ({"metrics": {"f1 score": 0.5}}, "cannot be named"),
        ({"metrics": {"": 0.5}}, "cannot be named"),
        ({"semantic_version": "1.0"}, "semantic version"),
        ({"note": "a\0b"}, "NUL"),
        ({"note": "\ud800"}, "surrogate"),
        ({"signature": {"value": float("nan")}}, "JSON"),
        ({"signature": {"value": b"bytes"}}, "JSON"),
    ],
)
def test_what_cannot_be_kept_is_refused(shared: Database, tenant: str, said: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        push_one(shared, tenant, "a", **said)
    with shared.read() as connection, pytest.raises(ModelNotFound):
        list_versions(connection, tenant, "legal")


def test_an_unknown_tenant_and_a_bad_name_are_refused(shared: Database, tenant: str) -> None:
    with pytest.raises(TenantNotFound, match="nobody"):
        push_one(shared, "nobody", "a")
    with pytest.raises(InvalidRequest, match="like a path"), shared.write("tester") as write:
        push(write, tenant, "../legal", new_version("a"))


def test_a_version_with_an_alias_stays(shared: Database, tenant: str) -> None:
    push_one(shared, tenant, "a")
    with shared.write("tester") as write:
        promote(write, tenant, "legal", "1", "production", "good")
        promote(write, tenant, "legal", "1", "staging", "good")
    with pytest.raises(VersionInUse, match="'production', 'staging'"):
        delete_one(shared, tenant, "1")
    with shared.write("tester") as write:
        for alias in ("production", "staging"):
            remove_alias(write, tenant, "legal", alias, "retired")
        assert delete_version(write, tenant, "legal", "1") == 1
    with pytest.raises(ModelNotFound):
        delete_one(shared, tenant, "1")


def test_blobs_of_live_versions_are_referenced(shared: Database, tenant: str) -> None:
    def mine(content: str) -> dict[str, StoredFile]:
        return {"adapter_model.safetensors": StoredFile(digest_of(tenant + content), 10)}

    def referenced() -> set[str]:
        with shared.read() as connection:
            found = referenced_blobs(connection)
        return {content for content in "abc" if digest_of(tenant + content) in found}

    for content in "abc":
        push_one(shared, tenant, content, files=mine(content))
    assert referenced() == {"a", "b", "c"}
    delete_one(shared, tenant, "2")
    assert referenced() == {"a", "c"}
    push_one(shared, tenant, "b", files=mine("b"))
    assert referenced() == {"a", "b", "c"}


def test_the_audit_says_who_pushed_and_deleted_what(shared: Database, tenant: str) -> None:
    push_one(shared, tenant, "a")
    delete_one(shared, tenant, "1")
    with shared.read() as connection:
        _, pushed, deleted = audit.entries(connection, tenant=tenant)
    assert (pushed.action, pushed.actor, pushed.subject) == ("version.push", "tester", f"{tenant}/legal@1")
    assert (pushed.detail["digest"], pushed.detail["model_revision"]) == (digest_of("a"), BASE)
    assert (deleted.action, deleted.subject, deleted.detail) == (
        "version.delete",
        f"{tenant}/legal@1",
        {"digest": digest_of("a")},
    )
