"""API keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnout.client.connection import Connection, path
from turnout.client.shapes import CreatedKey, Key


@dataclass(frozen=True, slots=True)
class Keys:
    """Making, listing and revoking keys, with the scope `admin`."""

    _connection: Connection

    def create(
        self,
        scopes: Sequence[str],
        *,
        operator: bool = False,
        name: str | None = None,
        adapters: Sequence[str] | None = None,
        default_adapter: str | None = None,
        expires: str | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrent_requests: int | None = None,
    ) -> CreatedKey:
        """Make a key of the client's tenant, or with `operator` one without a tenant, good for all.

        `adapters` are patterns such as `support-*`, None for all; `expires` a span such as `90d`, or a time.
        """
        given = {
            "name": name,
            "adapters": None if adapters is None else list(adapters),
            "default_adapter": default_adapter,
            "expires": expires,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
            "concurrent_requests": concurrent_requests,
        }
        body: dict[str, Any] = {
            "scopes": list(scopes),
            **{key: value for key, value in given.items() if value is not None},
        }
        if operator:
            body["tenant"] = None
        elif self._connection.tenant is not None:
            body["tenant"] = self._connection.tenant
        answer: CreatedKey = self._connection.without_tenant().ask("POST", path("keys"), body=body)
        return answer

    def list(self) -> Sequence[Key]:
        """The keys, those that have ended too."""
        answer: Sequence[Key] = self._connection.ask("GET", path("keys"))["data"]
        return answer

    def revoke(self, prefix: str) -> Key:
        """End a key for good."""
        answer: Key = self._connection.ask("DELETE", path("keys", prefix))
        return answer
