"""Which paths may be read at all: those whose real place is in a folder set aside for adapters."""

from collections.abc import Sequence
from pathlib import Path

from turnout.core.errors import AdapterPathNotFound


def contained(path: Path, roots: Sequence[Path]) -> Path:
    """The real path of `path`, which must exist and lie in (or be) one of `roots`, links followed.

    Links are fine as long as they stay inside, as those of the Hugging Face cache from snapshots to blobs do.
    Raises AdapterPathNotFound for anything else and for any `..`, always with the same words, so that nobody
    learns what there is elsewhere on the machine.
    """
    refusal = AdapterPathNotFound(f"there is no {str(path)!r} in this server's adapter folders")
    if ".." in path.parts:
        raise refusal
    try:
        real = path.resolve(strict=True)
        allowed = [root.resolve() for root in roots]
    except (OSError, RuntimeError, ValueError):  # missing, a loop of links, a null byte
        raise refusal from None
    if not any(real.is_relative_to(root) for root in allowed):
        raise refusal
    return real
