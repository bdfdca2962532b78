"""Bytes that are checked against their digest on the way."""

import hashlib
from collections.abc import Iterable, Iterator

from turnout.core.errors import TurnoutError
from turnout.core.identity import Digest


def verified(chunks: Iterable[bytes], digest: Digest, mismatch: TurnoutError) -> Iterator[bytes]:
    """`chunks`, without empty ones; raises `mismatch` at the end when they do not have the digest.

    Each chunk is held back until the next has come and the last until the digest is known to be right, so whoever
    counts bytes never has all of something wrong, and nothing at all of what is wrong in a single chunk.
    """
    sha256 = hashlib.sha256()
    held = b""
    for chunk in chunks:
        if not chunk:
            continue
        sha256.update(chunk)
        if held:
            yield held
        held = chunk
    if f"sha256:{sha256.hexdigest()}" != digest:
        raise mismatch
    if held:
        yield held
