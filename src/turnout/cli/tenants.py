"""`turnout tenants`."""

from typing import Annotated

import typer

from turnout.cli.options import Json, Url, names
from turnout.cli.output import say, show_json, table, when
from turnout.cli.session import session
from turnout.core.errors import InvalidRequest

tenants = typer.Typer(name="tenants", help="Make and list tenants.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TENANT", help="Its name.")]


@tenants.command()
def create(name: Name, url: Url = None, as_json: Json = False) -> None:
    """Add a tenant."""
    with session(url, None, as_json) as client:
        tenant = client.tenants.create(name)
    if as_json:
        show_json(tenant)
    else:
        say(f"created {name}")


@tenants.command(name="list")
def list_(url: Url = None, as_json: Json = False) -> None:
    """All tenants."""
    with session(url, None, as_json) as client:
        found = client.tenants.list()
    if as_json:
        show_json({"data": found})
        return
    table(
        ("NAME", "ONLY SIGNED", "CREATED"),
        ((tenant["name"], tenant["signed_aliases"], when(tenant["created_at"])) for tenant in found),
    )


@tenants.command(name="require-signed")
def require_signed(
    name: Name,
    aliases: Annotated[list[str] | None, typer.Argument(help="As production; in place of those that held.")] = None,
    none: Annotated[bool, typer.Option("--none", help="No alias.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Keep aliases of a tenant's adapters for signed versions."""
    with session(url, None, as_json) as client:
        wanted = names(aliases or ())
        if bool(wanted) == none:
            raise InvalidRequest("name the aliases that only signed versions may have, or say --none")
        tenant = client.tenants.require_signed(name, wanted)
    if as_json:
        show_json(tenant)
    else:
        say(
            f"{name}: only signed versions as {', '.join(wanted)}"
            if wanted
            else f"{name}: unsigned versions everywhere"
        )
