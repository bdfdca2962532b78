"""Moving aliases."""

from typing import Annotated

import typer

from turnout.cli.options import AdapterName, Json, Reason, Tenant, Url, VersionOf
from turnout.cli.output import cell, say, show_json, table, when
from turnout.cli.session import session
from turnout.core.errors import InvalidRequest

Require = Annotated[
    list[str] | None,
    typer.Option(metavar="CONDITION", help="What its metrics must hold, as 'f1>=0.9'; may be repeated."),
]
Alias = Annotated[str, typer.Argument(help="As production, staging or any other.")]


def promote(
    reference: VersionOf,
    alias: Alias,
    reason: Reason = "",
    require: Require = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Point an alias at a version, if its metrics are good enough."""
    with session(url, tenant, as_json) as client:
        moved = client.adapters.promote(reference, alias, reason=reason, require=require or ())
    if as_json:
        show_json(moved)
        return
    where = f"{reference.rpartition('@')[0]}@{alias}"
    if moved.get("unchanged"):
        say(f"{where} is {moved['after']} already")
    else:
        say(f"{where}: {_from_to(moved['before'], moved['after'])}")


def alias(
    reference: VersionOf,
    alias: Alias,
    reason: Reason = "",
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Point an alias at a version: promote, without requirements."""
    promote(reference, alias, reason, None, url, tenant, as_json)


def rollback(
    name: AdapterName,
    alias: Annotated[str, typer.Option(help="Which alias.")] = "production",
    reason: Reason = "",
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Point an alias at what it pointed at before; each rollback goes one further back."""
    with session(url, tenant, as_json) as client:
        moved = client.adapters.rollback(name, alias, reason=reason)
    if as_json:
        show_json(moved)
    else:
        say(f"{name}@{alias}: {_from_to(moved['before'], moved['after'])}")


def unalias(
    reference: Annotated[str, typer.Argument(metavar="ADAPTER@ALIAS", help="As legal@staging.")],
    reason: Reason = "",
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Take an alias away; pointed at something anew, it has nothing to roll back to."""
    with session(url, tenant, as_json) as client:
        name, at, alias = reference.rpartition("@")
        if not (name and at and alias):
            raise InvalidRequest(f"{reference!r} names no alias; write it as legal@staging")
        moved = client.adapters.remove_alias(name, alias, reason=reason)
    if as_json:
        show_json(moved)
    else:
        say(f"{reference}: {_from_to(moved['before'], moved['after'])}")


def history(name: AdapterName, url: Url = None, tenant: Tenant = None, as_json: Json = False) -> None:
    """Every move of the adapter's aliases, the oldest first."""
    with session(url, tenant, as_json) as client:
        moves = client.adapters.history(name)
    if as_json:
        show_json({"data": moves})
        return
    table(
        ("WHEN", "ALIAS", "WHAT", "FROM", "TO", "BY", "REQUIRED", "REASON"),
        (
            (
                when(move["created_at"]),
                move["alias"],
                move["kind"],
                move["before"],
                move["after"],
                move["created_by"],
                move["requirements"],
                move["reason"],
            )
            for move in moves
        ),
    )


def _from_to(before: int | None, after: int | None) -> str:
    return f"{'nothing' if before is None else cell(before)} -> {'nothing' if after is None else cell(after)}"
