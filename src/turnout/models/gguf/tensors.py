"""A GGUF file's tensors under Hugging Face's names, dequantized and in Hugging Face's order of rows."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gguf import ReaderTensor, dequantize
from numpy.typing import NDArray

from turnout.core.errors import BaseModelError

_WHOLE_MODEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
BLOCK_MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""A block's modules: what GGUF files call them, and what Hugging Face does."""

_BLOCK_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def read_tensors(tensors: Iterable[ReaderTensor], config: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """All tensors as float32 by Hugging Face name. Raises BaseModelError for one that has no such name."""
    return {_name(tensor.name): _values(tensor, config) for tensor in tensors}


def _name(name: str) -> str:
    if name in _WHOLE_MODEL:
        return _WHOLE_MODEL[name]
    match = _BLOCK_TENSOR.fullmatch(name)
    if match is None or match[2] not in BLOCK_MODULES:
        raise BaseModelError(f"the GGUF file has a tensor {name}, which is not understood")
    return f"model.layers.{match[1]}.{BLOCK_MODULES[match[2]]}.{match[3]}"


def _values(tensor: ReaderTensor, config: Mapping[str, Any]) -> NDArray[np.float32]:
    try:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    except NotImplementedError as error:
        raise BaseModelError(f"the GGUF file's tensor {tensor.name} is {tensor.tensor_type.name}: {error}") from error
    if config["model_type"] == "llama" and ".attn_q." in tensor.name:
        values = _halves_from_pairs(values, config["num_attention_heads"])
    if config["model_type"] == "llama" and ".attn_k." in tensor.name:
        values = _halves_from_pairs(values, config["num_key_value_heads"])
    return np.ascontiguousarray(values)


def _halves_from_pairs(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo how GGUF files of this architecture order each head's rows: pair by pair, as their rotation wants them.

    Hugging Face rotates row i with row i + d/2, so a head's first rows all come before their partners. The inverse
    of `LlamaModel.permute` in https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py
    """
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
