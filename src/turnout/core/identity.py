"""Who serves a request (Route), and what cached state belongs to (StateRoot, StateKey).

Names, numbers and aliases only point at digests; everything below routing works with digests alone.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack
from typing import NewType

from turnout.core.errors import InvalidRequest

Digest = NewType("Digest", str)
"""`sha256:` and 64 hexadecimal digits: the identity of one immutable set of weights."""

StateKey = NewType("StateKey", bytes)
"""32 bytes; equal keys mean provably the same cached state."""


_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def parse_digest(text: str) -> Digest:
    """`text` if it is spelt as a digest is, so that it can be part of a path or a key. Raises InvalidRequest."""
    if _DIGEST.fullmatch(text) is None:
        raise InvalidRequest(f"{text[:100]!r} is no digest; write it as sha256: and 64 small hexadecimal digits")
    return Digest(text)


DEFAULT_TENANT = "default"
"""The tenant that is always there: of whoever names none, and whose names an operator's key means."""


@dataclass(frozen=True, slots=True)
class VersionRef:
    """One version of one adapter of the tenant `owner`. Versions count from 1.

    Number 0 is the base model itself, which nobody owns.
    """

    name: str
    number: int
    digest: Digest
    owner: str | None = None

    def __str__(self) -> str:
        return f"{self.name}@{self.number}"

    @property
    def is_base(self) -> bool:
        """Whether this is the base model without any adapter."""
        return self.number == 0


@dataclass(frozen=True, slots=True)
class Route:
    """The frozen answer to "what serves this request", made once per request and never changed.

    `version` of a request for the base names the base, with its model revision as digest, so that
    no code below needs a mark for "no adapter". `reason` says which rule decided, for people.
    """

    tenant: str
    version: VersionRef
    model_revision: Digest
    tokenizer_revision: Digest
    reason: str

    @property
    def served_by(self) -> str:
        """What served it, as this tenant names it: `name@number`, with the owner in front where it is another."""
        other = self.version.owner not in (None, self.tenant)
        return f"{self.version.owner}/{self.version}" if other else str(self.version)


@dataclass(frozen=True, slots=True)
class StateRoot:
    """All that cached state depends on besides its tokens.

    `anchor` is the digest of the weights that produce the state: an adapter's, or the model revision for the base.
    `layout_revision` names dtype, block size and kernel layout, so that state of another build is never read.
    """

    model_revision: Digest
    tokenizer_revision: Digest
    layout_revision: str
    anchor: Digest

    def key(self) -> StateKey:
        """The parent key of a sequence's first block."""
        parts = (self.model_revision, self.tokenizer_revision, self.layout_revision, self.anchor)
        hasher = hashlib.sha256()
        for part in parts:
            encoded = part.encode()
            # Each part goes in behind its own length, so that no two different roots can spell the same bytes.
            hasher.update(pack("<Q", len(encoded)) + encoded)
        return StateKey(hasher.digest())


def chain(parent: StateKey, tokens: Sequence[int]) -> StateKey:
    """The key of a block of `tokens` whose predecessor's key (or root key) is `parent`."""
    return StateKey(hashlib.sha256(parent + pack(f"<{len(tokens)}I", *tokens)).digest())
