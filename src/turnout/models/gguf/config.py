"""The `config.json` that a GGUF file's metadata amounts to."""

from collections.abc import Mapping
from typing import Any

from turnout.core.errors import BaseModelError
from turnout.models.gguf.metadata import required

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_UNDERSTOOD = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.type",
    "vocab_size",
}
"""An architecture's keys that are read here, or that only repeat what tensors and other keys say."""


def model_config(metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Hugging Face's spelling of `metadata`; `shapes` are the file's tensors, in GGUF's order of dimensions.

    Raises BaseModelError for another architecture and for any key of the architecture that is not understood.
    """
    architecture = required(metadata, "general.architecture")
    if architecture not in _ARCHITECTURES:
        raise BaseModelError(
            f"the GGUF file's general.architecture is {architecture!r}; supported: {', '.join(_ARCHITECTURES)}"
        )
    prefix = f"{architecture}."
    unknown = [name for name in metadata if name.startswith(prefix) and name.removeprefix(prefix) not in _UNDERSTOOD]
    if unknown:
        raise BaseModelError(f"the GGUF file has {unknown[0]}, which is not understood")
    hidden_size, heads = (
        required(metadata, f"{prefix}embedding_length"),
        required(metadata, f"{prefix}attention.head_count"),
    )
    head_dim = metadata.get(f"{prefix}attention.key_length", hidden_size // heads)
    for name in (f"{prefix}attention.value_length", f"{prefix}rope.dimension_count"):
        if metadata.get(name, head_dim) != head_dim:
            raise BaseModelError(f"the GGUF file's {name} is {metadata[name]}; supported: the head size, {head_dim}")
    return {
        "architectures": [_ARCHITECTURES[architecture]],
        "model_type": architecture,
        "hidden_act": "silu",
        "vocab_size": required(shapes, "token_embd.weight")[1],
        "hidden_size": hidden_size,
        "intermediate_size": required(metadata, f"{prefix}feed_forward_length"),
        "num_hidden_layers": required(metadata, f"{prefix}block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.get(f"{prefix}attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": required(metadata, f"{prefix}context_length"),
        "rms_norm_eps": required(metadata, f"{prefix}attention.layer_norm_rms_epsilon"),
        "rope_theta": metadata.get(f"{prefix}rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(metadata, prefix),
        "attention_bias": architecture != "qwen2" and "blk.0.attn_q.bias" in shapes,
        "tie_word_embeddings": "output.weight" not in shapes,
        "torch_dtype": "float32",
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _rope_scaling(metadata: Mapping[str, Any], prefix: str) -> dict[str, Any] | None:
    kind = metadata.get(f"{prefix}rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": required(metadata, f"{prefix}rope.scaling.factor")}
    raise BaseModelError(f"the GGUF file's {prefix}rope.scaling.type is {kind!r}; supported: none, linear")
