"""An adapter's files by name, and its weights as plain host memory: what is read and the engine takes in."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from turnout.core.identity import Digest

Dtype = Literal["float32", "bfloat16"]

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of a decoder block that can be adapted, in the order of the engine's tables."""


@dataclass(frozen=True, slots=True)
class LoraModule:
    """One adapted linear layer: y += scale * (x @ a.T) @ b.T.

    `a` is [rank, in], `b` [out, rank], both C-contiguous and already cast to the compute dtype: float32 values,
    or bfloat16 bit patterns as uint16, for numpy has no bfloat16. `target` is a name in TARGETS.
    """

    layer: int
    target: str
    rank: int
    scale: float
    a: NDArray[np.float32] | NDArray[np.uint16]
    b: NDArray[np.float32] | NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class AdapterState:
    """One immutable, checked set of adapter weights, identified by its digest alone.

    `untouched` counts the base's adaptable linear layers which these weights leave alone;
    `warnings` are sentences for the person who loads it.
    """

    digest: Digest
    model_revision: Digest
    dtype: Dtype
    modules: tuple[LoraModule, ...]
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
        """Bytes of all tensors, which is what the weights take in the engine's arena."""
        return sum(module.a.nbytes + module.b.nbytes for module in self.modules)
