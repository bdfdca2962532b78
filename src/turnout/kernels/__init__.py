"""The operations of a decoder step, in one or more sets that compute the same; see `interface.Kernels`."""

import torch

from turnout.core.errors import SettingsError
from turnout.kernels import native, native_int8, onednn, reference
from turnout.kernels.interface import Kernels


def select(device: str, dtype: torch.dtype, *, int8_weights: bool = False) -> Kernels:
    """The fastest set for this device and compute dtype, chosen once, at start; its `name` says which.

    Raises SettingsError if `int8_weights` are wanted and there is no set for them here.
    """
    if int8_weights:
        reason = native_int8.why_not(dtype) if device == "cpu" else f"not on the device {device}"
        if reason is not None:
            raise SettingsError(f"--weights int8 needs the native kernels, which cannot serve: {reason}")
        return native_int8
    if device == "cpu" and native.available(dtype):
        return native
    if device == "cpu" and onednn.available(dtype):
        return onednn
    return reference
