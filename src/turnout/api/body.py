"""Reading a request's JSON body, strictly."""

import json
from typing import NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from turnout.api.errors import invalid_body
from turnout.core.errors import InvalidRequest, UnsupportedMediaType

MAX_BODY = 32 << 20
"""Bytes."""

Model = TypeVar("Model", bound=BaseModel)


async def read(request: Request, model: type[Model]) -> Model:
    """The body as `model`.

    Raises UnsupportedMediaType, or InvalidRequest naming the first field that is wrong. NaN and Infinity are no JSON.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType(f"the header Content-Type must be application/json, not '{content_type}'")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise InvalidRequest(f"the body is larger than {MAX_BODY} bytes")
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    if b"\\u" in body:
        _refuse_half_characters(value)
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid_body(error) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _refuse_half_characters(value: object) -> None:
    """JSON can spell half of a surrogate pair, which is no character: no tokenizer takes it, no answer repeats it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("the body's text holds half of a surrogate pair, which is no character") from error


def documented(model: type[BaseModel]) -> dict[str, object]:
    """The OpenAPI part that describes the body, for `openapi_extra`."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}
