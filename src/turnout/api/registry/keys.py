"""Making, listing and revoking keys. Nobody gives what they do not have."""

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from turnout.api import body
from turnout.api.auth import Gate
from turnout.api.registry import bodies, shapes
from turnout.api.registry.query import instant, span
from turnout.api.registry.reach import EVERYTHING, Sight, check_tenant, sight
from turnout.core.errors import Forbidden, InvalidRequest
from turnout.core.identity import DEFAULT_TENANT
from turnout.registry import keys
from turnout.registry.database import now
from turnout.registry.directory import Directory
from turnout.registry.keys import Key, Limits, NewKey


def router(directory: Directory, gate: Gate) -> APIRouter:
    """`/keys`."""
    routes = APIRouter(prefix="/keys", tags=["keys"])
    admin = Depends(sight(directory, gate, "admin"))

    @routes.get("", response_model=shapes.Listing[shapes.Key])
    def listing(caller: Annotated[Sight, admin]) -> Any:
        """List the keys, oldest first, those that have ended too; their text is nowhere."""
        with directory.database.read() as connection:
            found = keys.listing(connection, tenant=caller.tenant)
        return {"data": [key for key in found if _within(key.patterns, caller.key)]}

    @routes.post("", status_code=201, response_model=shapes.NewKey, openapi_extra=body.documented(bodies.NewKey))
    async def create(request: Request, response: Response, caller: Annotated[Sight, admin]) -> Any:
        """Make a key. Its text is in this answer and nowhere else."""
        sent = await body.read(request, bodies.NewKey)
        tenant = _owner(sent, caller)
        if tenant is not None:
            await check_tenant(directory, caller.key, tenant)
        new = _new_key(sent, tenant, caller.key)
        _check_may_give(new, caller.key)
        key, token = await run_in_threadpool(_create, new, caller.key.prefix)
        response.headers["Cache-Control"] = "no-store"
        return {"key": key, "token": token}

    def _create(new: NewKey, actor: str) -> tuple[Key, str]:
        with directory.write(actor) as write:
            return keys.create(write, new)

    @routes.delete("/{prefix}", response_model=shapes.Key)
    def revoke(prefix: str, caller: Annotated[Sight, admin]) -> Any:
        """End a key for good."""
        with directory.write(caller.key.prefix) as write:
            found = keys.find(write.connection, prefix, tenant=caller.tenant)
            if not _within(found.patterns, caller.key):
                raise keys.no_key(prefix)
            return keys.revoke(write, prefix, tenant=caller.tenant)

    return routes


def _owner(sent: bodies.NewKey, caller: Sight) -> str | None:
    """Whose the key shall be; None for an operator's."""
    if "tenant" not in sent.model_fields_set:
        return caller.tenant or DEFAULT_TENANT
    if caller.tenant not in (caller.key.tenant, sent.tenant):
        raise InvalidRequest("the query and the body name two different tenants; leave one out", param="tenant")
    return sent.tenant


def _new_key(sent: bodies.NewKey, tenant: str | None, maker: Key) -> NewKey:
    scopes = keys.parse_scopes(sent.scopes)
    patterns = maker.patterns if sent.adapters is None else tuple(sent.adapters)
    limits = Limits(sent.requests_per_minute, sent.tokens_per_minute, sent.concurrent_requests)
    return NewKey(tenant, sent.name, scopes, patterns, sent.default_adapter, limits, _end(sent.expires))


def _end(expires: str | None) -> int | None:
    if expires is None:
        return None
    if "T" in expires:
        return instant(expires, "expires")
    return now() + int(span(expires, "expires").total_seconds()) * 10**6


def _check_may_give(new: NewKey, maker: Key) -> None:
    if new.tenant is None and maker.tenant is not None:
        raise Forbidden("an operator's key takes an operator to make it; name your tenant, or leave it out")
    lacking = new.scopes - maker.scopes
    if maker.tenant is not None and lacking:
        raise Forbidden(f"this key lacks the scope {min(lacking)} and cannot give it")
    if not _within(new.patterns, maker):
        raise Forbidden(f"this key can give no other patterns than its own: {', '.join(maker.patterns)}")


def _within(patterns: Iterable[str], maker: Key) -> bool:
    return EVERYTHING in maker.patterns or set(patterns) <= set(maker.patterns)
