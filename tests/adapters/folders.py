"""Adapter folders for a small Llama-type base that needs no files: only its specification."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.support.adapters import write_adapter
from tests.support.bases import RANDOM_SHAPE
from turnout import adapters
from turnout.core.adapter import AdapterState, LoraModule
from turnout.core.identity import Digest
from turnout.models.spec import DecoderSpec, linears

SPEC = DecoderSpec.from_config({"model_type": "llama", **RANDOM_SHAPE})
LINEARS = linears(SPEC)
REVISION = Digest("sha256:" + "0" * 64)
PREFIX = "base_model.model."
QUERY = "model.layers.0.self_attn.q_proj"
CONFIG = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}


def modules(*targets: str, layers: Iterable[int] = (0, 1)) -> list[str]:
    """Full names of the linear layers called so."""
    return [name for name, linear in LINEARS.items() if linear.target in targets and linear.layer in layers]


def factors(names: Iterable[str], rank: int = 4, seed: int = 0, prefix: str = PREFIX) -> dict[str, torch.Tensor]:
    """Random A and B for each module, under PEFT's names."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name in names:
        linear = LINEARS[name]
        tensors[f"{prefix}{name}.lora_A.weight"] = torch.randn(rank, linear.in_features, generator=generator)
        tensors[f"{prefix}{name}.lora_B.weight"] = torch.randn(linear.out_features, rank, generator=generator)
    return tensors


def query_and_value() -> dict[str, torch.Tensor]:
    return factors(modules("q_proj", "v_proj"))


def adapter(folder: Path, tensors: Mapping[str, torch.Tensor] | None = None, **config: Any) -> Path:
    """An adapter on q_proj and v_proj of both layers, unless told otherwise."""
    return write_adapter(folder, {**CONFIG, **config}, query_and_value() if tensors is None else tensors)


def set_config(folder: Path, **config: Any) -> Path:
    """The same folder with other keys in its configuration."""
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


def load(folder: Path, dtype: Any = "float32", max_rank: int = 16, **options: Any) -> AdapterState:
    return adapters.load(folder, SPEC, REVISION, dtype, max_rank, **options)


def values(array: np.ndarray) -> np.ndarray:
    """Float32 values of an array that the engine takes in."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array).view(torch.bfloat16).float().numpy()
    return array


def delta(module: LoraModule) -> np.ndarray:
    """What the module adds to its layer's weight, [out, in]."""
    return module.scale * values(module.b) @ values(module.a)


def name_of(module: LoraModule) -> str:
    return next(n for n, linear in LINEARS.items() if (linear.layer, linear.target) == (module.layer, module.target))


def same_weights(left: AdapterState, right: AdapterState) -> bool:
    """Whether two adapters compute the same, bit for bit."""
    return len(left.modules) == len(right.modules) and all(
        (x.layer, x.target, x.rank, x.scale) == (y.layer, y.target, y.rank, y.scale)
        and np.array_equal(x.a, y.a)
        and np.array_equal(x.b, y.b)
        for x, y in zip(left.modules, right.modules, strict=True)
    )
