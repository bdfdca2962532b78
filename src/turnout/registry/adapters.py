"""Adapters: finding them, who may see them, deleting them."""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, insert, select, update

from turnout.core.errors import InvalidRequest, ModelNotFound
from turnout.registry import audit
from turnout.registry.database import Write
from turnout.registry.moves import record_move
from turnout.registry.tables import adapters, aliases, shares, versions
from turnout.registry.tenants import show_tenant
from turnout.routing.snapshot import Adapter, VersionSummary


def list_adapters(connection: Connection, tenant: str | None = None) -> list[Adapter]:
    """The adapters of one tenant, or of all, by tenant and name. Raises TenantNotFound."""
    if tenant is None:
        return _load(connection)
    show_tenant(connection, tenant)
    return _load(connection, adapters.c.tenant == tenant)


def show_adapter(connection: Connection, tenant: str, name: str) -> Adapter:
    """One adapter. Raises ModelNotFound."""
    found = _load(connection, adapters.c.tenant == tenant, adapters.c.name == name)
    if not found:
        raise no_adapter(tenant, name)
    return found[0]


def no_adapter(tenant: str, name: str) -> ModelNotFound:
    """The error for an adapter that does not exist, or that whoever asks is not to know of."""
    return ModelNotFound(f"there is no adapter {tenant}/{name}", param="name")


def set_visibility(
    write: Write, tenant: str, name: str, *, public: bool = False, shared_with: Collection[str] = ()
) -> None:
    """Show the adapter to everybody, to these tenants besides its owner, or, with neither, to its owner alone.

    What was said before no longer counts. Raises ModelNotFound, TenantNotFound, and InvalidRequest for what
    contradicts itself.
    """
    if public and shared_with:
        raise InvalidRequest("a public adapter is seen by all tenants; name none", param="shared_with")
    if tenant in shared_with:
        raise InvalidRequest(f"{tenant!r} owns the adapter and sees it anyway; leave it out", param="shared_with")
    adapter = show_adapter(write.connection, tenant, name)
    wanted = sorted({show_tenant(write.connection, other).name for other in shared_with})
    if (adapter.public, adapter.shared_with) == (public, frozenset(wanted)):
        return
    _share(write, adapter.id, public, wanted)
    audit.record(write, "adapter.visibility", tenant, str(adapter), public=public, shared_with=wanted)
    write.changed(adapter.id)


def delete_adapter(write: Write, tenant: str, name: str) -> None:
    """Delete the adapter with its versions, aliases and shares. Raises ModelNotFound.

    Its numbers stay taken: pushing under its name again brings it back, private, and counting goes on.
    """
    adapter = show_adapter(write.connection, tenant, name)
    for alias, number in adapter.aliases.items():
        record_move(write, adapter.id, alias, "remove", number, None, "the adapter was deleted")
    _share(write, adapter.id, public=False, tenants=[])
    write.connection.execute(delete(aliases).where(aliases.c.adapter_id == adapter.id))
    live = (versions.c.adapter_id == adapter.id) & versions.c.deleted_at.is_(None)
    write.connection.execute(update(versions).where(live).values(deleted_at=write.now))
    write.connection.execute(update(adapters).where(adapters.c.id == adapter.id).values(deleted_at=write.now))
    digests = {str(version.number): version.digest for version in adapter.versions}
    audit.record(write, "adapter.delete", tenant, str(adapter), versions=digests, aliases=dict(adapter.aliases))
    write.changed(adapter.id)


def _share(write: Write, adapter_id: int, public: bool, tenants: list[str]) -> None:
    write.connection.execute(update(adapters).where(adapters.c.id == adapter_id).values(public=public))
    write.connection.execute(delete(shares).where(shares.c.adapter_id == adapter_id))
    if tenants:
        rows = [{"adapter_id": adapter_id, "tenant": tenant} for tenant in tenants]
        write.connection.execute(insert(shares), rows)


def changed_adapters(connection: Connection, since: int) -> tuple[list[Adapter], list[tuple[str, str]]]:
    """The adapters that changed after revision `since` and are there; and tenant and name of those that are gone."""
    changed = adapters.c.revision > since
    gone = select(adapters.c.tenant, adapters.c.name).where(changed, adapters.c.deleted_at.is_not(None))
    return _load(connection, changed), [(row.tenant, row.name) for row in connection.execute(gone)]


def _load(connection: Connection, *conditions: ColumnElement[bool]) -> list[Adapter]:
    """The live adapters that fulfil `conditions`, by tenant and name, in four queries however many they are."""
    chosen = (adapters.c.deleted_at.is_(None), *conditions)

    def grouped(query: Select[Any]) -> dict[int, list[Row[Any]]]:
        groups = defaultdict(list)
        for row in connection.execute(query.where(*chosen)):
            groups[row.adapter_id].append(row)
        return groups

    versions_of = grouped(_VERSIONS)
    aliases_of = grouped(_ALIASES)
    shares_of = grouped(_SHARES)
    loaded = [
        Adapter(
            id=row.id,
            tenant=row.tenant,
            name=row.name,
            public=row.public,
            shared_with=frozenset(share.tenant for share in shares_of.get(row.id, ())),
            last_number=row.last_number,
            created_at=row.created_at,
            versions=tuple(map(_summary, versions_of.get(row.id, ()))),
            aliases={alias.alias: alias.number for alias in aliases_of.get(row.id, ())},
        )
        for row in connection.execute(select(adapters).where(*chosen))
    ]
    return sorted(loaded, key=lambda adapter: (adapter.tenant, adapter.name))


def _summary(row: Row[Any]) -> VersionSummary:
    return VersionSummary(row.number, row.semantic_version, row.digest, row.model_revision, row.created_at)


_VERSIONS = (
    select(
        versions.c.adapter_id,
        versions.c.number,
        versions.c.semantic_version,
        versions.c.digest,
        versions.c.model_revision,
        versions.c.created_at,
    )
    .join(adapters)
    .where(versions.c.deleted_at.is_(None))
    .order_by(versions.c.adapter_id, versions.c.number)
)
_ALIASES = select(aliases).join(adapters).order_by(aliases.c.adapter_id, aliases.c.alias)
_SHARES = select(shares).join(adapters)
