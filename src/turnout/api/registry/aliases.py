"""Pointing aliases at versions, and back."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from turnout.api import body
from turnout.api.auth import Gate
from turnout.api.registry import bodies, shapes
from turnout.api.registry.reach import Reach, reach
from turnout.registry.aliases import promote, remove_alias, rollback
from turnout.registry.database import Write
from turnout.registry.directory import Directory
from turnout.registry.moves import Promotion, read_moves


def router(directory: Directory, gate: Gate) -> APIRouter:
    """`/adapters/{name}/aliases/{alias}`."""
    routes = APIRouter(prefix="/adapters", tags=["aliases"])
    promoter = Depends(reach(directory, gate, "promote"))

    @routes.post(
        "/{name:path}/aliases/{alias}/rollback",
        response_model=shapes.Promotion,
        openapi_extra=body.documented(bodies.Rollback),
    )
    async def back(name: str, alias: str, request: Request, caller: Annotated[Reach, promoter]) -> Any:
        """Point the alias at the version that it pointed at before."""
        caller.check(name)
        sent = await bodies.read_optional(request, bodies.Rollback)
        return await run_in_threadpool(_back, name, alias, caller, sent)

    def _back(name: str, alias: str, caller: Reach, sent: bodies.Rollback) -> Promotion:
        with directory.write(caller.key.prefix) as write:
            rollback(write, caller.tenant, name, alias, sent.reason)
            return _last_move(write, caller, name, alias)

    @routes.put(
        "/{name:path}/aliases/{alias}",
        response_model=shapes.Promoted,
        openapi_extra=body.documented(bodies.Promote),
    )
    async def point(name: str, alias: str, request: Request, caller: Annotated[Reach, promoter]) -> Any:
        """Point the alias at a version, if that has what is required."""
        caller.check(name)
        sent = await body.read(request, bodies.Promote)
        return await run_in_threadpool(_point, name, alias, caller, sent)

    def _point(name: str, alias: str, caller: Reach, sent: bodies.Promote) -> shapes.Promoted:
        with directory.write(caller.key.prefix) as write:
            before = caller.adapter(write.connection, name).aliases.get(alias)
            version = promote(write, caller.tenant, name, sent.version, alias, sent.reason, sent.require)
            move = shapes.Promotion.model_validate(_last_move(write, caller, name, alias))
        return shapes.Promoted(**dict(move), unchanged=version.number == before)

    @routes.delete("/{name:path}/aliases/{alias}", response_model=shapes.Promotion)
    def remove(
        name: str,
        alias: str,
        caller: Annotated[Reach, promoter],
        reason: Annotated[str, Query(max_length=bodies.MAX_TEXT)] = "",
    ) -> Any:
        """Take the alias away."""
        caller.check(name)
        with directory.write(caller.key.prefix) as write:
            remove_alias(write, caller.tenant, name, alias, reason)
            return _last_move(write, caller, name, alias)

    return routes


def _last_move(write: Write, caller: Reach, name: str, alias: str) -> Promotion:
    moves = read_moves(write.connection, caller.adapter(write.connection, name).id)
    return next(move for move in reversed(moves) if move.alias == alias)
