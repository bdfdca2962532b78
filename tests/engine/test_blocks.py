"""The block pool against a plain model, under random use."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from turnout.core.identity import Digest, StateKey, StateRoot, chain
from turnout.engine.blocks import BlockPool

SIZE = 2
BLOCKS = 8


def root(anchor: str) -> StateKey:
    return StateRoot(Digest("model"), Digest("tokenizer"), "layout", Digest(anchor)).key()


class PoolMachine(RuleBasedStateMachine):
    """Sequences come, match, fill blocks and go; the model remembers what each block's state was computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, SIZE)
        self.sequences: list[tuple[str, list[int], list[int]]] = []  # anchor, tokens, blocks
        self.contents: dict[int, tuple[str, tuple[int, ...]]] = {}  # block -> anchor, all tokens up to its end

    @rule(anchor=st.sampled_from(["a", "b"]), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=9))
    def arrive(self, anchor: str, tokens: list[int]) -> None:
        held, key = self.pool.match(root(anchor), tokens, len(tokens) - 1)
        assert len(held) * SIZE < len(tokens)
        for index, block in enumerate(held):
            # A hit is exactly the state this prefix would have, of these weights.
            assert self.contents[block] == (anchor, tuple(tokens[: (index + 1) * SIZE]))
        needed = -(-len(tokens) // SIZE) - len(held)
        if not self.pool.can_allocate(needed):
            self.pool.release(held)
            return
        fresh = self.pool.allocate(needed)
        live = {block for _, _, blocks in self.sequences for block in blocks} | set(held)
        assert not live & set(fresh)
        for block in fresh:
            self.contents.pop(block, None)
        blocks = held + fresh
        for index in range(len(held), len(tokens) // SIZE):
            part = tokens[index * SIZE : (index + 1) * SIZE]
            assert self.pool.file(blocks[index], key, part) == chain(key, part)
            key = chain(key, part)
            self.contents[blocks[index]] = (anchor, tuple(tokens[: (index + 1) * SIZE]))
        self.sequences.append((anchor, tokens, blocks))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.sequences) - 1))
        _, _, blocks = self.sequences.pop(index)
        self.pool.release(blocks)

    @invariant()
    def books_agree(self) -> None:
        self.pool.check(blocks for _, _, blocks in self.sequences)
        assert self.pool.free == BLOCKS - len({b for _, _, blocks in self.sequences for b in blocks})


PoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestPool = PoolMachine.TestCase


def test_equal_prompts_of_two_adapters_share_nothing() -> None:
    pool = BlockPool(8, SIZE)
    block = pool.allocate(1)[0]
    pool.file(block, root("a"), [1, 2])
    assert pool.match(root("b"), [1, 2, 3], 2) == ([], root("b"))
    assert pool.match(root("a"), [1, 2, 3], 2)[0] == [block]


def test_a_key_that_collides_is_not_believed() -> None:
    """A block under the right key but with other tokens or another parent is no hit."""
    pool = BlockPool(8, SIZE)
    block = pool.allocate(1)[0]
    pool.file(block, root("a"), [7, 7])
    wanted = chain(root("a"), [1, 2])
    pool._by_key[wanted] = block
    assert pool.match(root("a"), [1, 2, 3], 2)[0] == []


def test_state_roots_that_spell_alike_differ() -> None:
    one = StateRoot(Digest("ab"), Digest("c"), "l", Digest("a"))
    two = StateRoot(Digest("a"), Digest("bc"), "l", Digest("a"))
    assert one.key() != two.key()
