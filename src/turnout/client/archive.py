"""A version as one `.tar`: its files, and what is known of it in `version.json`."""

import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnout.artifacts.adapter_files import manifest, plain_name
from turnout.artifacts.adapter_sources import open_source
from turnout.artifacts.verify import verified
from turnout.client.connection import Connection, path
from turnout.client.files import whole
from turnout.client.shapes import Version
from turnout.core.errors import AdapterFileError, ArtifactDigestMismatch, InvalidRequest
from turnout.core.identity import parse_digest

DESCRIPTION = "version.json"
FORMAT = 1
"""What `turnout` in version.json says; another number is another layout."""

_MAX_DESCRIPTION = 16 << 20


def write_archive(connection: Connection, adapter: str, version: Version, to: Path) -> None:
    """Fetch the version's files, checked against their digests, and pack them. The archive is whole or not there."""
    if to.suffix != ".tar":
        raise InvalidRequest(f"{str(to)!r} must end in .tar, so that it is known again", param="file")
    described = {"turnout": FORMAT, "adapter": adapter, "version": version}
    with tempfile.TemporaryDirectory(prefix="turnout-") as temporary:
        folder = Path(temporary)
        for name in version["files"]:
            _fetch(connection, adapter, version, name, folder)
        (folder / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        with whole(to) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name in (DESCRIPTION, *version["files"]):
                archive.add(folder / name, arcname=name, filter=_anonymous)


@contextmanager
def open_archive(archive: Path) -> Iterator[tuple[Path, str, Version]]:
    """The folder with the archive's files, checked against their digests, the adapter's name and its version.

    Raises AdapterFileError for what is no archive of a version, and ArtifactDigestMismatch for files that are not
    those which its description names.
    """
    name, version = _description(archive)
    with open_source(str(archive)) as folder:
        found = {file: entry.digest for file, entry in manifest(folder).items()}
        if found != {file: entry["digest"] for file, entry in version["files"].items()}:
            raise ArtifactDigestMismatch(
                f"the files in {str(archive)!r} are not those that its {DESCRIPTION} names; export it again"
            )
        yield folder, name, version


def claims_of(version: Version) -> dict[str, Any]:
    """What was said of the version, as it is said in a push.

    The parent is not: in another registry, its number stands for another version.
    """
    claims: Mapping[str, Any] = version["claims"]
    return {
        **claims,
        "semantic_version": version["semantic_version"],
        "note": version["note"],
        "signature": version["signature"],
    }


def _fetch(connection: Connection, adapter: str, version: Version, name: str, folder: Path) -> None:
    if not plain_name(name) or name == DESCRIPTION:
        raise AdapterFileError(f"{name[:300]!r} is no plain file name, so no file of an adapter")
    digest = parse_digest(version["files"][name]["digest"])
    mismatch = ArtifactDigestMismatch(f"what came as {name} of {adapter}@{version['number']} does not have its digest")
    url = path("adapters", adapter, "versions", str(version["number"]), "files", name)
    with connection.download(url) as chunks, (folder / name).open("xb") as file:
        for chunk in verified(chunks, digest, mismatch):
            file.write(chunk)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without traces of who packed it and when, so the same version gives the same archive."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def _description(archive: Path) -> tuple[str, Version]:
    refusal = AdapterFileError(
        f"{str(archive)!r} is no archive of a version, as 'turnout adapters export' writes one; "
        "'turnout adapters push' takes other archives"
    )
    try:
        with tarfile.open(archive, "r:") as opened:
            member = opened.extractfile(DESCRIPTION)
            described: Any = json.loads(member.read(_MAX_DESCRIPTION)) if member is not None else None
        if described["turnout"] != FORMAT:
            raise AdapterFileError(
                f"{str(archive)!r} was written by another version of Turnout: its format is "
                f"{described['turnout']!r}, and this one reads {FORMAT}"
            )
        version: Version = described["version"]
        return str(described["adapter"]), version
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise refusal from error
