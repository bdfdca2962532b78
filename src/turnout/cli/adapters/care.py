"""Who sees adapters, which go, and whether what is kept is sound."""

import sys
from typing import Annotated

import typer

from turnout.cli.options import AdapterName, AdapterOrVersion, Json, Tenant, Url, names
from turnout.cli.output import say, show_json, size, table
from turnout.cli.session import REFUSED, session
from turnout.core.errors import InvalidRequest


def share(
    name: AdapterName,
    shared_with: Annotated[
        list[str] | None, typer.Option("--with", metavar="TENANTS", help="These tenants, as globex,initech.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Everyone.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Its owner alone.")] = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Say who sees an adapter, in place of what held."""
    with session(url, tenant, as_json) as client:
        tenants = names(shared_with or ())
        if bool(tenants) + public + private != 1:
            raise InvalidRequest("say who sees it: one of --with TENANTS, --public and --private")
        adapter = client.adapters.share(name, public=public, shared_with=tenants)
    if as_json:
        show_json(adapter)
    else:
        seen_by = "everyone" if public else ", ".join([adapter["tenant"], *tenants])
        say(f"{name} is seen by {seen_by}")


def delete(
    reference: AdapterOrVersion,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting an adapter whole.")] = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Delete a version that no alias points at, or an adapter with all its versions."""
    with session(url, tenant, as_json) as client:
        if "@" in reference:
            number = client.adapters.delete_version(reference)
            done, answer = f"deleted {reference.rpartition('@')[0]}@{number}", {"number": number}
        else:
            if not (yes or as_json) and sys.stdin.isatty():
                typer.confirm(f"Delete {reference} with all its versions?", abort=True, err=True)
            client.adapters.delete(reference)
            done, answer = f"deleted {reference} with all its versions", {}
    if as_json:
        show_json(answer)
    else:
        say(done)


def verify(url: Url = None, as_json: Json = False) -> None:
    """Have every version's files read and hashed, and the audit checked; exit code 1 if anything is wrong."""
    with session(url, None, as_json) as client:
        check = client.adapters.verify()
    if as_json:
        show_json(check)
    elif check["faults"]:
        table(("WHAT", "FAULT"), ((fault["subject"], fault["what"]) for fault in check["faults"]))
    else:
        say(f"checked {check['checked']} versions and the audit: all are as they were written")
    if check["faults"]:
        raise typer.Exit(REFUSED)


def gc(
    older_than: Annotated[str | None, typer.Option(help="Leave what is younger, as 1h or 7d.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete stored files that no version has any more."""
    with session(url, None, as_json) as client:
        swept = client.adapters.gc(older_than=older_than, dry_run=dry_run)
    if as_json:
        show_json(swept)
        return
    for digest in swept["deleted"]:
        say(digest)
    say(f"{'would free' if dry_run else 'freed'} {size(swept['bytes'])} in {len(swept['deleted'])} files")
