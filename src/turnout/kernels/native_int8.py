"""The native set with the base's linear layers in int8: half the bytes to read for each token.

Each output has a scale of its own, so that its largest weight becomes 127; weights are rounded to the nearest.
Activations, sums and adapters are what they are in `native`: int8 values are exact in bfloat16, so that rounding the
weights is all that makes the difference.
"""

import torch
from torch import Tensor

from turnout.kernels.native import (
    PackedLinear,
    adapted_linear,
    add_rms_norm,
    attention,
    available,
    linear,
    logits,
    padded,
    panels,
    rms_norm,
    rope_and_cache,
    silu_mul,
    why_not,
)

__all__ = [
    "adapted_linear",
    "add_rms_norm",
    "attention",
    "available",
    "linear",
    "logits",
    "name",
    "pack_linear",
    "quantize",
    "rms_norm",
    "rope_and_cache",
    "silu_mul",
    "why_not",
]

name: str = "native-int8"

LARGEST = 127


def pack_linear(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """Round the weight to int8 and cut it into panels."""
    outputs, inputs = weight.shape
    rounded, scales = quantize(weight)
    return PackedLinear(panels(rounded), padded(scales), None if bias is None else padded(bias), inputs, outputs)


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [out, in] -> int8 [out, in] and float32 scales [out], whose product is the weight but for rounding."""
    wide = weight.float()
    scales = wide.abs().amax(1) / LARGEST
    # An output without weights has any scale.
    divisors = torch.where(scales > 0, scales, torch.ones_like(scales))
    return (wide / divisors.unsqueeze(1)).round().to(torch.int8), scales
