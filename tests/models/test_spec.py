"""What configs mean, held to transformers, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.bases import write_random_base
from turnout.core.errors import BaseModelError
from turnout.models.config import read_config
from turnout.models.spec import DecoderSpec, LinearSpec, RopeSpec, linears

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers.js_config": {"dtype": "q4"},
    "vocab_size": 49152,
}
LLAMA3 = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}
WINDOWED_QWEN = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 512, "max_window_layers": 0}


def _spec(**changes: Any) -> DecoderSpec:
    return DecoderSpec.from_config({**SMOLLM2, **changes})


def test_a_published_config_of_transformers_4() -> None:
    assert _spec() == DecoderSpec(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        layers=30,
        heads=9,
        kv_heads=3,
        head_dim=64,
        context_length=8192,
        rms_norm_eps=1e-5,
        rope=RopeSpec(100000.0),
        tied_embeddings=True,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        qk_norm=False,
        sliding_window=None,
    )


def test_both_spellings_of_rope_mean_the_same() -> None:
    theta = {"rope_theta": 5e5}
    assert _spec(**theta).rope == _spec(rope_theta=None, rope_parameters={"rope_type": "default", **theta}).rope
    old = _spec(**theta, rope_scaling={"type": "linear", "factor": 2})
    assert old.rope == _spec(rope_parameters={"rope_type": "linear", "factor": 2.0, **theta}).rope
    old = _spec(**theta, rope_scaling={"rope_type": "llama3", **LLAMA3})
    assert old.rope == _spec(rope_parameters={"rope_type": "llama3", **LLAMA3, **theta}).rope
    assert old.rope == RopeSpec(5e5, "llama3", 8.0, 1.0, 4.0, 8192)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_keys_left_out_mean_what_transformers_takes(tmp_path: Path, family: str) -> None:
    from transformers import AutoConfig

    written = read_config(write_random_base(tmp_path, family=family, num_attention_heads=32, num_key_value_heads=8))
    required = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings"}
    short = {key: written[key] for key in ("model_type", "num_attention_heads", *required)}
    (tmp_path / "config.json").write_text(json.dumps(short))
    right = AutoConfig.from_pretrained(tmp_path)
    spec = DecoderSpec.from_config(short)
    head_dim = getattr(right, "head_dim", right.hidden_size // right.num_attention_heads)
    assert (spec.kv_heads, spec.head_dim) == (right.num_key_value_heads, head_dim)
    assert (spec.rms_norm_eps, spec.rope.theta) == (right.rms_norm_eps, right.rope_parameters["rope_theta"])
    assert spec.tied_embeddings == right.tie_word_embeddings
    assert spec.sliding_window == getattr(right, "sliding_window", None)


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 4096),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "llama", "sliding_window": 4096}, None),
        (WINDOWED_QWEN, 512),
        ({**WINDOWED_QWEN, "use_sliding_window": False}, None),
        ({**WINDOWED_QWEN, "max_window_layers": 30}, None),
        ({**WINDOWED_QWEN, "layer_types": ["full_attention"] * 30}, None),
        ({**WINDOWED_QWEN, "max_window_layers": 7, "layer_types": ["sliding_attention"] * 30}, 512),
    ],
)
def test_one_window_for_all_layers(changes: dict[str, Any], window: int | None) -> None:
    assert _spec(**changes).sliding_window == window


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"model_type": "mixtral"}, "model_type = 'mixtral'; supported: llama, mistral, qwen2, qwen3"),
        ({"model_type": None}, "model_type"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'; supported: 'silu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type = 'yarn'; supported: default, linear"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope_type = 'dynamic'"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_theta": "1e5"}, "rope_theta"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"vocab_size": -1}, "vocab_size"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"head_dim": 63}, "head_dim"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({**WINDOWED_QWEN, "max_window_layers": 15}, "max_window_layers"),
        ({**WINDOWED_QWEN, "layer_types": ["full_attention", "sliding_attention"] * 15}, "layer_types"),
        ({**WINDOWED_QWEN, "layer_types": ["sliding_attention"]}, "layer_types"),
        ({"model_type": "mistral", "sliding_window": 64, "layer_types": ["full_attention"] * 30}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 30}, "layer_types"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(BaseModelError, match=names):
        _spec(**changes)


def test_linears_are_the_bases_own(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    base = write_random_base(tmp_path, family="qwen3", head_dim=32)
    model = AutoModelForCausalLM.from_pretrained(base)
    right = {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    }
    found = linears(DecoderSpec.from_config(read_config(base)))
    assert {name: (linear.out_features, linear.in_features) for name, linear in found.items()} == right
    assert found["model.layers.1.mlp.down_proj"] == LinearSpec(1, "down_proj", 64, 128)


@pytest.mark.parametrize("content", ["{", "[]", "\x80"])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(BaseModelError, match=r"config\.json"):
        read_config(tmp_path)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaseModelError, match="does not exist"):
        read_config(tmp_path)
