"""`turnout keys`."""

from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.options import Json, Tenant, Url, names
from turnout.cli.output import advise, say, show_json, table, when
from turnout.cli.session import session

if TYPE_CHECKING:
    from turnout.client.shapes import Key

keys = typer.Typer(name="keys", help="Make, list and revoke API keys.", no_args_is_help=True)


@keys.command()
def create(
    scope: Annotated[
        list[str], typer.Option(help="infer, push, promote or admin; may be repeated.", show_default=False)
    ],
    adapters: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERNS", help="Which it may use, as 'legal,support-*'; all if not given."),
    ] = None,
    expires: Annotated[str | None, typer.Option(help="A span such as 90d, or a time.")] = None,
    name: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    default_adapter: Annotated[str | None, typer.Option(help="What serves requests that name no model.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="As many on average.")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(help="As many on average.")] = None,
    concurrent_requests: Annotated[int | None, typer.Option(help="As many at a time.")] = None,
    operator: Annotated[bool, typer.Option("--operator", help="Without a tenant: good for every one.")] = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Make a key. It is printed on stdout, once."""
    with session(url, tenant, as_json) as client:
        created = client.keys.create(
            names(scope),
            operator=operator,
            name=name,
            adapters=names(adapters) if adapters else None,
            default_adapter=default_adapter,
            expires=expires,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            concurrent_requests=concurrent_requests,
        )
    if as_json:
        show_json(created)
        return
    key = created["key"]
    say(created["token"])
    whose = "an operator" if key["tenant"] is None else key["tenant"]
    ends = "" if key["expires_at"] is None else f", until {when(key['expires_at'])}"
    advise(f"made key {key['prefix']} of {whose} for {', '.join(key['scopes'])}{ends}; it is not shown again")


@keys.command(name="list")
def list_(url: Url = None, tenant: Tenant = None, as_json: Json = False) -> None:
    """All keys, those that have ended too; never their text."""
    with session(url, tenant, as_json) as client:
        found = client.keys.list()
    if as_json:
        show_json({"data": found})
        return
    table(
        ("PREFIX", "TENANT", "NAME", "SCOPES", "ADAPTERS", "DEFAULT", "LIMITS", "CREATED", "EXPIRES", "REVOKED"),
        (
            (
                key["prefix"],
                key["tenant"],
                key["name"],
                key["scopes"],
                key["adapters"],
                key["default_adapter"],
                _limits(key),
                when(key["created_at"]),
                when(key["expires_at"]),
                when(key["revoked_at"]),
            )
            for key in found
        ),
    )


@keys.command()
def revoke(
    prefix: Annotated[str, typer.Argument(help="The key's prefix, as keys list shows it.")],
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """End a key for good."""
    with session(url, tenant, as_json) as client:
        key = client.keys.revoke(prefix)
    if as_json:
        show_json(key)
    else:
        say(f"revoked {prefix}")


def _limits(key: "Key") -> dict[str, int | None]:
    limits = {
        "requests/min": key["requests_per_minute"],
        "tokens/min": key["tokens_per_minute"],
        "at a time": key["concurrent_requests"],
    }
    return {name: limit for name, limit in limits.items() if limit is not None}
