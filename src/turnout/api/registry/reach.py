"""What a caller may touch. Whatever is out of its reach it is told does not exist, in the same words."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Request
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from turnout.api.auth import Check, Gate
from turnout.core.identity import DEFAULT_TENANT
from turnout.registry.adapters import no_adapter, show_adapter
from turnout.registry.directory import Directory
from turnout.registry.keys import Key, Scope
from turnout.registry.tenants import no_tenant, show_tenant
from turnout.routing.snapshot import Adapter

READ: tuple[Scope, ...] = ("push", "promote", "admin")
"""The scopes, one of which reading takes."""

EVERYTHING = "*"
"""The pattern that allows every adapter."""

TenantParameter = Annotated[
    str | None, Query(description="Whose; the key's own tenant if left out, for an operator's key `default`.")
]
TenantFilter = Annotated[str | None, Query(description="Whose; for an operator's key everybody's if left out.")]


@dataclass(frozen=True, slots=True)
class Reach:
    """A caller, and the tenant whose things it asks for."""

    key: Key
    tenant: str

    @property
    def is_everything(self) -> bool:
        """Whether the caller may touch all that any tenant has."""
        return self.key.tenant is None and EVERYTHING in self.key.patterns

    def check(self, name: str) -> None:
        """Raise ModelNotFound if the key's patterns do not allow an adapter of this name."""
        if not self.key.may_use(name):
            raise no_adapter(self.tenant, name)

    def adapter(self, connection: Connection, name: str) -> Adapter:
        """The adapter of this name. Raises ModelNotFound."""
        self.check(name)
        return show_adapter(connection, self.tenant, name)


def reach(directory: Directory, gate: Gate, *scopes: Scope) -> Callable[..., Awaitable[Reach]]:
    """A dependency that gives the Reach of a key with one of these scopes. Raises TenantNotFound."""
    check = gate.needs(*scopes)

    async def reached(request: Request, tenant: TenantParameter = None) -> Reach:
        key = await check(request)
        wanted = tenant if tenant is not None else key.tenant or DEFAULT_TENANT
        await check_tenant(directory, key, wanted)
        return Reach(key, wanted)

    return reached


@dataclass(frozen=True, slots=True)
class Sight:
    """A caller, and whose records it asks for: one tenant's, or with None everybody's."""

    key: Key
    tenant: str | None


def sight(directory: Directory, gate: Gate, *scopes: Scope) -> Callable[..., Awaitable[Sight]]:
    """A dependency that gives the Sight of a key with one of these scopes. Raises TenantNotFound."""
    check: Check = gate.needs(*scopes)

    async def seen(request: Request, tenant: TenantFilter = None) -> Sight:
        key = await check(request)
        wanted = tenant if tenant is not None else key.tenant
        if wanted is not None:
            await check_tenant(directory, key, wanted)
        return Sight(key, wanted)

    return seen


async def check_tenant(directory: Directory, key: Key, tenant: str) -> None:
    """Raise TenantNotFound for a tenant that is not the key's own, or, for an operator's key, not there."""
    if key.tenant is None:
        await run_in_threadpool(_look_up, directory, tenant)
    elif tenant != key.tenant:
        raise no_tenant(tenant)


def _look_up(directory: Directory, tenant: str) -> None:
    with directory.database.read() as connection:
        show_tenant(connection, tenant)
