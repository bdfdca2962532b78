"""PEFT adapters in llama.cpp's file format."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray
from safetensors.numpy import load_file

from turnout.models.gguf.tensors import BLOCK_MODULES

NAMES = {module: name for name, module in BLOCK_MODULES.items()}


def write_gguf(folder: Path, config: Mapping[str, int], path: Path) -> Path:
    """Write the adapter in `folder` to `path`, in float32."""
    writer = GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", json.loads((folder / "adapter_config.json").read_text())["lora_alpha"])
    heads = {"self_attn.q_proj": config["num_attention_heads"], "self_attn.k_proj": config["num_key_value_heads"]}
    for key, tensor in load_file(folder / "adapter_model.safetensors").items():
        _, layer, rest = key.removeprefix("base_model.model.model.").split(".", 2)
        module, kind = rest.rsplit(".lora_", 1)
        values = tensor.astype(np.float32)
        if kind.startswith("B") and module in heads:
            values = _permuted(values, heads[module])
        writer.add_tensor(f"blk.{layer}.{NAMES[module]}.weight.lora_{kind[0].lower()}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _permuted(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama.cpp rotates neighbouring pairs, Hugging Face's models halves: the rows of each head change places."""
    by_half = rows.reshape(heads, 2, -1, rows.shape[1])
    return np.ascontiguousarray(by_half.swapaxes(1, 2).reshape(rows.shape))
