"""Speaking to a server: paths, JSON, streams, and one place where what goes wrong becomes an error."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from turnout.client.errors import refusal
from turnout.core.errors import InvalidRequest, ServerUnreachable, UnexpectedAnswer

CONNECT_SECONDS = 10.0

Query = Mapping[str, str | int | None]


def path(*parts: str) -> str:
    """The path below the API's root; an adapter's name among the parts keeps its slashes.

    Raises InvalidRequest for parts that would lead to another path than the one meant.
    """
    for part in parts:
        if not {"", ".", ".."}.isdisjoint(part.split("/")):
            raise InvalidRequest(f"{part!r} cannot be asked for: no part between slashes may be empty, '.' or '..'")
    return "/admin/v1/" + "/".join(quote(part, safe="/", errors="replace") for part in parts)


@dataclass(frozen=True, slots=True)
class Connection:
    """An HTTP client that holds the key, and the tenant to ask for, None being the key's own.

    Every method raises ServerUnreachable, UnexpectedAnswer, and the TurnoutError that the server answers.
    """

    http: httpx.Client
    tenant: str | None

    def without_tenant(self) -> "Connection":
        """The same for what no tenant has a part in; the server refuses parameters that would go unheard."""
        return Connection(self.http, None)

    def ask(
        self, method: str, path: str, *, query: Query | None = None, body: Any = None, patient: bool = False
    ) -> Any:
        """The answer's JSON, None if it has none. `patient`: however long it takes."""
        timeout = httpx.Timeout(None, connect=CONNECT_SECONDS) if patient else self.http.timeout
        with self._translated():
            response = self.http.request(method, path, params=self._query(query), json=body, timeout=timeout)
        _check(response)
        if response.status_code == httpx.codes.NO_CONTENT:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise UnexpectedAnswer(
                f"{self.http.base_url} does not answer in JSON; is it a Turnout server's URL?"
            ) from error

    def has(self, path: str) -> bool:
        """Whether there is something at this path."""
        with self._translated():
            response = self.http.head(path, params=self._query(None))
        if response.status_code == httpx.codes.NOT_FOUND:
            return False
        _check(response)
        return True

    def upload(self, path: str, chunks: Iterable[bytes], size: int) -> None:
        """Put `size` bytes there."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        with self._translated():
            _check(self.http.put(path, params=self._query(None), content=chunks, headers=headers))

    @contextmanager
    def download(self, path: str, query: Query | None = None) -> Iterator[Iterator[bytes]]:
        """The bytes there, in chunks."""
        with self._translated(), self.http.stream("GET", path, params=self._query(query)) as response:
            if not response.is_success:
                response.read()
            _check(response)
            yield response.iter_bytes(1 << 20)

    def _query(self, query: Query | None) -> dict[str, str | int]:
        wanted = {"tenant": self.tenant, **(query or {})}
        return {name: value for name, value in wanted.items() if value is not None}

    @contextmanager
    def _translated(self) -> Iterator[None]:
        url = str(self.http.base_url).rstrip("/")
        try:
            yield
        except httpx.ConnectError as error:
            raise ServerUnreachable(
                f"{url} cannot be connected to ({error}); start a server with 'turnout serve', or name another by "
                "--url or TURNOUT_URL"
            ) from error
        except httpx.TimeoutException as error:
            raise ServerUnreachable(f"{url} did not answer in time; see its log, and try again") from error
        except httpx.TransportError as error:
            raise ServerUnreachable(f"the connection to {url} broke: {error}; try again") from error


def _check(response: httpx.Response) -> None:
    if not response.is_success:
        raise refusal(response)
