"""Decides what each step runs. It plans; the runner computes what it is told and nothing else."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from turnout.core.identity import Digest
from turnout.engine.blocks import BlockPool
from turnout.engine.residency import Residency
from turnout.engine.sequence import Sequence

PATIENCE = 32
"""Steps in which others may be admitted past a sequence whose adapter finds no room. Then nobody is admitted
before it, so running sequences end, their adapters become evictable, and its wait is bounded."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens `start` to `stop` of a sequence, to be given state in this step."""

    sequence: Sequence
    start: int
    stop: int

    @property
    def reaches_end(self) -> bool:
        """Whether the step's logits for this sequence give its next token."""
        return self.stop == len(self.sequence.tokens)


class Scheduler:
    """Waiting and running sequences. The engine's thread owns it.

    A step takes the pending token of every decoding sequence first, then chunks of prompts, then admits waiting
    sequences in the order they came, all within `max_batch_tokens`. A running sequence always has its lease, its
    pin and the blocks for its state; out of blocks, the sequence admitted last loses its own and is recomputed later.
    """

    def __init__(self, pool: BlockPool, residency: Residency, *, max_batch_tokens: int, max_sequences: int) -> None:
        self._pool = pool
        self._residency = residency
        self._max_batch_tokens = max_batch_tokens
        self._max_sequences = max_sequences
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in order of admission
        self.preemptions = 0
        self.prefix_lookup_tokens = 0
        self.prefix_hit_tokens = 0

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences, the running ones first."""
        yield from self.running
        yield from self.waiting

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait; its weights are promised to it from here on."""
        self._residency.lease(sequence.digest)
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """End a sequence, wherever it is, and free all it holds."""
        if sequence in self.running:
            self._stop_running(sequence)
        else:
            self.waiting.remove(sequence)
        self._residency.end_lease(sequence.digest)

    def schedule(self) -> list[Chunk]:
        """The chunks of the next step; blocks for all of them are held when it returns."""
        chunks: list[Chunk] = []
        budget = self._max_batch_tokens
        # Decoding sequences come first, for each waits for one token only; sorting is stable, so within each
        # kind the order is that of admission.
        for sequence in sorted(self.running, key=lambda s: s.pending > 1):
            if sequence not in self.running:
                continue  # preempted while this step was planned
            stop = sequence.computed + min(sequence.pending, budget)
            if stop > sequence.computed and self._hold_blocks(sequence, stop, chunks):
                chunks.append(Chunk(sequence, sequence.computed, stop))
                budget -= stop - sequence.computed
        self._admit(chunks, budget)
        return chunks

    def commit(self, chunk: Chunk) -> None:
        """A step gave this chunk its state: count it, and file the blocks it filled."""
        sequence = chunk.sequence
        sequence.computed = chunk.stop
        size = self._pool.block_size
        while (sequence.filed_blocks + 1) * size <= sequence.computed:
            start = sequence.filed_blocks * size
            sequence.last_key = self._pool.file(
                sequence.blocks[sequence.filed_blocks], sequence.last_key, sequence.tokens[start : start + size]
            )
            sequence.filed_blocks += 1

    def _admit(self, chunks: list[Chunk], budget: int) -> None:
        overtaken: list[Sequence] = []
        admitted = False
        while self.waiting and budget > 0 and len(self.running) < self._max_sequences:
            sequence = self.waiting.popleft()
            if not self._pin(sequence):
                overtaken.append(sequence)
                if sequence.overtaken >= PATIENCE:
                    break
                continue
            if not self._start_running(sequence, budget):
                self._residency.unpin(sequence.digest)
                overtaken.append(sequence)
                break  # out of blocks; a smaller one behind must not starve it
            admitted = True
            stop = sequence.computed + min(sequence.pending, budget)
            chunks.append(Chunk(sequence, sequence.computed, stop))
            budget -= stop - sequence.computed
        for sequence in reversed(overtaken):
            sequence.overtaken += admitted
            self.waiting.appendleft(sequence)

    def _pin(self, sequence: Sequence) -> bool:
        clock = sequence.clock
        began = time.monotonic()
        clock.adapter_wait_began = clock.adapter_wait_began or began
        if not self._residency.pin(sequence.digest):
            return False
        clock.adapter_load = time.monotonic() - clock.adapter_wait_began
        return True

    def _start_running(self, sequence: Sequence, budget: int) -> bool:
        self._match_prefix(sequence)
        stop = sequence.computed + min(sequence.pending, budget)
        needed = self._blocks_for(stop) - len(sequence.blocks)
        # One block per running sequence is left to those that decode: otherwise a newcomer is admitted only to
        # be preempted in the next step.
        reserve = len(self.running)
        if not self._pool.can_allocate(needed + reserve if self.running else needed):
            self._pool.release(sequence.blocks)
            sequence.forget_state()
            return False
        sequence.blocks += self._pool.allocate(needed)
        sequence.clock.admitted = sequence.clock.admitted or time.monotonic()
        self.running.append(sequence)
        return True

    def _match_prefix(self, sequence: Sequence) -> None:
        if sequence.sampling.prompt_logprobs is not None:
            return  # every position's logits are wanted, so every position is computed
        began = time.monotonic()
        # At least one token is always computed: its logits give the next one.
        limit = len(sequence.tokens) - 1
        sequence.blocks, sequence.last_key = self._pool.match(sequence.root, sequence.tokens, limit)
        sequence.filed_blocks = len(sequence.blocks)
        sequence.computed = len(sequence.blocks) * self._pool.block_size
        if not sequence.generated:
            sequence.cached_tokens = sequence.computed
        sequence.clock.cache_lookup += time.monotonic() - began
        self.prefix_lookup_tokens += limit
        self.prefix_hit_tokens += sequence.computed

    def _hold_blocks(self, sequence: Sequence, stop: int, chunks: list[Chunk]) -> bool:
        needed = self._blocks_for(stop) - len(sequence.blocks)
        while not self._pool.can_allocate(needed):
            victim = self.running[-1]
            self._preempt(victim)
            chunks[:] = [chunk for chunk in chunks if chunk.sequence is not victim]
            if victim is sequence:
                return False
        sequence.blocks += self._pool.allocate(needed)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._stop_running(sequence)
        self.waiting.appendleft(sequence)
        self.preemptions += 1

    def _stop_running(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._pool.release(sequence.blocks)
        sequence.forget_state()
        self._residency.unpin(sequence.digest)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._pool.block_size)

    def check(self) -> None:
        """Raise AssertionError unless sequences, blocks, leases and pins agree with each other."""
        self._pool.check(sequence.blocks for sequence in self)
        self._residency.check()
        leases, pins = _count(self), _count(self.running)
        for digest, (held, pinned) in self._residency.holds().items():
            assert leases.get(digest, 0) == held, f"leases on {digest} differ from its sequences"
            assert pins.get(digest, 0) == pinned, f"pins on {digest} differ from its running sequences"
        for sequence in self.running:
            assert sequence.computed <= len(sequence.blocks) * self._pool.block_size, "state without a block"


def _count(sequences: "Scheduler | list[Sequence]") -> dict[Digest, int]:
    counts: dict[Digest, int] = {}
    for sequence in sequences:
        counts[sequence.digest] = counts.get(sequence.digest, 0) + 1
    return counts
