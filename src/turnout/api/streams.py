"""Answers that outlive a single write: server-sent events, and calls whose caller may leave."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from turnout.api.errors import envelope, unexpected
from turnout.core.errors import TurnoutError

logger = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"
Result = TypeVar("Result")


def event(value: Mapping[str, Any]) -> bytes:
    """One server-sent event with a JSON object as its data."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


class EventStream(StreamingResponse):
    """An answer of server-sent events. However it ends, `close` is called before the request is over."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], headers: Mapping[str, str], close: Callable[[], None]) -> None:
        super().__init__(events, headers={**headers, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end, or until the client has gone."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            # The generator may be left suspended where its own clean-up does not run until it is collected.
            self._close()


async def until_done(
    events: AsyncIterator[bytes], request_id: str, failed: Callable[[int], None]
) -> AsyncIterator[bytes]:
    """`events`, then `[DONE]`; after a failure one error event and no `[DONE]`. `failed` is told its status."""
    try:
        async for data in events:
            yield data
    except Exception as error:  # noqa: BLE001 (the boundary: a stream that has begun can only tell)
        ours = error if isinstance(error, TurnoutError) else unexpected(error, request_id)
        logger.warning("request %s failed in mid-stream: %s", request_id, ours.code)
        failed(ours.status)
        yield event(envelope(ours))
    else:
        yield DONE


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the client leaves before (ClientDisconnect)."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for future in (task, gone):
            future.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
