"""The extension built from the folder `cpu`: addresses of tensors are integers, strides and sizes in elements.

Kernels raise IndexError where an offset, slot or block lies outside its buffer, and compute without the interpreter's
lock.
"""

import numpy as np
from numpy.typing import NDArray

def sets() -> list[KernelSet]:
    """Those that this CPU can run, the best first; the last is for any CPU."""

class KernelSet:
    """The kernels of one instruction set."""

    @property
    def name(self) -> str: ...
    def linear(
        self,
        x: int,
        panels: int,
        scales: int,
        bias: int,
        y: int,
        rows: int,
        inputs: int,
        outputs: int,
        float_output: bool,
        /,
    ) -> None: ...
    def adapted_linear(
        self,
        x: int,
        panels: int,
        weight_scales: int,
        bias: int,
        y: int,
        rows: int,
        even_inputs: int,
        outputs: int,
        adapted_x: int,
        inputs: int,
        arena: int,
        arena_size: int,
        starts: NDArray[np.int32],
        a_offsets: NDArray[np.int64],
        b_offsets: NDArray[np.int64],
        ranks: NDArray[np.int32],
        scales: NDArray[np.float32],
        layer: int,
        columns: tuple[tuple[int, int, int], ...],
        /,
    ) -> None: ...
    def attention(
        self,
        q: int,
        q_stride: int,
        k_cache: int,
        v_cache: int,
        out: int,
        rows: int,
        heads: int,
        blocks: int,
        block_size: int,
        kv_heads: int,
        head_dim: int,
        query_starts: NDArray[np.int32],
        context_lengths: NDArray[np.int32],
        block_tables: NDArray[np.int32],
        scale: float,
        window: int,
        soft_cap: float,
        /,
    ) -> None: ...
    def rms_norm(
        self, x: int, delta: int, weight: int, sum: int, y: int, rows: int, width: int, eps: float, /
    ) -> None: ...
    def rope_and_cache(
        self,
        q: int,
        q_stride: int,
        k: int,
        k_stride: int,
        v: int,
        v_stride: int,
        cosines: int,
        sines: int,
        turned: int,
        k_cache: int,
        v_cache: int,
        slots: int,
        rows: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        cache_rows: int,
        /,
    ) -> None: ...
    def silu_mul(self, gate_up: int, y: int, rows: int, width: int, /) -> None: ...
