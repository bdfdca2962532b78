"""Bringing an adapter's files to a server, and making them a version."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from turnout.artifacts.adapter_files import FileEntry, manifest
from turnout.artifacts.adapter_sources import open_source
from turnout.artifacts.signatures import sign
from turnout.client.connection import Connection, path
from turnout.client.shapes import Pushed
from turnout.core.errors import AdapterFileError, ArtifactNotFound

_CHUNK = 1 << 20

Progress = Callable[[str, int, int], None]
"""Called with a file's name, how many of its bytes are at the server, and how many there are."""


def push_source(
    connection: Connection,
    source: str,
    digest: str | None,
    name: str,
    said: Mapping[str, Any],
    sign_key: Path | None,
    progress: Progress | None,
) -> Pushed:
    """Push what `open_source` finds at `source`, signed if there is a key."""
    with open_source(source, digest=digest) as folder:
        if sign_key is not None:
            said = {**said, "signature": sign(folder, manifest(folder), sign_key)}
        return push_folder(connection, folder, name, said, progress)


def push_folder(
    connection: Connection, folder: Path, name: str, said: Mapping[str, Any], progress: Progress | None
) -> Pushed:
    """Make the adapter in `folder` a version of `name`; only files that the server lacks are sent.

    `said` is what is said of it, by the names of the API; what is None is left out.
    """
    files = manifest(folder)
    entries = {file: {"digest": entry.digest, "bytes": entry.size} for file, entry in files.items()}
    body = {"files": entries, **{key: value for key, value in said.items() if value is not None}}
    versions = path("adapters", name, "versions")
    report = progress or _ignore
    _upload(connection, folder, files, report)
    answer: Pushed
    try:
        answer = connection.ask("POST", versions, body=body, patient=True)
    except ArtifactNotFound:
        # A clean-up between the upload and this, which takes files that no version has. Now they are new again.
        _upload(connection, folder, files, report)
        answer = connection.ask("POST", versions, body=body, patient=True)
    return answer


def _upload(connection: Connection, folder: Path, files: Mapping[str, FileEntry], progress: Progress) -> None:
    for name, entry in files.items():
        blob = path("blobs", entry.digest)
        if connection.has(blob):
            progress(name, entry.size, entry.size)
        else:
            connection.upload(blob, _chunks(folder / name, entry.size, progress), entry.size)


def _chunks(file: Path, size: int, progress: Progress) -> Iterator[bytes]:
    sent = 0
    progress(file.name, sent, size)
    try:
        with file.open("rb") as opened:
            while chunk := opened.read(_CHUNK):
                sent += len(chunk)
                if sent > size:
                    break
                yield chunk
                progress(file.name, sent, size)
    except OSError as error:
        raise AdapterFileError(f"{str(file)!r} cannot be read: {error}") from error
    if sent != size:
        raise AdapterFileError(f"{str(file)!r} was changed while it was sent; push again when nothing writes to it")


def _ignore(_name: str, _sent: int, _size: int) -> None:
    pass
