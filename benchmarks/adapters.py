"""Random LoRA adapters of given ranks, in PEFT's files; speed does not depend on what they were trained for."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ALL_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


RANKS = (8, 16, 32)
"""Of a mix's adapters, by turns."""


def module_shapes(config: Mapping[str, int], targets: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Full module names and their (out, in), for the config of a Llama-like base."""
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = {
        "q_proj": ("self_attn", queries, hidden),
        "k_proj": ("self_attn", keys, hidden),
        "v_proj": ("self_attn", keys, hidden),
        "o_proj": ("self_attn", hidden, queries),
        "gate_proj": ("mlp", intermediate, hidden),
        "up_proj": ("mlp", intermediate, hidden),
        "down_proj": ("mlp", hidden, intermediate),
    }
    return {
        f"model.layers.{layer}.{shapes[target][0]}.{target}": shapes[target][1:]
        for layer in range(config["num_hidden_layers"])
        for target in targets
    }


def write_adapter(
    folder: Path, config: Mapping[str, int], *, rank: int, seed: int, targets: Sequence[str] = ALL_TARGETS
) -> Path:
    """An adapter of one rank on `targets` of every layer, float16, small enough in effect to keep text sane."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    tensors = {}
    for name, (outputs, inputs) in module_shapes(config, targets).items():
        prefix = f"base_model.model.{name}"
        tensors[f"{prefix}.lora_A.weight"] = (random.standard_normal((rank, inputs)) * 0.02).astype(np.float16)
        tensors[f"{prefix}.lora_B.weight"] = (random.standard_normal((outputs, rank)) * 0.02).astype(np.float16)
    save_file(tensors, folder / "adapter_model.safetensors")
    peft = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": list(targets)}
    (folder / "adapter_config.json").write_text(json.dumps(peft))
    return folder


def write_mix(folder: Path, config: Mapping[str, int], count: int) -> dict[str, Path]:
    """`count` adapters of mixed ranks on all linear layers, by name."""
    return {
        name: write_adapter(folder / name, config, rank=RANKS[index % len(RANKS)], seed=index)
        for index, name in enumerate(f"a{index:03}" for index in range(count))
    }
