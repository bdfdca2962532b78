import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.artifacts.adapter_sources import open_source
from turnout.artifacts.archives import extract
from turnout.core.errors import AdapterFileError

FILES = {"adapter_config.json": b"{}", "adapter_model.safetensors": bytes(100_000)}
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")


def pack(path: Path, files: dict[str, bytes]) -> Path:
    """An archive of the kind that the name of `path` says."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return path
    with tarfile.open(path, "w:" if path.name.endswith(".tar") else "w:gz") as archive:
        for name, data in files.items():
            add(archive, name, data)
    return path


def add(archive: tarfile.TarFile, name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, len(data)
    archive.addfile(member, io.BytesIO(data))


def read(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("top", ["", "./", "legal/", "legal/checkpoint-3/"])
def test_an_adapter_is_found_in_an_archive(tmp_path, suffix, top):
    archive = pack(tmp_path / f"a{suffix}", {f"{top}{name}": data for name, data in FILES.items()})
    if top.count("/") > 1:
        with open_source(str(archive)) as folder:  # one folder is stepped into, no more
            assert read(folder / "checkpoint-3") == FILES
        return
    with open_source(str(archive)) as folder:
        assert read(folder) == FILES
    assert not folder.exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_the_files_of_an_adapter_are_taken(tmp_path, suffix):
    others = {"adapter_model.bin": b"pickle", "optimizer.pt": b"x", "__MACOSX/._adapter_config.json": b"x"}
    archive = pack(tmp_path / f"a{suffix}", {"legal/README.md": b"# Legal", **FILES, **others})
    with open_source(str(archive)) as folder:
        assert read(folder) == {"legal/README.md": b"# Legal", **FILES}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "name",
    [
        "../adapter_config.json",
        "legal/../../adapter_config.json",
        "../../optimizer.pt",
        "/tmp/adapter_config.json",
        "//adapter_config.json",
        "..\\adapter_config.json",
        "C:adapter_config.json",
    ],
)
def test_a_path_that_leads_out_is_refused_by_name(tmp_path, suffix, name):
    (tmp_path / "into").mkdir()
    archive = pack(tmp_path / f"a{suffix}", {**FILES, name: b"evil"})
    with pytest.raises(AdapterFileError, match="path leads out of the archive") as caught:
        extract(archive, tmp_path / "into")
    assert repr(name) in str(caught.value)
    assert {path for path in below(tmp_path) if path.is_file()} == {
        archive,
        *(tmp_path / "into" / name for name in FILES),
    }


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc"),
        (tarfile.SYMTYPE, "adapter_config.json"),
        (tarfile.LNKTYPE, "../secret"),
        (tarfile.LNKTYPE, "adapter_config.json"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
    ],
)
def test_links_and_devices_in_a_tar_are_refused_by_name(tmp_path, kind, link):
    (tmp_path / "into").mkdir()
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        add(archive, "adapter_config.json", b"{}")
        add(archive, "README.md", kind=kind, link=link)
        add(archive, "README.md/adapter_model.safetensors", b"x")
    with pytest.raises(AdapterFileError, match=r"member 'README\.md': it is a (link|device)"):
        extract(tmp_path / "a.tar", tmp_path / "into")
    assert read(tmp_path / "into") == {"adapter_config.json": b"{}"}


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_in_a_zip_are_refused_by_name(tmp_path, kind):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("README.md")
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with (
        pytest.raises(AdapterFileError, match=r"member 'README\.md': it is a (link|device)"),
        open_source(str(tmp_path / "a.zip")),
    ):
        pass


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_too_much_is_refused_before_it_is_written(tmp_path, suffix):
    archive = pack(tmp_path / f"a{suffix}", {**FILES, "zeros.bin": bytes(1_000_000)})
    with (
        pytest.raises(AdapterFileError, match=r"member 'zeros\.bin': it exceeds 200000 bytes"),
        open_source(str(archive), max_bytes=200_000),
    ):
        pass
    with open_source(str(archive), max_bytes=1_100_002) as folder:
        assert read(folder) == FILES


def test_too_many_members_are_refused(tmp_path):
    archive = pack(tmp_path / "a.zip", {str(number): b"" for number in range(10_001)})
    with pytest.raises(AdapterFileError, match=r"10000 members"), open_source(str(archive)):
        pass


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_name_that_is_there_twice_is_refused(tmp_path, suffix):
    archive = tmp_path / f"a{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as opened:
            for data in ("1", "2"):
                opened.writestr("README.md", data)
    else:
        with tarfile.open(archive, "w:" if suffix == ".tar" else "w:gz") as opened:
            for data in (b"1", b"2"):
                add(opened, "README.md", data)
    with pytest.raises(AdapterFileError, match="its name is there twice"), open_source(str(archive)):
        pass


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: b"nonsense" * 100, lambda data: data[: len(data) // 2]]
)
def test_a_damaged_archive_is_refused(tmp_path, suffix, damage):
    archive = pack(tmp_path / f"a{suffix}", {"adapter_model.safetensors": bytes(range(256)) * 4000})
    archive.write_bytes(damage(archive.read_bytes()))
    with pytest.raises(AdapterFileError, match="cannot be read"), open_source(str(archive)):
        pass


def test_a_compressed_tar_of_another_kind_is_not_opened(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w:xz") as archive:
        add(archive, "README.md", b"x")
    with pytest.raises(AdapterFileError, match="cannot be read"), open_source(str(tmp_path / "a.tar")):
        pass


@settings(max_examples=60, deadline=None)
@given(
    suffix=st.sampled_from([".tar", ".zip"]),
    names=st.lists(
        st.lists(st.sampled_from(["..", ".", "", "a", "README.md", "adapter_config.json"]), min_size=1, max_size=5),
        min_size=1,
        max_size=4,
        unique_by="/".join,
    ),
)
def test_no_archive_writes_outside_its_folder(tmp_path_factory, suffix, names):
    scratch = tmp_path_factory.mktemp("archive")
    into = scratch / "deep" / "into"
    into.mkdir(parents=True)
    archive = pack(scratch / f"a{suffix}", {"/".join(parts): b"x" for parts in names if "/".join(parts)})
    try:
        extract(archive, into)
    except AdapterFileError:
        assert all(path in {archive, into.parent} or path.is_relative_to(into) for path in below(scratch))
    else:
        assert not any(".." in parts or (len(parts) > 1 and not parts[0]) for parts in names)
    assert all(path in {archive, into.parent} or path.is_relative_to(into) for path in below(scratch))
