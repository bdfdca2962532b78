"""Processes that are killed at any point leave whole files, and leftovers that can be swept."""

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.artifacts.blobs import CONTENTS, DATA, FILES, digest_of
from turnout.artifacts.checkout import checkout, sweep_checkouts
from turnout.artifacts.store import open_store

ROOT = Path(__file__).parents[2]

# A process that forks another for each crash point. The forked one asks Python to tell it of everything that
# touches names on the disk (opening, renaming, linking, making, removing; fsync is added), and kills itself at the nth.
AT_EVERY_POINT = """
import os, signal, sys
from pathlib import Path
from tests.artifacts.blobs import CONTENTS, DATA, FILES, digest_of
from turnout.artifacts.checkout import checkout
from turnout.artifacts.store import open_store

work, root = sys.argv[1], Path(sys.argv[2])

def act(folder):
    if work == "put":
        open_store(folder / "store").put([DATA[:1000], DATA[1000:]], digest_of(DATA))
    else:
        checkout(filled, FILES, folder / "root")

def crash_at(point):
    left = point
    def count(event, arguments):
        nonlocal left
        if event.startswith(("open", "os.", "tempfile.", "shutil.")) and event != "os.kill":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    real = os.fsync
    def fsync(descriptor):
        sys.audit("os.fsync")
        real(descriptor)
    os.fsync = fsync
    sys.addaudithook(count)

filled = open_store(root / "filled")
for data in CONTENTS.values():
    filled.put([data], digest_of(data))
point = 0
while True:
    folder = root / str(point)
    folder.mkdir()
    child = os.fork()
    if not child:
        crash_at(point)
        act(folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) == 0:
        break
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    point += 1
print(point)
"""

# Forks processes that put blobs until they are killed, at random moments; says which blobs were acknowledged.
AT_RANDOM = """
import os, random, signal, sys, time
from tests.artifacts.blobs import digest_of
from turnout.artifacts.store import open_store

def put_on_and_on(start, acknowledged):
    store = open_store(sys.argv[1])
    number = 0
    while True:
        data = f"{start} {number} ".encode() * 400000
        store.put((data[cut : cut + 16384] for cut in range(0, len(data), 16384)), digest_of(data))
        os.write(acknowledged, digest_of(data).encode() + b"\\n")
        number += 1

moments = random.Random(4)
for start in range(30):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        put_on_and_on(start, writing)
    os.close(writing)
    with open(reading) as answers:
        for _ in range(moments.randrange(4)):
            print(answers.readline().strip())
        time.sleep(moments.random() * 0.02)  # the moment is anywhere in a put, and may be any
        os.kill(child, signal.SIGKILL)
        print(answers.read())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def unswept(store) -> int:
    return len(list((Path(store.where) / "incoming").iterdir()))


def at_every_point(work: str, root: Path) -> list[Path]:
    """The folders that a process left which was killed at one point each; the last one was not killed."""
    done = run(AT_EVERY_POINT, work, root)
    assert done.returncode == 0, done.stderr
    points = int(done.stdout)
    assert points > 8
    return [root / str(point) for point in range(points + 1)]


def test_a_put_that_is_killed_at_any_point_leaves_all_or_nothing(tmp_path):
    outcomes = []
    for folder in at_every_point("put", tmp_path):
        store = open_store(folder / "store")
        whole = store.has(digest_of(DATA))
        if whole:
            assert b"".join(store.read(digest_of(DATA))) == DATA
        assert len(list(store.list_blobs())) == whole
        left = unswept(store)
        assert store.sweep_incoming(timedelta(seconds=-60)) == left
        assert unswept(store) == 0
        store.put([DATA], digest_of(DATA))
        assert b"".join(store.read(digest_of(DATA))) == DATA
        outcomes.append((whole, left))
    assert outcomes[-1] == (True, 0)
    assert {(False, 0), (False, 1), (True, 0)} == set(outcomes)


def test_a_checkout_that_is_killed_at_any_point_leaves_all_or_nothing(tmp_path):
    found = set()
    for folder in at_every_point("checkout", tmp_path):
        root = folder / "root"
        made = [child for child in root.glob("*") if not child.name.startswith(".")]
        for child in made:
            assert {file.name: file.read_bytes() for file in child.iterdir()} == CONTENTS
        found.add(len(made))
        sweep_checkouts(root, timedelta(seconds=-60))
        assert sorted(root.glob("*")) == made
        assert len(list(checkout(open_store(tmp_path / "filled"), FILES, root).iterdir())) == 2
    assert found == {0, 1}


def test_puts_that_are_killed_at_random_moments_lose_nothing_acknowledged(tmp_path):
    store = open_store(tmp_path)
    done = run(AT_RANDOM, tmp_path)
    assert done.returncode == 0, done.stderr
    acknowledged = set(done.stdout.split())
    assert len(acknowledged) >= 30
    stored = {blob.digest for blob in store.list_blobs()}
    assert stored >= acknowledged
    for digest in stored:
        assert all(store.read(digest))
    left = unswept(store)
    assert store.sweep_incoming(timedelta(hours=1)) == 0
    assert store.sweep_incoming(timedelta(seconds=-60)) == left
    assert unswept(store) == 0
    assert {blob.digest for blob in store.list_blobs()} == stored


@pytest.mark.parametrize("parts", [1, 3])
def test_an_upload_that_is_killed_shows_nothing(s3_url, parts):
    code = """
import os, signal, sys
from tests.artifacts.blobs import digest_of
from turnout.artifacts.store import open_store
data = bytes(int(sys.argv[2]) * 6 << 20)
def killed():
    for start in range(0, len(data), 1 << 20):
        yield data[start : start + (1 << 20)]
    os.kill(os.getpid(), signal.SIGKILL)
open_store(sys.argv[1]).put(killed(), digest_of(data))
"""
    assert run(code, s3_url, parts).returncode == -signal.SIGKILL
    assert list(open_store(s3_url).list_blobs()) == []
