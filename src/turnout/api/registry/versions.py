"""Pushing, showing, comparing and deleting versions."""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from turnout.api import body
from turnout.api.auth import Gate
from turnout.api.registry import bodies, shapes
from turnout.api.registry.blobs import holds, not_held
from turnout.api.registry.reach import READ, Reach, reach
from turnout.artifacts.adapter_files import wanted
from turnout.artifacts.store import ArtifactStore
from turnout.core.errors import ArtifactNotFound, InvalidRequest
from turnout.core.identity import Digest
from turnout.registry.difference import diff
from turnout.registry.directory import Directory
from turnout.registry.names import check_name
from turnout.registry.records import Claims, Said, StoredFile
from turnout.registry.versions import Pushed, delete_version, show_version
from turnout.serving.publishing import Publisher


def router(directory: Directory, store: ArtifactStore, publisher: Publisher, gate: Gate) -> APIRouter:
    """`/adapters/{name}/versions…` and `/adapters/{name}/diff`."""
    routes = APIRouter(prefix="/adapters", tags=["versions"])
    reader = Depends(reach(directory, gate, *READ))
    pusher = Depends(reach(directory, gate, "push"))
    admin = Depends(reach(directory, gate, "admin"))

    @routes.post(
        "/{name:path}/versions",
        status_code=201,
        response_model=shapes.Pushed,
        responses={200: {"model": shapes.Pushed, "description": "The version was there already"}},
        openapi_extra=body.documented(bodies.Push),
    )
    async def push(name: str, request: Request, response: Response, caller: Annotated[Reach, pusher]) -> Any:
        """Make uploaded files the next version of the adapter, which is made if need be."""
        caller.check(name)
        sent = await body.read(request, bodies.Push)
        check_name(name)
        bodies.check_addressable(name)
        pushed = await run_in_threadpool(_push, name, caller, sent)
        if not pushed.created:
            response.status_code = 200
        return pushed

    def _push(name: str, caller: Reach, sent: bodies.Push) -> Pushed:
        files = {file: StoredFile(Digest(each.digest), each.nbytes) for file, each in sent.files.items()}
        _check_files(directory, store, caller, files)
        return publisher.push(caller.key.prefix, caller.tenant, name, files, _said(sent))

    @routes.get("/{name:path}/versions/{selector}/files/{file}", response_class=StreamingResponse)
    def download(name: str, selector: str, file: str, caller: Annotated[Reach, reader]) -> StreamingResponse:
        """Give a file's bytes. What is cut short is not to be trusted: the stored bytes have rotted."""
        with directory.database.read() as connection:
            caller.check(name)
            version = show_version(connection, caller.tenant, name, selector)
        stored = version.files.get(file)
        if stored is None:
            raise ArtifactNotFound(f"{caller.tenant}/{name}@{version.number} has no file {file!r}", param="file")
        headers = {"Content-Length": str(stored.nbytes)}
        return StreamingResponse(_begun(store.read(stored.digest)), headers=headers, media_type=_OCTETS)

    @routes.get("/{name:path}/versions/{selector}", response_model=shapes.Version)
    def show(name: str, selector: str, caller: Annotated[Reach, reader]) -> Any:
        """Show a version, by its number, semantic version, alias or digest."""
        caller.check(name)
        with directory.database.read() as connection:
            return show_version(connection, caller.tenant, name, selector)

    @routes.delete("/{name:path}/versions/{selector}", response_model=shapes.Deleted)
    def delete(name: str, selector: str, caller: Annotated[Reach, admin]) -> Any:
        """Delete a version that no alias points at; its number is never given again."""
        caller.check(name)
        with directory.write(caller.key.prefix) as write:
            return {"number": delete_version(write, caller.tenant, name, selector)}

    @routes.get("/{name:path}/diff", response_model=shapes.Difference)
    def compare(
        name: str,
        before: Annotated[str, Query(alias="from")],
        after: Annotated[str, Query(alias="to")],
        caller: Annotated[Reach, reader],
    ) -> Any:
        """Tell what version `to` changes against version `from`."""
        caller.check(name)
        with directory.database.read() as connection:
            old, new = (show_version(connection, caller.tenant, name, each) for each in (before, after))
        return diff(old, new)

    return routes


_OCTETS = "application/octet-stream"


def _check_files(directory: Directory, store: ArtifactStore, caller: Reach, files: dict[str, StoredFile]) -> None:
    for name, file in files.items():
        if not wanted(name, file.nbytes):
            raise InvalidRequest(f"{name[:300]!r} of {file.nbytes} bytes is no file of an adapter", param="files")
    for file in files.values():
        if not holds(directory, caller, file.digest):
            raise not_held(file.digest)
        if (nbytes := store.size(file.digest)) != file.nbytes:
            raise InvalidRequest(f"{file.digest} has {nbytes} bytes, not {file.nbytes}", param="files")


def _said(sent: bodies.Push) -> Said:
    claims = Claims(
        metrics=sent.metrics,
        dataset=sent.dataset,
        dataset_digest=sent.dataset_digest,
        hyper_parameters=sent.hyper_parameters,
        owner=sent.owner,
        licence=sent.licence,
    )
    return Said(claims, sent.note, sent.parent, sent.semantic_version, sent.signature)


def _begun(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same, with the first chunk there already: what fails at once still has an answer of its own."""
    return chain([next(chunks, b"")], chunks)
