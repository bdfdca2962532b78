"""The books of warm memory: which weights are in RAM, how many bytes are taken, and who may leave."""

from collections.abc import Iterator

from turnout.core.identity import Digest
from turnout.tiers.entry import Entry


class Shelf:
    """Entries by digest and the bytes taken for them, which are never more than `budget`.

    With `single`, weights have RAM for themselves: room is made only once all others have left. It decides nothing by
    itself and knows no threads; whoever calls holds the lock of Tiers.
    """

    def __init__(self, budget: int, *, single: bool = False) -> None:
        self.budget = budget
        self.used = 0
        self.kept: frozenset[Digest] = frozenset()
        self._single = single
        self._entries: dict[Digest, Entry] = {}
        self._leaving = 0

    def __iter__(self) -> Iterator[Entry]:
        """All entries but those whose load was cancelled."""
        return iter(list(self._entries.values()))

    def get(self, digest: Digest) -> Entry | None:
        """The entry of this digest."""
        return self._entries.get(digest)

    def add(self, entry: Entry) -> None:
        """Let it be found by its digest."""
        self._entries[entry.digest] = entry

    def drop(self, entry: Entry) -> None:
        """Let it be found no more; its bytes stay taken."""
        if self._entries.get(entry.digest) is entry:
            del self._entries[entry.digest]

    def room(self) -> int:
        """Bytes that may be taken now."""
        if self._single and self.used:
            return 0
        return self.budget - self.used

    def coming(self) -> int:
        """Bytes that may be taken once all that is leaving has left."""
        if self._single and self.used > self._leaving:
            return 0
        return self.budget - self.used + self._leaving

    def take(self, entry: Entry, nbytes: int) -> None:
        """Take bytes for an entry."""
        entry.nbytes = nbytes
        self.used += nbytes

    def give_back(self, entry: Entry) -> None:
        """Give an entry's bytes back."""
        if entry.state == "leaving":
            self._leaving -= entry.nbytes
        self.used -= entry.nbytes
        entry.nbytes = 0

    def leave(self, entry: Entry) -> None:
        """An idle entry begins to leave."""
        entry.state = "leaving"
        self._leaving += entry.nbytes

    def evictable(self) -> list[Entry]:
        """Those that may leave to make room: idle, and not kept."""
        return [entry for entry in self._entries.values() if entry.idle and entry.digest not in self.kept]

    def most(self) -> int:
        """The bytes that one entry can ever take beside those kept, once the others have left."""
        kept = (entry.nbytes for entry in self._entries.values() if entry.digest in self.kept)
        return self.budget - sum(kept)

    def check(self) -> None:
        """Raise AssertionError unless the books agree with each other."""
        held = sum(entry.nbytes for entry in self._entries.values())
        assert held <= self.used <= self.budget, "more bytes are taken than there are"
        leaving = sum(entry.nbytes for entry in self._entries.values() if entry.state == "leaving")
        assert leaving == self._leaving, "the bytes that are leaving are miscounted"
        for entry in self._entries.values():
            assert entry.leases >= 0, f"{entry.digest} has fewer than no leases"
            assert entry.leases == 0 or entry.state in ("loading", "warm"), f"{entry.digest} is in use and not there"
