"""Looking at adapters."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnout.cli.options import AdapterOrVersion, Json, Tenant, Url, VersionOf
from turnout.cli.output import cell, facts, say, short, show_json, size, table, when
from turnout.cli.session import session

if TYPE_CHECKING:
    from turnout.client.shapes import Adapter, AdapterDetails, Change, Difference, Version

MODULES_SHOWN = 10


def list_(url: Url = None, tenant: Tenant = None, as_json: Json = False) -> None:
    """All adapters that the key may see."""
    with session(url, tenant, as_json) as client:
        found = client.adapters.list()
    if as_json:
        show_json({"data": found})
        return
    table(
        ("NAME", "TENANT", "LATEST", "VERSIONS", "ALIASES", "SEEN BY", "CREATED"),
        (
            (
                adapter["name"],
                adapter["tenant"],
                adapter["latest"],
                len(adapter["versions"]),
                adapter["aliases"],
                _seen_by(adapter),
                when(adapter["created_at"]),
            )
            for adapter in found
        ),
    )


def show(reference: AdapterOrVersion, url: Url = None, tenant: Tenant = None, as_json: Json = False) -> None:
    """An adapter with its versions, or all that is known of one version."""
    with session(url, tenant, as_json) as client:
        if "@" in reference:
            version = client.adapters.version(reference)
            show_json(version) if as_json else _show_version(reference, version)
        else:
            adapter = client.adapters.get(reference)
            show_json(adapter) if as_json else _show_adapter(adapter)


def diff(before: VersionOf, after: VersionOf, url: Url = None, tenant: Tenant = None, as_json: Json = False) -> None:
    """What one version changes against another: configuration, metrics, data, files, and what its modules add."""
    with session(url, tenant, as_json) as client:
        difference = client.adapters.diff(before, after)
    if as_json:
        show_json(difference)
    elif not any(difference.values()):
        say(f"{before} and {after} do not differ")
    else:
        _show_difference(before, after, difference)


def _show_adapter(adapter: "AdapterDetails") -> None:
    facts(
        (
            ("Adapter", adapter["name"]),
            ("Tenant", adapter["tenant"]),
            ("Seen by", _seen_by(adapter)),
            ("Aliases", adapter["aliases"]),
            ("Created", when(adapter["created_at"])),
        )
    )
    say("")
    pointing: dict[int, list[str]] = {}
    for alias, number in adapter["aliases"].items():
        pointing.setdefault(number, []).append(alias)
    table(
        ("VERSION", "SEMANTIC", "DIGEST", "ALIASES", "METRICS", "LICENCE", "SIGNED", "CREATED", "BY"),
        (
            (
                version["number"],
                version["semantic_version"],
                short(version["digest"]),
                pointing.get(version["number"]),
                version["claims"]["metrics"],
                version["claims"]["licence"],
                version["signature"] is not None,
                when(version["created_at"]),
                version["created_by"],
            )
            for version in adapter["versions"]
        ),
    )


def _show_version(reference: str, version: "Version") -> None:
    said, measured = version["claims"], version["facts"]
    signature = version["signature"]
    facts(
        (
            ("Version", f"{reference.rpartition('@')[0]}@{version['number']}"),
            ("Semantic version", version["semantic_version"]),
            ("Digest", version["digest"]),
            ("Base model", version["model_revision"]),
            ("Parent", version["parent"]),
            ("Created", f"{when(version['created_at'])} by {version['created_by']}"),
            ("Note", version["note"]),
            ("Flags", version["flags"]),
            ("Signature", "none" if signature is None else signature.get("format", "yes")),
            ("Licence", said["licence"] or "not stated"),
            ("Owner", said["owner"] or "not stated"),
            ("Training data", said["dataset"] or "not stated"),
            ("Data digest", said["dataset_digest"]),
            ("Metrics", said["metrics"]),
            ("Hyper-parameters", said["hyper_parameters"]),
            ("Ranks", measured["ranks"]),
            ("Weights", size(measured["nbytes"])),
            ("Modules", f"{measured['adapted']} adapted, {measured['untouched']} left alone"),
            ("Largest norms", dict(_largest(measured["norms"]))),
            ("Warnings", measured["warnings"]),
            ("Configuration", {key: value for key, value in measured["config"].items() if value is not None}),
        )
    )
    say("")
    table(
        ("FILE", "SIZE", "DIGEST"),
        ((name, size(file["bytes"]), file["digest"]) for name, file in version["files"].items()),
    )


def _show_difference(before: str, after: str, difference: "Difference") -> None:
    modules = sorted(difference["modules"].items(), key=lambda item: -abs(_delta(item[1]) or 0))
    parts: tuple[tuple[str, list[tuple[str, Change]]], ...] = (
        ("measured", list(difference["facts"].items())),
        ("said", list(difference["claims"].items())),
        ("file", list(difference["files"].items())),
        ("module", modules[:MODULES_SHOWN]),
    )
    table(
        ("", "WHAT", before, after, "CHANGE"),
        (
            (part, name, _side(change["before"]), _side(change["after"]), _signed(_delta(change)))
            for part, changes in parts
            for name, change in changes
        ),
    )
    if len(modules) > MODULES_SHOWN:
        say(f"and {len(modules) - MODULES_SHOWN} modules that change less; --json has all")


def _side(value: Any) -> str:
    return short(value) if isinstance(value, str) and value.startswith("sha256:") else cell(value)


def _delta(change: "Change") -> float | None:
    before, after = change["before"], change["after"]
    if any(isinstance(side, bool) or not isinstance(side, int | float) for side in (before, after)):
        return None
    return float(after - before)


def _signed(delta: float | None) -> str:
    return "" if delta is None else f"{delta:+.4g}"


def _largest(norms: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(norms.items(), key=lambda item: -item[1])[:3]


def _seen_by(adapter: "Adapter | AdapterDetails") -> str:
    return "everyone" if adapter["public"] else ", ".join([adapter["tenant"], *adapter["shared_with"]])
