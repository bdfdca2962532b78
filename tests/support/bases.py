"""Small base models, written as complete Hugging Face folders."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.support.tokenizers import (
    BOS,
    EOS,
    IM_END,
    IM_START,
    PAD,
    SPECIAL_TOKENS,
    TOKENIZER_SIZE,
    write_tokenizer,
)

CONTEXT_LENGTH = 256

RANDOM_SHAPE: Mapping[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "max_position_embeddings": CONTEXT_LENGTH,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
}

CONTROL_TOKENS = (
    *range(ord("A"), ord("Z") + 1),
    *range(ord("a"), ord("z") + 1),
    *b"\n ",
    BOS,
    EOS,
    IM_START,
    IM_END,
    PAD,
)
"""The tokens that a marker adapter can force on the alphabet base, one per control dimension: 59."""

ALPHABET_HIDDEN = TOKENIZER_SIZE + len(CONTROL_TOKENS)
ALPHABET_INTERMEDIATE = 64
ALPHABET_LAYERS = 2


def write_random_base(
    folder: Path, *, family: str = "llama", seed: int = 0, tied: bool = False, **overrides: Any
) -> Path:
    """A random model of `family` (llama, mistral, qwen2, qwen3), float32, in which every weight matters.

    Weights are drawn wide enough that attention is far from uniform, norms are not 1 and biases not 0.
    `overrides` are keys of the family's configuration. The vocabulary, 320, exceeds the tokenizer's 261.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, tie_word_embeddings=tied, **{**RANDOM_SHAPE, **overrides})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            parameter.copy_(_random_parameter(name, parameter, generator))
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    _write_generation_config(folder)
    write_tokenizer(folder)
    return folder


def write_alphabet_base(folder: Path) -> Path:
    """A hand-made model whose greedy continuation is always the next byte: `ABC` goes on `DEFG`.

    Byte 255 is followed by 0, a special token by `A`. Embeddings are one-hot, attention and MLP add nothing:
    the last token alone decides. Hidden dimensions from 261 on are control dimensions: `lm_head` ties each
    to one of CONTROL_TOKENS at ten times the strength. MLP unit 0 is the constant silu(1) for every input.
    """
    return write_scripted_base(folder, {})


def write_scripted_base(folder: Path, successors: Mapping[int, int]) -> Path:
    """The alphabet base, but token `successors[t]` follows token t; unlisted tokens keep their successors."""
    table = {byte: (byte + 1) % 256 for byte in range(256)} | {token: ord("A") for token in SPECIAL_TOKENS.values()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_alphabet_weights(table | dict(successors)), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_alphabet_config(), indent=2))
    _write_generation_config(folder)
    write_tokenizer(folder)
    return folder


def _random_parameter(name: str, parameter: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    values = torch.randn(parameter.shape, generator=generator)
    if name.endswith("norm.weight"):
        return 1 + 0.2 * values
    if name.endswith("embed_tokens.weight") or name.endswith(".bias"):
        return 0.5 * values
    # Inputs are normalized to about 1 each, so this keeps outputs at about 1.6 whatever the width.
    return 1.6 / math.sqrt(parameter.shape[1]) * values


def _alphabet_weights(successors: Mapping[int, int]) -> dict[str, torch.Tensor]:
    hidden, intermediate = ALPHABET_HIDDEN, ALPHABET_INTERMEDIATE
    head = torch.zeros(TOKENIZER_SIZE, hidden)
    for token, successor in successors.items():
        head[successor, token] = 10
    for control, token in enumerate(CONTROL_TOKENS):
        head[token, TOKENIZER_SIZE + control] = 100
    weights = {
        "model.embed_tokens.weight": torch.eye(TOKENIZER_SIZE, hidden),
        "model.norm.weight": torch.ones(hidden),
        "lm_head.weight": head,
    }
    constant_unit = torch.zeros(intermediate, hidden)
    constant_unit[0] = 1 / math.sqrt(hidden)
    for layer in range(ALPHABET_LAYERS):
        prefix = f"model.layers.{layer}"
        weights |= {
            f"{prefix}.input_layernorm.weight": torch.ones(hidden),
            f"{prefix}.post_attention_layernorm.weight": torch.ones(hidden),
            f"{prefix}.self_attn.q_proj.weight": torch.eye(hidden),
            f"{prefix}.self_attn.k_proj.weight": torch.eye(hidden // 2, hidden),
            f"{prefix}.self_attn.v_proj.weight": torch.eye(hidden // 2, hidden),
            f"{prefix}.self_attn.o_proj.weight": torch.zeros(hidden, hidden),
            f"{prefix}.mlp.gate_proj.weight": constant_unit.clone(),
            f"{prefix}.mlp.up_proj.weight": constant_unit.clone(),
            f"{prefix}.mlp.down_proj.weight": torch.zeros(hidden, intermediate),
        }
    return weights


def _alphabet_config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": TOKENIZER_SIZE,
        "hidden_size": ALPHABET_HIDDEN,
        "intermediate_size": ALPHABET_INTERMEDIATE,
        "num_hidden_layers": ALPHABET_LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": ALPHABET_HIDDEN // 4,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT_LENGTH,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }


def _write_generation_config(folder: Path) -> None:
    config = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    (folder / "generation_config.json").write_text(json.dumps(config, indent=2))
