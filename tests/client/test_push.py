"""Pushing: from where, what is sent, and what is not sent again."""

import shutil
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.artifacts.test_signatures import write_key
from tests.client.conftest import write_folder
from tests.client.server import Registry, digest_of
from turnout import Client
from turnout.artifacts.signatures import check
from turnout.core.errors import AdapterFileError, AdapterPathNotFound, ArtifactNotFound


def archived(folder: Path, kind: str) -> Path:
    if kind == "folder":
        return folder
    return Path(shutil.make_archive(str(folder), kind, folder.parent, folder.name))


@pytest.mark.parametrize("kind", ["folder", "tar", "gztar", "zip"])
def test_every_kind_of_source_brings_the_same_files(registry: Registry, client: Client, folder, kind) -> None:
    pushed = client.adapters.push(archived(folder, kind), "legal", licence="Apache-2.0", metrics={"f1": 0.9})
    assert pushed["created"] and pushed["version"]["number"] == 1
    config = (folder / "adapter_config.json").read_bytes()
    assert set(registry.blobs.values()) == {config, b"weights"}
    assert registry.bodies[-1] == {
        "files": {
            "adapter_config.json": {"digest": digest_of(config), "bytes": len(config)},
            "adapter_model.safetensors": {"digest": digest_of(b"weights"), "bytes": 7},
        },
        "licence": "Apache-2.0",
        "metrics": {"f1": 0.9},
    }


def test_what_is_there_is_not_sent_again(registry: Registry, client: Client, folder: Path, tmp_path: Path) -> None:
    first = client.adapters.push(folder, "legal")
    registry.requests.clear()
    again = client.adapters.push(folder, "legal")
    assert (again["created"], again["version"]) == (False, first["version"])
    assert not [request for request in registry.requests if request.startswith("PUT")]
    # New weights with the configuration that is there: only the weights travel.
    client.adapters.push(write_folder(tmp_path / "next", b"others"), "legal")
    assert [request for request in registry.requests if request.startswith("PUT")] == [
        f"PUT /admin/v1/blobs/{quote(digest_of(b'others'))}"
    ]


def test_progress_counts_each_file_to_its_end(registry: Registry, client: Client, tmp_path: Path) -> None:
    weights = bytes(3 << 20) + b"."
    folder = write_folder(tmp_path / "large", weights)
    calls: list[tuple[str, int, int]] = []
    client.adapters.push(folder, "large", progress=lambda *call: calls.append(call))
    sent = [(done, total) for name, done, total in calls if name == "adapter_model.safetensors"]
    assert sent == [(step, len(weights)) for step in (0, 1 << 20, 2 << 20, 3 << 20, len(weights))]
    assert registry.blobs[digest_of(weights)] == weights
    calls.clear()
    client.adapters.push(folder, "large", progress=lambda *call: calls.append(call))
    assert ("adapter_model.safetensors", len(weights), len(weights)) in calls and len(calls) == 2


def test_files_that_a_clean_up_took_are_sent_once_more(registry: Registry, client: Client, folder: Path) -> None:
    registry.collect_before_push = True
    assert client.adapters.push(folder, "legal")["created"]
    assert len([request for request in registry.requests if request.startswith("PUT")]) == 4


def test_a_server_that_loses_files_twice_is_not_asked_for_ever(registry: Registry, client: Client, folder) -> None:
    class Losing(dict):
        def __contains__(self, _: object) -> bool:
            return False

    registry.blobs = Losing()
    with pytest.raises(ArtifactNotFound, match="upload it first"):
        client.adapters.push(folder, "legal")
    assert len([request for request in registry.requests if request.startswith("POST")]) == 2


@pytest.mark.parametrize("change", [b"longer than it was", b"short"])
def test_a_file_that_changes_while_it_is_sent_makes_no_version(registry, client, folder, change) -> None:
    def meddle(name: str, sent: int, _: int) -> None:
        if name == "adapter_model.safetensors" and sent == 0:
            (folder / name).write_bytes(change)

    with pytest.raises(AdapterFileError, match="was changed while it was sent"):
        client.adapters.push(folder, "legal", progress=meddle)
    assert registry.adapters == {} and digest_of(b"weights") not in registry.blobs


def test_what_is_no_adapter_is_refused_before_anything_is_sent(registry: Registry, client: Client, tmp_path) -> None:
    with pytest.raises(AdapterPathNotFound):
        client.adapters.push(tmp_path / "nowhere", "legal")
    with pytest.raises(AdapterFileError):
        client.adapters.push(tmp_path, "legal")
    assert registry.requests == []


def test_an_exported_version_comes_back_with_all_that_was_said(registry: Registry, client: Client, folder, tmp_path):
    said = {"metrics": {"f1": 0.9}, "dataset": "contracts", "licence": "MIT", "note": "näher", "owner": "ada"}
    client.adapters.push(folder, "org/legal", semantic_version="1.0.0", sign_key=write_key(tmp_path), **said)
    archive = tmp_path / "legal.tar"
    version = client.adapters.export("org/legal@1", archive)
    again = tmp_path / "again.tar"
    client.adapters.export("org/legal@1", again)
    assert archive.read_bytes() == again.read_bytes()
    assert not list(tmp_path.glob(".*.part"))

    registry.adapters.clear()
    registry.blobs.clear()
    name, pushed = client.adapters.import_(archive)
    assert (name, pushed["created"]) == ("org/legal", True)
    assert pushed["version"] == version
    assert client.adapters.import_(archive, "copy")[0] == "copy"
    # An export is an archive like others too.
    assert client.adapters.push(archive, "plain")["version"]["digest"] == version["digest"]


def test_a_signed_push_sends_what_proves_its_files(registry: Registry, client: Client, folder, tmp_path) -> None:
    (folder / "trainer_state.json").write_text("not part of the adapter")
    key = write_key(tmp_path)
    version = client.adapters.push(folder, "legal", sign_key=key)["version"]
    check(folder, version["files"], version["signature"])
    assert key.read_text().splitlines()[1] not in str(registry.bodies)


def test_bytes_that_rot_are_noticed_and_leave_no_archive(registry: Registry, client: Client, folder, tmp_path) -> None:
    client.adapters.push(folder, "legal")
    registry.blobs[digest_of(b"weights")] = b"weighty"
    with pytest.raises(Exception, match="does not have its digest"):
        client.adapters.export("legal@1", tmp_path / "legal.tar")
    assert not (tmp_path / "legal.tar").exists()


def test_an_archive_whose_files_were_exchanged_is_refused(registry: Registry, client: Client, folder, tmp_path) -> None:
    client.adapters.push(folder, "legal")
    archive = tmp_path / "legal.tar"
    client.adapters.export("legal@1", archive)
    archive.write_bytes(archive.read_bytes().replace(b"weights", b"WEIGHTS"))
    with pytest.raises(Exception, match=r"are not those that its version\.json names"):
        client.adapters.import_(archive)
    assert len(registry.adapters["legal"]["versions"]) == 1


def test_what_no_export_wrote_is_refused(client: Client, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(AdapterFileError, match="no archive of a version"):
        client.adapters.import_(archived(folder, "tar"))
    with zipfile.ZipFile(tmp_path / "other.zip", "w"), pytest.raises(AdapterFileError):
        client.adapters.import_(tmp_path / "other.zip")
