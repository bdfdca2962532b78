"""CPU kernels of our own, in bfloat16: the C++ of the folder `cpu`, called by address, for one instruction set.

A row's result depends on that row's inputs alone, bit for bit, however many rows stand beside it; another instruction
set may round otherwise. The functions' meaning, arguments and shapes are those of `interface.Kernels`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from turnout.core.errors import SettingsError
from turnout.kernels.interface import AttentionRows, LoraColumns, LoraSegments
from turnout.kernels.packing import PackedLinear, pack_bfloat16, pack_int8

try:
    from turnout.kernels import _cpu
except ImportError:  # `why_not` says so
    _cpu = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from turnout.kernels._cpu import KernelSet

ENDLESS = 1 << 62  # a window that leaves nothing out
NOT_BUILT = "they were not built when Turnout was installed, which takes a C++ compiler with OpenMP"


def why_not(dtype: torch.dtype) -> str | None:
    """What keeps these kernels from computing in the dtype here, in words for people; None if nothing does."""
    if dtype != torch.bfloat16:
        return "they compute in bfloat16 only"
    return NOT_BUILT if _cpu is None else None


def instruction_sets() -> "list[KernelSet]":
    """The compiled kernels that this CPU can run, for one instruction set each, the best first."""
    return [] if _cpu is None else _cpu.sets()


def instruction_set(wanted: str | None) -> "KernelSet | None":
    """The kernels of that name, or else the best; None if none were built. Raises SettingsError for an unknown name."""
    sets = instruction_sets()
    if wanted is None:
        return sets[0] if sets else None
    for candidate in sets:
        if candidate.name == wanted:
            return candidate
    here = f"this CPU has {', '.join(candidate.name for candidate in sets)}" if sets else NOT_BUILT
    raise SettingsError(f"TURNOUT_CPU={wanted} names no native kernels that can run here: {here}")


def is_fast(cpu: "KernelSet") -> bool:
    """Whether the kernels were written with a CPU like this in mind; torch's may be faster than portable ones."""
    return cpu.name != "portable"


@dataclass(frozen=True, slots=True)
class NativeKernels:
    """The kernels of one instruction set, with linear layers in bfloat16 or int8."""

    cpu: "KernelSet"
    int8_weights: bool = False

    @property
    def name(self) -> str:
        """Names the weights' type and the instruction set."""
        return f"native-int8-{self.cpu.name}" if self.int8_weights else f"native-{self.cpu.name}"

    def pack_linear(self, weight: Tensor, bias: Tensor | None) -> PackedLinear:
        """Cut the weight into panels."""
        return pack_int8(weight, bias) if self.int8_weights else pack_bfloat16(weight, bias)

    def linear(self, x: Tensor, packed: PackedLinear) -> Tensor:
        """x @ weight.T + bias, summed in float32."""
        x = _even(x, packed)
        y = torch.empty(len(x), packed.outputs, dtype=x.dtype)
        self.cpu.linear(*_addresses(x, packed, y), False)
        return y

    def logits(self, x: Tensor, packed: PackedLinear) -> Tensor:
        """The same, left in float32."""
        x = _even(x, packed)
        y = torch.empty(len(x), packed.outputs, dtype=torch.float32)
        self.cpu.linear(*_addresses(x, packed, y), True)
        return y

    def adapted_linear(
        self, x: Tensor, packed: PackedLinear, segments: LoraSegments, layer: int, columns: tuple[LoraColumns, ...]
    ) -> Tensor:
        """All segments and columns in one call, each read from where it lies in the arena."""
        x = x.contiguous()
        even = _even(x, packed)
        y = torch.empty(len(x), packed.outputs, dtype=x.dtype)
        self.cpu.adapted_linear(
            *_addresses(even, packed, y),
            _address(x),
            packed.inputs,
            _address(segments.arena),
            segments.arena.numel(),
            segments.starts,
            segments.a_offsets,
            segments.b_offsets,
            segments.ranks,
            segments.scales,
            layer,
            columns,
        )
        return y

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root mean square normalization, in float32."""
        x = x.contiguous()
        y = torch.empty_like(x)
        width = x.shape[-1]
        _require(weight.shape == (width,), "weight %s for rows of %d", weight.shape, width)
        self.cpu.rms_norm(_address(x), 0, _address(weight), 0, y.data_ptr(), x.numel() // width, width, eps)
        return y

    def add_rms_norm(self, x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Both in one pass over the rows."""
        rows, width = x.shape
        total, y = torch.empty_like(x), torch.empty_like(x)
        _require(delta.shape == x.shape, "x %s, delta %s", x.shape, delta.shape)
        _require(weight.shape == (width,), "weight %s for rows of %d", weight.shape, width)
        self.cpu.rms_norm(
            _address(x), _address(delta), _address(weight), total.data_ptr(), y.data_ptr(), rows, width, eps
        )
        return total, y

    def rope_and_cache(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor
    ) -> Tensor:
        """All in one call; rows of q, k and v may be parts of wider ones."""
        rows, heads, head_dim = q.shape
        blocks, block_size, kv_heads, _ = k_cache.shape
        for angles in (cos, sin):
            _require(angles.dtype == torch.float32 and angles.is_contiguous(), "angles are contiguous float32")
            _require(angles.shape == (rows, head_dim // 2), "angles %s for rows %s", angles.shape, q.shape)
        _require(k.shape == v.shape == (rows, kv_heads, head_dim), "q %s, k %s, v %s", q.shape, k.shape, v.shape)
        _require(k_cache.shape[3] == head_dim, "cache %s for heads of %d", k_cache.shape, head_dim)
        _require(v_cache.shape == k_cache.shape, "caches %s and %s", k_cache.shape, v_cache.shape)
        _require(slots.dtype == torch.int64 and slots.shape == (rows,), "slots %s for %d rows", slots.shape, rows)
        q, q_stride = _rows(q)
        k, k_stride = _rows(k)
        v, v_stride = _rows(v)
        slots = slots.contiguous()
        turned = torch.empty((rows, heads, head_dim), dtype=q.dtype)
        self.cpu.rope_and_cache(
            q.data_ptr(),
            q_stride,
            k.data_ptr(),
            k_stride,
            v.data_ptr(),
            v_stride,
            cos.data_ptr(),
            sin.data_ptr(),
            turned.data_ptr(),
            _address(k_cache),
            _address(v_cache),
            slots.data_ptr(),
            rows,
            heads,
            kv_heads,
            head_dim,
            blocks * block_size,
        )
        return turned

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up, in float32."""
        rows, width = gate_up.shape
        y = torch.empty(rows, width // 2, dtype=gate_up.dtype)
        self.cpu.silu_mul(_address(gate_up), y.data_ptr(), rows, width // 2)
        return y

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
        """All sequences in one call, keys read where they lie in the cache; rows of q may be parts of wider ones."""
        count, heads, head_dim = q.shape
        blocks, block_size, kv_heads, width = k_cache.shape
        _require(v_cache.shape == k_cache.shape, "caches %s and %s", k_cache.shape, v_cache.shape)
        _require(width == head_dim, "heads of %d, cached %d", head_dim, width)
        q, stride = _rows(q)
        out = torch.empty(q.shape, dtype=q.dtype)
        self.cpu.attention(
            q.data_ptr(),
            stride,
            _address(k_cache),
            _address(v_cache),
            out.data_ptr(),
            count,
            heads,
            blocks,
            block_size,
            kv_heads,
            head_dim,
            rows.query_starts,
            rows.context_lengths,
            rows.block_tables,
            scale,
            ENDLESS if window is None else window,
            soft_cap or 0.0,
        )
        return out


def _even(x: Tensor, packed: PackedLinear) -> Tensor:
    """Rows of an even number of inputs, without gaps."""
    _require(x.shape[1] == packed.inputs, "x has %d inputs, the linear %d", x.shape[1], packed.inputs)
    return functional.pad(x, (0, 1)) if packed.inputs % 2 else x.contiguous()


def _addresses(x: Tensor, packed: PackedLinear, y: Tensor) -> tuple[int, int, int, int, int, int, int, int]:
    """The arguments that the linears have in common; x must live for as long as the call."""
    scales, bias = (0 if values is None else values.data_ptr() for values in (packed.scales, packed.bias))
    rows, inputs = x.shape
    return _address(x), packed.panels.data_ptr(), scales, bias, y.data_ptr(), rows, inputs, packed.outputs


def _rows(x: Tensor) -> tuple[Tensor, int]:
    """A bfloat16 tensor [T, heads, d] whose rows are without gaps, and the elements from one row to the next."""
    _require(x.dtype == torch.bfloat16, "not bfloat16: %s", x.dtype)
    row, head, element = x.stride()
    if element != 1 or head != x.shape[2]:
        x = x.contiguous()
        row = x.stride(0)
    return x, row


def _address(tensor: Tensor) -> int:
    """Where a bfloat16 tensor without gaps starts."""
    _require(tensor.dtype == torch.bfloat16 and tensor.is_contiguous(), "not contiguous bfloat16: %s", tensor.dtype)
    return tensor.data_ptr()


def _require(holds: bool, what: str, *values: object) -> None:
    # The kernels trust addresses and sizes.
    if not holds:
        raise ValueError(what % values)
