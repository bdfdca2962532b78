"""The artefact store: immutable bytes, filed under their SHA-256, in a folder or an object store."""

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING

import obstore
from obstore.store import LocalStore

from turnout.artifacts.durable import link_whole, sync_folder, write_whole
from turnout.artifacts.remote import is_remote, remote_store, translated
from turnout.artifacts.verify import verified
from turnout.core.errors import ArtifactCorrupt, ArtifactDigestMismatch, ArtifactNotFound, SettingsError
from turnout.core.identity import Digest, parse_digest

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_KEY = re.compile(r"sha256/(?P<start>[0-9a-f]{2})/(?P<hex>(?P=start)[0-9a-f]{62})")
_INCOMING = "incoming"
_READ_SIZE = 1 << 20
_PART_SIZE = 8 << 20
_PARTS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Blob:
    """What is known of stored bytes without reading them; `size` in bytes, `modified` when they were last put."""

    digest: Digest
    size: int
    modified: datetime


def open_store(reference: str | Path) -> "ArtifactStore":
    """The store in the folder at a path, made if missing, or at a URL such as `s3://bucket/prefix`.

    Raises SettingsError for a URL that names no store and a folder that cannot be made or written to.
    """
    if isinstance(reference, str) and is_remote(reference):
        return ArtifactStore(reference, remote_store(reference))
    if not str(reference):
        raise SettingsError("the artefact store must be a folder's path or a URL such as s3://bucket/prefix")
    folder = Path(reference).expanduser().absolute()
    try:
        (folder / _INCOMING).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"the artefact store {folder} cannot be made: {error}; name another folder") from error
    if not os.access(folder / _INCOMING, os.W_OK | os.X_OK):
        raise SettingsError(f"the artefact store {folder} may not be written to; change its owner or name another")
    return ArtifactStore(str(folder), LocalStore(folder), folder)


@dataclass(frozen=True, slots=True)
class ArtifactStore:
    """Bytes by digest, at `sha256/ab/ab…`. All methods block and may be called from any thread and any process.

    What is there is whole, and was right when it was put. Two writers of the same bytes both succeed. Every method
    raises ArtifactStoreFailure when the store cannot be reached, is full or refuses, and InvalidRequest for a digest
    that is not spelt as one.
    """

    where: str
    _objects: "ObjectStore" = field(repr=False)
    _folder: Path | None = None

    def has(self, digest: Digest) -> bool:
        """Whether the bytes with this digest are here."""
        return self._head(digest) is not None

    def size(self, digest: Digest) -> int:
        """Their number. Raises ArtifactNotFound."""
        size = self._head(digest)
        if size is None:
            raise self._absent(digest)
        return size

    def put(self, chunks: Iterable[bytes], expected: Digest) -> int:
        """Store bytes and return their number, once they have the expected digest and are there for good.

        Raises ArtifactDigestMismatch, having stored nothing, when they do not have it. Bytes that are here already
        are read and checked all the same: to know a digest is not to have its bytes. They are then put again, for
        that heals a copy which has rotted, and renews `modified`, by which unused bytes are told from new ones.
        """
        key = _key(expected)
        checked = verified(
            chunks, expected, ArtifactDigestMismatch(f"the bytes do not have the digest {expected}; nothing was stored")
        )
        with translated(self.where):
            if self._folder is not None:
                return _put_in_folder(self._folder, key, checked)
            return self._upload(key, checked)

    def read(self, digest: Digest) -> Iterator[bytes]:
        """The bytes, in chunks. Raises ArtifactNotFound at once, and ArtifactCorrupt in place of the last chunk."""
        key = _key(digest)
        with translated(self.where):
            try:
                chunks = self._open(key)
            except FileNotFoundError:
                raise self._absent(digest) from None
        corrupt = ArtifactCorrupt(
            f"{self.where}/{key} no longer has its digest; push the same files again, which replaces it"
        )
        return self._streamed(verified(chunks, digest, corrupt))

    def fetch(self, digest: Digest, to: Path) -> None:
        """Put the bytes, verified, into a file at `to`: whole and on disk, or not there at all.

        The file is read-only. From a folder on the same file system it is a second name of the file there, and
        takes no space. Raises what `read` raises.
        """
        chunks = self.read(digest)
        with translated(self.where):
            if self._folder is None:
                write_whole(to, chunks, staging=to.parent)
            else:
                for _ in chunks:  # to the end, where they have proved right
                    pass
                try:
                    link_whole(to, self._folder / _key(digest), staging=to.parent)
                except OSError:  # another file system, or one without links
                    write_whole(to, self.read(digest), staging=to.parent)
            sync_folder(to.parent)

    def delete(self, digest: Digest) -> None:
        """Remove the bytes if they are here. Whether anything still needs them is the caller's to know."""
        with translated(self.where), suppress(FileNotFoundError):
            obstore.delete(self._objects, _key(digest))

    def list_blobs(self) -> Iterator[Blob]:
        """All that is stored, in no order; files of others in the same place are left out."""
        with translated(self.where):
            for batch in obstore.list(self._objects, "sha256"):
                for meta in batch:
                    match = _KEY.fullmatch(meta["path"])
                    if match is not None:
                        yield Blob(Digest(f"sha256:{match['hex']}"), meta["size"], meta["last_modified"])

    def sweep_incoming(self, older_than: timedelta) -> int:
        """Remove what killed processes left unfinished and nobody has written to for so long; returns how many.

        For object stores always 0: what is unfinished there is an upload without a name, which only the store can
        see and, by a rule in its settings, remove.
        """
        if self._folder is None:
            return 0
        with translated(self.where):
            return _sweep(self._folder / _INCOMING, time.time() - older_than.total_seconds())

    def _head(self, digest: Digest) -> int | None:
        with translated(self.where):
            try:
                return obstore.head(self._objects, _key(digest))["size"]
            except FileNotFoundError:
                return None

    def _upload(self, key: str, checked: Iterator[bytes]) -> int:
        # An object store cannot rename, and copying has limits of its own (5 GB in S3). It is not needed either: an
        # upload shows under its key only when it is completed, all of it at once, and an error from the iterator,
        # such as that of a wrong digest, aborts it before. So the upload itself is the temporary place.
        start = bytearray()
        for chunk in checked:
            start += chunk
            if len(start) >= _PART_SIZE:
                break
        else:  # in one request, as there is no need for parts
            obstore.put(self._objects, key, bytes(start), use_multipart=False)
            return len(start)
        sizes: list[int] = []
        obstore.put(
            self._objects,
            key,
            _counted(chain([bytes(start)], checked), sizes),
            use_multipart=True,
            chunk_size=_PART_SIZE,
            max_concurrency=_PARTS_AT_ONCE,
        )
        return sum(sizes)

    def _open(self, key: str) -> Iterable[bytes]:
        if self._folder is None:
            return obstore.get(self._objects, key).stream(_READ_SIZE)
        # obstore reads files at a fraction of the speed of hashing; this costs nothing beside it.
        return _file_chunks((self._folder / key).open("rb"))

    def _streamed(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        with translated(self.where):
            yield from chunks

    def _absent(self, digest: Digest) -> ArtifactNotFound:
        return ArtifactNotFound(f"the artefact store has no bytes with the digest {digest}")


def _key(digest: Digest) -> str:
    name = parse_digest(digest).removeprefix("sha256:")
    return f"sha256/{name[:2]}/{name}"


def _put_in_folder(folder: Path, key: str, chunks: Iterator[bytes]) -> int:
    # Written here and not by obstore, whose local store does not wait for the disk: power loss could undo a put that
    # was acknowledged, or leave an empty file under a right name.
    to = folder / key
    incoming = folder / _INCOMING
    incoming.mkdir(mode=0o700, exist_ok=True)
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    size = write_whole(to, chunks, staging=incoming)
    # Up to the top, for any of these may have been made just now, by this put or by another that has not got here yet.
    for parent in (to.parent, to.parent.parent, folder):
        sync_folder(parent)
    return size


def _file_chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_READ_SIZE):
            yield chunk


def _sweep(incoming: Path, before: float) -> int:
    swept = 0
    for file in incoming.iterdir():
        with suppress(FileNotFoundError):  # put in place meanwhile, or swept by another
            if file.stat().st_mtime < before:
                file.unlink()
                swept += 1
    return swept


def _counted(chunks: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    for chunk in chunks:
        sizes.append(len(chunk))
        yield chunk
