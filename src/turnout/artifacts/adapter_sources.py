"""Where an adapter to be pushed may come from, as a folder on this machine."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import obstore

from turnout.artifacts.adapter_files import PATTERNS, wanted
from turnout.artifacts.archives import MAX_BYTES, SUFFIXES, extract
from turnout.artifacts.download import download
from turnout.artifacts.remote import SCHEMES, is_remote, remote_store, translated
from turnout.artifacts.verify import verified
from turnout.core.errors import (
    AdapterFileError,
    AdapterPathNotFound,
    AdapterTooLarge,
    ArtifactDigestMismatch,
    InvalidRequest,
)
from turnout.core.identity import parse_digest

_HUB = re.compile(r"hf://(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>.*))?")
_COMMIT = re.compile("[0-9a-f]{40}")


@contextmanager
def open_source(reference: str, *, digest: str | None = None, max_bytes: int = MAX_BYTES) -> Iterator[Path]:
    """A folder with the adapter that `reference` names; what was fetched or extracted for it goes when this is left.

    `reference` is a folder (used in place), an archive (`.tar`, `.tar.gz`, `.tgz`, `.zip`), the https URL of one,
    `hf://organisation/repository@<commit>`, or the prefix of objects such as `s3://bucket/prefix`. `digest` is the
    archive's, needed for a URL. Only the files that make up an adapter are fetched, at most `max_bytes` of them.

    Raises InvalidRequest for a reference or digest that means nothing, AdapterPathNotFound when there is nothing or
    it cannot be fetched, ArtifactDigestMismatch, ArtifactStoreFailure, SettingsError as `remote_store` does, and
    AdapterError for what is refused.
    """
    with tempfile.TemporaryDirectory(prefix="turnout-") as temporary:
        yield _located(reference, digest, Path(temporary), max_bytes)


def _located(reference: str, digest: str | None, empty: Path, max_bytes: int) -> Path:
    """The adapter's folder, which may be made in the folder `empty`."""
    scheme = urlsplit(reference).scheme if is_remote(reference) else ""
    if scheme in ("https", "http"):
        return _from_url(reference, digest, empty, max_bytes)
    if not scheme and Path(reference).expanduser().is_file():
        return _from_archive(Path(reference).expanduser(), digest, empty, max_bytes)
    if digest is not None:
        raise InvalidRequest(f"a digest is for an archive, and {reference!r} is none", param="digest")
    if not scheme:
        return _folder(reference)
    if scheme == "hf":
        return _from_hub(reference)
    if scheme in SCHEMES:
        return _from_objects(reference, empty, max_bytes)
    known = ", ".join(("https", "hf", *SCHEMES))
    raise InvalidRequest(f"{scheme}:// is no source of adapters: expected a path, or a URL of one of {known}")


def _folder(reference: str) -> Path:
    folder = Path(reference).expanduser()
    if not reference or not folder.is_dir():
        raise AdapterPathNotFound(f"there is no folder or archive at {reference!r}")
    return folder


def _from_archive(archive: Path, digest: str | None, empty: Path, max_bytes: int) -> Path:
    _check_suffix(archive.name)
    if digest is not None:
        _check_file(archive, digest)
    return extract(archive, empty, max_bytes=max_bytes)


def _check_suffix(name: str) -> None:
    if not name.endswith(SUFFIXES):
        raise AdapterFileError(f"{name[:300]!r} is no archive: expected a folder, or a file of {', '.join(SUFFIXES)}")


def _check_file(archive: Path, digest: str) -> None:
    mismatch = ArtifactDigestMismatch(f"{str(archive)!r} does not have the digest {digest}; check both")
    with archive.open("rb") as file:
        for _ in verified(iter(lambda: file.read(1 << 20), b""), parse_digest(digest), mismatch):
            pass


def _from_url(url: str, digest: str | None, empty: Path, max_bytes: int) -> Path:
    name = urlsplit(url).path.rpartition("/")[2]
    _check_suffix(name)
    if digest is None:
        raise InvalidRequest(
            "an archive at a URL is taken only with its digest, sha256:…, so that nobody in between can change it",
            param="digest",
        )
    into = empty / "adapter"
    into.mkdir()
    # Its own name could be one of any length; what is needed of it is the ending.
    archive = empty / next(f"archive{suffix}" for suffix in SUFFIXES if name.endswith(suffix))
    download(url, parse_digest(digest), archive, max_bytes=max_bytes)
    return extract(archive, into, max_bytes=max_bytes)


def _from_hub(reference: str) -> Path:
    match = _HUB.fullmatch(reference)
    if match is None:
        raise InvalidRequest(f"{reference!r} is no adapter on the Hub; write hf://organisation/repository@<commit>")
    if _COMMIT.fullmatch(match["revision"] or "") is None:
        raise InvalidRequest(
            f"{reference!r} is not pinned: a branch or tag can be moved to other weights. Write @ and the 40 digits "
            "of a commit, which the Hub shows under 'Files and versions', 'History'"
        )
    return _hub_snapshot(match["repository"], match["revision"])


def _hub_snapshot(repository: str, commit: str) -> Path:
    # Imported here: it takes a second, and only this kind of source needs it.
    from huggingface_hub import errors, snapshot_download  # noqa: PLC0415

    try:
        return Path(snapshot_download(repository, revision=commit, allow_patterns=list(PATTERNS)))
    except errors.GatedRepoError as error:
        raise AdapterPathNotFound(
            f"{repository} is gated: accept its terms on its Hub page, then set HF_TOKEN to your token"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise AdapterPathNotFound(
            f"there is no repository {repository} on the Hub; if it is private, set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise AdapterPathNotFound(f"{repository} has no commit {commit} on the Hub") from error
    except Exception as error:
        # Among others the errors of the HTTP client below, which is not the same one in all versions.
        raise AdapterPathNotFound(
            f"{repository}@{commit} is not in the Hub's cache here and cannot be fetched: {error}"
        ) from error


def _from_objects(url: str, empty: Path, max_bytes: int) -> Path:
    store = remote_store(url)
    with translated(url):
        found = [(meta["path"], meta["size"]) for meta in obstore.list_with_delimiter(store)["objects"]]
        files = [(name, size) for name, size in found if wanted(name, size)]
        if not files:
            raise AdapterPathNotFound(f"there are no files of an adapter at {url}")
        if sum(size for _, size in files) > max_bytes:
            raise AdapterTooLarge(f"the files at {url} are larger than {max_bytes} bytes together")
        for name, _ in files:
            with (empty / name).open("xb") as file:
                for chunk in obstore.get(store, name).stream():
                    file.write(chunk)
    return empty
