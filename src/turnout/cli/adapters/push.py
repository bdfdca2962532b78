"""Bringing adapters to a server, and taking them to another."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.options import Json, Tenant, Url, VersionOf, numbers, values
from turnout.cli.output import advise, say, short, show_json
from turnout.cli.session import progress_bar, session

if TYPE_CHECKING:
    from turnout.client.shapes import Pushed

Name = Annotated[str, typer.Option(help="What the adapter is called.", show_default=False)]


def push(
    source: Annotated[
        str,
        typer.Argument(help="Folder, .tar, .tar.gz, .zip, https URL, hf://organisation/repository@commit, s3://…"),
    ],
    name: Name,
    digest: Annotated[str | None, typer.Option(help="sha256:… of an archive; needed for a URL.")] = None,
    version: Annotated[str | None, typer.Option(help="Semantic version, as 2.1.0.")] = None,
    parent: Annotated[int | None, typer.Option(help="Number of the version it was trained on from.")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="As f1=0.91; may be repeated.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="What it was trained on.")] = None,
    dataset_digest: Annotated[str | None, typer.Option(help="Digest of that.")] = None,
    hyper_parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="As lr=1e-4; may be repeated.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Who answers for it.")] = None,
    licence: Annotated[str | None, typer.Option(help="As Apache-2.0.")] = None,
    note: Annotated[str | None, typer.Option(help="What else to say.")] = None,
    sign_key: Annotated[
        Path | None, typer.Option(metavar="KEY.pem", help="Private key to sign with; needs turnout[signing].")
    ] = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Push an adapter as a new version; weights that are there already stay the version they are."""
    with session(url, tenant, as_json) as client, progress_bar(as_json) as progress:
        pushed = client.adapters.push(
            source,
            name,
            digest=digest,
            semantic_version=version,
            parent=parent,
            metrics=numbers("--metric", metric or ()),
            dataset=dataset,
            dataset_digest=dataset_digest,
            hyper_parameters=values("--hyper-parameter", hyper_parameter or ()),
            owner=owner,
            licence=licence,
            note=note,
            sign_key=sign_key,
            progress=progress,
        )
    _report(name, tenant, pushed, as_json)


def export(
    reference: VersionOf,
    file: Annotated[Path, typer.Argument(help="The .tar to write.")],
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Write a version's files, and all that is known of it, to a .tar."""
    with session(url, tenant, as_json) as client:
        version = client.adapters.export(reference, file)
    if as_json:
        show_json(version)
    else:
        say(f"wrote {reference} ({short(version['digest'])}) to {file}")


def import_(
    file: Annotated[Path, typer.Argument(help="What export wrote.")],
    name: Annotated[str | None, typer.Option(help="Another name than it had.")] = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Push an exported version, with all that was said of it."""
    with session(url, tenant, as_json) as client, progress_bar(as_json) as progress:
        adapter, pushed = client.adapters.import_(file, name, progress=progress)
    _report(adapter, tenant, pushed, as_json)


def _report(name: str, tenant: str | None, pushed: "Pushed", as_json: bool) -> None:
    if as_json:
        show_json(pushed)
        return
    version = pushed["version"]
    reference = f"{name}@{version['number']}"
    say(f"{'pushed' if pushed['created'] else 'there already:'} {reference} {short(version['digest'])}")
    for warning in version["facts"]["warnings"]:
        advise(f"warning: {warning}")
    if pushed["created"]:
        whose = f" --tenant {shlex.quote(tenant)}" if tenant else ""
        advise(f"Next: turnout adapters promote {shlex.quote(reference)} production{whose}")
