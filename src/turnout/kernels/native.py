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
    x = _even(x, packed)
    y = torch.empty(len(x), packed.outputs, dtype=x.dtype)
    _cpu.linear(*_addresses(x, packed, y), False)
    return y


def logits(x: Tensor, packed: PackedLinear) -> Tensor:
    """The same, left in float32."""
    x = _even(x, packed)
    y = torch.empty(len(x), packed.outputs, dtype=torch.float32)
    _cpu.linear(*_addresses(x, packed, y), True)
    return y


def adapted_linear(
    x: Tensor, packed: PackedLinear, segments: LoraSegments, layer: int, columns: tuple[LoraColumns, ...]
) -> Tensor:
    """All segments and columns in one call, each read from where it lies in the arena."""
    x = x.contiguous()
    even = _even(x, packed)
    y = torch.empty(len(x), packed.outputs, dtype=x.dtype)
    _cpu.adapted_linear(
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


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square normalization, in float32."""
    x = x.contiguous()
    y = torch.empty_like(x)
    width = x.shape[-1]
    _require(weight.shape == (width,), "weight %s for rows of %d", weight.shape, width)
    _cpu.rms_norm(_address(x), 0, _address(weight), 0, y.data_ptr(), x.numel() // width, width, eps)
    return y


def add_rms_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Both in one pass over the rows."""
    rows, width = x.shape
    total, y = torch.empty_like(x), torch.empty_like(x)
    _require(delta.shape == x.shape, "x %s, delta %s", x.shape, delta.shape)
    _require(weight.shape == (width,), "weight %s for rows of %d", weight.shape, width)
    _cpu.rms_norm(_address(x), _address(delta), _address(weight), total.data_ptr(), y.data_ptr(), rows, width, eps)
    return total, y


def rope_and_cache(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor
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
    _cpu.rope_and_cache(
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


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, in float32."""
    rows, width = gate_up.shape
    y = torch.empty(rows, width // 2, dtype=gate_up.dtype)
    _cpu.silu_mul(_address(gate_up), y.data_ptr(), rows, width // 2)
    return y


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
