"""GGUF files made from small bases, as llama.cpp's converter writes them."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

from tests.support.tokenizers import BOS, EOS, IM_END, PAD, SPECIAL_TOKENS, byte_tokenizer
from turnout.models.config import read_config

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2", "12 3", "' s", "Ġ Ġ"]
CONTROL, NORMAL = 3, 1
TENSOR_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, base: Path, *, pre: str = "smollm", **metadata: Any) -> Path:
    """`base` in float32; `metadata` adds keys (dots as double underscores), or removes those that are None."""
    config = read_config(base)
    architecture = config["model_type"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    keys = {
        f"{architecture}.block_count": config["num_hidden_layers"],
        f"{architecture}.context_length": config["max_position_embeddings"],
        f"{architecture}.embedding_length": config["hidden_size"],
        f"{architecture}.feed_forward_length": config["intermediate_size"],
        f"{architecture}.attention.head_count": heads,
        f"{architecture}.attention.head_count_kv": kv_heads,
        f"{architecture}.attention.key_length": head_dim,
        f"{architecture}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{architecture}.rope.freq_base": config["rope_parameters"]["rope_theta"],
        **_tokenizer_keys(config["vocab_size"], pre),
        **{name.replace("__", "."): value for name, value in metadata.items()},
    }
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in keys.items():
        if value is not None:
            _add(writer, name, value)
    for name, values in load_file(base / "model.safetensors").items():
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            writer.add_tensor(_gguf_name(name), _pairs_from_halves(values, heads if "q_proj" in name else kv_heads))
        else:
            writer.add_tensor(_gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tokenizer_keys(vocab_size: int, pre: str) -> dict[str, Any]:
    vocab = byte_tokenizer().get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    tokens += [merge.replace(" ", "") for merge in MERGES]
    tokens += [f"[unused{index}]" for index in range(len(tokens), vocab_size)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if token in SPECIAL_TOKENS else NORMAL for token in tokens],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.eot_token_id": IM_END,
        "tokenizer.ggml.padding_token_id": PAD,
    }


def _add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(name, value)
    elif isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    else:
        writer.add_string(name, value)


def _gguf_name(name: str) -> str:
    for theirs, ours in TENSOR_NAMES.items():
        name = name.replace(f"{theirs}.", f"{ours}.")
    return name


def _pairs_from_halves(rows: np.ndarray, heads: int) -> np.ndarray:
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
