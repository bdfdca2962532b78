"""The server's errors, raised here as the classes that the server raised there."""

from collections.abc import Iterator
from typing import get_args

import httpx

from turnout.core.errors import (
    Forbidden,
    Overloaded,
    RateLimit,
    RateLimited,
    TurnoutError,
    Unauthorized,
    UnexpectedAnswer,
)


def _tree(error: type[TurnoutError]) -> Iterator[type[TurnoutError]]:
    yield error
    for child in error.__subclasses__():
        yield from _tree(child)


CLASSES = {error.code: error for error in _tree(TurnoutError)}
"""By the code in the envelope."""


def refusal(response: httpx.Response) -> TurnoutError:
    """The error that an answer stands for, whose status is not one of success and whose body has been read."""
    said = _envelope(response)
    if said is None:
        return _without_envelope(response)
    message, param, code = str(said.get("message")), said.get("param"), said.get("code")
    found = CLASSES.get(code) if isinstance(code, str) else None
    if found is None:
        return UnexpectedAnswer(f"{message} ({code or response.status_code})")
    wait = response.headers.get("Retry-After", "")
    seconds = int(wait) if wait.isdecimal() else None
    if issubclass(found, Overloaded):
        return found(message, retry_after=seconds or 1)
    if issubclass(found, RateLimited):
        # Only the words say which limit it was; those of the longest name first, which holds another.
        kinds: list[RateLimit] = sorted(get_args(RateLimit), key=len, reverse=True)
        limit: RateLimit = next((kind for kind in kinds if kind in message), "requests")
        headers = {name: value for name, value in response.headers.items() if name.startswith("x-ratelimit-")}
        return found(message, limit=limit, retry_after=seconds, headers=headers)
    if issubclass(found, Unauthorized):
        return found(message)
    return found(message, param=param if isinstance(param, str) else None)


def _envelope(response: httpx.Response) -> dict[str, object] | None:
    try:
        body = response.json()
    except ValueError:
        return None
    said = body.get("error") if isinstance(body, dict) else None
    return said if isinstance(said, dict) else None


def _without_envelope(response: httpx.Response) -> TurnoutError:
    """What a status alone says: HEAD has no body, and a proxy has its own."""
    where = f"{response.request.method} {response.request.url.copy_with(query=None)}"
    if response.status_code == httpx.codes.UNAUTHORIZED:
        return Unauthorized(f"{where}: a valid key is needed")
    if response.status_code == httpx.codes.FORBIDDEN:
        return Forbidden(f"{where}: the key may not do this")
    return UnexpectedAnswer(
        f"{where} was answered {response.status_code} {response.reason_phrase} without saying why; "
        "is this the URL of a Turnout server?"
    )
