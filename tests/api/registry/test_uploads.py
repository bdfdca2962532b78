"""Uploads: what has the right digest is stored, and nothing of anything else."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.registry.world import World, digest_of, world
from turnout.api.registry import uploading

BLOBS = "/admin/v1/blobs"
DATA = bytes(range(256)) * 20_000


def stored(folder: Path) -> list[Path]:
    """All files of the store, unfinished ones too."""
    return [path for path in (folder / "store").rglob("*") if path.is_file()]


def in_parts(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), 65_536):
        yield data[start : start + 65_536]


async def streamed(parts: Iterable[bytes]) -> Any:
    for part in parts:
        yield part


@pytest.mark.parametrize("data", [b"", b"x", DATA], ids=["empty", "small", "large"])
def test_an_upload_is_stored_and_found(fresh: World, data: bytes) -> None:
    address = f"{BLOBS}/{digest_of(data)}"
    assert fresh.send("HEAD", address, "acme-push").status_code == 404
    answer = fresh.send("PUT", address, "acme-push", content=streamed(in_parts(data)))
    assert (answer.status_code, answer.json()) == (201, {"digest": digest_of(data), "bytes": len(data)})
    assert fresh.send("HEAD", address, "acme-push").status_code == 200
    assert b"".join(fresh.store.read(digest_of(data))) == data
    assert fresh.send("PUT", address, "acme-push", content=data).status_code == 201


@pytest.mark.parametrize("data", [b"", b"other", DATA[1:]], ids=["empty", "small", "large"])
def test_other_bytes_are_refused(fresh: World, tmp_path: Path, data: bytes) -> None:
    answer = fresh.send("PUT", f"{BLOBS}/{digest_of(DATA)}", "acme-push", content=data)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "artifact_digest_mismatch")
    assert stored(tmp_path) == []


def upload_broken_off(world: World, data: bytes, parts: int) -> int:
    """Send only the first parts of `data`, then hang up; returns the status that nobody is there to read."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in list(in_parts(data))[:parts]]
    messages.append({"type": "http.disconnect"})
    address = f"{BLOBS}/{digest_of(data)}"
    scope = {
        "type": "http", "http_version": "1.1", "method": "PUT", "scheme": "http", "path": address, "root_path": "",
        "raw_path": address.encode(), "query_string": b"", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        "headers": [(b"authorization", f"Bearer {world.tokens['acme-push']}".encode())],
    }  # fmt: skip

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    world.runner.run(world.app(scope, receive, send))
    return sent[0]["status"]


@pytest.mark.parametrize("parts", [0, 1, 40])
def test_an_upload_that_breaks_off_leaves_nothing(fresh: World, tmp_path: Path, parts: int) -> None:
    assert upload_broken_off(fresh, DATA, parts) == 400
    assert stored(tmp_path) == []
    assert fresh.send("HEAD", f"{BLOBS}/{digest_of(DATA)}", "acme-push").status_code == 404


def test_uploads_go_to_an_object_store_too(s3_url: str, tmp_path: Path) -> None:
    large = DATA * 4  # in several parts
    with world(str(tmp_path / "registry.db"), s3_url) as remote:
        for data in (b"small", large):
            answer = remote.send("PUT", f"{BLOBS}/{digest_of(data)}", "acme-push", content=streamed(in_parts(data)))
            assert answer.status_code == 201, answer.text
            assert b"".join(remote.store.read(digest_of(data))) == data
            assert upload_broken_off(remote, data + b"x", parts=len(data) // 65_536) == 400
            assert not remote.store.has(digest_of(data + b"x"))


def test_no_more_is_taken_than_allowed(fresh: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploading, "MAX_UPLOAD", len(DATA) - 1)
    address = f"{BLOBS}/{digest_of(DATA)}"
    for content in (DATA, streamed(in_parts(DATA))):
        answer = fresh.send("PUT", address, "acme-push", content=content)
        assert answer.status_code == 400
        assert "larger than" in answer.json()["error"]["message"]
    assert stored(tmp_path) == []
    assert fresh.send("PUT", f"{BLOBS}/{digest_of(DATA[1:])}", "acme-push", content=DATA[1:]).status_code == 201


def test_without_the_scope_no_byte_is_read(fresh: World) -> None:
    async def content() -> Any:
        pytest.fail("the body was read")
        yield b""

    answer = fresh.send("PUT", f"{BLOBS}/{digest_of(DATA)}", "acme-promote", content=content())
    assert answer.status_code == 403


def test_more_uploads_than_threads_all_end(fresh: World) -> None:
    async def all_at_once() -> list[httpx.Response]:
        import asyncio

        headers = {"Authorization": f"Bearer {fresh.tokens['acme-push']}"}
        contents = [f"content {number}".encode() for number in range(uploading.AT_ONCE + 10)]
        uploads = [
            fresh.http.put(f"{BLOBS}/{digest_of(each)}", content=streamed([each, each[:0]]), headers=headers)
            for each in contents
        ]
        return await asyncio.gather(*uploads)

    assert {answer.status_code for answer in fresh.runner.run(all_at_once())} == {201}


@pytest.mark.parametrize("digest", ["sha256:", "sha256:" + "A" * 64, "md5:" + "a" * 32, "..", "%00", "é"])
def test_what_is_no_digest_is_refused(fresh: World, digest: str) -> None:
    for method in ("PUT", "HEAD"):
        assert fresh.send(method, f"{BLOBS}/{digest}", "acme-push").status_code in (400, 404)
    assert fresh.send("PUT", f"{BLOBS}/sha256:{'A' * 64}", "acme-push").json()["error"]["code"] == "invalid_request"
