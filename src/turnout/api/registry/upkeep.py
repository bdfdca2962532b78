"""Checking what is kept, and clearing away what is of no more use."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool

from turnout.api import body
from turnout.api.auth import Gate
from turnout.api.registry import bodies, shapes
from turnout.api.registry.query import span
from turnout.artifacts.store import ArtifactStore
from turnout.registry.directory import Directory
from turnout.registry.keys import Key
from turnout.registry.upkeep import collect, verify


def router(directory: Directory, store: ArtifactStore, gate: Gate) -> APIRouter:
    """`/verify` and `/gc`."""
    routes = APIRouter(tags=["upkeep"])
    operator = Depends(gate.operator)

    @routes.post("/verify", response_model=shapes.Verification, dependencies=[operator])
    def check() -> Any:
        """Read and hash every live version's files, and check the audit and where aliases point."""
        return verify(directory.database, store)

    @routes.post("/gc", response_model=shapes.Collected, openapi_extra=body.documented(bodies.Collect))
    async def clear(request: Request, key: Annotated[Key, operator]) -> Any:
        """Delete stored bytes that no live version has; with `dry_run`, only tell which."""
        sent = await bodies.read_optional(request, bodies.Collect)
        older_than = span(sent.older_than, "older_than")
        return await run_in_threadpool(collect, directory.database, store, key.prefix, older_than, dry_run=sent.dry_run)

    return routes
