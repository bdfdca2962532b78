import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import huggingface_hub.errors
import huggingface_hub.utils
import obstore
import pytest
import trustme

from tests.artifacts.blobs import digest_of
from tests.artifacts.test_archives import FILES, pack, read
from turnout.artifacts.adapter_files import FileEntry, manifest
from turnout.artifacts.adapter_sources import open_source
from turnout.artifacts.remote import remote_store
from turnout.core.errors import (
    AdapterError,
    AdapterFileError,
    AdapterPathNotFound,
    AdapterTooLarge,
    ArtifactDigestMismatch,
    ArtifactStoreFailure,
    InvalidRequest,
    SettingsError,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = f"hf://acme/legal@{COMMIT}"


def folder_of(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def opened(reference: str, **options) -> dict[str, bytes]:
    with open_source(reference, **options) as folder:
        return read(folder)


class Answers(BaseHTTPRequestHandler):
    """Answers with what `server.answers` has for a path: bytes, a redirect's target, or 404."""

    def do_GET(self):
        answer = self.server.answers.get(self.path.partition("?")[0], 404)
        self.send_response(answer if isinstance(answer, int) else 302 if isinstance(answer, str) else 200)
        if isinstance(answer, str):
            self.send_header("Location", answer)
        body = answer if isinstance(answer, bytes) else b""
        # "/cut…" promises more than it sends.
        self.send_header("Content-Length", str(len(body) + 10 * self.path.startswith("/cut")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serving(tls: ssl.SSLContext | None = None) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.answers = {}
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def plain():
    yield from serving()


@pytest.fixture
def encrypted(tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    yield from serving(context)


@pytest.fixture
def archive(tmp_path) -> bytes:
    return pack(tmp_path / "legal.tar.gz", FILES).read_bytes()


def test_a_folder_is_used_in_place(tmp_path, monkeypatch):
    folder = folder_of(tmp_path / "legal", FILES)
    monkeypatch.setenv("HOME", str(tmp_path))
    for reference in (str(folder), "~/legal"):
        with open_source(reference) as found:
            assert found.samefile(folder)
    assert read(folder) == FILES


@pytest.mark.parametrize("reference", ["no-such", "/no/such", "", "no-such.tar"])
def test_nothing_there(reference, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AdapterPathNotFound, match=f"no folder or archive at {reference!r}"):
        opened(reference)


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(AdapterFileError, match=r"is no archive: expected a folder, or a file of \.tar, \.tar\.gz"):
        opened(str(tmp_path / "adapter_model.safetensors"))


def test_a_local_archive_with_its_digest(tmp_path, archive):
    path = str(tmp_path / "legal.tar.gz")
    assert opened(path, digest=digest_of(archive)) == FILES
    with pytest.raises(ArtifactDigestMismatch, match="check both"):
        opened(path, digest=digest_of(b""))


def test_a_digest_is_never_ignored(tmp_path):
    for reference in (str(folder_of(tmp_path / "legal", FILES)), HUB, "s3://bucket/prefix"):
        with pytest.raises(InvalidRequest, match="a digest is for an archive"):
            opened(reference, digest=digest_of(b""))


def test_unknown_schemes_are_named():
    with pytest.raises(InvalidRequest, match=r"ftp:// is no source of adapters: .* https, hf, s3, gs, az"):
        opened("ftp://host/legal.tar")


def test_an_archive_at_a_url_with_its_digest(encrypted, archive):
    encrypted.answers["/legal.tar.gz"] = archive
    assert opened(f"{encrypted.url}/legal.tar.gz?signature=1", digest=digest_of(archive)) == FILES


def test_http_to_this_machine_needs_no_proxy(plain, archive, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    plain.answers["/legal.tar.gz"] = archive
    assert opened(f"{plain.url}/legal.tar.gz", digest=digest_of(archive)) == FILES


def test_redirects_are_followed_to_https_alone(encrypted, plain, archive):
    options = {"digest": digest_of(archive)}
    encrypted.answers |= {"/legal.tar.gz": archive, "/moved.tar.gz": "/legal.tar.gz"}
    assert opened(f"{encrypted.url}/moved.tar.gz", **options) == FILES
    plain.answers |= {"/legal.tar.gz": archive, "/moved.tar.gz": f"{encrypted.url}/moved.tar.gz"}
    assert opened(f"{plain.url}/moved.tar.gz", **options) == FILES
    for target in (f"{plain.url}/legal.tar.gz", "http://example.org/legal.tar.gz", "ftp://example.org/legal.tar.gz"):
        encrypted.answers["/away.tar.gz"] = target
        with pytest.raises(AdapterError, match="not fetched, nor followed to: only https is"):
            opened(f"{encrypted.url}/away.tar.gz", **options)
    plain.answers["/away.tar.gz"] = "http://example.org/legal.tar.gz"
    with pytest.raises(AdapterError, match=r"http://example\.org/legal\.tar\.gz is not fetched"):
        opened(f"{plain.url}/away.tar.gz", **options)


def test_urls_that_are_not_fetched():
    options = {"digest": digest_of(b"")}
    with pytest.raises(AdapterError, match="only https is, and http to this machine alone"):
        opened("http://example.org/legal.tar.gz", **options)
    with pytest.raises(AdapterError, match="name or password") as caught:
        opened("https://me:hidden@example.org/legal.tar.gz", **options)
    assert "hidden" not in str(caught.value)
    with pytest.raises(AdapterFileError, match="is no archive"):
        opened("https://example.org/adapter_model.safetensors", **options)
    with pytest.raises(InvalidRequest, match="only with its digest"):
        opened("https://example.org/legal.tar.gz")
    with pytest.raises(InvalidRequest, match="is no digest"):
        opened("https://example.org/legal.tar.gz", digest="0" * 64)


def test_an_unknown_certificate_is_not_trusted(encrypted, archive, monkeypatch):
    encrypted.answers["/legal.tar.gz"] = archive
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(AdapterPathNotFound, match="CERTIFICATE_VERIFY_FAILED"):
        opened(f"{encrypted.url}/legal.tar.gz", digest=digest_of(archive))


def test_what_a_url_answers_must_be_what_was_asked_for(plain, archive):
    plain.answers |= {"/legal.tar.gz": archive, "/cut.tar.gz": archive[:-1], "/empty.tar.gz": b""}
    for path in ("legal", "cut", "empty"):
        with pytest.raises(ArtifactDigestMismatch, match=rf"{path}\.tar\.gz answers does not have the digest"):
            opened(f"{plain.url}/{path}.tar.gz", digest=digest_of(archive + b"x"))
    with pytest.raises(AdapterTooLarge, match="is larger than 100 bytes"):
        opened(f"{plain.url}/legal.tar.gz", digest=digest_of(archive), max_bytes=100)
    with pytest.raises(AdapterPathNotFound, match=r"/none\.tar\.gz answers 404") as caught:
        opened(f"{plain.url}/none.tar.gz?signature=hidden", digest=digest_of(archive))
    assert "hidden" not in str(caught.value)
    with pytest.raises(AdapterPathNotFound, match=r"127\.0\.0\.1:1/legal\.tar cannot be fetched"):
        opened("http://127.0.0.1:1/legal.tar", digest=digest_of(archive))


def test_the_files_under_an_s3_prefix(s3_url):
    others = {"adapter_model.bin": b"pickle", "optimizer.pt": b"x", "checkpoint-1/adapter_config.json": b"{}"}
    for name, data in {**FILES, "README.md": b"# Legal", **others}.items():
        obstore.put(remote_store(s3_url), name, data)
    assert opened(s3_url) == {**FILES, "README.md": b"# Legal"}
    assert opened(f"{s3_url}/") == {**FILES, "README.md": b"# Legal"}
    with pytest.raises(AdapterTooLarge, match="larger than 100 bytes together"):
        opened(s3_url, max_bytes=100)
    with pytest.raises(AdapterPathNotFound, match="no files of an adapter at"):
        opened(f"{s3_url}/nothing")
    with pytest.raises(ArtifactStoreFailure, match="s3://no-such-bucket/legal failed"):
        opened("s3://no-such-bucket/legal")
    with pytest.raises(SettingsError, match="names no bucket"):
        opened("s3:///legal")


@pytest.mark.parametrize("revision", ["", "@", "@main", "@v1", "@0123456", f"@{COMMIT.upper()}", f"@{COMMIT}0"])
def test_a_hub_repository_must_be_pinned(revision):
    with pytest.raises(InvalidRequest, match=r"is not pinned: .* the 40 digits of a commit"):
        opened(f"hf://acme/legal{revision}")


@pytest.mark.parametrize("reference", ["hf://", "hf://legal", f"hf://acme/../legal@{COMMIT}", f"hf://a/b/c@{COMMIT}"])
def test_what_is_no_hub_repository(reference):
    with pytest.raises(InvalidRequest, match="write hf://organisation/repository@<commit>"):
        opened(reference)


def test_a_pinned_revision_is_found_in_the_local_cache(tmp_path):
    snapshot = tmp_path / "models--acme--legal" / "snapshots" / COMMIT
    folder_of(snapshot, FILES)
    # In a fresh process: the Hub's library reads its settings on import.
    code = (
        "import sys\nfrom turnout.artifacts.adapter_sources import open_source\n"
        "from turnout.core.errors import AdapterPathNotFound\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        "for reference in sys.argv[1:]:\n"
        "    try:\n        with open_source(reference) as folder:\n            print(folder)\n"
        "    except AdapterPathNotFound as error:\n        print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, HUB, f"hf://acme/other@{COMMIT}"],
        env={k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    found, other = run.stdout.split("\n", 1)
    assert found == str(snapshot)
    assert other.startswith(f"acme/other@{COMMIT} is not in the Hub's cache here and cannot be fetched")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("GatedRepoError", "acme/legal is gated: .* set HF_TOKEN"),
        ("RepositoryNotFoundError", "no repository acme/legal on the Hub; if it is private, set HF_TOKEN"),
        ("RevisionNotFoundError", f"acme/legal has no commit {COMMIT}"),
        ("XetDownloadError", "cannot be fetched: the reason"),
    ],
)
def test_what_the_hub_refuses_is_explained(monkeypatch, kind, said):
    error = getattr(huggingface_hub.errors, kind)

    def refuse(*args, **kwargs):
        raise error.__new__(error, "the reason")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(AdapterPathNotFound, match=said):
        opened(HUB)


def test_only_the_files_of_an_adapter_are_fetched_from_the_hub(monkeypatch, tmp_path):
    asked = {}

    def download(*args, **kwargs):
        asked.update(kwargs, repository=args)
        return tmp_path

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with open_source(HUB) as folder:
        assert folder == tmp_path
    assert (asked["repository"], asked["revision"]) == (("acme/legal",), COMMIT)
    files = ["adapter_config.json", "adapter_model.safetensors", "README.md", "chat_template.jinja"]
    others = ["adapter_model.bin", "optimizer.pt", "model.safetensors", "tokenizer.json", "training_args.bin"]
    kept = huggingface_hub.utils.filter_repo_objects([*files, *others], allow_patterns=asked["allow_patterns"])
    assert list(kept) == files


def test_a_manifest_lists_what_makes_up_an_adapter(tmp_path):
    extras = {"README.md": b"# Legal", "chat_template.jinja": b"x"}
    others = {"adapter_model.bin": b"pickle", "large.jinja": bytes((1 << 20) + 1), "tokenizer.json": b"{}"}
    folder = folder_of(tmp_path / "legal", {**FILES, **extras, **others})
    (folder / "folder.jinja").mkdir()
    expected = {name: FileEntry(digest_of(data), len(data)) for name, data in {**FILES, **extras}.items()}
    assert manifest(folder) == expected
    assert list(manifest(folder)) == sorted(expected)


@pytest.mark.parametrize("missing", list(FILES))
def test_a_manifest_needs_both_files(tmp_path, missing):
    files = {**FILES, "adapter_model.bin": b"pickle"}
    del files[missing]
    with pytest.raises(AdapterFileError, match=rf"holds no file {missing}; .* in safetensors and not in a pickle"):
        manifest(folder_of(tmp_path / "legal", files))


def test_a_manifest_of_nothing(tmp_path):
    with pytest.raises(AdapterFileError, match="cannot be read"):
        manifest(tmp_path / "no-such")
