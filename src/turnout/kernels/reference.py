"""Plain torch on any device, in float32 or bfloat16: short rather than fast, and what other sets are held to.

The functions' meaning, arguments and shapes are those of `interface.Kernels`, which this module implements.
"""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from turnout.kernels.interface import AttentionRows, LoraColumns, LoraSegments

name: str = "reference"

PlainLinear = tuple[Tensor, Tensor | None]


def pack_linear(weight: Tensor, bias: Tensor | None) -> PlainLinear:
    """Weight and bias as they are."""
    return weight, bias


def linear(x: Tensor, packed: PlainLinear) -> Tensor:
    """The product x @ weight.T + bias."""
    return functional.linear(x, *packed)


def logits(x: Tensor, packed: PlainLinear) -> Tensor:
    """x @ weight.T + bias, widened."""
    return linear(x, packed).float()


def adapted_linear(
    x: Tensor, packed: PlainLinear, segments: LoraSegments, layer: int, columns: tuple[LoraColumns, ...]
) -> Tensor:
    """The linear, then the adapters on top."""
    y = linear(x, packed)
    add_lora(y, x, segments, layer, columns)
    return y


def add_lora(y: Tensor, x: Tensor, segments: LoraSegments, layer: int, columns: tuple[LoraColumns, ...]) -> None:
    """One segment and target at a time, in float32."""
    starts = segments.starts.tolist()
    for column in columns:
        for segment, (first, last) in enumerate(pairwise(starts)):
            at = (layer, column.target, segment)
            rank = int(segments.ranks[at])
            if rank == 0:
                continue
            a = lora_matrix(segments.arena, int(segments.a_offsets[at]), rank, x.shape[1]).float()
            b = lora_matrix(segments.arena, int(segments.b_offsets[at]), column.stop - column.start, rank).float()
            delta = float(segments.scales[at]) * (x[first:last].float() @ a.T) @ b.T
            rows = y[first:last, column.start : column.stop]
            rows.copy_(rows.float() + delta)


def lora_matrix(arena: Tensor, offset: int, height: int, width: int) -> Tensor:
    """The [height, width] matrix that starts at element `offset` of the arena, as a view."""
    return arena.as_strided((height, width), (width, 1), offset)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square normalization (Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467)."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def add_rms_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum, then its normalization."""
    total = x + delta
    return total, rms_norm(total, weight, eps)


def rope_and_cache(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor
) -> Tensor:
    """Rotate, then store; a slot counts through the blocks, so it is a row of the flattened cache."""
    k_cache.view(-1, *k.shape[1:]).index_copy_(0, slots, rope(k, cos, sin))
    v_cache.view(-1, *v.shape[1:]).index_copy_(0, slots, v)
    return rope(q, cos, sin)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + d/2]) by its angle."""
    first, second = x.float().chunk(2, -1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, in float32."""
    gate, up = gate_up.float().chunk(2, -1)
    return (functional.silu(gate) * up).to(gate_up.dtype)


def attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    rows: AttentionRows,
    scale: float,
    window: int | None,
    soft_cap: float | None = None,
) -> Tensor:
    """One sequence at a time, in float32, every key head repeated for its query heads."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    group = q.shape[1] // k_cache.shape[2]
    starts = rows.query_starts.tolist()
    for sequence, (first, last) in enumerate(pairwise(starts)):
        length = int(rows.context_lengths[sequence])
        table = torch.from_numpy(rows.block_tables[sequence]).to(q.device)
        used = table[: -(-length // k_cache.shape[1])]
        k = k_cache[used].flatten(0, 1)[:length].float().repeat_interleave(group, 1)
        v = v_cache[used].flatten(0, 1)[:length].float().repeat_interleave(group, 1)
        key = torch.arange(length, device=q.device)
        query = key[length - (last - first) :, None]
        visible = key <= query
        if window is not None:
            visible &= key > query - window
        scores = torch.einsum("qhd,khd->hqk", q[first:last].float(), k) * scale
        if soft_cap is not None:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
        out[first:last] = torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype)
    return out
