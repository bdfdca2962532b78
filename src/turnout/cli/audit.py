"""`turnout audit`."""

from typing import Annotated

import typer

from turnout.cli.options import Json, Tenant, Url
from turnout.cli.output import advise, say, show_json, table, when
from turnout.cli.session import REFUSED, session

audit = typer.Typer(name="audit", help="Read and check the record of who did what.", no_args_is_help=True)


@audit.command()
def show(
    after: Annotated[int, typer.Option(help="Only entries behind this number.")] = 0,
    limit: Annotated[int, typer.Option(help="As many at most.")] = 1000,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """The entries in order."""
    with session(url, tenant, as_json) as client:
        log = client.audit.list(after=after, limit=limit)
    if as_json:
        show_json(log)
        return
    table(
        ("NUMBER", "WHEN", "BY", "WHAT", "TENANT", "SUBJECT", "DETAIL"),
        (
            (
                entry["sequence"],
                when(entry["at"]),
                entry["actor"],
                entry["action"],
                entry["tenant"],
                entry["subject"],
                {key: value for key, value in entry["detail"].items() if value not in (None, "", [], {})},
            )
            for entry in log["data"]
        ),
    )
    if len(log["data"]) == limit:
        advise(f"There may be more: turnout audit show --after {log['data'][-1]['sequence']}")


@audit.command()
def verify(url: Url = None, as_json: Json = False) -> None:
    """Check that nothing in the record was changed since it was written; exit code 1 if something was."""
    with session(url, None, as_json) as client:
        check = client.audit.verify()
    if as_json:
        show_json(check)
    elif check["faults"]:
        table(("ENTRY", "FAULT"), ((fault["sequence"], fault["what"]) for fault in check["faults"]))
    else:
        head = check["head"]
        say(f"the record is as it was written: {head['sequence']} entries, the last one's hash is {head['hash']}")
    if check["faults"]:
        raise typer.Exit(REFUSED)
