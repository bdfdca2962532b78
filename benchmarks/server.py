"""A `turnout serve` process for a benchmark's run."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def serve(arguments: Sequence[str]) -> Iterator[int]:
    """Start the server on a free port, yield the port once it is ready, stop the server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "turnout", "serve", "--port", str(port), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait_until_ready(process, port)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, limit: float = 300) -> None:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1).close()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the server was not ready within {limit:.0f} s")
