"""What every kernel set offers, and the facts about a step's rows that its functions take.

Rows: a step's tokens, one row each, `T` in all; rows of one sequence are contiguous and in order, sequences of one
adapter are contiguous. Every fact about a batch is an argument; kernels remember nothing between calls.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """Which keys each row may see. `S` sequences; arrays are int32 on the host.

    `query_starts` [S+1]: sequence s owns rows query_starts[s] to query_starts[s+1].
    `context_lengths` [S]: tokens of the sequence up to and including its last row of this step, so that row i of
    a sequence with n rows stands at position context_lengths[s] - n + i and sees the keys up to there.
    `block_tables` [S, W]: the KV blocks of each sequence in order; entries past its context are arbitrary.
    """

    query_starts: NDArray[np.int32]
    context_lengths: NDArray[np.int32]
    block_tables: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class LoraSegments:
    """Which adapter each row uses. `G` segments of rows, each with one adapter's weights in `arena`.

    `starts` int32 [G+1]: segment g owns rows starts[g] to starts[g+1].
    `arena`: the flat tensor, in the compute dtype, which holds all resident adapters.
    `a_offsets`, `b_offsets` int64 [layers, 7, G]: where the A [rank, in] and B [out, rank] of a layer's target start,
    in elements. `ranks` int32 [layers, 7, G]: 0 where the segment's adapter leaves that layer alone, as the base
    does everywhere. `scales` float32 [layers, 7, G]. The second axis is in the order of core.adapter.TARGETS.
    """

    starts: NDArray[np.int32]
    arena: Tensor
    a_offsets: NDArray[np.int64]
    b_offsets: NDArray[np.int64]
    ranks: NDArray[np.int32]
    scales: NDArray[np.float32]


class LoraColumns(NamedTuple):
    """A target within a fused linear: it owns columns `start` to `stop` of the output."""

    target: int
    start: int
    stop: int


class Kernels(Protocol):
    """The operations of a decoder step. `name` is shown to people and is part of the layout revision."""

    @property
    def name(self) -> str:
        """Which set this is."""
        ...

    def pack_linear(self, weight: Tensor, bias: Tensor | None) -> Any:
        """Bring a linear layer into this set's own form, once. weight [out, in], bias [out]."""
        ...

    def linear(self, x: Tensor, packed: Any) -> Tensor:
        """x [T, in] -> x @ weight.T + bias, [T, out], contiguous."""
        ...

    def logits(self, x: Tensor, packed: Any) -> Tensor:
        """x [T, in] -> x @ weight.T + bias as float32 [T, out]; not rounded to the compute dtype where that can be."""
        ...

    def adapted_linear(
        self, x: Tensor, packed: Any, segments: LoraSegments, layer: int, columns: tuple[LoraColumns, ...]
    ) -> Tensor:
        """`linear`, and then for each segment g and each of `columns`, where rank > 0:

        y[rows of g, start:stop] += scale * (x[rows of g] @ A.T) @ B.T
        """
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x / sqrt(mean(x², last axis) + eps) * weight, computed in float32; x [..., n], weight [n]."""
        ...

    def add_rms_norm(self, x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """x + delta in their dtype, and `rms_norm` of it; x, delta [T, n]."""
        ...

    def rope_and_cache(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor
    ) -> Tensor:
        """Rotate halves of q and k, and store row t's k and v at slot slots[t] (int64 [T]); returns q, contiguous.

        q [T, heads, d]; k, v [T, kv_heads, d]; cos, sin float32 [T, d/2] of each row's position. Caches are
        [blocks, block_size, kv_heads, d], and a slot is place slot % block_size of block slot // block_size.
        """
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up for gate_up [T, 2n], gate first -> [T, n]."""
        ...

    def attention(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        rows: AttentionRows,
        scale: float,
        window: int | None,
        soft_cap: float | None = None,
    ) -> Tensor:
        """Causal grouped-query attention over paged keys. q [T, heads, d] -> [T, heads, d].

        softmax(scale * q @ k.T) @ v for the keys AttentionRows lets each row see; with `window`, only the last
        `window` of them (the row's own included). With `soft_cap`, scores become soft_cap * tanh(scores / soft_cap)
        before the softmax. Query head h reads key head h // (heads // kv_heads).
        """
        ...
