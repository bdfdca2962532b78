import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from turnout.artifacts.store import ArtifactStore, open_store

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("http://{}:{}".format(*server.get_host_and_port()), flush=True)
sys.stdin.read()
"""

prefixes = count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of an S3 server in a process of its own, with the bucket `tests`; it ends when its input does."""
    command = [sys.executable, "-c", SERVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        url = process.stdout.readline().strip()
        httpx.put(f"{url}/tests", trust_env=False).raise_for_status()
        yield url
        process.stdin.close()


@pytest.fixture
def s3_url(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of its own on that server, and the environment that leads there."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return f"s3://tests/{next(prefixes)}"


@pytest.fixture
def folder_store(tmp_path: Path) -> ArtifactStore:
    return open_store(tmp_path / "store")


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest) -> ArtifactStore:
    """The same store twice: in a folder, and on the S3 server."""
    if request.param == "folder":
        return request.getfixturevalue("folder_store")
    return open_store(request.getfixturevalue("s3_url"))
