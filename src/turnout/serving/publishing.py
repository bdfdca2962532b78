"""Making an adapter's files a version: checked as for serving, measured, and kept with its bytes."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from turnout.adapters.files import adapter_file
from turnout.adapters.norms import update_norms
from turnout.adapters.strict_json import read_object
from turnout.artifacts.adapter_files import manifest
from turnout.artifacts.signatures import check
from turnout.core.adapter import CONFIG_FILE
from turnout.core.errors import AdapterError, AdapterExists, ArtifactNotFound
from turnout.registry.directory import Directory
from turnout.registry.norms import unusual
from turnout.registry.records import Facts, NewVersion, Said, StoredFile, Version
from turnout.registry.versions import Pushed, find_versions, push
from turnout.serving.version_files import VersionFiles
from turnout.serving.weights import Weights

CHUNK = 1 << 20

NOTHING_SAID = Said()


class Publisher:
    """Brings adapters into the registry. Everything that would keep a version from being served keeps it out.

    All methods block; call them on threads.
    """

    def __init__(self, directory: Directory, files: VersionFiles, weights: Weights) -> None:
        self._directory = directory
        self.files = files
        self._weights = weights

    def push(
        self, actor: str, tenant: str, name: str, files: Mapping[str, StoredFile], said: Said = NOTHING_SAID
    ) -> Pushed:
        """Make files that the store has a version of the adapter; it is routable when this returns.

        Raises an AdapterError for what cannot be served, ArtifactNotFound for a file that the store lacks,
        SignatureInvalid for a signature of other files, AdapterExists for the base's name, and what
        `registry.versions.push` raises.
        """
        self.check_name(name)
        folder = self.files.folder(files)
        if said.signature is not None:
            check(folder, files, said.signature)
        try:
            state = self.files.read(folder)
            config = read_object(adapter_file(folder, CONFIG_FILE, None), CONFIG_FILE)
        except AdapterError as error:
            # Where the files lie on this server is no use to whoever pushed them.
            raise type(error)(_without(folder, error.message), param=error.param) from error
        facts = Facts(
            config=config,
            ranks=state.ranks,
            nbytes=state.nbytes,
            adapted=state.adapted,
            untouched=state.untouched,
            warnings=tuple(_without(folder, warning) for warning in state.warnings),
            norms=update_norms(state),
        )
        with self._weights.arriving(state), self._directory.write(actor) as write:
            # In the transaction: what it finds here, no collection of garbage takes away any more.
            self._check_kept(files)
            new = NewVersion(
                digest=state.digest,
                model_revision=state.model_revision,
                files=files,
                facts=facts,
                claims=said.claims,
                note=said.note,
                parent=said.parent,
                semantic_version=said.semantic_version,
                signature=said.signature,
                flags=unusual(write.connection, tenant, name, facts.norms),
            )
            return push(write, tenant, name, new)

    def publish(self, actor: str, tenant: str, name: str, folder: Path) -> Pushed:
        """The same for a folder of this machine. Files that make up a live version already are not read again."""
        self.check_name(name)
        entries = manifest(folder)
        files = {file: StoredFile(entry.digest, entry.size) for file, entry in entries.items()}
        known = self._known(tenant, name, files)
        if known is not None:
            return Pushed(known, created=False)
        for file, entry in entries.items():
            self.files.store.put(_chunks(folder / file), entry.digest)
        return self.push(actor, tenant, name, files)

    def check_name(self, name: str) -> None:
        """Raise AdapterExists for a name that means the base."""
        if any(name == base or name.startswith(f"{base}@") for base in self._directory.snapshot().base_names):
            raise AdapterExists(f"{name!r} means the base model; choose another name", param="name")

    def _check_kept(self, files: Mapping[str, StoredFile]) -> None:
        for name, file in files.items():
            if not self.files.store.has(file.digest):
                raise ArtifactNotFound(f"the store has no {file.digest} ({name}); upload it, then push again")

    def _known(self, tenant: str, name: str, files: Mapping[str, StoredFile]) -> Version | None:
        with self._directory.database.read() as connection:
            versions = find_versions(connection, tenant, name)
        same = next((version for version in versions if dict(version.files) == dict(files)), None)
        return same if same is not None and all(self.files.store.has(file.digest) for file in files.values()) else None


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _without(folder: Path, message: str) -> str:
    return message.replace(f"{folder}/", "").replace(str(folder), "the adapter")
