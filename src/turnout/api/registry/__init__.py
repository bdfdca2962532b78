"""`/admin/v1`: the registry over HTTP."""

from fastapi import APIRouter, Depends

from turnout.api.auth import Gate
from turnout.api.registry import (
    adapters,
    aliases,
    audit,
    blobs,
    keys,
    lineage,
    server,
    tenants,
    upkeep,
    versions,
)
from turnout.api.registry.query import refuse_strange
from turnout.artifacts.store import ArtifactStore
from turnout.registry.directory import Directory
from turnout.serving.publishing import Publisher


def router(directory: Directory, store: ArtifactStore, publisher: Publisher, gate: Gate, base_name: str) -> APIRouter:
    """All of `/admin/v1`.

    Paths with more behind an adapter's name come first: a name may hold slashes, and would swallow them.
    """
    routes = APIRouter(prefix="/admin/v1", dependencies=[Depends(refuse_strange)])
    for part in (
        server.router(directory, gate, base_name),
        blobs.router(directory, store, gate),
        versions.router(directory, store, publisher, gate),
        aliases.router(directory, gate),
        adapters.router(directory, gate),
        keys.router(directory, gate),
        tenants.router(directory, gate),
        audit.router(directory, gate),
        lineage.router(directory, gate),
        upkeep.router(directory, store, gate),
    ):
        routes.include_router(part)
    return routes
