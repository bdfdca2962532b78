"""Files on this machine that the client writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from turnout.core.errors import InvalidRequest


@contextmanager
def whole(to: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes its place at `to` when this is left without an error, and else is gone.

    Raises InvalidRequest when it cannot be written there.
    """
    temporary = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        try:
            with temporary.open("wb") as file:
                yield file
            temporary.replace(to)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{str(to)!r} cannot be written: {error}", param="file") from error
