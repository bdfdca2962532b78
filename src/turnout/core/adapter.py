"""An adapter's files by name, and its weights as plain host memory: what is read and the engine takes in."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from turnout.core.identity import Digest

Dtype = Literal["float32", "bfloat16"]

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of a decoder block that can be adapted, in the order of the engine's tables."""

ALIGNMENT = 64
"""Elements; every tensor of a buffer starts at a multiple, so that kernels may load whole cache lines and vectors."""

Weights = NDArray[np.float32] | NDArray[np.uint16]
"""In the compute dtype: float32 values, or bfloat16 bit patterns as uint16, for numpy has no bfloat16."""


@dataclass(frozen=True, slots=True)
class LoraModule:
    """One adapted linear layer: y += scale * (x @ a.T) @ b.T.

    `a` is [rank, in], `b` [out, rank], both C-contiguous and already cast to the compute dtype.
    `target` is a name in TARGETS.
    """

    layer: int
    target: str
    rank: int
    scale: float
    a: Weights
    b: Weights


@dataclass(frozen=True, slots=True)
class AdapterState:
    """One immutable, checked set of adapter weights, identified by its digest alone.

    `buffer`, of one dimension, holds all tensors, A and then B of each module in their order, each at a multiple of
    ALIGNMENT elements, and nothing else; those in `modules` are views of it. So weights move as one piece. `untouched`
    counts the base's adaptable linear layers which these weights leave alone; `warnings` are sentences for the person
    who loads it.
    """

    digest: Digest
    model_revision: Digest
    dtype: Dtype
    modules: tuple[LoraModule, ...]
    buffer: Weights
    untouched: int
    warnings: tuple[str, ...] = ()

    @property
    def adapted(self) -> int:
        """How many linear layers these weights change."""
        return len(self.modules)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The distinct ranks in use, ascending."""
        return tuple(sorted({module.rank for module in self.modules}))

    @property
    def nbytes(self) -> int:
        """What the weights take, in RAM as in the engine's arena."""
        return self.buffer.nbytes


def buffer_bytes(elements: int, dtype: Dtype) -> int:
    """What a buffer of so many elements takes."""
    return elements * (4 if dtype == "float32" else 2)


def aligned(elements: int) -> int:
    """So many elements, rounded up to a multiple of ALIGNMENT."""
    return -(-elements // ALIGNMENT) * ALIGNMENT


def places(modules: Sequence[LoraModule]) -> tuple[list[tuple[int, int]], int]:
    """Where in a buffer A and B of each module start, and how large the buffer is, in elements."""
    starts, end = [], 0
    for module in modules:
        b_start = end + aligned(module.a.size)
        starts.append((end, b_start))
        end = b_start + aligned(module.b.size)
    return starts, end


def empty_buffer(elements: int, dtype: Dtype) -> Weights:
    """Zeros in memory of their own, which goes back to the system with the last view of them.

    Not from the heap: what is freed there may stay with the process, and an unloaded adapter's memory must not.
    """
    kind = np.dtype(np.float32 if dtype == "float32" else np.uint16)
    if elements == 0:
        return np.empty(0, kind)
    # ACCESS_COPY makes the mapping private: by default it would be memory that is shared with forked processes.
    return np.frombuffer(mmap.mmap(-1, elements * kind.itemsize, access=mmap.ACCESS_COPY), kind)


def pack(modules: Sequence[LoraModule], dtype: Dtype) -> tuple[tuple[LoraModule, ...], Weights]:
    """The same modules as views of one buffer, and that buffer, as AdapterState has them."""
    starts, size = places(modules)
    buffer = empty_buffer(size, dtype)

    def moved(values: Weights, start: int) -> Weights:
        view = buffer[start : start + values.size].reshape(values.shape)
        view[...] = values
        return view

    return tuple(
        replace(module, a=moved(module.a, a_start), b=moved(module.b, b_start))
        for module, (a_start, b_start) in zip(modules, starts, strict=True)
    ), buffer
