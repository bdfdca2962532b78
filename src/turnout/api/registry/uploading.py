"""A request's body on its way into the artefact store."""

from collections.abc import AsyncIterator, Iterator

import anyio
from anyio.from_thread import run as run_on_loop
from anyio.to_thread import run_sync
from fastapi import Request
from starlette.requests import ClientDisconnect

from turnout.artifacts.store import ArtifactStore
from turnout.core.errors import InvalidRequest
from turnout.core.identity import Digest

MAX_UPLOAD = 4 << 30
"""Bytes of one file."""

AT_ONCE = 64
"""Uploads that are taken at a time; each has a thread of its own while it lasts."""

_CHUNK = 1 << 20


class Uploads:
    """Takes bodies in. One of these for a server."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        # Apart from the threads that all endpoints share, which slow clients could hold up.
        self._limiter = anyio.CapacityLimiter(AT_ONCE)

    async def take(self, request: Request, digest: Digest) -> int:
        """Store the body and return its bytes; no more of it is in memory than a chunk.

        What breaks off, is too large or has another digest is not stored. Raises InvalidRequest, and what
        `ArtifactStore.put` raises.
        """
        _check_announced(request)
        stream = request.stream()
        return await run_sync(lambda: self._store.put(_chunks(stream), digest), limiter=self._limiter)


def _check_announced(request: Request) -> None:
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > MAX_UPLOAD:
        raise _too_large()


def _chunks(stream: AsyncIterator[bytes]) -> Iterator[bytes]:
    """The body, asked for chunk by chunk on the event loop from the storing thread: one waits for the other."""
    total = 0
    try:
        while chunk := run_on_loop(_next_chunk, stream):
            total += len(chunk)
            if total > MAX_UPLOAD:
                raise _too_large()
            yield chunk
    except ClientDisconnect as error:
        raise InvalidRequest("the upload broke off; nothing was stored") from error


async def _next_chunk(stream: AsyncIterator[bytes]) -> bytes:
    """The next mebibyte or so, less only at the end."""
    chunk = bytearray()
    async for part in stream:
        chunk += part
        if len(chunk) >= _CHUNK:
            break
    return bytes(chunk)


def _too_large() -> InvalidRequest:
    return InvalidRequest(f"the file is larger than {MAX_UPLOAD} bytes, the most that is taken")
