"""Tenants: whose an adapter is."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, Row, insert, select, update

from turnout.core.errors import InvalidRequest, TenantExists, TenantNotFound
from turnout.registry import audit
from turnout.registry.database import Write
from turnout.registry.tables import tenants
from turnout.routing.selectors import check_alias

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Tenant:
    """`signed_aliases`: the aliases that only a signed version may be given."""

    name: str
    created_at: int
    signed_aliases: frozenset[str]


def create_tenant(write: Write, name: str) -> Tenant:
    """Add a tenant. Raises InvalidRequest for a bad name, TenantExists for one that is taken."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be a tenant's name; use up to 63 lower-case letters, digits, dots, underscores and "
            "dashes, with a letter or digit at both ends",
            param="name",
        )
    if _row(write.connection, name) is not None:
        raise TenantExists(f"there is a tenant {name!r} already; choose another name", param="name")
    write.connection.execute(insert(tenants).values(name=name, created_at=write.now, signed_aliases=[]))
    audit.record(write, "tenant.create", name, name)
    write.changed()
    return Tenant(name, write.now, frozenset())


def list_tenants(connection: Connection) -> list[Tenant]:
    """All tenants, by name."""
    return sorted(map(_tenant, connection.execute(select(tenants))), key=lambda tenant: tenant.name)


def show_tenant(connection: Connection, name: str) -> Tenant:
    """One tenant. Raises TenantNotFound."""
    row = _row(connection, name)
    if row is None:
        raise no_tenant(name)
    return _tenant(row)


def no_tenant(name: str) -> TenantNotFound:
    """The error for a tenant that does not exist, or that whoever asks is not to know of."""
    return TenantNotFound(f"there is no tenant {name!r}; create it first", param="tenant")


def require_signed(write: Write, name: str, aliases: Collection[str]) -> None:
    """Let only signed versions have these aliases of the tenant's adapters, from now on, and no other alias.

    What has such an alias already keeps it. Raises TenantNotFound, and InvalidRequest for what cannot be an alias.
    """
    for alias in aliases:
        check_alias(alias)
    if show_tenant(write.connection, name).signed_aliases == frozenset(aliases):
        return
    wanted = sorted(set(aliases))
    write.connection.execute(update(tenants).where(tenants.c.name == name).values(signed_aliases=wanted))
    audit.record(write, "tenant.require_signed", name, name, aliases=wanted)
    write.changed()


def _row(connection: Connection, name: str) -> Row[tuple[str, int, list[str]]] | None:
    # What no tenant can be called is not looked for: a database may not even be able to read it.
    wanted = select(tenants).where(tenants.c.name == name)
    return connection.execute(wanted).one_or_none() if _NAME.fullmatch(name) else None


def _tenant(row: Row[tuple[str, int, list[str]]]) -> Tenant:
    return Tenant(row.name, row.created_at, frozenset(row.signed_aliases))
