"""Listing, showing, sharing and deleting adapters."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from turnout.api import body
from turnout.api.auth import Gate
from turnout.api.registry import bodies, shapes
from turnout.api.registry.reach import READ, Reach, reach
from turnout.registry.adapters import delete_adapter, list_adapters, set_visibility
from turnout.registry.aliases import history
from turnout.registry.directory import Directory
from turnout.registry.versions import list_versions
from turnout.routing.snapshot import Adapter


def router(directory: Directory, gate: Gate) -> APIRouter:
    """`/adapters`, `/adapters/{name}`, and its `visibility` and `history`."""
    routes = APIRouter(prefix="/adapters", tags=["adapters"])
    reader = Depends(reach(directory, gate, *READ))
    admin = Depends(reach(directory, gate, "admin"))

    @routes.get("", response_model=shapes.Listing[shapes.Adapter])
    def listing(caller: Annotated[Reach, reader]) -> Any:
        """List the tenant's adapters that the key may use, by name."""
        with directory.database.read() as connection:
            found = list_adapters(connection, caller.tenant)
        return {"data": [adapter for adapter in found if caller.key.may_use(adapter.name)]}

    @routes.put(
        "/{name:path}/visibility", response_model=shapes.Adapter, openapi_extra=body.documented(bodies.Visibility)
    )
    async def share(name: str, request: Request, caller: Annotated[Reach, admin]) -> Any:
        """Say who sees the adapter besides its owner, in place of what was said before."""
        caller.check(name)
        sent = await body.read(request, bodies.Visibility)
        return await run_in_threadpool(_share, name, caller, sent)

    def _share(name: str, caller: Reach, sent: bodies.Visibility) -> Adapter:
        with directory.write(caller.key.prefix) as write:
            set_visibility(write, caller.tenant, name, public=sent.public, shared_with=sent.shared_with)
            return caller.adapter(write.connection, name)

    @routes.get("/{name:path}/history", response_model=shapes.Listing[shapes.Promotion])
    def moves(name: str, caller: Annotated[Reach, reader]) -> Any:
        """List all moves of the adapter's aliases, the oldest first."""
        caller.check(name)
        with directory.database.read() as connection:
            return {"data": history(connection, caller.tenant, name)}

    @routes.get("/{name:path}", response_model=shapes.FullAdapter)
    def show(name: str, caller: Annotated[Reach, reader]) -> Any:
        """Show an adapter with all its versions."""
        with directory.database.read() as connection:
            adapter = caller.adapter(connection, name)
            versions = list_versions(connection, caller.tenant, name)
        return {**asdict(adapter), "latest": adapter.latest, "versions": versions}

    @routes.delete("/{name:path}", status_code=204)
    def delete(name: str, caller: Annotated[Reach, admin]) -> Response:
        """Delete an adapter with its versions and aliases."""
        caller.check(name)
        with directory.write(caller.key.prefix) as write:
            delete_adapter(write, caller.tenant, name)
        return Response(status_code=204)

    return routes
