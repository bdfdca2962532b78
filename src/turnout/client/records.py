"""What the registry keeps on record: the audit and the lineage of answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnout.client.connection import Connection, path
from turnout.client.files import whole
from turnout.client.shapes import AuditCheck, AuditLog, LineageRecord


@dataclass(frozen=True, slots=True)
class Audit:
    """Who did what, with the scope `admin`."""

    _connection: Connection

    def list(self, *, after: int = 0, limit: int = 1000) -> AuditLog:
        """At most `limit` entries from behind entry `after`, in order."""
        answer: AuditLog = self._connection.ask("GET", path("audit"), query={"after": after, "limit": limit})
        return answer

    def verify(self) -> AuditCheck:
        """Check that the log is what was written, for operators."""
        answer: AuditCheck = self._connection.without_tenant().ask("GET", path("audit", "verify"), patient=True)
        return answer


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which exact weights gave which answer, with the scope `admin`."""

    _connection: Connection

    def find(self, request_id: str) -> Sequence[LineageRecord]:
        """The records with this request id, newest first."""
        answer: Sequence[LineageRecord] = self._connection.ask("GET", path("lineage", request_id))["data"]
        return answer

    def export(
        self,
        to: str | Path,
        *,
        format: str = "jsonl",
        since: str | None = None,
        until: str | None = None,
        digest: str | None = None,
    ) -> int:
        """Write records to a file, as `jsonl` or `parquet`; returns how many bytes. The file is whole or not there.

        `since` and `until` are ISO 8601 times, the latter left out; `digest` is a version's.
        """
        query = {"format": format, "since": since, "until": until, "digest": digest}
        with whole(Path(to)) as file, self._connection.download(path("lineage"), query) as chunks:
            return sum(file.write(chunk) for chunk in chunks)
