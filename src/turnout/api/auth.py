"""Who asks, and whether they may. Keys are compared in constant time and appear nowhere else."""

from collections.abc import Awaitable, Callable

from fastapi import Request

from turnout.core.errors import Forbidden, Unauthorized
from turnout.core.identity import DEFAULT_TENANT
from turnout.registry.database import now
from turnout.registry.directory import Directory
from turnout.registry.failures import Failure
from turnout.registry.keys import Key, Limits, Scope

Check = Callable[[Request], Awaitable[Key]]
"""A dependency that gives the caller's key, or raises; asynchronous, for others would each cost a thread's turn."""

ANYONE = Key("none", DEFAULT_TENANT, "no key", frozenset({"infer"}), ("*",), None, Limits(), "server", 0, None, None)
"""Whoever asks a server that has no keys for inference, which only its own machine can reach."""


class Gate:
    """Tells callers by their keys, and keeps those who are refused in the audit."""

    def __init__(self, directory: Directory, record: Callable[[Failure], None]) -> None:
        self._directory = directory
        self._record = record

    def needs(self, *scopes: Scope) -> Check:
        """A check that the request bears a key with at least one of these scopes."""

        async def check(request: Request) -> Key:
            key = self._caller(request, scopes)
            if not any(key.may(scope) for scope in scopes):
                wanted = " or ".join(scopes)
                self._refused(request, f"no scope {wanted}", key.prefix, key.tenant)
                raise Forbidden(f"this key lacks the scope {wanted}; use one that has it")
            return key

        return check

    async def operator(self, request: Request) -> Key:
        """A check that the request bears an operator's key: one with the scope admin that is no tenant's."""
        key = await self.needs("admin")(request)
        if key.tenant is not None:
            self._refused(request, "not an operator", key.prefix, key.tenant)
            raise Forbidden("this takes an operator's key; a tenant's own does not do")
        return key

    def _caller(self, request: Request, scopes: tuple[Scope, ...]) -> Key:
        keys = self._directory.keys()
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if "infer" in scopes and not keys.guards_inference:
            return ANYONE
        try:
            return keys.authenticate(token.strip() if scheme.lower() == "bearer" else "", now())
        except Unauthorized as error:
            self._refused(request, error.why, error.key_prefix, None)
            raise

    def _refused(self, request: Request, what: str, prefix: str | None, tenant: str | None) -> None:
        address = request.client.host if request.client else None
        self._record(Failure(what, prefix, tenant, address))
