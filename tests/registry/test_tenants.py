"""Tenants."""

import pytest

from turnout.core.errors import InvalidRequest, TenantExists, TenantNotFound
from turnout.registry.database import Database, revision
from turnout.registry.tenants import create_tenant, list_tenants, require_signed, show_tenant


def test_the_default_tenant_is_there_and_others_are_added(database: Database) -> None:
    with database.write("tester") as write:
        create_tenant(write, "acme")
    with database.read() as connection:
        assert [tenant.name for tenant in list_tenants(connection)] == ["acme", "default"]


@pytest.mark.parametrize("name", ["", "Acme", "-acme", "acme.", "a b", "a/b", "é", "a\n", "a" * 64])
def test_a_bad_name_is_refused(shared: Database, name: str) -> None:
    with pytest.raises(InvalidRequest, match="tenant's name"), shared.write("tester") as write:
        create_tenant(write, name)


def test_a_taken_name_is_refused(shared: Database) -> None:
    with pytest.raises(TenantExists, match="default"), shared.write("tester") as write:
        create_tenant(write, "default")


def test_signed_aliases_are_replaced_whole_and_saying_them_again_changes_nothing(shared: Database, tenant: str) -> None:
    for aliases in (["production", "staging"], ["production"]):
        with shared.write("tester") as write:
            require_signed(write, tenant, aliases)
    with shared.read() as connection:
        before = revision(connection)
        assert show_tenant(connection, tenant).signed_aliases == {"production"}
    with shared.write("tester") as write:
        require_signed(write, tenant, ["production"])
    with shared.read() as connection:
        assert revision(connection) == before


def test_an_unknown_tenant_and_what_cannot_be_an_alias_are_refused(shared: Database, tenant: str) -> None:
    with pytest.raises(TenantNotFound, match="nobody"), shared.write("tester") as write:
        require_signed(write, "nobody", ["production"])
    with pytest.raises(InvalidRequest, match="alias"), shared.write("tester") as write:
        require_signed(write, tenant, ["3"])
