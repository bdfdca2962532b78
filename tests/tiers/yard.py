"""Tiers over an engine without a model, and weights whose reading the test governs."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from turnout.core.adapter import AdapterState
from turnout.core.engine import EngineInfo
from turnout.core.fake import FakeEngine
from turnout.core.identity import Digest, VersionRef
from turnout.core.tiers import Move, Tier, Use
from turnout.tiers import Tiers
from turnout.tiers.manager import Swap
from turnout.tiers.source import Allocate, Proceed

BASE = Digest("sha256:" + "0" * 64)
INFO = EngineInfo(BASE, "bfloat16", 1024, 256, "fake")


def version(number: int, name: str = "a") -> VersionRef:
    """A version whose digest its number says."""
    return VersionRef(name, number, Digest(f"sha256:{number:064x}"), "default")


class Shelves:
    """A source of weights of `sizes` elements each. Reading one that is in `gates` waits for the gate to open.

    `errors` has what reading a digest raises; `reads` counts the reads that began, `held` the elements that are
    allocated and not freed is for the test to find out by the sizes.
    """

    def __init__(self, elements: int = 100) -> None:
        self.elements = elements
        self.sizes: dict[Digest, int] = {}
        self.gates: dict[Digest, threading.Event] = {}
        self.errors: dict[Digest, Exception] = {}
        self.reads: Counter[Digest] = Counter()
        self.cold: set[Digest] = set()
        self._lock = threading.Lock()
        self.reading = threading.Condition(self._lock)

    def tier(self, version: VersionRef) -> Tier:
        """Cold once it was read."""
        with self._lock:
            return "cold" if version.digest in self.cold else "remote"

    def read(self, version: VersionRef, allocate: Allocate, proceed: Proceed) -> AdapterState:
        """See Source.read."""
        digest = version.digest
        with self._lock:
            self.reads[digest] += 1
            self.cold.add(digest)
            self.reading.notify_all()
        buffer = allocate(self.sizes.get(digest, self.elements), "bfloat16")
        gate = self.gates.get(digest)
        if gate is not None:
            assert gate.wait(20), "the test never opened this gate"
        proceed()
        error = self.errors.get(digest)
        if error is not None:
            raise error
        return AdapterState(digest, BASE, "bfloat16", (), buffer, 0)

    def wait_for_read(self, digest: Digest, times: int = 1) -> None:
        """Until so many reads of it have begun."""
        with self.reading:
            assert self.reading.wait_for(lambda: self.reads[digest] >= times, 20)


class Yard:
    """All of it; `moves` and `uses` are what was told."""

    def __init__(self, room: int, swap: Swap = "warm", max_waiting: int = 1024) -> None:
        self.engine = FakeEngine(INFO)
        self.source = Shelves()
        self.gone: set[Digest] = set()
        self.moves: list[Move] = []
        self.uses: list[Use] = []
        self.tiers = Tiers(
            self.engine,
            self.source,
            lambda digest: digest not in self.gone,
            warm_memory=room,
            swap=swap,
            max_waiting=max_waiting,
            moved=self.moves.append,
            used=self.uses.append,
        )

    @property
    def loaded(self) -> set[Digest]:
        """What the engine has."""
        return set(self.engine.loaded) - {BASE}

    def close(self) -> None:
        """End the threads."""
        for gate in self.source.gates.values():
            gate.set()
        self.tiers.close()
        self.engine.close()


@contextmanager
def yard(room: int = 1000, swap: Swap = "warm", max_waiting: int = 1024) -> Iterator[Yard]:
    """With room for so many bytes; each version takes 200 unless the test says otherwise."""
    made = Yard(room, swap, max_waiting)
    try:
        yield made
        made.tiers.check()
    finally:
        made.close()
