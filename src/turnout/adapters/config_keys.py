"""Every key of PEFT's LoraConfig, and what each means for serving: read, irrelevant, or refused when in effect.

A key in none of the three tables is one this version has never heard of. As PEFT's own convention is that null,
false, 0 and empty mean "feature off", such a value only makes a warning; any other value is refused.
"""

from collections.abc import Mapping
from typing import Any

from turnout.adapters.wording import shown
from turnout.core.errors import AdapterConfigError, AdapterUnsupported

READ = frozenset(
    {
        "peft_type",
        "r",
        "lora_alpha",
        "rank_pattern",
        "alpha_pattern",
        "use_rslora",
        "target_modules",
        "exclude_modules",
        "layers_to_transform",
        "layers_pattern",
        "bias",
        "fan_in_fan_out",
        "init_lora_weights",
        "base_model_name_or_path",
    }
)
"""Keys read for their value, here or in the `config` module."""

IRRELEVANT: Mapping[str, str] = {
    "task_type": "which wrapper class PEFT used; a head would show in modules_to_save and in the tensors",
    "auto_mapping": "which transformers class the base model was",
    "peft_version": "who wrote the file",
    "revision": "which commit of the base model it was trained on",
    "inference_mode": "whether the weights were frozen when saved",
    "lora_dropout": "training only",
    "megatron_core": "has effect only together with megatron_config",
    "qalora_group_size": "has effect only together with use_qalora",
    "loftq_config": "has effect only with init_lora_weights 'loftq'",
    "eva_config": "how weights were initialised; the base stays as it is",
    "corda_config": "has effect only with init_lora_weights 'corda'",
    "lora_ga_config": "has effect only with init_lora_weights 'lora_ga'",
    "ensure_weight_tying": "concerns embeddings and output head, whose tensors are refused anyway",
    "runtime_config": "PEFT ignores it in files",
    "lora_dtype": "ms-swift: dtype in training",
    "lorap_lr_ratio": "ms-swift: a learning rate of LoRA+",
    "lorap_emb_lr": "ms-swift: a learning rate of LoRA+",
}
"""Keys that never change what the saved weights compute, whatever their value, and why."""

REFUSED_IN_EFFECT: Mapping[str, str] = {
    "use_dora": "weights are also scaled by magnitude (DoRA)",
    "lora_bias": "B has a bias",
    "modules_to_save": "whole modules are replaced by trained copies",
    "trainable_token_indices": "rows of the embedding are replaced",
    "target_parameters": "LoRA is on bare parameters rather than on linear layers",
    "alora_invocation_tokens": "weights apply only from an invocation on (activated LoRA)",
    "layer_replication": "layers of the base are repeated",
    "use_qalora": "inputs are pooled in groups (QALoRA)",
    "use_bdlora": "A or B is block-diagonal (BD-LoRA)",
    "arrow_config": "several adapters are mixed token by token (Arrow)",
    "kasa_config": "the base's weights are truncated first (KaSA)",
    "monteclora_config": "weights are sampled (MonteCLoRA)",
    "velora_config": "the file holds tensors of VeLoRA",
    "megatron_config": "layers are Megatron's parallel ones",
}
"""Keys for what is not computed here, by what they do; null, false and empty are fine."""


def check_keys(values: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Warnings about unknown keys. Raises for another method than LoRA and for whatever is not computed.

    AdapterConfigError when `peft_type` is missing, else AdapterUnsupported naming `where`, the key and its value.
    """
    _check_method(values, where)
    for key, meaning in REFUSED_IN_EFFECT.items():
        if values.get(key):
            raise AdapterUnsupported(f"{where}: {key} = {shown(values[key])} is not supported: {meaning}")
    unknown = sorted(values.keys() - READ - IRRELEVANT.keys() - REFUSED_IN_EFFECT.keys())
    for key in unknown:
        if values[key]:
            raise AdapterUnsupported(
                f"{where}: the key {shown(key)} = {shown(values[key])} is not known here, so it may change what the "
                "adapter computes; remove it if it does not"
            )
    if not unknown:
        return ()
    return (f"{where}: unknown keys, taken as switched off: {', '.join(map(shown, unknown))}",)


def _check_method(values: Mapping[str, Any], where: str) -> None:
    if "peft_type" not in values:
        raise AdapterConfigError(f"{where}: peft_type is missing, expected 'LORA'")
    if values["peft_type"] != "LORA":
        raise AdapterUnsupported(f"{where}: peft_type = {shown(values['peft_type'])} is not supported, only 'LORA' is")
