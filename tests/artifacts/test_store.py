import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

import httpx
import obstore
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.artifacts.blobs import digest_of
from turnout.artifacts.remote import remote_store
from turnout.artifacts.store import open_store
from turnout.artifacts.verify import verified
from turnout.core.errors import (
    ArtifactCorrupt,
    ArtifactDigestMismatch,
    ArtifactNotFound,
    ArtifactStoreFailure,
    InvalidRequest,
    SettingsError,
)
from turnout.core.identity import Digest

SMALL = b"some bytes"
LARGE = bytes(range(256)) * (36 << 10)  # 9 MiB: more than one part of an upload
ABSENT = digest_of(b"never put")


def chunks(data: bytes, size: int = 1 << 20):
    return (data[start : start + size] for start in range(0, len(data), size))


def blob_path(store, data: bytes) -> Path:
    name = digest_of(data).removeprefix("sha256:")
    return Path(store.where) / "sha256" / name[:2] / name


def files_below(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("data", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
def test_what_is_put_is_read_back(store, tmp_path, data):
    digest = digest_of(data)
    assert not store.has(digest)
    assert store.put(chunks(data), digest) == len(data)
    assert store.has(digest)
    assert store.size(digest) == len(data)
    assert b"".join(store.read(digest)) == data
    store.fetch(digest, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


def test_bytes_with_another_digest_are_refused_and_nothing_is_left(store):
    for data in (SMALL, LARGE):
        with pytest.raises(ArtifactDigestMismatch, match=rf"{ABSENT}; nothing was stored"):
            store.put(chunks(data), ABSENT)
    assert not store.has(ABSENT)
    assert list(store.list_blobs()) == []


def test_a_source_that_fails_leaves_nothing(store):
    def failing(data):
        yield from chunks(data)
        raise ZeroDivisionError

    for data in (SMALL, LARGE):
        with pytest.raises(ZeroDivisionError):
            store.put(failing(data), digest_of(data))
    assert list(store.list_blobs()) == []


def test_no_upload_stays_open_after_a_refusal(s3_url, s3_server):
    with pytest.raises(ArtifactDigestMismatch):
        open_store(s3_url).put(chunks(LARGE), ABSENT)
    uploads = httpx.get(f"{s3_server}/tests?uploads", trust_env=False).raise_for_status().text
    assert "<ListMultipartUploadsResult" in uploads
    assert f"<Key>{s3_url.rpartition('/')[2]}/" not in uploads


def test_identical_bytes_are_stored_once(store):
    for _ in range(2):
        assert store.put(chunks(LARGE), digest_of(LARGE)) == len(LARGE)
    assert [(blob.digest, blob.size) for blob in store.list_blobs()] == [(digest_of(LARGE), len(LARGE))]


def test_to_know_a_digest_is_not_to_have_its_bytes(store):
    store.put([SMALL], digest_of(SMALL))
    with pytest.raises(ArtifactDigestMismatch):
        store.put([b"other bytes"], digest_of(SMALL))
    assert b"".join(store.read(digest_of(SMALL))) == SMALL


def test_many_writers_of_the_same_bytes_all_succeed(store):
    writers = 4
    together = Barrier(writers)

    def put(_):
        def data():
            together.wait()
            yield from chunks(LARGE, 4 << 20)

        return store.put(data(), digest_of(LARGE))

    with ThreadPoolExecutor(writers) as pool:
        assert list(pool.map(put, range(writers))) == [len(LARGE)] * writers
    assert [blob.digest for blob in store.list_blobs()] == [digest_of(LARGE)]
    assert b"".join(store.read(digest_of(LARGE))) == LARGE


def test_what_is_absent_is_not_found(store, tmp_path):
    for ask in (store.size, store.read, lambda digest: store.fetch(digest, tmp_path / "copy")):
        with pytest.raises(ArtifactNotFound, match=ABSENT):
            ask(ABSENT)
    assert not (tmp_path / "copy").exists()


def test_deleting_is_final_and_may_be_repeated(store):
    store.put([SMALL], digest_of(SMALL))
    for _ in range(2):
        store.delete(digest_of(SMALL))
        assert not store.has(digest_of(SMALL))


def test_listing_leaves_out_what_others_put_there(folder_store):
    before = datetime.now(UTC)
    folder_store.put([SMALL], digest_of(SMALL))
    (Path(folder_store.where) / "sha256" / "notes.txt").write_text("mine")
    (blob_path(folder_store, SMALL).parent / ("0" * 64)).write_text("not where this name belongs")
    (blob,) = folder_store.list_blobs()
    assert (blob.digest, blob.size) == (digest_of(SMALL), len(SMALL))
    assert before - timedelta(seconds=1) < blob.modified < datetime.now(UTC) + timedelta(seconds=1)


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "sha256:../../etc/passwd", f"SHA256:{'0' * 64}", f"sha256:{'A' * 64}"]
)
def test_only_digests_are_taken_for_digests(folder_store, digest):
    for ask in (folder_store.has, folder_store.size, folder_store.read, folder_store.delete):
        with pytest.raises(InvalidRequest, match="is no digest; write it as sha256:"):
            ask(Digest(digest))
    with pytest.raises(InvalidRequest, match="is no digest"):
        folder_store.put([b""], Digest(digest))
    assert files_below(Path(folder_store.where)) == set()


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"X" + data[1:]])
def test_rotten_bytes_are_never_handed_out_whole(folder_store, tmp_path, data, damage):
    digest = digest_of(data)
    folder_store.put([data], digest)
    blob_path(folder_store, data).chmod(0o600)
    rotten = damage(data)
    blob_path(folder_store, data).write_bytes(rotten)
    read = bytearray()
    with pytest.raises(ArtifactCorrupt, match="no longer has its digest; push the same files again"):
        for chunk in folder_store.read(digest):
            read += chunk
    assert len(read) < len(rotten) and rotten.startswith(read)
    with pytest.raises(ArtifactCorrupt):
        folder_store.fetch(digest, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    folder_store.put([data], digest)
    assert b"".join(folder_store.read(digest)) == data


def test_rotten_bytes_in_an_object_store(s3_url, tmp_path):
    store = open_store(s3_url)
    store.put([SMALL], digest_of(SMALL))
    name = digest_of(SMALL).removeprefix("sha256:")
    obstore.put(remote_store(s3_url), f"sha256/{name[:2]}/{name}", b"Some bytes")
    with pytest.raises(ArtifactCorrupt):
        store.fetch(digest_of(SMALL), tmp_path / "copy")
    assert not any(tmp_path.iterdir())


def test_a_fetched_file_shares_the_stored_bytes_and_is_read_only(folder_store, tmp_path):
    folder_store.put([SMALL], digest_of(SMALL))
    for _ in range(2):
        folder_store.fetch(digest_of(SMALL), tmp_path / "copy")
        assert (tmp_path / "copy").samefile(blob_path(folder_store, SMALL))
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o400
    assert {file.name for file in tmp_path.iterdir()} == {"copy", "store"}
    folder_store.delete(digest_of(SMALL))
    assert (tmp_path / "copy").read_bytes() == SMALL


def test_where_there_are_no_links_a_fetched_file_is_a_copy(folder_store, tmp_path, monkeypatch):
    def refuse(self, target):
        raise OSError(18, "Invalid cross-device link")

    folder_store.put([SMALL], digest_of(SMALL))
    (tmp_path / "copy").write_text("something old")
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    folder_store.fetch(digest_of(SMALL), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == SMALL
    assert not (tmp_path / "copy").samefile(blob_path(folder_store, SMALL))
    assert {file.name for file in tmp_path.iterdir()} == {"copy", "store"}


def test_bytes_are_on_disk_before_their_name_and_the_name_before_the_answer(folder_store, monkeypatch):
    events = []
    synced, replaced = os.fsync, Path.replace

    def fsync(descriptor):
        synced(descriptor)
        events.append(("sync", os.fstat(descriptor).st_ino))

    def replace(self, target):
        events.append(("name", self.stat().st_ino))
        return replaced(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    folder_store.put([SMALL], digest_of(SMALL))
    blob = blob_path(folder_store, SMALL)
    file, *folders = (path.stat().st_ino for path in (blob, *blob.parents[:3]))
    assert events == [("sync", file), ("name", file), *(("sync", folder) for folder in folders)]


def test_only_old_leftovers_are_swept(folder_store):
    incoming = Path(folder_store.where) / "incoming"
    (incoming / "old").touch()
    os.utime(incoming / "old", (0, 0))
    (incoming / "new").touch()
    assert folder_store.sweep_incoming(timedelta(hours=1)) == 1
    assert [file.name for file in incoming.iterdir()] == ["new"]


def test_an_object_store_has_nothing_to_sweep(s3_url):
    assert open_store(s3_url).sweep_incoming(timedelta(0)) == 0


def test_a_full_or_lost_store_says_so(folder_store, s3_url, monkeypatch):
    (Path(folder_store.where) / "sha256").touch()
    with pytest.raises(ArtifactStoreFailure, match=r"store .*/store failed: .*sha256"):
        folder_store.put([SMALL], digest_of(SMALL))
    with pytest.raises(ArtifactStoreFailure, match=r"store s3://no-such-bucket failed: .*404"):
        open_store("s3://no-such-bucket").put([SMALL], digest_of(SMALL))


def test_a_store_is_a_folder_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for reference, folder in (("a b#1%20/c", "a b#1%20/c"), ("~/kept", "user/kept"), (Path("kept"), "kept")):
        store = open_store(reference)
        store.put([SMALL], digest_of(SMALL))
        monkeypatch.chdir("/")
        assert store.where == str(tmp_path / folder)
        assert b"".join(store.read(digest_of(SMALL))) == SMALL
        assert [blob.digest for blob in store.list_blobs()] == [digest_of(SMALL)]
        monkeypatch.chdir(tmp_path)


def test_folders_that_cannot_be_stores(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"/file cannot be made: .* name another"):
        open_store(tmp_path / "file")
    with pytest.raises(SettingsError, match="must be a folder's path or a URL"):
        open_store("")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "ftp://host/path",
            "ftp://host… is no artefact store: expected a folder's path, or a URL of one of s3, gs, az",
        ),
        ("https://host/path", "is no artefact store"),
        ("memory:///", "is no artefact store"),
        ("s3://", "names no bucket; write s3://bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://key:hidden@bucket/prefix", "give credentials, region and endpoint in the environment"),
        ("s3://bucket/prefix?token=hidden", "by bucket and prefix alone"),
        ("s3://bucket/prefix#hidden", "by bucket and prefix alone"),
        ("az://container/prefix", "cannot be used: .*Account must be specified"),
    ],
)
def test_urls_that_name_no_store(url, said, monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(SettingsError, match=said) as caught:
        open_store(url)
    assert "hidden" not in str(caught.value)


def test_other_clouds_are_opened_by_url(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    assert [repr(open_store(url)) for url in ("gs://bucket/prefix", "az://container/prefix")] == [
        "ArtifactStore(where='gs://bucket/prefix', _folder=None)",
        "ArtifactStore(where='az://container/prefix', _folder=None)",
    ]


def test_errors_never_show_signatures(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=hidden")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "https://127.0.0.1:1")
    with pytest.raises(ArtifactStoreFailure, match="az://container failed") as caught:
        open_store("az://container").has(ABSENT)
    assert "hidden" not in str(caught.value)


@given(st.lists(st.binary(max_size=20)), st.booleans())
def test_bytes_are_verified_however_they_are_cut(parts, right):
    data = b"".join(parts)
    digest = digest_of(data if right else data + b"x")
    seen = bytearray()
    try:
        for part in verified(iter(parts), digest, ArtifactCorrupt("wrong")):
            assert part
            seen += part
    except ArtifactCorrupt:
        assert not right
        assert data.startswith(seen) and (len(seen) < len(data) or not data)
    else:
        assert right
        assert seen == data


CONTENTS = {"a": b"", "b": b"bb", "c": bytes(2 << 20)}


class StoreAgainstDict(RuleBasedStateMachine):
    """A store in a folder does what a dict of digests would."""

    names = st.sampled_from(sorted(CONTENTS))  # and not the bytes, which Hypothesis would print
    sizes = st.sampled_from([1 << 19, 1 << 20, 4 << 20])

    def __init__(self):
        super().__init__()
        self.model = {}
        self.folder = self.scratch / str(len(list(self.scratch.iterdir())))
        self.store = open_store(self.folder / "store")

    @rule(name=names, size=sizes)
    def put(self, name, size):
        data = CONTENTS[name]
        assert self.store.put(chunks(data, size), digest_of(data)) == len(data)
        self.model[digest_of(data)] = data

    @rule(name=names, other=names)
    def put_under_a_wrong_digest(self, name, other):
        if name != other:
            with pytest.raises(ArtifactDigestMismatch):
                self.store.put([CONTENTS[other]], digest_of(CONTENTS[name]))

    @rule(name=names)
    def delete(self, name):
        data = CONTENTS[name]
        self.store.delete(digest_of(data))
        self.model.pop(digest_of(data), None)

    @rule(name=names)
    def read(self, name):
        data = CONTENTS[name]
        digest = digest_of(data)
        assert self.store.has(digest) == (digest in self.model)
        if digest in self.model:
            assert b"".join(self.store.read(digest)) == data
        else:
            with pytest.raises(ArtifactNotFound):
                self.store.read(digest)

    @rule(name=names)
    def fetch(self, name):
        data = CONTENTS[name]
        if digest_of(data) in self.model:
            self.store.fetch(digest_of(data), self.folder / "copy")
            assert (self.folder / "copy").read_bytes() == data

    @rule()
    def open_again(self):
        self.store = open_store(self.folder / "store")

    @invariant()
    def the_same_is_listed_and_nothing_else_lies_about(self):
        listed = {blob.digest: blob.size for blob in self.store.list_blobs()}
        assert listed == {digest: len(data) for digest, data in self.model.items()}
        assert len(files_below(self.folder / "store")) == len(listed)


def test_a_store_does_what_a_dict_would(tmp_path, monkeypatch):
    # What is stored matters here, not how safely, so the disk is not waited for.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    StoreAgainstDict.scratch = tmp_path
    machine = StoreAgainstDict.TestCase
    machine.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
    machine().runTest()
