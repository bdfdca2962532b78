"""Server processes for a benchmark's run."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


@contextmanager
def serve(arguments: Sequence[str]) -> Iterator[int]:
    """Start the server on a free port and an empty registry, yield the port once it is ready, stop the server."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="turnout-benchmark-") as folder:
        kept = ["--registry", f"{folder}/registry.db", "--artifacts", f"{folder}/artifacts"]
        command = [sys.executable, "-m", "turnout", "serve", "--port", str(port), *kept, *arguments]
        with running(command, port, "/ready"):
            yield port


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(
    command: Sequence[str], port: int, ready: str, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A server process, from the moment its page `ready` answers; what it logs is shown only if it does not come up."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(environment or {})})
        try:
            try:
                _wait_until_ready(process, port, ready)
            except RuntimeError as error:
                log.seek(0)
                raise RuntimeError(f"{error}:\n{log.read().decode(errors='replace')[-2000:]}") from None
            yield
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, ready: str, limit: float = 600) -> None:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=1).close()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the server was not ready within {limit:.0f} s")
