"""Adapters: listing, visibility, deletion and revival."""

from dataclasses import replace

import pytest

from tests.registry.samples import digest_of, new_version
from turnout.core.errors import InvalidRequest, ModelNotFound, NothingToRollBack, TenantNotFound
from turnout.registry import audit
from turnout.registry.adapters import delete_adapter, list_adapters, set_visibility, show_adapter
from turnout.registry.aliases import history, promote, rollback
from turnout.registry.database import Database
from turnout.registry.picture import read_picture
from turnout.registry.tenants import create_tenant
from turnout.registry.versions import push, referenced_blobs
from turnout.routing.snapshot import Adapter


def push_all(database: Database, tenant: str, name: str, *contents: str) -> None:
    with database.write("tester") as write:
        for content in contents:
            push(write, tenant, name, new_version(content))


def shown(database: Database, tenant: str, name: str = "legal") -> Adapter:
    with database.read() as connection:
        return show_adapter(connection, tenant, name)


def test_a_listing_has_versions_aliases_and_visibility_by_name(shared: Database, tenant: str) -> None:
    push_all(shared, tenant, "sql", "x")
    push_all(shared, tenant, "legal", "a", "b")
    with shared.write("tester") as write:
        promote(write, tenant, "legal", "1", "production", "good")
    with shared.read() as connection:
        legal, sql = list_adapters(connection, tenant)
        everything = list_adapters(connection)
        picture = read_picture(connection)
    assert (legal.name, legal.last_number, legal.aliases, legal.public) == ("legal", 2, {"production": 1}, False)
    assert [version.number for version in legal.versions] == [1, 2]
    assert legal.latest == legal.versions[1]
    assert (sql.name, sql.aliases, sql.latest) == ("sql", {}, sql.versions[0])
    assert {legal.id, sql.id} <= {adapter.id for adapter in everything}
    assert picture.adapters == tuple(everything)


def test_two_tenants_may_use_one_name(shared: Database, tenant: str) -> None:
    with shared.write("tester") as write:
        create_tenant(write, f"{tenant}-2")
    push_all(shared, tenant, "legal", "a", "b")
    push_all(shared, f"{tenant}-2", "legal", "a")
    assert shown(shared, tenant).last_number == 2
    assert shown(shared, f"{tenant}-2").last_number == 1


def test_visibility_is_public_shared_or_private(shared: Database, tenant: str) -> None:
    push_all(shared, tenant, "legal", "a")
    with shared.write("tester") as write:
        set_visibility(write, tenant, "legal", shared_with=["default"])
    assert (shown(shared, tenant).public, shown(shared, tenant).shared_with) == (False, {"default"})
    with shared.write("tester") as write:
        set_visibility(write, tenant, "legal", public=True)
    assert (shown(shared, tenant).public, shown(shared, tenant).shared_with) == (True, frozenset())
    with shared.write("tester") as write:
        set_visibility(write, tenant, "legal")
    assert (shown(shared, tenant).public, shown(shared, tenant).shared_with) == (False, frozenset())


def test_saying_the_same_visibility_again_is_no_change(shared: Database, tenant: str) -> None:
    push_all(shared, tenant, "legal", "a")
    with shared.read() as connection:
        before = audit.head(connection)
    with shared.write("tester") as write:
        set_visibility(write, tenant, "legal")
        assert not write.has_changes
    with shared.read() as connection:
        assert audit.head(connection) == before


def test_a_contradictory_visibility_is_refused(shared: Database, tenant: str) -> None:
    push_all(shared, tenant, "legal", "a")
    with shared.write("tester") as write:
        with pytest.raises(InvalidRequest, match="name none"):
            set_visibility(write, tenant, "legal", public=True, shared_with=["default"])
        with pytest.raises(InvalidRequest, match="owns the adapter"):
            set_visibility(write, tenant, "legal", shared_with=[tenant])
        with pytest.raises(TenantNotFound, match="nobody"):
            set_visibility(write, tenant, "legal", shared_with=["nobody"])
        with pytest.raises(ModelNotFound, match="there is no adapter"):
            set_visibility(write, tenant, "other")


def test_a_deleted_adapter_is_gone_with_aliases_and_files(shared: Database, tenant: str) -> None:
    push_all(shared, tenant, "legal", f"{tenant} a")
    with shared.write("tester") as write:
        promote(write, tenant, "legal", "1", "production", "good")
        delete_adapter(write, tenant, "legal")
    with shared.read() as connection:
        assert list_adapters(connection, tenant) == []
        assert digest_of(f"file {tenant} a") not in referenced_blobs(connection)
        with pytest.raises(ModelNotFound):
            show_adapter(connection, tenant, "legal")
    with pytest.raises(ModelNotFound), shared.write("tester") as write:
        delete_adapter(write, tenant, "legal")


def test_a_revived_adapter_counts_on_private_and_without_its_old_versions(shared: Database, tenant: str) -> None:
    push_all(shared, tenant, "legal", "a", "b")
    before = shown(shared, tenant)
    with shared.write("tester") as write:
        set_visibility(write, tenant, "legal", public=True)
        promote(write, tenant, "legal", "1", "production", "good")
        promote(write, tenant, "legal", "2", "production", "better")
        delete_adapter(write, tenant, "legal")
    push_all(shared, tenant, "legal", "c", "b")
    after = shown(shared, tenant)
    assert [version.number for version in after.versions] == [2, 3]
    assert after == replace(before, last_number=3, versions=after.versions)
    with shared.write("tester") as write:
        promote(write, tenant, "legal", "3", "production", "anew")
        with pytest.raises(NothingToRollBack):
            rollback(write, tenant, "legal", "production", "the past is gone")
    with shared.read() as connection:
        assert [(move.kind, move.before, move.after) for move in history(connection, tenant, "legal")] == [
            ("promote", None, 1),
            ("promote", 1, 2),
            ("remove", 2, None),
            ("promote", None, 3),
        ]


def test_an_unknown_tenants_adapters_are_not_listed(shared: Database) -> None:
    with shared.read() as connection, pytest.raises(TenantNotFound):
        list_adapters(connection, "nobody")
