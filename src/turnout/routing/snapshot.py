"""The picture of the catalogue that routes are resolved against."""

from collections.abc import Mapping
from dataclasses import dataclass

from turnout.core.identity import Digest, VersionRef


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What may be asked for at one moment; replaced whole when anything changes, never edited.

    `base_names` are all names of the base, its alias included. `adapters` maps a name to its versions, in
    ascending order; the last one is what the plain name means.
    """

    base: VersionRef
    base_names: frozenset[str]
    model_revision: Digest
    tokenizer_revision: Digest
    adapters: Mapping[str, tuple[VersionRef, ...]]
