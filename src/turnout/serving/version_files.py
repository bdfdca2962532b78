"""Versions' files from the store, as folders of this machine, and read from there."""

from collections.abc import Callable, Mapping
from pathlib import Path

from turnout.artifacts.adapter_files import FileEntry
from turnout.artifacts.checkout import checkout
from turnout.artifacts.store import ArtifactStore
from turnout.core.adapter import AdapterState
from turnout.core.identity import VersionRef
from turnout.registry.directory import Directory
from turnout.registry.records import StoredFile
from turnout.registry.versions import show_version

Read = Callable[[Path], AdapterState]
"""Reads and checks the adapter in a folder; raises AdapterError. Called on several threads at once."""


class VersionFiles:
    """Lays files out in folders below `checkouts`, each once however many versions have the same ones."""

    def __init__(self, directory: Directory, store: ArtifactStore, read: Read, checkouts: Path) -> None:
        self._directory = directory
        self._checkouts = checkouts
        self.store = store
        self.read = read

    def folder(self, files: Mapping[str, StoredFile]) -> Path:
        """The folder with exactly these files. Raises ArtifactNotFound, ArtifactCorrupt, AdapterFileError."""
        entries = {name: FileEntry(file.digest, file.nbytes) for name, file in files.items()}
        return checkout(self.store, entries, self._checkouts)

    def read_version(self, version: VersionRef) -> AdapterState:
        """A version's weights. Raises ModelNotFound if it is gone, and what `folder` and `read` raise."""
        with self._directory.database.read() as connection:
            kept = show_version(connection, version.owner or "", version.name, str(version.number))
        return self.read(self.folder(kept.files))
