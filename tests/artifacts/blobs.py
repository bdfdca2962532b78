"""What the tests put into stores. Light to import, for the processes that are killed."""

import hashlib

from turnout.artifacts.adapter_files import FileEntry
from turnout.core.identity import Digest


def digest_of(data: bytes) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(data).hexdigest()}")


DATA = bytes(range(256)) * 1024
CONTENTS = {"a.txt": DATA, "b.txt": b"b"}
FILES = {name: FileEntry(digest_of(data), len(data)) for name, data in CONTENTS.items()}
