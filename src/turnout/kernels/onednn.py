"""CPU kernels from torch's own parts: weights packed once by oneDNN, LoRA and attention in few large operations.

At a decoder step's sizes it is the number of operations that costs. The functions' meaning, arguments and shapes are
those of `interface.Kernels`, which this module implements.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from turnout.kernels import reference
from turnout.kernels.interface import AttentionRows, LoraColumns, LoraSegments
from turnout.kernels.reference import lora_matrix, rope_and_cache

__all__ = [
    "adapted_linear",
    "add_rms_norm",
    "attention",
    "available",
    "linear",
    "logits",
    "name",
    "pack_linear",
    "rms_norm",
    "rope_and_cache",
    "silu_mul",
]

name: str = "onednn"

PackedLinear = tuple[Tensor, Tensor | None]


def available(dtype: torch.dtype) -> bool:
    """Whether this build of torch has oneDNN, and this CPU what it needs for the dtype."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    supports_bfloat16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32 or (dtype == torch.bfloat16 and supports_bfloat16)


def pack_linear(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """Reorder the weight into oneDNN's own layout, one that suits any number of rows."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return packed, bias


def linear(x: Tensor, packed: PackedLinear) -> Tensor:
    """One oneDNN primitive: x @ weight.T + bias."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, *packed, "none", [], "")
    return y


def logits(x: Tensor, packed: PackedLinear) -> Tensor:
    """x @ weight.T + bias, widened."""
    return linear(x, packed).float()


def adapted_linear(
    x: Tensor, packed: PackedLinear, segments: LoraSegments, layer: int, columns: tuple[LoraColumns, ...]
) -> Tensor:
    """The linear, then the adapters on top."""
    y = linear(x, packed)
    add_lora(y, x, segments, layer, columns)
    return y


def add_lora(y: Tensor, x: Tensor, segments: LoraSegments, layer: int, columns: tuple[LoraColumns, ...]) -> None:
    """All segments at once: every row meets every A, and foreign products are dropped before they meet B.

    That is more arithmetic, yet with ranks this small far less time than two products for each segment.
    Foreign products are dropped by selection, not by a factor 0, so that an overflow in one adapter's products
    does not reach its neighbours' rows.
    """
    row_owners = np.repeat(np.arange(len(segments.starts) - 1), np.diff(segments.starts))
    for column in columns:
        at = (layer, column.target)
        used = np.flatnonzero(segments.ranks[at])
        if not used.size:
            continue
        ranks = segments.ranks[at][used]
        a, b = _joined(segments, at, used, x.shape[1], column.stop - column.start)
        foreign = torch.from_numpy(row_owners[:, None] != np.repeat(used, ranks))
        scales = torch.from_numpy(np.repeat(segments.scales[at][used], ranks))
        shrunk = functional.linear(x, a).mul_(scales).masked_fill_(foreign, 0)
        y[:, column.start : column.stop].addmm_(shrunk, b.T)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square normalization; torch computes it in float32."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def add_rms_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum, then its normalization."""
    total = x + delta
    return total, rms_norm(total, weight, eps)


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, rounding to the compute dtype in between."""
    gate, up = gate_up.chunk(2, -1)
    return functional.silu(gate).mul_(up)


def attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    rows: AttentionRows,
    scale: float,
    window: int | None,
    soft_cap: float | None = None,
) -> Tensor:
    """One call of torch's flash attention for each group of sequences that are alike, padded to the longest.

    The query heads of one key head are handed over as further rows of it, so that keys need not be repeated.
    """
    if soft_cap is not None:  # which torch's flash attention does not know
        return reference.attention(q, k_cache, v_cache, rows, scale, window, soft_cap)
    out = torch.empty(q.shape, dtype=q.dtype)
    heads, head_dim = q.shape[1:]
    block_size, kv_heads = k_cache.shape[1:3]
    for sequences, count in _alike(rows):
        lengths = rows.context_lengths[sequences]
        slots = torch.from_numpy(_key_slots(lengths, rows.block_tables[sequences], block_size))
        size = len(sequences)
        k = k_cache.view(-1, kv_heads, head_dim).index_select(0, slots).view(size, -1, kv_heads, head_dim)
        v = v_cache.view(-1, kv_heads, head_dim).index_select(0, slots).view(size, -1, kv_heads, head_dim)
        own = torch.from_numpy((rows.query_starts[sequences, None] + np.arange(count)).reshape(-1))
        queries = q.index_select(0, own).view(size, count, kv_heads, -1, head_dim).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            queries.flatten(2, 3),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=_visible(lengths, count, heads // kv_heads, window),
            scale=scale,
        )
        by_row = attended.view(size, kv_heads, count, -1, head_dim).transpose(1, 2)
        out.index_copy_(0, own, by_row.reshape(-1, heads, head_dim))
    return out


def _joined(
    segments: LoraSegments, at: tuple[int, int], used: NDArray[np.int64], inputs: int, outputs: int
) -> tuple[Tensor, Tensor]:
    """The `used` segments' A on top of each other, [sum of ranks, in], and B side by side, [out, sum of ranks]."""
    ranks = segments.ranks[at][used].tolist()
    a_offsets = segments.a_offsets[at][used].tolist()
    b_offsets = segments.b_offsets[at][used].tolist()
    a = [lora_matrix(segments.arena, start, rank, inputs) for start, rank in zip(a_offsets, ranks, strict=True)]
    b = [lora_matrix(segments.arena, start, outputs, rank) for start, rank in zip(b_offsets, ranks, strict=True)]
    return torch.cat(a), torch.cat(b, 1)


def _alike(rows: AttentionRows) -> Iterator[tuple[list[int], int]]:
    """Sequences with equally many rows and, within a factor of two, equal contexts; and that number of rows."""
    groups: dict[tuple[int, int], list[int]] = {}
    counts = np.diff(rows.query_starts).tolist()
    for sequence, (count, length) in enumerate(zip(counts, rows.context_lengths.tolist(), strict=True)):
        groups.setdefault((count, (length - 1).bit_length()), []).append(sequence)
    for (count, _), sequences in groups.items():
        yield sequences, count


def _key_slots(lengths: NDArray[np.int32], tables: NDArray[np.int32], block_size: int) -> NDArray[np.int32]:
    """Where the keys of each sequence are, flat [sequences * longest].

    Keys past a sequence's end are masked, but a masked NaN would still spread, and their blocks may hold another
    sequence's: the sequence's own first key stands in for them.
    """
    key = np.arange(lengths.max())
    slots = tables[:, key // block_size] * np.int32(block_size) + (key % block_size).astype(np.int32)
    return np.where(key < lengths[:, None], slots, slots[:, :1]).reshape(-1)


def _visible(lengths: NDArray[np.int32], count: int, repeats: int, window: int | None) -> Tensor:
    """Bool [sequences, 1, count * repeats, longest]: which keys the last `count` positions may see."""
    positions = lengths[:, None, None, None] + np.repeat(np.arange(-count, 0), repeats)[:, None]
    key = np.arange(lengths.max())
    visible = key <= positions
    if window is not None:
        visible &= key > positions - window
    return torch.from_numpy(visible)
