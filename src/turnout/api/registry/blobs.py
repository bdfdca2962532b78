"""Uploading files, before a version is made of them."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from turnout.api.auth import Gate
from turnout.api.registry import shapes
from turnout.api.registry.reach import Reach, reach
from turnout.api.registry.uploading import Uploads
from turnout.artifacts.store import ArtifactStore
from turnout.core.errors import ArtifactNotFound, ArtifactStoreFailure
from turnout.core.identity import Digest, parse_digest
from turnout.registry import uploads
from turnout.registry.directory import Directory

_BYTES = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}


def router(directory: Directory, store: ArtifactStore, gate: Gate) -> APIRouter:
    """`/blobs/{digest}`."""
    routes = APIRouter(prefix="/blobs", tags=["blobs"])
    pusher = reach(directory, gate, "push")
    incoming = Uploads(store)

    @routes.head("/{digest}", response_class=Response)
    def find(digest: str, caller: Annotated[Reach, Depends(pusher)]) -> Response:
        """Tell whether these bytes need no upload: this key has uploaded them, or finds them in a version."""
        wanted = parse_digest(digest)
        if not holds(directory, caller, wanted) or not store.has(wanted):
            raise not_held(wanted)
        return Response()

    @routes.put("/{digest}", status_code=201, response_model=shapes.Uploaded, openapi_extra=_BYTES)
    async def put(digest: str, request: Request, caller: Annotated[Reach, Depends(pusher)]) -> Any:
        """Store the body, whose digest this is."""
        wanted = parse_digest(digest)
        nbytes = await incoming.take(request, wanted)
        await run_in_threadpool(_record, wanted, caller)
        return {"digest": wanted, "nbytes": nbytes}

    def _record(digest: Digest, caller: Reach) -> None:
        # With the lock that a collection of garbage holds: from now on it leaves these bytes alone.
        with directory.database.write(caller.key.prefix) as write:
            if not store.has(digest):
                raise ArtifactStoreFailure(f"{digest} was cleaned up just when it came; send it again")
            uploads.record(write, digest)

    return routes


def holds(directory: Directory, caller: Reach, *digests: Digest) -> bool:
    """Whether the caller may make versions of these bytes. It may be that the store has them, for others."""
    if caller.is_everything:
        return True
    with directory.database.read() as connection:
        held = uploads.held(connection, caller.key.prefix, caller.tenant, caller.key.may_use)
    return held.issuperset(digests)


def not_held(digest: Digest) -> ArtifactNotFound:
    """The error for bytes that are not here, or not for the caller."""
    return ArtifactNotFound(f"{digest} is not here; upload it first")
