"""CPU kernels of our own, in bfloat16, for CPUs with AVX-512 BF16: the C++ of the folder `cpu`, called by address.

A row's result depends on that row's inputs alone, bit for bit, however many rows stand beside it. The functions'
meaning, arguments and shapes are those of `interface.Kernels`, which this module implements.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from turnout.kernels.interface import AttentionRows, LoraColumns, LoraSegments

try:
    from turnout.kernels import _cpu
except ImportError:  # `why_not` says so
    _cpu = None  # type: ignore[assignment]

name: str = "native"

PANEL = 32
ENDLESS = 1 << 62  # a window that leaves nothing out


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight as [outputs / 32, inputs / 2, 32, 2], padded with zeros; the bias in float32, padded likewise.

    With `scales`, float32 and padded likewise, the panels are int8, and an output's weights those times its scale.
    """

    panels: Tensor
    scales: Tensor | None
    bias: Tensor | None
    inputs: int
    outputs: int


def available(dtype: torch.dtype) -> bool:
    """Whether the extension was built, and this CPU has what it needs for the dtype."""
    return why_not(dtype) is None


def why_not(dtype: torch.dtype) -> str | None:
    """What keeps these kernels from computing in the dtype here, in words for people; None if nothing does."""
    if dtype != torch.bfloat16:
        return "they compute in bfloat16 only"
    if _cpu is None:
        return "they were not built when Turnout was installed, which takes a C++ compiler with OpenMP"
    return None if _cpu.supported() else "this CPU has no AVX-512 BF16"


def pack_linear(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """Cut the weight into panels of 32 outputs in which two inputs of one output lie side by side."""
    outputs, inputs = weight.shape
    return PackedLinear(panels(weight), None, None if bias is None else padded(bias), inputs, outputs)


def panels(weight: Tensor) -> Tensor:
    """A weight of any type in the order that the kernels read."""
    whole = functional.pad(weight, (0, weight.shape[1] % 2, 0, -len(weight) % PANEL))
    return whole.view(-1, PANEL, whole.shape[1] // 2, 2).transpose(1, 2).contiguous()


def padded(values: Tensor) -> Tensor:
    """One float32 for each output of whole panels."""
    return functional.pad(values.float(), (0, -len(values) % PANEL))


def linear(x: Tensor, packed: PackedLinear) -> Tensor:
    """x @ weight.T + bias, summed in float32."""
    return _linear(x, packed, torch.bfloat16)


def logits(x: Tensor, packed: PackedLinear) -> Tensor:
    """The same, left in float32."""
    return _linear(x, packed, torch.float32)


def _linear(x: Tensor, packed: PackedLinear, dtype: torch.dtype) -> Tensor:
    rows, inputs = x.shape
    _require(inputs == packed.inputs, "x has %d inputs, the linear %d", inputs, packed.inputs)
    x = functional.pad(x, (0, 1)) if inputs % 2 else x.contiguous()
    y = torch.empty(rows, packed.outputs, dtype=dtype)
    scales, bias = (0 if values is None else values.data_ptr() for values in (packed.scales, packed.bias))
    _cpu.linear(
        _address(x),
        packed.panels.data_ptr(),
        scales,
        bias,
        y.data_ptr(),
        rows,
        x.shape[1],
        packed.outputs,
        dtype.itemsize == 4,
    )
    return y


def add_lora(y: Tensor, x: Tensor, segments: LoraSegments, layer: int, columns: tuple[LoraColumns, ...]) -> None:
    """All segments and columns in one call, each read from where it lies in the arena."""
    _require(len(x) == len(y), "x has %d rows, y %d", len(x), len(y))
    _cpu.add_lora(
        _address(y),
        _address(x),
        len(x),
        x.shape[1],
        y.shape[1],
        _address(segments.arena),
        segments.arena.numel(),
        segments.starts,
        segments.a_offsets,
        segments.b_offsets,
        segments.ranks,
        segments.scales,
        layer,
        tuple((column.target, column.start, column.stop) for column in columns),
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square normalization, in float32."""
    x = x.contiguous()
    y = torch.empty_like(x)
    width = x.shape[-1]
    _require(weight.shape == (width,), "weight %s for rows of %d", weight.shape, width)
    _cpu.rms_norm(_address(x), _address(weight), y.data_ptr(), x.numel() // width, width, eps)
    return y


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + d/2]) by its angle; rows of x may be parts of wider ones."""
    rows, heads, head_dim = x.shape
    for angles in (cos, sin):
        _require(angles.dtype == torch.float32 and angles.is_contiguous(), "angles are contiguous float32")
        _require(angles.shape == (rows, head_dim // 2), "angles %s for rows %s", angles.shape, x.shape)
    x, stride = _rows(x)
    y = torch.empty(x.shape, dtype=x.dtype)
    _cpu.rope(x.data_ptr(), stride, cos.data_ptr(), sin.data_ptr(), y.data_ptr(), rows, heads, head_dim)
    return y


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, in float32."""
    rows, width = gate_up.shape
    y = torch.empty(rows, width // 2, dtype=gate_up.dtype)
    _cpu.silu_mul(_address(gate_up), y.data_ptr(), rows, width // 2)
    return y


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Rows to slots; rows of k and v may be parts of wider ones."""
    rows, kv_heads, head_dim = k.shape
    blocks, block_size = k_cache.shape[:2]
    _require(v.shape == k.shape, "k %s, v %s", k.shape, v.shape)
    _require(k_cache.shape[2:] == k.shape[1:], "cache %s for rows %s", k_cache.shape, k.shape)
    _require(v_cache.shape == k_cache.shape, "caches %s and %s", k_cache.shape, v_cache.shape)
    _require(slots.dtype == torch.int64 and slots.shape == (rows,), "slots %s for %d rows", slots.shape, rows)
    k, k_stride = _rows(k)
    v, v_stride = _rows(v)
    slots = slots.contiguous()
    _cpu.write_kv(
        k.data_ptr(),
        k_stride,
        v.data_ptr(),
        v_stride,
        _address(k_cache),
        _address(v_cache),
        slots.data_ptr(),
        rows,
        kv_heads * head_dim,
        blocks * block_size,
    )


def attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    rows: AttentionRows,
    scale: float,
    window: int | None,
    soft_cap: float | None = None,
) -> Tensor:
    """All sequences in one call, keys read from where they lie in the cache; rows of q may be parts of wider ones."""
    count, heads, head_dim = q.shape
    blocks, block_size, kv_heads, width = k_cache.shape
    _require(v_cache.shape == k_cache.shape, "caches %s and %s", k_cache.shape, v_cache.shape)
    _require(width == head_dim, "heads of %d, cached %d", head_dim, width)
    q, stride = _rows(q)
    out = torch.empty(q.shape, dtype=q.dtype)
    _cpu.attention(
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
