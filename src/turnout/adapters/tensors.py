"""Tensor bytes, read once into memory of our own and cast to the compute dtype."""

from collections.abc import Mapping
from functools import cache
from io import BufferedReader

import numpy as np
from numpy.typing import NDArray

from turnout.adapters.header import TensorEntry
from turnout.core.adapter import Dtype, Weights
from turnout.core.errors import AdapterFileError, AdapterTensorError

_FLOATS: Mapping[str, str] = {"F32": "<f4", "F16": "<f2"}

_BFLOAT16_EXPONENT = np.uint16(0x7F80)
_BFLOAT16_WITHOUT_SIGN = np.uint16(0x7FFF)
_BFLOAT16_QUIET_NAN = np.uint32(0x0040)


def read_bytes(file: BufferedReader, entry: TensorEntry, where: str) -> NDArray[np.uint8]:
    """A tensor's bytes as they are in the file, which is read and not mapped: a mapped file that shrinks kills us."""
    raw = np.empty(entry.nbytes, np.uint8)
    file.seek(entry.start)
    if file.readinto(raw.data) != entry.nbytes:
        raise AdapterFileError(f"{where} became shorter while it was read, in tensor {entry.name}")
    return raw


def cast(raw: NDArray[np.uint8], entry: TensorEntry, dtype: Dtype, where: str) -> Weights:
    """The bytes as an array of the entry's shape in the compute dtype, rounded to nearest, ties to even.

    Raises AdapterTensorError if a value is not finite then: one that overflows in the cast counts too.
    """
    values = to_float32(raw, entry.dtype) if dtype == "float32" else to_bfloat16(raw, entry.dtype)
    if not is_finite(values):
        raise AdapterTensorError(f"{where}: tensor {entry.name} has values that are not finite in {dtype}")
    return values.reshape(entry.shape)


def to_float32(raw: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """Bytes of a dtype in ELEMENT_BYTES as float32, exactly; float32 itself is not copied."""
    if dtype == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return raw.view(_FLOATS[dtype]).astype(np.float32, copy=False)


def to_bfloat16(raw: NDArray[np.uint8], dtype: str) -> NDArray[np.uint16]:
    """Bytes of a dtype in ELEMENT_BYTES as bfloat16 bit patterns; bfloat16 itself is not copied."""
    if dtype == "BF16":
        return raw.view("<u2").astype(np.uint16, copy=False)
    if dtype == "F16":
        return _float16_as_bfloat16().take(raw.view("<u2"))
    return _rounded(to_float32(raw, dtype))


@cache
def _float16_as_bfloat16() -> NDArray[np.uint16]:
    """What each of the 65,536 float16 bit patterns becomes; looking it up takes a twentieth of converting it."""
    return _rounded(to_float32(np.arange(1 << 16, dtype="<u2").view(np.uint8), "F16"))


def _rounded(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    # Rounding could carry a NaN into infinity or zero, so NaNs are cut instead, keeping one bit of their payload.
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, bits >> 16 | _BFLOAT16_QUIET_NAN, rounded).astype(np.uint16)


def is_finite(values: Weights) -> bool:
    """Whether no value is infinite or NaN."""
    if values.dtype == np.float32:
        return bool(np.isfinite(values).all())
    return bool(((values.view(np.uint16) & _BFLOAT16_EXPONENT) != _BFLOAT16_EXPONENT).all())


def is_zero(values: Weights) -> bool:
    """Whether every value is zero, of either sign."""
    if values.dtype == np.float32:
        return not values.any()
    return not (values.view(np.uint16) & _BFLOAT16_WITHOUT_SIGN).any()
