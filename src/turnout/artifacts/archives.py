"""Taking an adapter out of a `.tar` or `.zip` without letting the archive write anywhere else."""

import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from turnout.artifacts.adapter_files import plain_name, wanted
from turnout.core.adapter import CONFIG_FILE
from turnout.core.errors import AdapterFileError

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")
MAX_BYTES = 4 << 30
_MAX_MEMBERS = 10_000

# What the libraries below raise for archives that are cut short, damaged, encrypted or of an unknown kind.
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class _Member:
    """`kind` is "file", "folder", or in words what else it is; `open` is only for files, and only before the next."""

    name: str
    size: int
    kind: str
    open: Callable[[], IO[bytes]]


def extract(archive: Path, into: Path, *, max_bytes: int = MAX_BYTES) -> Path:
    """Extract the adapter's files from `archive` into the empty folder `into`; returns the folder they are in.

    That is `into`, or the single folder at the top of the archive. Every member is judged, also those that are not
    part of an adapter and are left out. Raises AdapterFileError, naming the member, for paths that lead out, links,
    devices, the same name twice and more than `max_bytes` in all; and for an archive that cannot be read.
    """
    total = 0
    try:
        for count, member in enumerate(_members(archive), 1):
            total += member.size
            if total > max_bytes or count > _MAX_MEMBERS:
                raise _refusal(archive, member, f"it exceeds {max_bytes} bytes or {_MAX_MEMBERS} members in all")
            _take(archive, member, into)
    except _DAMAGE as error:
        raise AdapterFileError(f"the archive {str(archive)!r} cannot be read: {error}") from error
    return _top_folder(into)


def _members(archive: Path) -> Iterator[_Member]:
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                yield _Member(info.filename, info.file_size, _zip_kind(info), partial(opened.open, info))
        return
    with tarfile.open(archive, "r:" if archive.name.endswith(".tar") else "r:gz") as opened:
        for member in opened:
            yield _Member(member.name, member.size, _tar_kind(member), partial(_tar_file, opened, member))


def _tar_kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return "a link"
    if member.isdir():
        return "folder"
    return "file" if member.isreg() else "a device or other special file"


def _tar_file(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    assert file is not None  # a regular file, or this is not asked
    return file


def _zip_kind(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "a device or other special file"
    return "folder" if info.is_dir() else "file"


def _take(archive: Path, member: _Member, into: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or not all(plain_name(part) for part in path.parts):
        raise _refusal(archive, member, "its path leads out of the archive")
    if member.kind not in ("file", "folder"):
        raise _refusal(archive, member, f"it is {member.kind}")
    if member.kind == "folder" or not wanted(path.name, member.size):
        return
    to = into / path
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        with member.open() as source, to.open("xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    except FileExistsError:
        raise _refusal(archive, member, "its name is there twice") from None


def _top_folder(into: Path) -> Path:
    found = list(into.iterdir())
    single = len(found) == 1 and found[0].is_dir()
    return found[0] if single and not (into / CONFIG_FILE).exists() else into


def _refusal(archive: Path, member: _Member, why: str) -> AdapterFileError:
    return AdapterFileError(f"the archive {str(archive)!r} is refused for its member {member.name[:300]!r}: {why}")
