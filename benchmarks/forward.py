"""One forward pass without an engine around it: what step and quality measure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from turnout.build.base import Base
from turnout.core.adapter import TARGETS
from turnout.kernels.interface import AttentionRows, LoraSegments
from turnout.models.decoder import KVCache, StepBatch, forward
from turnout.models.spec import DecoderSpec, linears

BLOCK_SIZE = 16
ALIGNMENT = 32


@dataclass(frozen=True)
class Pass:
    """A step that can be run again and again: it writes the same keys and values each time."""

    base: Base
    batch: StepBatch
    kv: KVCache
    lora: LoraSegments

    def logits(self) -> torch.Tensor:
        """Run it: float32 [rows whose logits are wanted, vocab]."""
        return forward(self.base.weights, self.batch, self.kv, self.lora, self.base.kernels)


def decode_pass(base: Base, rows: int, context: int, lora: LoraSegments) -> Pass:
    """One more token for each of `rows` sequences of `context` tokens, on state that is random."""
    tokens = torch.randint(1000, base.spec.vocab_size, (rows,))
    return _pass(base, tokens, [1] * rows, [context] * rows, torch.arange(rows), lora)


def prompt_pass(base: Base, tokens: Sequence[int]) -> Pass:
    """A whole prompt at once, on the base alone, with the logits of every token."""
    count = len(tokens)
    lora = no_lora(base, [0, count])
    return _pass(base, torch.tensor(tokens), [count], [count], torch.arange(count), lora)


def no_lora(base: Base, starts: Sequence[int]) -> LoraSegments:
    """Segments of the base alone."""
    return _segments(base, starts, rank=0)


def distinct_lora(base: Base, rows: int, rank: int) -> LoraSegments:
    """An adapter of its own for each row, on every linear layer; the values are random and small."""
    return _segments(base, range(rows + 1), rank)


def adapter_elements(spec: DecoderSpec, rank: int) -> int:
    """Elements of one adapter's A and B over all linear layers."""
    return sum(rank * (linear.in_features + linear.out_features) for linear in linears(spec).values())


def _pass(
    base: Base,
    tokens: torch.Tensor,
    counts: Sequence[int],
    lengths: Sequence[int],
    wanted: torch.Tensor,
    lora: LoraSegments,
) -> Pass:
    spec, dtype = base.spec, base.weights.embedding.dtype
    width = -(-max(lengths) // BLOCK_SIZE)
    shape = (spec.layers, width * len(counts), BLOCK_SIZE, spec.kv_heads, spec.head_dim)
    kv = KVCache(torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype))
    tables = np.arange(width * len(counts), dtype=np.int32).reshape(len(counts), width)
    positions = np.concatenate(
        [np.arange(length - count, length) for count, length in zip(counts, lengths, strict=True)]
    )
    owners = np.repeat(np.arange(len(counts)), counts)
    slots = tables[owners, positions // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE + positions % BLOCK_SIZE
    rows = AttentionRows(np.cumsum([0, *counts], dtype=np.int32), np.array(lengths, np.int32), tables)
    batch = StepBatch(tokens, torch.from_numpy(positions), torch.from_numpy(slots), rows, wanted)
    return Pass(base, batch, kv, lora)


def _segments(base: Base, starts: Sequence[int], rank: int) -> LoraSegments:
    dtype, count = base.weights.embedding.dtype, len(starts) - 1
    shape = (base.spec.layers, len(TARGETS), count)
    a_offsets, b_offsets = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    end = 0
    for segment in range(count if rank else 0):
        for linear in linears(base.spec).values():
            at = (linear.layer, TARGETS.index(linear.target), segment)
            for offsets, size in ((a_offsets, linear.in_features), (b_offsets, linear.out_features)):
                offsets[at] = end
                end += -(-rank * size // ALIGNMENT) * ALIGNMENT
    return LoraSegments(
        starts=np.array(starts, np.int32),
        arena=torch.randn(max(end, 1), dtype=dtype) * 0.01,
        a_offsets=a_offsets,
        b_offsets=b_offsets,
        ranks=np.full(shape, rank, np.int32),
        scales=np.ones(shape, np.float32),
    )
