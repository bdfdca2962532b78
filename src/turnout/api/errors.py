"""The one table from errors to answers: OpenAI's envelope, for whatever goes wrong."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from turnout.core.errors import InvalidRequest, Overloaded, RateLimited, TurnoutError

logger = logging.getLogger(__name__)

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def envelope(error: TurnoutError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`, as OpenAI's clients read it."""
    return _envelope(error.status, error.code, error.message, error.param)


def _envelope(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def answer(error: TurnoutError) -> JSONResponse:
    """The HTTP answer to an error."""
    headers: dict[str, str] = {}
    if isinstance(error, RateLimited):
        headers.update(error.headers)
    if isinstance(error, Overloaded | RateLimited) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(envelope(error), error.status, headers)


def invalid_body(error: ValidationError) -> InvalidRequest:
    """What is wrong with a body, by its first fault. Values are not repeated: they may be anything, a NaN even."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # A location within a union ends in the member's type; what a client wrote is the part before.
    path = [str(part) for part in fault["loc"] if not _is_union_member(part)]
    param = ".".join(path) or None
    if fault["type"] == "extra_forbidden":
        return InvalidRequest(f"unrecognized request argument: {param}", param=param)
    message = fault["msg"].removeprefix("Value error, ")
    return InvalidRequest(f"{param}: {message}" if param else message, param=param)


def _is_union_member(part: str | int) -> bool:
    return isinstance(part, str) and ("[" in part or part in ("str", "int", "float", "bool"))


def unexpected(error: Exception, request_id: str) -> TurnoutError:
    """What a caller is told of a fault of ours: where to look, and nothing of its insides. They go to the log."""
    logger.error("request %s failed", request_id, exc_info=error)
    return TurnoutError(f"the server failed on request {request_id}; its log says why")


def install(app: FastAPI) -> None:
    """Answer every error that an endpoint or the framework raises on purpose by this table."""

    @app.exception_handler(TurnoutError)
    async def _ours(_: Request, error: TurnoutError) -> JSONResponse:
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def _parameter(_: Request, error: RequestValidationError) -> JSONResponse:
        fault = error.errors()[0]
        name = str(fault["loc"][-1])
        return answer(InvalidRequest(f"{name}: {fault['msg']}", param=name))

    @app.exception_handler(HTTPException)
    async def _framework(request: Request, error: HTTPException) -> JSONResponse:
        # What the framework itself refuses: no such path, no such method.
        status = error.status_code
        message = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse(_envelope(status, HTTPStatus(status).name.lower(), message), status, error.headers)
