"""Files that are either whole and on disk for certain, or not there at all."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

_READ_ONLY = 0o400


def write_whole(to: Path, chunks: Iterable[bytes], staging: Path) -> int:
    """Write `chunks` to a new file in the folder `staging`, then put it at `to`, in place of what may be there.

    Returns the size. The file is read-only, and its bytes are on disk before its name is; the name itself is safe
    from power loss after `sync_folder(to.parent)`. `staging` is on the same file system, so a reader sees all of
    the file or nothing. Whatever `chunks` raises leaves nothing behind; a killed process leaves one file in `staging`.
    """
    descriptor, name = tempfile.mkstemp(dir=staging)
    temporary = Path(name)
    size = 0
    try:
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                size += file.write(chunk)
            file.flush()
            os.fchmod(descriptor, _READ_ONLY)
            os.fsync(descriptor)
        temporary.replace(to)
    finally:
        temporary.unlink(missing_ok=True)
    return size


def link_whole(to: Path, existing: Path, staging: Path) -> None:
    """Put a second name of the file `existing` at `to`, in place of what may be there. Raises OSError if impossible."""
    folder = Path(tempfile.mkdtemp(dir=staging))
    temporary = folder / "link"
    try:
        temporary.hardlink_to(existing)
        temporary.replace(to)
    finally:
        # Renaming one name of a file to another name of it does nothing: the first is then still there.
        temporary.unlink(missing_ok=True)
        folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Return once the names in `folder` are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
