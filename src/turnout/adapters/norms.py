"""How much an adapter changes each linear layer."""

import math

import numpy as np
from numpy.typing import NDArray

from turnout.core.adapter import AdapterState, LoraModule


def update_norms(state: AdapterState) -> dict[str, float]:
    """The Frobenius norm of scale * B A for each adapted layer, as `layer.target`.

    From the two Gram matrices, |B A|² = trace((A Aᵀ)(Bᵀ B)), which never makes the large product.
    """
    return {f"{module.layer}.{module.target}": _norm(module) for module in state.modules}


def _norm(module: LoraModule) -> float:
    a, b = _wide(module.a), _wide(module.b)
    # Rounding can bring a sum that should be zero below it.
    square = max(0.0, float(np.sum((a @ a.T) * (b.T @ b))))
    return abs(module.scale) * math.sqrt(square)


def _wide(values: NDArray[np.float32] | NDArray[np.uint16]) -> NDArray[np.float64]:
    """The values in float64; those of bfloat16 come as bit patterns, the upper half of a float32's."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)
