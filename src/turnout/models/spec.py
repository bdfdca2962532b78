"""What a decoder is made of, as data: read from a Hugging Face config, refused where it is not understood."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from turnout.models.config import count, flag, number, unsupported

RopeScaling = Literal["default", "linear", "llama3"]

_COMMON_DEFAULTS: Mapping[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
_WINDOW_DEFAULTS: Mapping[str, Any] = {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28}

_FAMILY_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": _COMMON_DEFAULTS,
    "mistral": {**_COMMON_DEFAULTS, "num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {**_COMMON_DEFAULTS, **_WINDOW_DEFAULTS},
    "qwen3": {**_COMMON_DEFAULTS, **_WINDOW_DEFAULTS, "head_dim": 128},
}
"""By `model_type`, what transformers takes for keys that a config leaves out."""

_ONLY_SUPPORTED: Mapping[str, Any] = {
    "hidden_act": "silu",
    "quantization_config": None,
    "partial_rotary_factor": 1.0,
    "rope_interleaved": False,
    "use_mrope": False,
}
"""Keys that change the function, each with the one value that this decoder computes; null means the same."""


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """How positions turn queries and keys.

    `factor` is how far positions are stretched by `linear` and `llama3`; the last three fields are `llama3`'s.
    `original_context` is the context length, in tokens, before the stretching.
    """

    theta: float
    scaling: RopeScaling = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_context: int = 0


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """One decoder-only transformer: pre-norm blocks of grouped-query attention and a gated SiLU MLP.

    `context_length` is in tokens. `sliding_window` is how many of the latest keys, its own included, a token sees
    in every layer; None for all of them.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context_length: int
    rms_norm_eps: float
    rope: RopeSpec
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    sliding_window: int | None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "DecoderSpec":
        """Read the keys of a `config.json`, in the spelling of transformers 4 or 5.

        Raises BaseModelError, naming the key, for whatever would change the function and is not supported.
        """
        family = str(config.get("model_type"))
        if family not in _FAMILY_DEFAULTS:
            raise unsupported("model_type", family, ", ".join(_FAMILY_DEFAULTS))
        values = {**_FAMILY_DEFAULTS[family], **config}
        for key, supported in _ONLY_SUPPORTED.items():
            if values.get(key) not in (None, supported):
                raise unsupported(key, values[key], repr(supported))
        heads = count(values, "num_attention_heads")
        hidden_size = count(values, "hidden_size")
        # Qwen2 has biases on q, k and v without a switch for them; where there is a switch it covers o as well.
        switched_bias = family in ("llama", "qwen3") and flag(values, "attention_bias")
        return cls(
            vocab_size=count(values, "vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=count(values, "intermediate_size"),
            layers=count(values, "num_hidden_layers"),
            heads=heads,
            kv_heads=_kv_heads(values, heads),
            head_dim=_head_dim(values, hidden_size // heads),
            context_length=count(values, "max_position_embeddings"),
            rms_norm_eps=number(values, "rms_norm_eps"),
            rope=_rope(values),
            tied_embeddings=flag(values, "tie_word_embeddings"),
            qkv_bias=switched_bias or family == "qwen2",
            output_bias=switched_bias,
            mlp_bias=family == "llama" and flag(values, "mlp_bias"),
            qk_norm=family == "qwen3",
            sliding_window=_sliding_window(values, family),
        )


@dataclass(frozen=True, slots=True)
class LinearSpec:
    """A linear layer that adapters can change: its place and its weight's shape, [out_features, in_features]."""

    layer: int
    target: str
    out_features: int
    in_features: int


def linears(spec: DecoderSpec) -> Mapping[str, LinearSpec]:
    """Every adaptable linear layer by its module name in checkpoints, as `model.layers.0.self_attn.q_proj`."""
    query, key_value = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    hidden, intermediate = spec.hidden_size, spec.intermediate_size
    shapes = {
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (key_value, hidden),
        "self_attn.v_proj": (key_value, hidden),
        "self_attn.o_proj": (hidden, query),
        "mlp.gate_proj": (intermediate, hidden),
        "mlp.up_proj": (intermediate, hidden),
        "mlp.down_proj": (hidden, intermediate),
    }
    return {
        f"model.layers.{layer}.{name}": LinearSpec(layer, name.rpartition(".")[2], *shape)
        for layer in range(spec.layers)
        for name, shape in shapes.items()
    }


def _kv_heads(values: Mapping[str, Any], heads: int) -> int:
    if values.get("num_key_value_heads") is None:
        return heads
    kv_heads = count(values, "num_key_value_heads")
    if heads % kv_heads:
        raise unsupported("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads = {heads}")
    return kv_heads


def _head_dim(values: Mapping[str, Any], default: int) -> int:
    head_dim = default if values.get("head_dim") is None else count(values, "head_dim")
    if head_dim % 2:
        raise unsupported("head_dim", head_dim, "an even number, for rotary positions turn pairs")
    return head_dim


def _rope(values: Mapping[str, Any]) -> RopeSpec:
    """Transformers 5 keeps all of it in `rope_parameters`; 4 has `rope_theta` and, for scaling, `rope_scaling`."""
    parameters = values.get("rope_scaling") or values.get("rope_parameters") or {}
    if not isinstance(parameters, Mapping):
        raise unsupported("rope_scaling", parameters, "an object or null")
    parameters = {"rope_theta": values["rope_theta"], **parameters}
    if parameters.get("partial_rotary_factor") not in (None, 1.0):
        raise unsupported("partial_rotary_factor", parameters["partial_rotary_factor"], "1.0")
    theta = number(parameters, "rope_theta")
    scaling = parameters.get("rope_type", parameters.get("type", "default"))
    if scaling == "default":
        return RopeSpec(theta)
    if scaling == "linear":
        return RopeSpec(theta, "linear", number(parameters, "factor"))
    if scaling == "llama3":
        lengths = {"original_max_position_embeddings": values["max_position_embeddings"], **parameters}
        return RopeSpec(
            theta,
            "llama3",
            factor=number(parameters, "factor"),
            low_freq_factor=number(parameters, "low_freq_factor"),
            high_freq_factor=number(parameters, "high_freq_factor"),
            original_context=count(lengths, "original_max_position_embeddings"),
        )
    raise unsupported("rope_type", scaling, "default, linear, llama3")


def _sliding_window(values: Mapping[str, Any], family: str) -> int | None:
    """The window that all layers share. Raises BaseModelError where layers differ in it."""
    switched_on = family == "mistral" or (family != "llama" and flag(values, "use_sliding_window"))
    window = None if not switched_on or values["sliding_window"] is None else count(values, "sliding_window")
    layers, kinds = values["num_hidden_layers"], values.get("layer_types")
    if kinds is None:
        return window if window is None or family == "mistral" else _window_from_first_layer(values, window)
    if kinds == ["full_attention"] * layers and not (window and family == "mistral"):
        return None
    if kinds == ["sliding_attention"] * layers and window:
        return window
    raise unsupported("layer_types", kinds, "one kind of attention in all layers, as sliding_window has it")


def _window_from_first_layer(values: Mapping[str, Any], window: int) -> int | None:
    """Qwen's older spelling: layers from `max_window_layers` on have the window, those before it see all keys."""
    first = values["max_window_layers"]
    if first == 0:
        return window
    if count(values, "max_window_layers") >= values["num_hidden_layers"]:
        return None
    raise unsupported("max_window_layers", first, "0 or all layers, for all layers must see alike")
