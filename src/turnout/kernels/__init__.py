"""The operations of a decoder step, in one or more sets that compute the same; see `interface.Kernels`."""

import torch

from turnout.kernels import native, onednn, reference
from turnout.kernels.interface import Kernels


def select(device: str, dtype: torch.dtype) -> Kernels:
    """The fastest set for this device and compute dtype, chosen once, at start; its `name` says which."""
    if device == "cpu" and native.available(dtype):
        return native
    if device == "cpu" and onednn.available(dtype):
        return onednn
    return reference
