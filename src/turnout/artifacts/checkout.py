"""A version's files as a folder on this machine."""

import errno
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from turnout.artifacts.adapter_files import FileEntry, plain_name
from turnout.artifacts.durable import sync_folder
from turnout.artifacts.remote import translated
from turnout.artifacts.store import ArtifactStore
from turnout.core.errors import AdapterFileError

_UNFINISHED = ".unfinished-"


def checkout(store: ArtifactStore, files: Mapping[str, FileEntry], root: Path) -> Path:
    """The folder below `root` that holds exactly `files`, made from the store's bytes if it is not there yet.

    Its name is the digest of the files' names and digests. It is made complete under another name, so it is whole
    whenever it exists, however many processes ask for it at once. A folder that is there is used if the sizes in it
    are right, and replaced if not; the store is not asked. Whoever loads weights from it checks the version's
    digest. Raises AdapterFileError for a name that is not plain, and what `ArtifactStore.fetch` raises.
    """
    for name in files:
        if not plain_name(name):
            raise AdapterFileError(f"{name[:300]!r} is no plain file name, so no file of an adapter")
    with translated(str(root)):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = root / _folder_name(files)
        if not _is_whole(folder, files):
            _make(store, files, folder)
    return folder


def sweep_checkouts(root: Path, older_than: timedelta) -> int:
    """Remove folders that killed processes left unfinished so long ago; returns how many."""
    before = time.time() - older_than.total_seconds()
    unfinished = [folder for folder in root.glob(f"{_UNFINISHED}*") if folder.stat().st_mtime < before]
    for folder in unfinished:
        shutil.rmtree(folder, ignore_errors=True)  # another may sweep at the same time
    return len(unfinished)


def _folder_name(files: Mapping[str, FileEntry]) -> str:
    listed = [[name, files[name].digest] for name in sorted(files)]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def _is_whole(folder: Path, files: Mapping[str, FileEntry]) -> bool:
    try:
        sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    except FileNotFoundError:
        return False
    return sizes == {name: entry.size for name, entry in files.items()}


def _make(store: ArtifactStore, files: Mapping[str, FileEntry], folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder.parent) as unfinished:
        made = Path(unfinished) / "made"
        made.mkdir(mode=0o700)
        for name, entry in files.items():
            store.fetch(entry.digest, made / name)
        sync_folder(made)
        while not _renamed(made, folder) and not _is_whole(folder, files):
            with suppress(FileNotFoundError):  # another may be replacing it too
                folder.rename(tempfile.mkdtemp(dir=unfinished))
        sync_folder(folder.parent)


def _renamed(made: Path, folder: Path) -> bool:
    try:
        made.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
