"""From a started generation to its HTTP answer, whole or streamed."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from turnout.api.openai.shapes import Head, Shape, usage_json
from turnout.api.route_headers import route_headers
from turnout.api.streams import EventStream, event, unless_gone, until_done
from turnout.serving.choice import Piece
from turnout.serving.generate import Generation

CLIENT_CLOSED_REQUEST = 499
"""The status, by custom, of an answer nobody waited for."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How the caller wants the answer."""

    stream: bool
    include_usage: bool
    include_timings: bool


async def respond(request: Request, generation: Generation, head: Head, shape: Shape, wishes: Wishes) -> Response:
    """The answer to a request; the generation is over, or dropped, when this or the stream it returns ends."""
    headers = {**route_headers(generation.route), **generation.limit_headers}
    if wishes.stream:
        events = until_done(
            _chunks(generation, head, shape, wishes),
            request.state.request_id,
            lambda status: setattr(request.state, "failed", status),
        )
        return EventStream(events, headers, generation.close)
    try:
        pieces = await unless_gone(request, _collect(generation))
    except ClientDisconnect:
        request.state.failed = CLIENT_CLOSED_REQUEST
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        generation.close()
    answer = head.around(shape.kind, [shape.choice(pieces[index]) for index in sorted(pieces)])
    answer["usage"] = usage_json(generation.usage)
    if wishes.include_timings:
        answer["timings"] = generation.timings.as_milliseconds()
    return JSONResponse(answer, headers=headers)


async def _collect(generation: Generation) -> dict[int, list[Piece]]:
    pieces: dict[int, list[Piece]] = {}
    async for piece in generation.pieces():
        pieces.setdefault(piece.index, []).append(piece)
    return pieces


async def _chunks(generation: Generation, head: Head, shape: Shape, wishes: Wishes) -> AsyncIterator[bytes]:
    def chunk(choices: list[dict[str, Any]], last: bool = False) -> bytes:
        value = head.around(shape.chunk_kind, choices)
        if wishes.include_usage:
            value["usage"] = usage_json(generation.usage) if last else None
        if wishes.include_timings and last:
            value["timings"] = generation.timings.as_milliseconds()
        return event(value)

    for index in range(generation.choices):
        opening = shape.opening(index)
        if opening is not None:
            yield chunk([opening])
    unfinished = generation.choices
    async for piece in generation.pieces():
        unfinished -= piece.finish_reason is not None
        # Without a usage chunk, the last choice's last chunk is the last of all.
        yield chunk([shape.delta(piece)], last=unfinished == 0 and not wishes.include_usage)
    if wishes.include_usage:
        yield chunk([], last=True)
