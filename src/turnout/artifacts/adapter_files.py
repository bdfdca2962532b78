"""Which files of a folder make up an adapter."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from turnout.core.adapter import CONFIG_FILE, WEIGHTS_FILE
from turnout.core.errors import AdapterFileError
from turnout.core.identity import Digest

PATTERNS = (CONFIG_FILE, WEIGHTS_FILE, "README.md", "*.jinja")
"""All that is ever fetched, stored or sent; a pickle of weights (adapter_model.bin) never is."""

_MAX_EXTRA = 1 << 20


class FileEntry(NamedTuple):
    """One file of a version: the digest of its bytes, and their number."""

    digest: Digest
    size: int


def manifest(folder: Path) -> dict[str, FileEntry]:
    """The files in `folder` that make up an adapter, by name and in the order of names.

    Those that serve only people (a README, a chat template) are left out above 1 MiB. Raises AdapterFileError when
    the configuration or the weights are missing, or a file cannot be read.
    """
    with _readable(folder):
        found = {file.name: _entry(file) for file in adapter_files(folder)}
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if name not in found:
            raise AdapterFileError(
                f"{str(folder)!r} holds no file {name}; an adapter is a folder as PEFT's save_pretrained writes it, "
                "with its weights in safetensors and not in a pickle"
            )
    return found


def adapter_files(folder: Path) -> list[Path]:
    """Where those files are that are there; nothing of them is read. Raises AdapterFileError."""
    with _readable(folder):
        return [file for file in sorted(folder.iterdir()) if file.is_file() and wanted(file.name, file.stat().st_size)]


def wanted(name: str, size: int) -> bool:
    """Whether a file with this name and size in bytes is part of an adapter."""
    if name in (CONFIG_FILE, WEIGHTS_FILE):
        return True
    return size <= _MAX_EXTRA and any(fnmatchcase(name, pattern) for pattern in PATTERNS)


def plain_name(name: str) -> bool:
    """Whether `name` means a file in a folder on every system, and never one elsewhere."""
    return 0 < len(name.encode(errors="replace")) <= 255 and name not in (".", "..") and not set(name) & set("/\\:\0")


def _entry(file: Path) -> FileEntry:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return FileEntry(Digest(f"sha256:{digest}"), opened.tell())


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AdapterFileError(f"the adapter in {str(folder)!r} cannot be read: {error}") from error
