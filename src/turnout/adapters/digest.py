"""What an adapter's digest is taken over."""

import hashlib
from struct import pack

import numpy as np
from numpy.typing import NDArray

from turnout.adapters.header import TensorEntry
from turnout.core.identity import Digest

_FORMAT = b"turnout adapter 1"


class AdapterHasher:
    """SHA-256 over all that decides which function the weights add to a base, and over nothing else.

    That is a tag for this format, then for each adapted module in the order of names: its name, its scale as a
    float64, and of A and then B the dtype in the file, the shape and the bytes. Each part goes in behind its own
    length as 8 bytes, so that no two different adapters can spell the same bytes; all numbers are little-endian.

    The configuration enters as the scales that it gives: whatever else it says either shows in the tensors or
    changes nothing. So two spellings of one function (a list or a pattern of targets, another order, another
    PEFT version) have one digest, and another `lora_alpha` has another.
    """

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._part(_FORMAT)

    def module(self, name: str, scale: float) -> None:
        """Begin a module; its two tensors follow."""
        self._part(name.encode())
        self._part(pack("<d", scale))

    def tensor(self, entry: TensorEntry, raw: NDArray[np.uint8]) -> None:
        """Take in one tensor; `raw` are the bytes that will be served."""
        self._part(entry.dtype.encode())
        self._part(pack(f"<{len(entry.shape)}Q", *entry.shape))
        self._part(raw.data)

    def digest(self) -> Digest:
        """The digest of all modules so far."""
        return Digest(f"sha256:{self._sha256.hexdigest()}")

    def _part(self, data: bytes | memoryview) -> None:
        self._sha256.update(pack("<Q", len(data)))
        self._sha256.update(data)
