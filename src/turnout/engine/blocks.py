"""The paged KV pool's book-keeping: which block is held by whom, and which full block files what state."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnout.core.identity import StateKey, chain


@dataclass(frozen=True, slots=True)
class FiledState:
    """What a full block's state was computed from; compared on a hit, not trusted to the key alone."""

    key: StateKey
    parent: StateKey
    tokens: tuple[int, ...]


class BlockPool:
    """Reference-counted blocks of `block_size` tokens, with the prefix cache filed on top.

    A block is held (references > 0) or free. A free block may still file state; it is taken for new use in
    least-recently-freed order, and only then forgets what it files. The engine's thread owns the pool.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self._references = [0] * blocks
        self._free: OrderedDict[int, None] = OrderedDict((block, None) for block in range(blocks))
        self._filed: dict[int, FiledState] = {}
        self._by_key: dict[StateKey, int] = {}

    @property
    def total(self) -> int:
        """How many blocks there are."""
        return len(self._references)

    @property
    def free(self) -> int:
        """How many blocks no sequence holds."""
        return len(self._free)

    def can_allocate(self, count: int) -> bool:
        """Whether `allocate(count)` would succeed."""
        return count <= len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Hold `count` blocks for new state; the caller asked `can_allocate` first."""
        taken = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._references[block] = 1
            taken.append(block)
        return taken

    def release(self, blocks: Sequence[int]) -> None:
        """Give up one reference on each; a sequence's last blocks are reused before its first."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None
                # Blocks that file nothing can serve nobody: they go first.
                if block not in self._filed:
                    self._free.move_to_end(block, last=False)

    def match(self, root: StateKey, tokens: Sequence[int], limit: int) -> tuple[list[int], StateKey]:
        """Hold the longest chain of filed blocks that starts `tokens`, at most `limit` tokens of it.

        Returns the blocks and the key of the last one (`root` if there is none).
        """
        held: list[int] = []
        parent = root
        size = self.block_size
        for start in range(0, limit - size + 1, size):
            part = tuple(tokens[start : start + size])
            key = chain(parent, part)
            block = self._by_key.get(key)
            if block is None or self._filed[block] != FiledState(key, parent, part):
                break
            if self._references[block] == 0:
                del self._free[block]
            self._references[block] += 1
            held.append(block)
            parent = key
        return held, parent

    def file(self, block: int, parent: StateKey, tokens: Sequence[int]) -> StateKey:
        """Make a held block, full and fully computed, findable; returns its key.

        Where an equal state is filed already, that one stays and this block remains private to its holder.
        """
        part = tuple(tokens)
        key = chain(parent, part)
        if key not in self._by_key:
            self._by_key[key] = block
            self._filed[block] = FiledState(key, parent, part)
        return key

    def _forget(self, block: int) -> None:
        filed = self._filed.pop(block, None)
        if filed is not None:
            del self._by_key[filed.key]

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless the books agree with the block tables of all live sequences."""
        counted = [0] * self.total
        for table in tables:
            for block in table:
                counted[block] += 1
        assert counted == self._references, "reference counts differ from what sequences hold"
        assert set(self._free) == {block for block, count in enumerate(counted) if count == 0}, "free list is wrong"
        assert self._by_key == {filed.key: block for block, filed in self._filed.items()}, "prefix index is wrong"
