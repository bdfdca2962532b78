"""`adapter_config.json` as PEFT understands it, reduced to what decides which function the weights compute."""

import re
from dataclasses import dataclass
from pathlib import Path

from turnout.adapters.config_keys import check_keys
from turnout.adapters.config_values import ConfigValues, Names
from turnout.adapters.strict_json import read_object
from turnout.adapters.wording import shown
from turnout.core.errors import AdapterUnsupported

DEFAULT_RANK = 8
DEFAULT_ALPHA = 8.0
DEFAULT_TARGETS = frozenset({"q_proj", "v_proj"})
"""PEFT's defaults; the targets are those for Llama, Mistral, Qwen2 and Qwen3."""

HARMLESS_INITS = (True, False, "gaussian", "eva", "orthogonal", "mica")
"""Values of `init_lora_weights` that leave the base's weights as they are."""

BASE_CHANGING_INITS = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""What `init_lora_weights` begins with where the weights are only right on a base that was changed as well."""

ALL_LINEAR = "all-linear"
_ANY_LAYER = r".*?\.[^.]*\.(?P<idx>\d+)\."


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """What the `targeting` module needs. `targets` and `excluded` hold for full module names of the base.

    `layers` limits targets that are given by a name's ending; None is all layers. Of `layer_patterns`, the first
    that matches a module's name finds its layer. Of the rank and alpha patterns, the first that matches holds.
    `base_name` is what the owner called the base, if known; `warnings` are sentences for people.
    """

    where: str
    rank: int
    alpha: float
    use_rslora: bool
    targets: Names
    excluded: Names
    layers: frozenset[int] | None
    layer_patterns: tuple[re.Pattern[str], ...]
    rank_patterns: tuple[tuple[re.Pattern[str], int], ...]
    alpha_patterns: tuple[tuple[re.Pattern[str], float], ...]
    base_name: str | None
    warnings: tuple[str, ...]


def read_config(path: Path, where: str) -> PeftConfig:
    """Read, check and reduce the file, which messages call `where`.

    Raises AdapterFileError when it is not a JSON object, AdapterConfigError for a value that means nothing, and
    AdapterUnsupported for one that asks for what is not computed here.
    """
    config = ConfigValues(where, read_object(path, where))
    warnings = check_keys(config.values, config.where)
    _check_initialisation(config)
    targets = _targets(config)
    return PeftConfig(
        where=config.where,
        rank=config.rank("r", config.get("r", DEFAULT_RANK)),
        alpha=config.number("lora_alpha", config.get("lora_alpha", DEFAULT_ALPHA)),
        use_rslora=config.flag("use_rslora"),
        targets=targets,
        excluded=config.names("exclude_modules"),
        layers=_layers(config, targets),
        layer_patterns=_layer_patterns(config),
        rank_patterns=tuple(
            (_module_pattern(config, "rank_pattern", key), config.rank(f"rank_pattern[{shown(key)}]", value))
            for key, value in config.mapping("rank_pattern").items()
        ),
        alpha_patterns=tuple(
            (_module_pattern(config, "alpha_pattern", key), config.number(f"alpha_pattern[{shown(key)}]", value))
            for key, value in config.mapping("alpha_pattern").items()
        ),
        base_name=_base_name(config),
        warnings=warnings + _bias_warnings(config) + _transpose_warnings(config),
    )


def _check_initialisation(config: ConfigValues) -> None:
    value = config.get("init_lora_weights", False)
    if value in HARMLESS_INITS:
        return
    if isinstance(value, str) and value.lower().startswith(BASE_CHANGING_INITS):
        raise AdapterUnsupported(
            f"{config.where}: init_lora_weights = {shown(value)} changed the base model's weights in training, and the "
            "base is shared here; convert the adapter to plain LoRA with PEFT's save_pretrained(..., "
            "path_initial_model_for_weight_conversion=...)"
        )
    raise AdapterUnsupported(
        f"{config.where}: init_lora_weights = {shown(value)} is not known here, so it may have changed the base; "
        f"known: {', '.join(map(repr, HARMLESS_INITS))}"
    )


def _targets(config: ConfigValues) -> Names:
    value = config.get("target_modules", None)
    if value is None:
        return DEFAULT_TARGETS
    if isinstance(value, str) and value.lower() == ALL_LINEAR:
        return re.compile(".*")
    return config.names("target_modules")


def _layers(config: ConfigValues, targets: Names) -> frozenset[int] | None:
    value = config.get("layers_to_transform", [])
    layers = [value] if type(value) is int else value
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        raise config.error("layers_to_transform", value, "an integer or a list of integers")
    if not layers:
        return None
    if isinstance(targets, re.Pattern):
        raise config.error("layers_to_transform", value, "none beside a target_modules that is a string, as in PEFT")
    return frozenset(layers)


def _layer_patterns(config: ConfigValues) -> tuple[re.Pattern[str], ...]:
    """Compiled as `peft.tuners.tuners_utils.check_target_module_exists` spells them."""
    patterns = config.strings("layers_pattern", config.get("layers_pattern", []))
    if not any(patterns):
        return (re.compile(_ANY_LAYER),)
    return tuple(
        config.pattern("layers_pattern", rf"(?:^|.*?\.){pattern}\.(?P<idx>\d+)\.") for pattern in patterns if pattern
    )


def _module_pattern(config: ConfigValues, key: str, pattern: str) -> re.Pattern[str]:
    """Compiled as `peft.utils.other.get_pattern_key` spells it: a whole name, or what follows one of its dots."""
    return config.pattern(key, rf"(.*\.)?({pattern})$")


def _base_name(config: ConfigValues) -> str | None:
    name = config.get("base_model_name_or_path", None)
    return name if isinstance(name, str) and name else None


def _bias_warnings(config: ConfigValues) -> tuple[str, ...]:
    """Bias tensors are refused with the other tensors that have no place; here there may be none."""
    value = config.get("bias", "none")
    if value == "none":
        return ()
    if value not in ("all", "lora_only"):
        raise config.error("bias", value, "'none', 'all' or 'lora_only'")
    return (
        f"{config.where}: bias = {value!r}, but the file holds no bias: only the LoRA part is served, as PEFT would",
    )


def _transpose_warnings(config: ConfigValues) -> tuple[str, ...]:
    """PEFT resets the flag on linear layers, which are all there is here, and warns too."""
    if not config.flag("fan_in_fan_out"):
        return ()
    return (f"{config.where}: fan_in_fan_out = true has no meaning for linear layers and is ignored, as in PEFT",)
