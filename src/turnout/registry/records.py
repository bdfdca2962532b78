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


@dataclass(frozen=True, slots=True)
class Said:
    """All that comes from the pusher besides the files. `parent`: number of the version it was trained on from."""

    claims: Claims = field(default_factory=Claims)
    note: str = ""
    parent: int | None = None
    semantic_version: str | None = None
    signature: Mapping[str, Any] | None = None


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
