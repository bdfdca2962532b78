"""Runs sequences through a decoder step by step, as an engine does, without one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from tests.support.adapters import KEY_PREFIX
from turnout.core.adapter import TARGETS
from turnout.kernels.interface import AttentionRows, Kernels, LoraSegments
from turnout.models.config import read_config
from turnout.models.decoder import DecoderWeights, KVCache, StepBatch, forward
from turnout.models.spec import DecoderSpec, linears
from turnout.models.weights import load_weights

BLOCK_SIZE = 8
BLOCKS = 128


@dataclass(frozen=True)
class HeldAdapter:
    """An adapter's tensors by (layer, target index), with one scale for all of them."""

    scale: float
    matrices: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]]


@dataclass
class PagedRun:
    """A base model and a KV cache whose unwritten places are NaN, so that reading one of them shows.

    Blocks are handed out in random order. `tokens` holds what each sequence has been fed.
    """

    weights: DecoderWeights
    kernels: Kernels
    kv: KVCache
    dtype: torch.dtype
    free: list[int]
    tokens: dict[str, list[int]] = field(default_factory=dict)
    blocks: dict[str, list[int]] = field(default_factory=dict)

    def step(
        self, chunks: dict[str, Sequence[int]], adapters: dict[str, HeldAdapter] | None = None
    ) -> dict[str, torch.Tensor]:
        """Feed each sequence its next tokens; logits [tokens fed, vocab] by sequence.

        `adapters` by sequence; sequences without one are the base's. Each sequence is a segment of its own.
        """
        positions: list[int] = []
        slots: list[int] = []
        for name, chunk in chunks.items():
            start = len(self.tokens.setdefault(name, []))
            self.tokens[name] += chunk
            added = range(start, len(self.tokens[name]))
            positions += added
            table = self.blocks.setdefault(name, [])
            while len(table) * BLOCK_SIZE < len(self.tokens[name]):
                table.append(self.free.pop())
            slots += [table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in added]
        counts = [len(chunk) for chunk in chunks.values()]
        batch = StepBatch(
            token_ids=torch.tensor([token for chunk in chunks.values() for token in chunk]),
            positions=torch.tensor(positions),
            slots=torch.tensor(slots),
            rows=AttentionRows(
                query_starts=_starts(counts),
                context_lengths=np.array([len(self.tokens[name]) for name in chunks], np.int32),
                block_tables=self._block_tables(chunks),
            ),
            logit_rows=torch.arange(sum(counts)),
        )
        held = [(adapters or {}).get(name) for name in chunks]
        segments = lora_segments(self.weights.spec, held, counts, self.dtype)
        logits = forward(self.weights, batch, self.kv, segments, self.kernels)
        return dict(zip(chunks, logits.split(counts), strict=True))

    def _block_tables(self, names: Sequence[str]) -> np.ndarray:
        widest = max(len(self.blocks[name]) for name in names)
        # What stands behind a sequence's own blocks is arbitrary, so let it be no block at all.
        tables = np.full((len(names), widest + 2), 1 << 20, np.int32)
        for row, name in enumerate(names):
            tables[row, : len(self.blocks[name])] = self.blocks[name]
        return tables


def start_run(folder: Path, kernels: Kernels, dtype: torch.dtype = torch.float32, seed: int = 0) -> PagedRun:
    """A run of the base in `folder`."""
    spec = DecoderSpec.from_config(read_config(folder))
    weights = load_weights(folder, spec, kernels, dtype, torch.device("cpu"))
    shape = (spec.layers, BLOCKS, BLOCK_SIZE, spec.kv_heads, spec.head_dim)
    kv = KVCache(torch.full(shape, torch.nan, dtype=dtype), torch.full(shape, torch.nan, dtype=dtype))
    return PagedRun(weights, kernels, kv, dtype, np.random.default_rng(seed).permutation(BLOCKS).tolist())


def hold_adapter(folder: Path, spec: DecoderSpec, scale: float) -> HeldAdapter:
    """The adapter file's tensors as they are; `scale` is the caller's, for configs are another room's affair."""
    tensors = load_file(folder / "adapter_model.safetensors")
    matrices = {}
    for module, linear in linears(spec).items():
        a = tensors.get(f"{KEY_PREFIX}{module}.lora_A.weight")
        if a is not None:
            b = tensors[f"{KEY_PREFIX}{module}.lora_B.weight"]
            matrices[linear.layer, TARGETS.index(linear.target)] = (a, b)
    return HeldAdapter(scale, matrices)


def lora_segments(
    spec: DecoderSpec, held: Sequence[HeldAdapter | None], counts: Sequence[int], dtype: torch.dtype
) -> LoraSegments:
    """One segment per entry of `held`, all in a fresh arena with gaps of NaN between the matrices."""
    shape = (spec.layers, len(TARGETS), len(held))
    a_offsets, b_offsets = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    ranks, scales = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    gap = torch.full((3,), torch.nan)
    pieces, size = [gap], len(gap)
    for segment, adapter in enumerate(held):
        for (layer, target), pair in ({} if adapter is None else adapter.matrices).items():
            at = (layer, target, segment)
            ranks[at], scales[at] = len(pair[0]), adapter.scale
            for offsets, matrix in zip((a_offsets, b_offsets), pair, strict=True):
                offsets[at] = size
                pieces += [matrix.flatten(), gap]
                size += matrix.numel() + len(gap)
    return LoraSegments(_starts(counts), torch.cat(pieces).to(dtype), a_offsets, b_offsets, ranks, scales)


def _starts(counts: Sequence[int]) -> np.ndarray:
    return np.cumsum([0, *counts], dtype=np.int32)
