"""Tensors to the base's linear layers: each must have its partner, its place and its shape, or all is refused."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnout.adapters.config import PeftConfig
from turnout.adapters.header import TensorEntry
from turnout.adapters.targeting import rank_of, scale_of, targeted_modules
from turnout.adapters.wording import first_of, shown
from turnout.core.errors import (
    AdapterBaseMismatch,
    AdapterConfigError,
    AdapterFileError,
    AdapterTensorError,
    AdapterTooLarge,
)
from turnout.models.spec import LinearSpec

_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<factor>[AB])\.weight")
_LAYER = re.compile(r"(?<=\.layers\.)\d+(?=\.)")

_MEANINGS: Mapping[str, str] = {
    "lora_magnitude_vector": "magnitudes of DoRA, which is not supported",
    "lora_embedding_": "LoRA on an embedding, which is not supported",
    "lm_head.": "for the output head, which cannot be adapted",
    "embed_tokens": "for the embedding, which cannot be adapted",
    "modules_to_save": "trained copies of whole modules, which are not supported",
    ".bias": "biases, which are not supported",
}
"""By a part of a tensor's name, what to say about it besides that it has no place."""

_LARGEST_SCALE = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class LoraPair:
    """The two tensors of one adapted layer: `a` is [rank, in], `b` [out, rank], as checked."""

    module: str
    linear: LinearSpec
    rank: int
    scale: float
    a: TensorEntry
    b: TensorEntry


def match(
    entries: Sequence[TensorEntry],
    config: PeftConfig,
    linears: Mapping[str, LinearSpec],
    max_rank: int,
    where: str,
) -> tuple[LoraPair, ...]:
    """All tensors of a file in pairs, by module name; what the file has is what is adapted.

    Raises AdapterFileError when there are none, AdapterTensorError when one has no place, partner or right shape,
    AdapterBaseMismatch when a layer is missing from the base or of another size there, AdapterTooLarge for a rank
    over `max_rank`, and AdapterConfigError when the configuration targets nothing in the base.
    """
    if not any(entry.nbytes for entry in entries):
        raise AdapterFileError(
            f"{where}: the adapter holds no weights, as after a save that did not gather them from all devices "
            "(DeepSpeed ZeRO-3, FSDP); save it again"
        )
    factors = _by_module(entries, linears, where)
    _check_targeted(factors, targeted_modules(config, linears), config, where)
    return tuple(_pair(module, factors[module], linears[module], config, max_rank, where) for module in sorted(factors))


def _by_module(
    entries: Sequence[TensorEntry], linears: Mapping[str, LinearSpec], where: str
) -> dict[str, dict[str, TensorEntry]]:
    """Module name to its tensors by factor, "A" and "B"."""
    factors: dict[str, dict[str, TensorEntry]] = {}
    placeless = []
    for entry in entries:
        key = _KEY.fullmatch(entry.name)
        if key and key["module"] in linears:
            factors.setdefault(key["module"], {})[key["factor"]] = entry
        else:
            placeless.append(entry.name)
    if placeless:
        _refuse_placeless(placeless, linears, where)
    return factors


def _refuse_placeless(names: Sequence[str], linears: Mapping[str, LinearSpec], where: str) -> None:
    layers = 1 + max(linear.layer for linear in linears.values())
    for name in names:
        key = _KEY.fullmatch(name)
        if key and _LAYER.sub("0", key["module"], count=1) in linears:
            raise AdapterBaseMismatch(f"{where}: tensor {shown(name)} is for a layer beyond the base's {layers}")
    said = next((text for name in names for part, text in _MEANINGS.items() if part in name), "")
    raise AdapterTensorError(
        f"{where}: {len(names)} of its tensors have no place in this base: {first_of(names)}"
        f"{f' ({said})' if said else ''}; expected names such as base_model.model.{next(iter(linears))}.lora_A.weight "
        "and .lora_B.weight"
    )


def _check_targeted(factors: Mapping[str, object], targeted: frozenset[str], config: PeftConfig, where: str) -> None:
    """PEFT would load such an adapter and leave these tensors out without a word."""
    untargeted = sorted(factors.keys() - targeted)
    if untargeted:
        raise AdapterTensorError(
            f"{where} has tensors for {len(untargeted)} modules that {config.where} does not target: "
            f"{first_of(untargeted)}; correct target_modules, exclude_modules or layers_to_transform"
        )


def _pair(
    module: str,
    factors: Mapping[str, TensorEntry],
    linear: LinearSpec,
    config: PeftConfig,
    max_rank: int,
    where: str,
) -> LoraPair:
    for factor, other in ("AB", "BA"):
        if factor not in factors:
            raise AdapterTensorError(f"{where}: {factors[other].name} has no partner lora_{factor}.weight")
    a, b = factors["A"], factors["B"]
    for entry in (a, b):
        if len(entry.shape) != 2:
            raise AdapterTensorError(f"{where}: {entry.name} has shape {list(entry.shape)}, expected two dimensions")
    if (b.shape[0], a.shape[1]) != (linear.out_features, linear.in_features):
        raise AdapterBaseMismatch(
            f"{where}: for {module} lora_A has shape {list(a.shape)} and lora_B {list(b.shape)}, expected "
            f"[rank, {linear.in_features}] and [{linear.out_features}, rank]; the adapter belongs to another base model"
        )
    rank = rank_of(config, module)
    if not a.shape[0] == b.shape[1] == rank:
        raise AdapterTensorError(
            f"{where}: the weights for {module} have rank {a.shape[0]} in lora_A and {b.shape[1]} in lora_B, "
            f"expected {rank} by r and rank_pattern of {config.where}"
        )
    if rank > max_rank:
        raise AdapterTooLarge(f"{where}: {module} has rank {rank}, but this server takes ranks up to {max_rank}")
    scale = scale_of(config, module)
    if abs(scale) > _LARGEST_SCALE:
        raise AdapterConfigError(
            f"{config.where}: lora_alpha or alpha_pattern gives {module} the scale {scale:g}, which is beyond float32"
        )
    return LoraPair(module, linear, rank, scale, a, b)
