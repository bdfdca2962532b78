"""Aliases: pointing them at versions, and back."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert

from turnout.core.errors import GateNotMet, ModelNotFound, NothingToRollBack, SignatureRequired
from turnout.registry import audit
from turnout.registry.adapters import show_adapter
from turnout.registry.database import Write
from turnout.registry.moves import Kind, Promotion, number_before, read_moves, record_move
from turnout.registry.names import check_text
from turnout.registry.records import Version
from turnout.registry.requirements import Requirement, parse_requirement
from turnout.registry.tables import aliases
from turnout.registry.tenants import show_tenant
from turnout.registry.versions import read_version
from turnout.routing.selectors import check_alias, select_version
from turnout.routing.snapshot import Adapter


def promote(
    write: Write,
    tenant: str,
    name: str,
    selector: str,
    alias: str,
    reason: str,
    requirements: Sequence[str] = (),
) -> Version:
    """Point the alias at the version that `selector` means, and return that.

    `requirements` are comparisons of metrics, such as `f1>=0.9`, which all must hold. Where the alias is there already,
    nothing changes. Raises GateNotMet, SignatureRequired, ModelNotFound, and InvalidRequest for what cannot be read.
    """
    check_alias(alias)
    check_text(reason, "reason")
    gates = [parse_requirement(text) for text in requirements]
    adapter = show_adapter(write.connection, tenant, name)
    version = read_version(write.connection, adapter.id, select_version(adapter, selector).number)
    _check_gates(adapter, version, alias, gates)
    _check_signature(write.connection, adapter, version, alias)
    if adapter.aliases.get(alias) != version.number:
        _move(write, adapter, alias, "promote", version, reason, [str(gate) for gate in gates])
    return version


def rollback(write: Write, tenant: str, name: str, alias: str, reason: str) -> Version:
    """Point the alias at the version that it pointed at before, and return that.

    Each of several rollbacks in a row goes one further back. Deleted versions are passed over. Raises
    NothingToRollBack, SignatureRequired and ModelNotFound.
    """
    check_text(reason, "reason")
    adapter = _adapter_with(write.connection, tenant, name, alias)
    moves = [move for move in read_moves(write.connection, adapter.id) if move.alias == alias]
    number = number_before(moves, {version.number for version in adapter.versions})
    if number is None:
        raise NothingToRollBack(
            f"{adapter}@{alias} pointed at no other version before that is still there; promote one instead",
            param="alias",
        )
    version = read_version(write.connection, adapter.id, number)
    _check_signature(write.connection, adapter, version, alias)
    _move(write, adapter, alias, "rollback", version, reason, [])
    return version


def remove_alias(write: Write, tenant: str, name: str, alias: str, reason: str) -> None:
    """Take the alias away; promoted again, it starts without a past to roll back to. Raises ModelNotFound."""
    check_text(reason, "reason")
    adapter = _adapter_with(write.connection, tenant, name, alias)
    _move(write, adapter, alias, "remove", None, reason, [])


def history(connection: Connection, tenant: str, name: str) -> list[Promotion]:
    """All moves of the adapter's aliases, the oldest first. Raises ModelNotFound."""
    return read_moves(connection, show_adapter(connection, tenant, name).id)


def _adapter_with(connection: Connection, tenant: str, name: str, alias: str) -> Adapter:
    adapter = show_adapter(connection, tenant, name)
    if alias not in adapter.aliases:
        raise ModelNotFound(f"{adapter} has no alias {alias!r}", param="alias")
    return adapter


def _check_gates(adapter: Adapter, version: Version, alias: str, gates: Sequence[Requirement]) -> None:
    faults = [fault for gate in gates if (fault := gate.fault(version.claims.metrics)) is not None]
    if faults:
        raise GateNotMet(
            f"{adapter}@{version.number} cannot become {alias!r}: {'; '.join(faults)}", param="requirements"
        )


def _check_signature(connection: Connection, adapter: Adapter, version: Version, alias: str) -> None:
    if version.signature is None and alias in show_tenant(connection, adapter.tenant).signed_aliases:
        raise SignatureRequired(
            f"{alias!r} is for signed versions and {adapter}@{version.number} has no signature; "
            "choose a signed version, or delete this one and push it again with its signature",
            param="version",
        )


def _move(
    write: Write,
    adapter: Adapter,
    alias: str,
    kind: Kind,
    target: Version | None,
    reason: str,
    requirements: list[str],
) -> None:
    """Make the move, and put it on record."""
    before = adapter.aliases.get(alias)
    after = target.number if target is not None else None
    pointer = (aliases.c.adapter_id == adapter.id) & (aliases.c.alias == alias)
    write.connection.execute(delete(aliases).where(pointer))
    if after is not None:
        write.connection.execute(insert(aliases).values(adapter_id=adapter.id, alias=alias, number=after))
    record_move(write, adapter.id, alias, kind, before, after, reason, requirements)
    audit.record(
        write,
        f"alias.{kind}",
        adapter.tenant,
        f"{adapter}@{alias}",
        before=before,
        after=after,
        digest=target.digest if target is not None else None,
        reason=reason,
        requirements=requirements,
    )
    write.changed(adapter.id)
