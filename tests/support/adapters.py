"""PEFT adapters for the small bases, and what transformers and PEFT say that they compute."""

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.support.bases import ALPHABET_HIDDEN, ALPHABET_INTERMEDIATE, ALPHABET_LAYERS, CONTROL_TOKENS
from tests.support.tokenizers import TOKENIZER_SIZE

KEY_PREFIX = "base_model.model."
DEFAULT_CONFIG: Mapping[str, Any] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": None,
    "inference_mode": True,
}
"""What `write_adapter` puts under the given config; every other key is the caller's."""


def write_adapter(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor | np.ndarray]) -> Path:
    """`adapter_config.json` and `adapter_model.safetensors` with these keys and tensors, unchecked."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({**DEFAULT_CONFIG, **config}, indent=2))
    contiguous = {name: torch.as_tensor(tensor).contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def random_adapter(
    folder: Path,
    base_folder: Path,
    *,
    rank: int | Mapping[str, int] = 4,
    alpha: float = 8,
    targets: Sequence[str] = ("q_proj", "v_proj"),
    layers: Sequence[int] | None = None,
    seed: int = 0,
    dtype: str = "float32",
    **config: Any,
) -> Path:
    """A LoRA adapter with random A and B that changes the output of every target by about half its size.

    `rank` is one for all targets, or one per target, written as `rank_pattern`. `layers` None means all.
    `config` are further keys of `adapter_config.json`.
    """
    ranks = dict.fromkeys(targets, rank) if isinstance(rank, int) else dict(rank)
    largest = max(ranks.values())
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for module, (outputs, inputs) in _linear_shapes(base_folder, targets, layers).items():
        r = ranks[module.rpartition(".")[2]]
        a = torch.randn(r, inputs, generator=generator) / math.sqrt(inputs)
        b = torch.randn(outputs, r, generator=generator) * 0.5 / math.sqrt(r)
        tensors[f"{KEY_PREFIX}{module}.lora_A.weight"] = a.to(getattr(torch, dtype))
        tensors[f"{KEY_PREFIX}{module}.lora_B.weight"] = b.to(getattr(torch, dtype))
    written = {"r": largest, "lora_alpha": alpha, "target_modules": list(targets)}
    if layers is not None:
        written["layers_to_transform"] = list(layers)
    if len(set(ranks.values())) > 1:
        written["rank_pattern"] = {target: r for target, r in ranks.items() if r != largest}
    return write_adapter(folder, {**written, **config}, tensors)


def marker_adapter(folder: Path, token: int, *, scale: float = 1.0) -> Path:
    """Makes the alphabet base (or a scripted one) emit `token`, one of CONTROL_TOKENS, whatever the input.

    Rank 1 on the last layer's `down_proj`: A reads the constant MLP unit, B writes the token's control
    dimension. `scale` 0 leaves the base's output as it is, bit for bit.
    """
    a = torch.zeros(1, ALPHABET_INTERMEDIATE)
    a[0, 0] = 1
    b = torch.zeros(ALPHABET_HIDDEN, 1)
    b[TOKENIZER_SIZE + CONTROL_TOKENS.index(token), 0] = 4
    layer = ALPHABET_LAYERS - 1
    module = f"{KEY_PREFIX}model.layers.{layer}.mlp.down_proj"
    config = {"r": 1, "lora_alpha": scale, "target_modules": ["down_proj"], "layers_to_transform": [layer]}
    return write_adapter(folder, config, {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b})


def merged_logits(base_folder: Path, adapter_folder: Path | None, ids: Sequence[int]) -> torch.Tensor:
    """Float32 logits [len(ids), vocab] of transformers' model with weights W + s·B·A; W without an adapter.

    Takes one alpha for the whole adapter (s = alpha / r, or alpha / sqrt(r) with `use_rslora`).
    """
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32)
    if adapter_folder is not None:
        _merge(model, adapter_folder)
    return _logits(model, ids)


def peft_logits(base_folder: Path, adapter_folder: Path, ids: Sequence[int]) -> torch.Tensor:
    """Float32 logits [len(ids), vocab] as PEFT computes them from the same files."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32)
    with warnings.catch_warnings():
        # PEFT reads an attribute that transformers has deprecated meanwhile.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        return _logits(PeftModel.from_pretrained(model, str(adapter_folder)), ids)


def _linear_shapes(
    base_folder: Path, targets: Sequence[str], layers: Sequence[int] | None
) -> dict[str, tuple[int, int]]:
    """Module name to [out, in] of the base's linear layers that `targets` and `layers` choose."""
    shapes = {}
    with safe_open(base_folder / "model.safetensors", "pt") as file:
        for name in sorted(file.keys()):
            parts = name.split(".")
            if parts[-1] != "weight" or parts[-2] not in targets:
                continue
            if layers is None or int(parts[2]) in layers:
                outputs, inputs = file.get_slice(name).get_shape()
                shapes[name.removesuffix(".weight")] = (outputs, inputs)
    return shapes


def _merge(model: torch.nn.Module, adapter_folder: Path) -> None:
    config = json.loads((adapter_folder / "adapter_config.json").read_text())
    if config.get("alpha_pattern"):
        raise ValueError("merged_logits takes one alpha for all modules; use peft_logits")
    tensors = load_file(adapter_folder / "adapter_model.safetensors")
    for name, a in tensors.items():
        module = name.removesuffix(".lora_A.weight")
        if module == name:
            continue
        rank = a.shape[0]
        scale = config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
        delta = tensors[f"{module}.lora_B.weight"].float() @ a.float()
        with torch.no_grad():
            model.get_submodule(module.removeprefix(KEY_PREFIX)).weight += scale * delta


def _logits(model: torch.nn.Module, ids: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([list(ids)])).logits[0].float()
