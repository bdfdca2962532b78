"""The picture of the registry that routes are resolved against."""

from collections.abc import Mapping
from dataclasses import dataclass

from turnout.core.identity import Digest, VersionRef


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """What a version is called, and which base it belongs to. `created_at` in microseconds since 1970."""

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

    def visible_to(self, tenant: str) -> bool:
        """Whether that tenant may use it."""
        return self.public or tenant == self.tenant or tenant in self.shared_with


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What may be asked for at one moment; replaced whole when anything changes, never edited.

    `base_names` are all names of the base, its alias included. `adapters`, by owner and name, have the versions for
    this base alone.
    """

    base: VersionRef
    base_names: frozenset[str]
    model_revision: Digest
    tokenizer_revision: Digest
    adapters: Mapping[tuple[str, str], Adapter]
