"""Finding an adapter's two files, and recognising what only looks like one."""

from collections.abc import Sequence
from pathlib import Path

from turnout.adapters.paths import contained
from turnout.core.adapter import WEIGHTS_FILE
from turnout.core.errors import AdapterFileError, AdapterPathNotFound

PICKLE_FILE = "adapter_model.bin"

_LFS_POINTER = b"version https://git-lfs"


def adapter_folder(path: Path, roots: Sequence[Path] | None) -> Path:
    """`path` if there is a folder, and its real path is in `roots` if there are any; else AdapterPathNotFound."""
    folder = path if roots is None else contained(path, roots)
    try:
        if folder.is_dir():
            return folder
    except OSError:  # a name that is too long, a parent that may not be looked into
        pass
    raise AdapterPathNotFound(f"there is no adapter folder at {str(path)!r}")


def adapter_file(folder: Path, name: str, roots: Sequence[Path] | None) -> Path:
    """The path of a regular file in the folder; with `roots`, its real path, which must be in one of them.

    Raises AdapterFileError when there is none, saying what to do about weights in a pickle.
    """
    path = folder / name
    try:
        found = path.is_file()
    except OSError as error:
        raise AdapterFileError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if not found:
        raise AdapterFileError(f"{str(folder)!r} holds no file {name}{_advice(folder, name)}")
    if roots is None:
        return path
    try:
        return contained(path, roots)
    except AdapterPathNotFound:
        raise AdapterFileError(f"{str(path)!r} is a link out of this server's adapter folders") from None


def refuse_pointer(head: bytes, where: str) -> None:
    """Raise AdapterFileError if a file's first bytes are those of a Git LFS pointer."""
    if head.startswith(_LFS_POINTER):
        raise AdapterFileError(f"{where} looks like a Git LFS pointer, not the file itself; run: git lfs pull")


def _advice(folder: Path, name: str) -> str:
    if name == WEIGHTS_FILE and (folder / PICKLE_FILE).is_file():
        return (
            f", only {PICKLE_FILE}: reading a pickle runs code from it, so it is not read; load the adapter with "
            "PEFT and write it again with save_pretrained, which writes safetensors"
        )
    return "; an adapter is a folder as PEFT's save_pretrained writes it"
