"""Who may ask. Keys are compared in constant time and appear nowhere else."""

import hmac
from collections.abc import Awaitable, Callable

from fastapi import Request

from turnout.core.errors import Forbidden, Unauthorized

Check = Callable[[Request], Awaitable[None]]
"""A dependency that raises unless the request may pass; asynchronous, for others would each cost a thread's turn."""


async def everyone(_: Request) -> None:
    """The check of a server without keys, which only its own machine can reach."""


def require_key(*keys: str | None) -> Check:
    """A check that the request bears one of those `keys` that are configured."""
    known = [key.encode() for key in keys if key is not None]

    async def check(request: Request) -> None:
        if not _bears(request, known):
            raise Unauthorized("a valid key is needed: send 'Authorization: Bearer <key>'")

    return check


def require_admin(key: str | None) -> Check:
    """A check that the request bears the admin key; without one configured, nobody passes."""
    known = [] if key is None else [key.encode()]

    async def check(request: Request) -> None:
        if not known:
            raise Forbidden(
                "changing adapters at run time is switched off; start the server with TURNOUT_ADMIN_KEY set to use it"
            )
        if not _bears(request, known):
            raise Unauthorized("the admin key is needed: send 'Authorization: Bearer <admin key>'")

    return check


def _bears(request: Request, known: list[bytes]) -> bool:
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    # All keys are compared, so that the time tells nothing of which one nearly fits.
    fits = [hmac.compare_digest(sent.strip().encode(), key) for key in known]
    return scheme.lower() == "bearer" and any(fits)
