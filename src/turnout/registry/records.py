"""What the registry tells of adapters and versions. Times are microseconds since 1970; mappings are not edited."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnout.core.identity import Digest


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a version, as the artefact store knows it."""

    digest: Digest
    nbytes: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What was measured when the version was pushed.

    `config` is PEFT's configuration as it was read, `nbytes` the bytes of all tensors; `adapted` counts the linear
    layers that the weights change, `untouched` those they leave alone. `norms`: each adapted module's name to the
    Frobenius norm of what it adds to the base's weights.
    """

    config: Mapping[str, Any]
    ranks: tuple[int, ...]
    nbytes: int
    adapted: int
    untouched: int
    warnings: tuple[str, ...] = ()
    norms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claims:
    """What the pusher says about a version, which nobody here can check."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    dataset: str | None = None
    dataset_digest: str | None = None
    hyper_parameters: Mapping[str, Any] = field(default_factory=dict)
    owner: str | None = None
    licence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """All of a version but what the registry adds. `parent`: number of the version it was trained on from."""

    digest: Digest
    model_revision: Digest
    files: Mapping[str, StoredFile]
    facts: Facts
    claims: Claims = field(default_factory=Claims)
    note: str = ""
    parent: int | None = None
    semantic_version: str | None = None
    signature: Mapping[str, Any] | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(NewVersion):
    """A version in the registry. It does not change, except that it may be deleted."""

    number: int
    created_by: str
    created_at: int


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """What a version is called, and which base it belongs to."""

    number: int
    semantic_version: str | None
    digest: Digest
    model_revision: Digest
    created_at: int


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter with its live versions, by number, and its aliases, each with the number it points at.

    `id` is the registry's own, the same through deletion and revival. `last_number` is the highest ever given.
    Whoever is not its owner sees it if it is public or shared with them.
    """

    id: int
    tenant: str
    name: str
    public: bool
    shared_with: frozenset[str]
    last_number: int
    created_at: int
    versions: tuple[VersionSummary, ...]
    aliases: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"

    @property
    def latest(self) -> VersionSummary | None:
        """The live version with the highest number."""
        return self.versions[-1] if self.versions else None

    def version(self, number: int) -> VersionSummary | None:
        """The live version of this number."""
        return next((version for version in self.versions if version.number == number), None)
