"""The header of a safetensors file, read without trust: nothing is allocated or sought before it is checked.

The format: 8 bytes with the header's length N (little-endian), N bytes of JSON from tensor names to dtype, shape
and data_offsets, then the tensors' bytes without gaps (https://github.com/huggingface/safetensors#format).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from struct import unpack
from typing import Any

from turnout.adapters.files import refuse_pointer
from turnout.adapters.strict_json import parse_object
from turnout.adapters.wording import shown
from turnout.core.errors import AdapterFileError, AdapterTensorError

LARGEST_HEADER = 16 << 20
"""Bytes; a thousand layers with LoRA on everything take about 3 MB."""

ELEMENT_BYTES: Mapping[str, int] = {"F32": 4, "F16": 2, "BF16": 2}
"""The dtypes that adapters are read in, as the format calls them."""

_LENGTH_BYTES = 8
_MOST_DIMENSIONS = 8
_LARGEST_COUNT = 1 << 63


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a file: `nbytes` bytes from byte `start` of the file on."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


def read_header(file: BufferedReader, where: str) -> tuple[TensorEntry, ...]:
    """The file's tensors in the order of their bytes, which exactly fill it.

    Raises AdapterFileError for a file that is cut short, padded, a Git LFS pointer or otherwise no safetensors,
    and AdapterTensorError for a tensor of a dtype that is not read here.
    """
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise AdapterFileError(f"{where} is empty (0 bytes)")
    head = file.read(64)
    refuse_pointer(head, where)
    if size < _LENGTH_BYTES:
        raise AdapterFileError(f"{where} has {size} bytes, which is too short for a safetensors file")
    (length,) = unpack("<Q", head[:_LENGTH_BYTES])
    if length > LARGEST_HEADER or length > size - _LENGTH_BYTES:
        raise AdapterFileError(
            f"{where} is no complete safetensors file: it announces a header of {length} bytes, but has {size} in all"
        )
    file.seek(_LENGTH_BYTES)
    return parse_header(file.read(length), size - _LENGTH_BYTES - length, where)


def parse_header(text: bytes, body: int, where: str) -> tuple[TensorEntry, ...]:
    """The tensors that a header's `text` places in the `body` bytes after it; raises as `read_header` does."""
    header = parse_object(text, where)
    _check_metadata(header.pop("__metadata__", {}), where)
    first = _LENGTH_BYTES + len(text)
    entries = sorted(
        (_entry(name, value, first, where) for name, value in header.items()),
        key=lambda entry: (entry.start, entry.nbytes),
    )
    end = first
    for entry in entries:
        if entry.start != end:
            raise AdapterFileError(
                f"{where} is not a valid safetensors file: tensor {shown(entry.name)} starts at byte {entry.start}, "
                f"but the one before ends at {end}"
            )
        end = entry.start + entry.nbytes
    if end != first + body:
        problem = "is cut short" if end > first + body else "has bytes after its last tensor"
        raise AdapterFileError(f"{where} {problem}: its tensors end at byte {end}, the file at {first + body}")
    return tuple(entries)


def _check_metadata(metadata: object, where: str) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise AdapterFileError(f"{where} is not a valid safetensors file: __metadata__ must map strings to strings")


def _entry(name: str, value: Any, first: int, where: str) -> TensorEntry:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise AdapterFileError(
            f"{where} is not a valid safetensors file: tensor {shown(name)} must have dtype, shape and data_offsets"
        )
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ELEMENT_BYTES:
        raise AdapterTensorError(
            f"{where}: tensor {shown(name)} has dtype {shown(dtype)}, expected {', '.join(ELEMENT_BYTES)}"
        )
    if not (_are_counts(shape) and len(shape) <= _MOST_DIMENSIONS and _are_counts(offsets) and len(offsets) == 2):
        raise AdapterFileError(
            f"{where} is not a valid safetensors file: tensor {shown(name)} has shape {shown(shape)} and "
            f"data_offsets {shown(offsets)}, expected at most {_MOST_DIMENSIONS} integers and two"
        )
    start, stop = offsets
    if stop - start != prod(shape) * ELEMENT_BYTES[dtype]:
        raise AdapterFileError(
            f"{where} is not a valid safetensors file: tensor {shown(name)} of dtype {dtype} and shape {shown(shape)} "
            f"has {stop - start} bytes"
        )
    return TensorEntry(name, dtype, tuple(shape), first + start, stop - start)


def _are_counts(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < _LARGEST_COUNT for value in values)
