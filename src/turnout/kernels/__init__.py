"""The operations of a decoder step, in one or more sets that compute the same; see `interface.Kernels`.

The environment variable TURNOUT_CPU names the instruction set of the native kernels; without it, it is the best.
"""

import os

import torch

from turnout.core.errors import SettingsError
from turnout.kernels import native, onednn, reference
from turnout.kernels.interface import Kernels


def select(device: str, dtype: torch.dtype, *, int8_weights: bool = False) -> Kernels:
    """The fastest set for this device and compute dtype, chosen once, at start; its `name` says which.

    Raises SettingsError if this CPU has no native kernels of the name TURNOUT_CPU, or if `int8_weights` are wanted
    and there is no set for them here.
    """
    wanted = _wanted()
    cpu = native.instruction_set(wanted) if device == "cpu" else None
    reason = native.why_not(dtype) if device == "cpu" else f"not on the device {device}"
    if int8_weights:
        if cpu is None or reason is not None:
            raise SettingsError(f"--weights int8 needs the native kernels, which cannot serve: {reason}")
        return native.NativeKernels(cpu, int8_weights=True)
    torch_is_fast = device == "cpu" and onednn.available(dtype)
    if cpu is not None and reason is None and (wanted or native.is_fast(cpu) or not torch_is_fast):
        return native.NativeKernels(cpu)
    return onednn if torch_is_fast else reference


def fast_in_bfloat16(device: str) -> bool:
    """Whether the set for this device is faster in bfloat16 than any in float32. Raises SettingsError as `select`."""
    if device != "cpu" or onednn.available(torch.bfloat16):
        return True
    wanted = _wanted()
    cpu = native.instruction_set(wanted)
    return cpu is not None and (wanted is not None or native.is_fast(cpu))


def _wanted() -> str | None:
    return os.environ.get("TURNOUT_CPU") or None
