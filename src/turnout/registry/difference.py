"""What differs between two versions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnout.registry.records import Version


@dataclass(frozen=True, slots=True)
class Change:
    """What stands in one version and in the other; None where it is missing."""

    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs, by name. What one version has as null and the other not at all is no difference.

    `facts` and `claims` go by the names of fields, with a dot before keys within: `config.r`, `metrics.f1`. `files`
    have their digests, `modules` the norms of what is added to them.
    """

    facts: Mapping[str, Change]
    claims: Mapping[str, Change]
    files: Mapping[str, Change]
    modules: Mapping[str, Change]


def diff(before: Version, after: Version) -> Difference:
    """What `after` changes against `before`; the two may be of different adapters."""
    return Difference(
        facts=_changes(_facts(before), _facts(after)),
        claims=_changes(_claims(before), _claims(after)),
        files=_changes(_files(before), _files(after)),
        modules=_changes(before.facts.norms, after.facts.norms),
    )


def _facts(version: Version) -> dict[str, Any]:
    facts = version.facts
    return {
        **{f"config.{key}": value for key, value in facts.config.items()},
        "model_revision": version.model_revision,
        "ranks": facts.ranks,
        "nbytes": facts.nbytes,
        "adapted": facts.adapted,
        "untouched": facts.untouched,
        "warnings": facts.warnings,
    }


def _claims(version: Version) -> dict[str, Any]:
    claims = version.claims
    return {
        **{f"metrics.{key}": value for key, value in claims.metrics.items()},
        **{f"hyper_parameters.{key}": value for key, value in claims.hyper_parameters.items()},
        "dataset": claims.dataset,
        "dataset_digest": claims.dataset_digest,
        "owner": claims.owner,
        "licence": claims.licence,
    }


def _files(version: Version) -> dict[str, Any]:
    return {name: file.digest for name, file in version.files.items()}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Change]:
    return {
        key: Change(before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    }
