"""A linear layer's weights in the form that the native kernels read: panels of 32 outputs, in bfloat16 or int8.

In int8 each output has a scale of its own, so that its largest weight becomes 127; weights are rounded to the nearest.
Rounding them is all that makes the difference: activations and sums are what they are with bfloat16 weights.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

PANEL = 32
LARGEST = 127


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


def pack_bfloat16(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """Cut the weight into panels in which two inputs of one output lie side by side."""
    outputs, inputs = weight.shape
    return PackedLinear(_panels(weight), None, None if bias is None else _padded(bias), inputs, outputs)


def pack_int8(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """Round the weight to int8 and cut it into panels."""
    outputs, inputs = weight.shape
    rounded, scales = quantize(weight)
    return PackedLinear(_panels(rounded), _padded(scales), None if bias is None else _padded(bias), inputs, outputs)


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [out, in] -> int8 [out, in] and float32 scales [out], whose product is the weight but for rounding."""
    wide = weight.float()
    scales = wide.abs().amax(1) / LARGEST
    # An output without weights has any scale.
    divisors = torch.where(scales > 0, scales, torch.ones_like(scales))
    return (wide / divisors.unsqueeze(1)).round().to(torch.int8), scales


def _panels(weight: Tensor) -> Tensor:
    whole = functional.pad(weight, (0, weight.shape[1] % 2, 0, -len(weight) % PANEL))
    return whole.view(-1, PANEL, whole.shape[1] // 2, 2).transpose(1, 2).contiguous()


def _padded(values: Tensor) -> Tensor:
    """One float32 for each output of whole panels."""
    return functional.pad(values.float(), (0, -len(values) % PANEL))
