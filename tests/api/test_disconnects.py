"""The client goes away (field case 38): in a stream, in a plain call, in the queue, in prefill, with n, in a crowd."""

import json
import socket
import threading

import pytest

from tests.support.adapters import random_adapter
from tests.support.servers import serving


def send(served, **body) -> socket.socket:
    """A request on a raw socket, which can be closed at any moment."""
    port = int(served.url.rpartition(":")[2])
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    payload = json.dumps({"model": "x", "max_tokens": 200, "ignore_eos": True, "temperature": 0, **body}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}"
    )
    connection.sendall(f"{head}\r\n\r\n".encode() + payload)
    return connection


def until(condition, why: str) -> None:
    for _ in range(5000):
        if condition():
            return
        threading.Event().wait(0.002)
    pytest.fail(why)


@pytest.fixture
def slow(random_base, tmp_path):
    """A server whose every step lasts a while, so that leaving falls into the middle of something."""
    x = random_adapter(tmp_path / "x", random_base, seed=5)
    with serving(random_base, {"x": x}, max_batch_tokens=16, max_sequences=4) as served:
        yield served


def assert_all_is_free(served) -> None:
    until(lambda: served.engine.stats().running + served.engine.stats().waiting == 0, "something still runs")
    served.bench.settle()
    stats = served.engine.stats()
    assert stats.kv_blocks_free == stats.kv_blocks_total and stats.leases == 0
    assert served.unload("x").status_code == 200
    until(lambda: served.engine.stats().adapters_loaded == 0, "the adapter is still loaded")


@pytest.mark.parametrize("n", [1, 4])
def test_after_the_first_chunk_of_a_stream(slow, n) -> None:
    connection = send(slow, prompt="A", stream=True, n=n)
    assert b"data: " in connection.recv(1 << 16) + connection.recv(1 << 16)
    connection.close()
    assert_all_is_free(slow)


@pytest.mark.parametrize("n", [1, 4])
def test_during_a_plain_call(slow, n) -> None:
    connection = send(slow, prompt="A", n=n)
    until(lambda: slow.engine.stats().running > 0, "it never ran")
    connection.close()
    assert_all_is_free(slow)


def test_in_the_queue(slow) -> None:
    running = [send(slow, prompt="A") for _ in range(4)]
    until(lambda: slow.engine.stats().running == 4, "they never ran")
    queued = [send(slow, prompt="B", stream=stream) for stream in (True, False)]
    until(lambda: slow.engine.stats().waiting == 2 or slow.engine.stats().running < 4, "they never waited")
    for connection in queued + running:
        connection.close()
    assert_all_is_free(slow)


def test_during_prefill(slow) -> None:
    connection = send(slow, prompt=list(range(200)), max_tokens=20)
    until(lambda: slow.engine.stats().running == 1, "it never ran")
    connection.close()
    assert_all_is_free(slow)


def test_half_of_a_crowd_leaves_and_the_other_half_never_notices(slow) -> None:
    quiet = slow.complete(model="x", prompt="A", max_tokens=40, ignore_eos=True).json()["choices"][0]["text"]
    crowd = [send(slow, prompt="A", max_tokens=40, stream=bool(i % 4 < 2)) for i in range(50)]
    for connection in crowd[1::2]:
        connection.close()
    for index, connection in list(enumerate(crowd))[::2]:
        answer = b""
        while b"data: [DONE]" not in answer and not answer.endswith(b"}"):
            part = connection.recv(1 << 16)
            assert part, answer
            answer += part
        connection.close()
        body = answer.split(b"\r\n\r\n", 1)[1]
        if index % 4 < 2:
            lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
            text = "".join(json.loads(line)["choices"][0]["text"] for line in lines)
        else:
            text = json.loads(body)["choices"][0]["text"]
        assert text == quiet
    assert_all_is_free(slow)
