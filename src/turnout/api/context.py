"""What every request has around its endpoint: an id, an arrival time, and an answer even to our own faults."""

import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.api.errors import answer, unexpected

REQUEST_ID = "X-Request-ID"
_SANE_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)


class RequestContext:
    """ASGI middleware that sets `state.request_id` and `state.arrived`, and answers what nothing else answers.

    The id is the client's X-Request-ID if it is sane, else a new one, and is sent back; the time is `time.monotonic()`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its context; an exception before an answer has begun becomes a 500."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = sent if _SANE_ID.fullmatch(sent) else uuid.uuid4().hex
        scope.setdefault("state", {}).update(request_id=request_id, arrived=time.monotonic())

        begun = False

        async def send_with_id(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            if begun:
                raise
            await answer(unexpected(error, request_id))(scope, receive, send_with_id)
