import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.artifacts.blobs import digest_of
from turnout.artifacts.adapter_files import FileEntry, manifest
from turnout.artifacts.checkout import checkout
from turnout.core.errors import AdapterFileError, ArtifactNotFound

CONTENTS = {"adapter_config.json": b"{}", "adapter_model.safetensors": bytes(100_000)}


def stored(store, contents=CONTENTS) -> dict[str, FileEntry]:
    for data in contents.values():
        store.put([data], digest_of(data))
    return {name: FileEntry(digest_of(data), len(data)) for name, data in contents.items()}


def read(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_version_becomes_a_folder_with_exactly_its_files(store, tmp_path):
    files = stored(store)
    folder = checkout(store, files, tmp_path / "root" / "below")
    assert read(folder) == CONTENTS
    assert manifest(folder) == files
    assert [child.name for child in folder.parent.iterdir()] == [folder.name]


def test_a_folder_that_is_there_is_used_without_asking_the_store(folder_store, tmp_path):
    files = stored(folder_store)
    folder = checkout(folder_store, files, tmp_path / "root")
    shutil.rmtree(folder_store.where)
    assert checkout(folder_store, dict(reversed(files.items())), tmp_path / "root") == folder


def test_folders_differ_when_a_name_or_a_digest_does(folder_store, tmp_path):
    one = stored(folder_store, {"a": b"1", "b": b"2"})
    other = stored(folder_store, {"a": b"2", "b": b"1"})
    renamed = stored(folder_store, {"a": b"1", "c": b"2"})
    assert len({checkout(folder_store, files, tmp_path / "root") for files in (one, other, renamed)}) == 3


@pytest.mark.parametrize("damage", ["cut", "removed", "added", "emptied"])
def test_a_damaged_folder_is_replaced(folder_store, tmp_path, damage):
    files = stored(folder_store)
    folder = checkout(folder_store, files, tmp_path / "root")
    weights = folder / "adapter_model.safetensors"
    weights.unlink()
    if damage == "cut":
        weights.write_bytes(b"cut")
    if damage == "added":
        weights.write_bytes(CONTENTS[weights.name])
        (folder / "more").touch()
    if damage == "emptied":
        (folder / "adapter_config.json").unlink()
    assert checkout(folder_store, files, tmp_path / "root") == folder
    assert read(folder) == CONTENTS
    assert [child.name for child in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("damaged", [False, True])
def test_many_at_once_get_the_same_whole_folder(folder_store, tmp_path, damaged):
    files = stored(folder_store)
    root = tmp_path / "root"
    if damaged:
        (checkout(folder_store, files, root) / "adapter_config.json").unlink()
    together = Barrier(6)

    def one(_):
        together.wait()
        return read(checkout(folder_store, files, root))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(one, range(6))) == [CONTENTS] * 6
    assert len(list(root.iterdir())) == 1


def test_bytes_that_are_missing_leave_no_folder(folder_store, tmp_path):
    files = stored(folder_store) | {"README.md": FileEntry(digest_of(b"never put"), 9)}
    with pytest.raises(ArtifactNotFound):
        checkout(folder_store, files, tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/x", "a/b", "a\\b", "c:x", "nul\0", "x" * 256, "é" * 128])
def test_names_that_are_not_plain_are_refused(folder_store, tmp_path, name):
    with pytest.raises(AdapterFileError, match="is no plain file name"):
        checkout(folder_store, stored(folder_store, {name: b"x"}), tmp_path / "root")
    assert not (tmp_path / "root").exists()
