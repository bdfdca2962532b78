"""Making and listing tenants, and which of their aliases are for signed versions."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from turnout.api import body
from turnout.api.auth import Gate
from turnout.api.registry import bodies, shapes
from turnout.registry.directory import Directory
from turnout.registry.keys import Key
from turnout.registry.tenants import Tenant, create_tenant, list_tenants, require_signed, show_tenant


def router(directory: Directory, gate: Gate) -> APIRouter:
    """`/tenants`."""
    routes = APIRouter(prefix="/tenants", tags=["tenants"])
    operator = Depends(gate.operator)

    @routes.get("", response_model=shapes.Listing[shapes.Tenant], dependencies=[operator])
    def listing() -> Any:
        """List the tenants, by name."""
        with directory.database.read() as connection:
            return {"data": list_tenants(connection)}

    @routes.post("", status_code=201, response_model=shapes.Tenant, openapi_extra=body.documented(bodies.NewTenant))
    async def create(request: Request, key: Annotated[Key, operator]) -> Any:
        """Make a tenant."""
        sent = await body.read(request, bodies.NewTenant)
        return await run_in_threadpool(_create, sent.name, key.prefix)

    def _create(name: str, actor: str) -> Tenant:
        with directory.write(actor) as write:
            return create_tenant(write, name)

    @routes.put(
        "/{name}/signed_aliases", response_model=shapes.Tenant, openapi_extra=body.documented(bodies.SignedAliases)
    )
    async def sign(name: str, request: Request, key: Annotated[Key, operator]) -> Any:
        """Let only signed versions have these aliases, and no other alias, from now on."""
        sent = await body.read(request, bodies.SignedAliases)
        return await run_in_threadpool(_sign, name, sent.aliases, key.prefix)

    def _sign(name: str, aliases: list[str], actor: str) -> Tenant:
        with directory.write(actor) as write:
            require_signed(write, name, aliases)
            return show_tenant(write.connection, name)

    return routes
