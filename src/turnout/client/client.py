"""The client itself: one connection, and a part for each kind of thing."""

from types import TracebackType
from typing import Self

import httpx

from turnout import __version__
from turnout.client.adapters import Adapters
from turnout.client.connection import CONNECT_SECONDS, Connection, path
from turnout.client.credentials import find_key, find_url, is_local
from turnout.client.keys import Keys
from turnout.client.records import Audit, Lineage
from turnout.client.shapes import Server
from turnout.client.tenants import Tenants


class Client:
    """A server's registry: `client.adapters`, `client.keys`, `client.tenants`, `client.audit`, `client.lineage`.

    `url` is the server's, else `TURNOUT_URL`, else http://127.0.0.1:8000. `key` is sent with every request, else
    `TURNOUT_API_KEY`, else the one that a server on this machine keeps for its operator. `tenant` is whose adapters are
    meant, None for the key's own. `timeout` is how many seconds an answer may take. May be used by several threads.

    Raises SettingsError; its methods raise `turnout.core.errors.TurnoutError`: what the server answers by the class it
    was raised as there, such as GateNotMet, and ServerUnreachable.
    """

    def __init__(
        self, url: str | None = None, *, key: str | None = None, tenant: str | None = None, timeout: float = 300
    ) -> None:
        self.url = find_url(url)
        headers = {"Authorization": f"Bearer {find_key(key, self.url)}", "User-Agent": f"turnout/{__version__}"}
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
            trust_env=not is_local(self.url),  # no proxy stands between this machine and itself
        )
        self._connection = Connection(self._http, tenant)
        self.adapters = Adapters(self._connection)
        self.keys = Keys(self._connection)
        self.tenants = Tenants(self._connection.without_tenant())
        self.audit = Audit(self._connection)
        self.lineage = Lineage(self._connection)

    def server(self) -> Server:
        """The server's version and base model, and what the key may do."""
        answer: Server = self._connection.without_tenant().ask("GET", path("server"))
        return answer

    def close(self) -> None:
        """Close the connections; nothing can be asked afterwards."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
