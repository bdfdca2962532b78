"""Versions: pushing, finding and deleting them."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from turnout.core.errors import InvalidRequest, VersionExists, VersionInUse
from turnout.core.identity import Digest
from turnout.registry import audit
from turnout.registry.adapters import show_adapter
from turnout.registry.checks import check_new_version
from turnout.registry.database import Write
from turnout.registry.names import check_name
from turnout.registry.records import NewVersion, Version
from turnout.registry.rows import version_from, version_values
from turnout.registry.tables import adapters, versions
from turnout.registry.tenants import show_tenant
from turnout.routing.selectors import select_version


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push came to; `created` says whether the version was not there before."""

    version: Version
    created: bool


def push(write: Write, tenant: str, name: str, new: NewVersion) -> Pushed:
    """Make `new` a version of the adapter, which is made, or comes back from deletion, if need be.

    It gets the adapter's next number. If these weights are a live version already, nothing happens; if they are a
    deleted one, it comes back under its old number with what is said of it now.

    Raises TenantNotFound; InvalidRequest for what cannot be kept; VersionExists if the semantic version is taken, or
    what `new` says is at odds with what the weights' version says for good.
    """
    show_tenant(write.connection, tenant)
    check_name(name)
    check_new_version(new)
    adapter_id, last_number = _adapter(write, tenant, name)
    known = _known(write.connection, adapter_id, new)
    if known is not None and known.deleted_at is None:
        _check_says_the_same(known, new)
        return Pushed(version_from(known), created=False)
    number = known.number if known is not None else last_number + 1
    _check_parent(write.connection, adapter_id, new.parent, number)
    values = version_values(new) | {"created_by": write.actor, "created_at": write.now, "deleted_at": None}
    if known is None:
        write.connection.execute(insert(versions).values(adapter_id=adapter_id, number=number, **values))
        write.connection.execute(update(adapters).where(adapters.c.id == adapter_id).values(last_number=number))
    else:
        values["semantic_version"] = new.semantic_version or known.semantic_version
        write.connection.execute(update(versions).where(versions.c.id == known.id).values(values))
    version = read_version(write.connection, adapter_id, number)
    audit.record(
        write,
        "version.push",
        tenant,
        f"{tenant}/{name}@{number}",
        digest=version.digest,
        semantic_version=version.semantic_version,
        model_revision=version.model_revision,
        revived=known is not None,
    )
    write.changed(adapter_id)
    return Pushed(version, created=True)


def list_versions(connection: Connection, tenant: str, name: str) -> list[Version]:
    """The adapter's live versions, by number. Raises ModelNotFound."""
    show_adapter(connection, tenant, name)
    return find_versions(connection, tenant, name)


def find_versions(connection: Connection, tenant: str, name: str) -> list[Version]:
    """The same, none where there is no such adapter."""
    named = (adapters.c.tenant == tenant) & (adapters.c.name == name) & versions.c.deleted_at.is_(None)
    joined = select(versions).join(adapters, versions.c.adapter_id == adapters.c.id)
    return [version_from(row) for row in connection.execute(joined.where(named).order_by(versions.c.number))]


def show_version(connection: Connection, tenant: str, name: str, selector: str) -> Version:
    """The live version that `selector` means. Raises what `select_version` does."""
    adapter = show_adapter(connection, tenant, name)
    return read_version(connection, adapter.id, select_version(adapter, selector).number)


def read_version(connection: Connection, adapter_id: int, number: int) -> Version:
    """The version of this number, which is known to exist."""
    wanted = (versions.c.adapter_id == adapter_id) & (versions.c.number == number)
    return version_from(connection.execute(select(versions).where(wanted)).one())


def delete_version(write: Write, tenant: str, name: str, selector: str) -> int:
    """Delete a version; returns its number, which no other will ever have.

    Raises VersionInUse while an alias points at it, and what `select_version` does.
    """
    adapter = show_adapter(write.connection, tenant, name)
    version = select_version(adapter, selector)
    holding = [alias for alias, number in adapter.aliases.items() if number == version.number]
    if holding:
        raise VersionInUse(
            f"{adapter}@{version.number} is {', '.join(map(repr, holding))}; promote another version there, "
            "or remove the alias, before it is deleted",
            param="version",
        )
    live = (versions.c.adapter_id == adapter.id) & (versions.c.number == version.number)
    write.connection.execute(update(versions).where(live).values(deleted_at=write.now))
    audit.record(write, "version.delete", tenant, f"{adapter}@{version.number}", digest=version.digest)
    write.changed(adapter.id)
    return version.number


def referenced_blobs(connection: Connection) -> set[Digest]:
    """The digests of all files that a live version has."""
    kept = connection.execute(select(versions.c.files).where(versions.c.deleted_at.is_(None))).scalars()
    return {Digest(digest) for files in kept for digest, _ in files.values()}


def _adapter(write: Write, tenant: str, name: str) -> tuple[int, int]:
    """Id and last number of the adapter, which is live afterwards."""
    named = (adapters.c.tenant == tenant) & (adapters.c.name == name)
    row = write.connection.execute(select(adapters).where(named)).one_or_none()
    if row is None:
        fresh = insert(adapters).values(
            tenant=tenant, name=name, public=False, last_number=0, created_at=write.now, revision=0
        )
        return write.connection.execute(fresh.returning(adapters.c.id)).scalar_one(), 0
    if row.deleted_at is not None:
        write.connection.execute(update(adapters).where(adapters.c.id == row.id).values(deleted_at=None))
    return row.id, row.last_number


def _known(connection: Connection, adapter_id: int, new: NewVersion) -> Row[Any] | None:
    """The version with the weights of `new`, live or deleted. Raises VersionExists for its semantic version."""
    of_adapter = select(versions).where(versions.c.adapter_id == adapter_id)
    known = connection.execute(of_adapter.where(versions.c.digest == new.digest)).one_or_none()
    if new.semantic_version is None:
        return known
    namesake = connection.execute(of_adapter.where(versions.c.semantic_version == new.semantic_version)).one_or_none()
    if namesake is not None and namesake.digest != new.digest:
        raise VersionExists(
            f"{new.semantic_version} is version {namesake.number}, for good; choose another semantic version",
            param="semantic_version",
        )
    if known is not None and known.semantic_version not in (None, new.semantic_version):
        raise VersionExists(
            f"these weights are version {known.number}, {known.semantic_version}, for good; "
            f"say that or leave the semantic version out",
            param="semantic_version",
        )
    return known


def _check_says_the_same(known: Row[Any], new: NewVersion) -> None:
    """Refuse a push that would go unheard in what a version is found or chosen by."""
    if new.semantic_version not in (None, known.semantic_version):
        raise VersionExists(
            f"these weights are version {known.number} already, without a semantic version; leave it out",
            param="semantic_version",
        )
    if new.model_revision != known.model_revision:
        raise VersionExists(
            f"these weights are version {known.number} already, for another base model; delete that version first",
            param="model_revision",
        )
    if new.signature is not None and known.signature is None:
        raise VersionExists(
            f"these weights are version {known.number} already, without a signature; delete that version first",
            param="signature",
        )


def _check_parent(connection: Connection, adapter_id: int, parent: int | None, number: int) -> None:
    if parent is None:
        return
    # Only an earlier one, so that a line of parents always ends, even where a deleted version comes back.
    wanted = (versions.c.adapter_id == adapter_id) & (versions.c.number == parent) & versions.c.deleted_at.is_(None)
    if not 0 < parent < number or connection.execute(select(versions.c.id).where(wanted)).one_or_none() is None:
        raise InvalidRequest(f"the parent must be an earlier version of the adapter, not {parent}", param="parent")
