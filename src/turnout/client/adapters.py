"""Adapters and their versions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.client.connection import Connection, path
from turnout.client.references import parse_version
from turnout.client.shapes import Adapter, AdapterDetails, Check, Difference, Promotion, Pushed, Swept, Version
from turnout.core.errors import InvalidRequest

if TYPE_CHECKING:
    from turnout.client.push import Progress


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters of the client's tenant. A version is named as `legal@4`, `legal@1.4.0` or `legal@production`."""

    _connection: Connection

    def push(
        self,
        source: str | Path,
        name: str,
        *,
        digest: str | None = None,
        semantic_version: str | None = None,
        parent: int | None = None,
        metrics: Mapping[str, float] | None = None,
        dataset: str | None = None,
        dataset_digest: str | None = None,
        hyper_parameters: Mapping[str, Any] | None = None,
        owner: str | None = None,
        licence: str | None = None,
        note: str | None = None,
        sign_key: str | Path | None = None,
        progress: "Progress | None" = None,
    ) -> Pushed:
        """Make the adapter at `source` a version of `name`; weights that are one already give that version.

        `source` is what `turnout.artifacts.adapter_sources.open_source` takes: a folder, an archive, a URL with the
        archive's `digest`, a pinned Hub revision, an object store's prefix. `sign_key` is the PEM file of a key to sign
        with. The rest is what to say of the version.
        """
        # Imported here: it brings numpy and the object stores' library, which nothing else here needs.
        from turnout.client.push import push_source  # noqa: PLC0415

        said = {
            "semantic_version": semantic_version,
            "parent": parent,
            "metrics": None if metrics is None else dict(metrics),
            "dataset": dataset,
            "dataset_digest": dataset_digest,
            "hyper_parameters": None if hyper_parameters is None else dict(hyper_parameters),
            "owner": owner,
            "licence": licence,
            "note": note,
        }
        key = None if sign_key is None else Path(sign_key)
        return push_source(self._connection, str(source), digest, name, said, key, progress)

    def list(self) -> Sequence[Adapter]:
        """The adapters that the key may see."""
        answer: Sequence[Adapter] = self._connection.ask("GET", path("adapters"))["data"]
        return answer

    def get(self, name: str) -> AdapterDetails:
        """One adapter, with all that is known of its versions."""
        answer: AdapterDetails = self._connection.ask("GET", path("adapters", name))
        return answer

    def version(self, reference: str) -> Version:
        """All that is known of one version."""
        answer: Version = self._connection.ask("GET", _version_path(reference))
        return answer

    def promote(self, reference: str, alias: str, *, reason: str = "", require: Sequence[str] = ()) -> Promotion:
        """Point the alias at a version; `require` are comparisons of its metrics, such as `f1>=0.9`.

        Raises GateNotMet where one does not hold, SignatureRequired, and ModelNotFound.
        """
        name, selector = parse_version(reference)
        body = {"version": selector, "reason": reason, "require": list(require)}
        answer: Promotion = self._connection.ask("PUT", path("adapters", name, "aliases", alias), body=body)
        return answer

    def rollback(self, name: str, alias: str = "production", *, reason: str = "") -> Promotion:
        """Point the alias at what it pointed at before. Raises NothingToRollBack."""
        where = path("adapters", name, "aliases", alias, "rollback")
        answer: Promotion = self._connection.ask("POST", where, body={"reason": reason})
        return answer

    def remove_alias(self, name: str, alias: str, *, reason: str = "") -> Promotion:
        """Take the alias away, and with it what it could be rolled back to."""
        where = path("adapters", name, "aliases", alias)
        answer: Promotion = self._connection.ask("DELETE", where, query={"reason": reason or None})
        return answer

    def history(self, name: str) -> Sequence[Promotion]:
        """Every move of the adapter's aliases, the oldest first."""
        answer: Sequence[Promotion] = self._connection.ask("GET", path("adapters", name, "history"))["data"]
        return answer

    def diff(self, before: str, after: str) -> Difference:
        """What the version `after` changes against `before`; both of one adapter."""
        (name, from_), (other, to) = parse_version(before), parse_version(after)
        if name != other:
            raise InvalidRequest(f"{before} and {after} are of two adapters; compare two versions of one")
        query = {"from": from_, "to": to}
        answer: Difference = self._connection.ask("GET", path("adapters", name, "diff"), query=query)
        return answer

    def share(self, name: str, *, public: bool = False, shared_with: Sequence[str] = ()) -> Adapter:
        """Let everyone see the adapter, or these tenants, or with neither its owner alone; in place of what held."""
        body = {"public": public, "shared_with": list(shared_with)}
        answer: Adapter = self._connection.ask("PUT", path("adapters", name, "visibility"), body=body)
        return answer

    def delete(self, name: str) -> None:
        """Delete the adapter with all its versions."""
        self._connection.ask("DELETE", path("adapters", name))

    def delete_version(self, reference: str) -> int:
        """Delete one version; returns its number. Raises VersionInUse where an alias points at it."""
        number: int = self._connection.ask("DELETE", _version_path(reference))["number"]
        return number

    def export(self, reference: str, to: str | Path) -> Version:
        """Write a version's files, and what is known of it, to a `.tar`; returns the version."""
        from turnout.client.archive import write_archive  # noqa: PLC0415 (as in push)

        version = self.version(reference)
        write_archive(self._connection, parse_version(reference)[0], version, Path(to))
        return version

    def import_(
        self, archive: str | Path, name: str | None = None, *, progress: "Progress | None" = None
    ) -> tuple[str, Pushed]:
        """Push what `export` wrote, with all that was said of it but its parent; returns the adapter's name too.

        That is `name`, or the one it was exported from.
        """
        from turnout.client.archive import claims_of, open_archive  # noqa: PLC0415 (as in push)
        from turnout.client.push import push_folder  # noqa: PLC0415 (as in push)

        with open_archive(Path(archive)) as (folder, exported, version):
            name = name or exported
            return name, push_folder(self._connection, folder, name, claims_of(version), progress)

    def verify(self) -> Check:
        """Have every version's files read and hashed, and the audit checked; for operators. Takes its time."""
        answer: Check = self._connection.without_tenant().ask("POST", path("verify"), patient=True)
        return answer

    def gc(self, *, older_than: str | None = None, dry_run: bool = False) -> Swept:
        """Delete stored files that no version has, unless younger than `older_than`, such as `1h`; for operators."""
        body = {"dry_run": dry_run, **({} if older_than is None else {"older_than": older_than})}
        answer: Swept = self._connection.without_tenant().ask("POST", path("gc"), body=body, patient=True)
        return answer


def _version_path(reference: str) -> str:
    name, selector = parse_version(reference)
    return path("adapters", name, "versions", selector)
