"""`turnout lineage`."""

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.options import Json, Tenant, Url
from turnout.cli.output import facts, say, show_json, size
from turnout.cli.session import REFUSED, session

lineage = typer.Typer(name="lineage", help="Find out which weights gave an answer.", no_args_is_help=True)


@lineage.command()
def show(
    request_id: Annotated[str, typer.Argument(help="X-Request-ID of the answer.")],
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """What served a request; exit code 1 if nothing is known of it."""
    with session(url, tenant, as_json) as client:
        found = client.lineage.find(request_id)
    if as_json:
        show_json({"data": found})
    for record in [] if as_json else found:
        facts((name.replace("_", " "), value) for name, value in record.items())
        say("")
    if not found:
        if not as_json:
            say(f"nothing is known of a request {request_id}")
        raise typer.Exit(REFUSED)


@lineage.command()
def export(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    format: Annotated[str, typer.Option(help="jsonl or parquet.")] = "jsonl",
    since: Annotated[str | None, typer.Option(help="From this time on, as 2026-12-01T00:00:00Z.")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time.")] = None,
    digest: Annotated[str | None, typer.Option(help="Only of this version's weights.")] = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Write records to a file."""
    with session(url, tenant, as_json) as client:
        written = client.lineage.export(file, format=format, since=since, until=until, digest=digest)
    if as_json:
        show_json({"file": str(file), "bytes": written})
    else:
        say(f"wrote {size(written)} to {file}")
