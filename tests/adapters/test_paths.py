"""What may be read: real files, in real folders, and with roots only below those."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.folders import adapter, load
from turnout.adapters import contained
from turnout.core.errors import AdapterError, AdapterFileError, AdapterPathNotFound


@pytest.fixture
def root(tmp_path: Path) -> Path:
    adapter(tmp_path / "root" / "good")
    adapter(tmp_path / "outside" / "secret")
    return tmp_path / "root"


def test_inside_is_given_as_its_real_path(root: Path) -> None:
    (root / "link").symlink_to("good")
    for path in (root / "good", root / "link", root / "." / "good"):
        assert contained(path, [root.parent / "none", root]) == (root / "good").resolve()
        assert load(path, roots=[root]).adapted == 4
    assert contained(root, [root]) == root.resolve()


def test_a_root_may_be_a_link_itself(root: Path) -> None:
    (root.parent / "alias").symlink_to(root)
    assert load(root.parent / "alias" / "good", roots=[root.parent / "alias"]).adapted == 4
    assert load(root / "good", roots=[root.parent / "alias"]).adapted == 4


def test_outside_and_missing_are_told_apart_by_nothing(root: Path) -> None:
    outside = root.parent / "outside"
    (root / "link").symlink_to(outside / "secret")
    (root / "loop").symlink_to("loop")
    (root.parent / "root-of-another").mkdir()
    paths = [
        outside / "secret",
        outside / "none",
        root / "none",
        root / ".." / "outside" / "secret",
        root / "good" / ".." / "good",
        root / "link",
        root / "loop",
        root / "good" / "adapter_config.json" / "x",
        root.parent / "root-of-another",
        root.parent,
        Path("/"),
        root / ("x" * 5000),
        Path(f"{root}/good\0"),
        Path(f"{root}/\ud800"),
    ]
    for path in paths:
        with pytest.raises(AdapterPathNotFound) as caught:
            contained(path, [root])
        assert caught.value.message == f"there is no {str(path)!r} in this server's adapter folders"
        assert caught.value.__cause__ is None
        caught.value.message.encode()
        with pytest.raises(AdapterPathNotFound):
            load(path, roots=[root])


def test_no_roots_allow_nothing(root: Path) -> None:
    with pytest.raises(AdapterPathNotFound):
        load(root / "good", roots=[])
    assert load(root / "good").adapted == 4


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_files_that_are_links(root: Path, name: str) -> None:
    blob = root / "blobs" / "0123"
    blob.parent.mkdir()
    file = root / "good" / name
    file.rename(blob)
    file.symlink_to(Path("../blobs/0123"))
    assert load(root / "good", roots=[root]).adapted == 4, "as in the Hugging Face cache"
    content = blob.read_bytes()
    blob.write_bytes(content[:-20])
    with pytest.raises(AdapterFileError, match=rf"good/{name}' is "):
        load(root / "good", roots=[root])
    blob.write_bytes(content)
    with pytest.raises(AdapterFileError, match=rf"{name}.* is a link out of"):
        load(root / "good", roots=[root / "good"])
    file.unlink()
    file.symlink_to(root.parent / "outside" / "secret" / name)
    with pytest.raises(AdapterFileError, match=rf"{name}.* is a link out of"):
        load(root / "good", roots=[root])
    assert load(root / "good").adapted == 4, "whoever names no roots may link as they like"


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_files_that_are_none(root: Path, name: str) -> None:
    file = root / "good" / name
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(AdapterFileError, match=rf"holds no file {name}; an adapter is a folder"):
        load(root / "good")
    file.mkdir()
    with pytest.raises(AdapterFileError, match=f"holds no file {name}"):
        load(root / "good")
    file.rmdir()
    os.mkfifo(file)
    with pytest.raises(AdapterFileError, match=f"holds no file {name}"):
        load(root / "good")
    file.unlink()
    file.symlink_to("nowhere")
    with pytest.raises(AdapterFileError, match=f"holds no file {name}"):
        load(root / "good", roots=[root])
    file.unlink()
    file.write_bytes(content)
    assert load(root / "good").adapted == 4


def test_pickle_only(root: Path) -> None:
    (root / "good" / "adapter_model.safetensors").rename(root / "good" / "adapter_model.bin")
    with pytest.raises(AdapterFileError, match=r"only adapter_model\.bin: reading a pickle runs code.*save_pretrained"):
        load(root / "good")


@pytest.mark.parametrize("path", ["none", "good/adapter_config.json", "\0", "x" * 5000, "\ud800"])
def test_no_such_folder(root: Path, path: str) -> None:
    with pytest.raises(AdapterPathNotFound, match="there is no adapter folder at"):
        load(root / path)


@given(parts=st.lists(st.sampled_from(["..", ".", "good", "a", "b", "link", "/", "//", "\0"]), max_size=6))
def test_whatever_is_contained_is_inside(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    root = tmp_path_factory.getbasetemp() / "fuzzed"
    (root / "good" / "a").mkdir(parents=True, exist_ok=True)
    if not (root / "link").is_symlink():
        (root / "link").symlink_to("/")
    try:
        real = contained(root.joinpath(*parts), [root])
    except AdapterPathNotFound:
        return
    assert os.path.commonpath([os.path.realpath(real), os.path.realpath(root)]) == os.path.realpath(root)


def test_every_refusal_is_an_error_for_clients() -> None:
    assert AdapterPathNotFound.status == 404
    assert AdapterError.status == 400
