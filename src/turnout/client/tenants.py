"""Tenants."""

from collections.abc import Sequence
from dataclasses import dataclass

from turnout.client.connection import Connection, path
from turnout.client.shapes import Tenant


@dataclass(frozen=True, slots=True)
class Tenants:
    """Making and listing tenants, for operators."""

    _connection: Connection

    def create(self, name: str) -> Tenant:
        """Add a tenant."""
        answer: Tenant = self._connection.ask("POST", path("tenants"), body={"name": name})
        return answer

    def list(self) -> Sequence[Tenant]:
        """All tenants."""
        answer: Sequence[Tenant] = self._connection.ask("GET", path("tenants"))["data"]
        return answer

    def require_signed(self, name: str, aliases: Sequence[str]) -> Tenant:
        """Keep these aliases of the tenant's adapters for signed versions, and no others."""
        wanted = {"aliases": list(aliases)}
        answer: Tenant = self._connection.ask("PUT", path("tenants", name, "signed_aliases"), body=wanted)
        return answer
