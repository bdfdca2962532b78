"""Which linear layers a configuration names, with which rank and scale: PEFT's matching, as pure functions."""

import math
import re
from collections.abc import Collection

from turnout.adapters.config import PeftConfig
from turnout.adapters.config_values import Names
from turnout.adapters.wording import shown
from turnout.core.errors import AdapterConfigError


def targeted_modules(config: PeftConfig, modules: Collection[str]) -> frozenset[str]:
    """Those of the base's `modules` that the configuration adapts. AdapterConfigError if there are none."""
    targeted = frozenset(module for module in modules if is_targeted(config, module))
    if not targeted:
        raise AdapterConfigError(
            f"{config.where}: target_modules = {_shown_names(config.targets)} names no linear layer of this base"
            f"{_limits(config)}; its layers are called {shown(next(iter(modules)))} and the like"
        )
    return targeted


def is_targeted(config: PeftConfig, module: str) -> bool:
    """As `peft.tuners.tuners_utils.check_target_module_exists`: a full name disregards `layers`, an ending does not."""
    if _matches(config.excluded, module):
        return False
    if isinstance(config.targets, re.Pattern) or module in config.targets:
        return _matches(config.targets, module)
    return _matches(config.targets, module) and _in_layers(config, module)


def rank_of(config: PeftConfig, module: str) -> int:
    """The rank that the configuration gives a module."""
    return next((rank for pattern, rank in config.rank_patterns if pattern.match(module)), config.rank)


def scale_of(config: PeftConfig, module: str) -> float:
    """The factor of B·A: alpha / rank, or alpha / sqrt(rank) with rsLoRA (Kalajdzievski 2023, arXiv:2312.03732)."""
    alpha = next((alpha for pattern, alpha in config.alpha_patterns if pattern.match(module)), config.alpha)
    rank = rank_of(config, module)
    return alpha / math.sqrt(rank) if config.use_rslora else alpha / rank


def idle_words(config: PeftConfig, modules: Collection[str]) -> tuple[str, ...]:
    """Warnings about target names and about rank and alpha patterns that fit none of the base's `modules`."""
    warnings = []
    if not isinstance(config.targets, re.Pattern):
        idle = [name for name in sorted(config.targets) if not any(_ends_with(module, name) for module in modules)]
        if idle:
            warnings.append(f"{config.where}: target_modules names what this base has not: {shown(idle)}")
    for key, patterns in (("rank_pattern", config.rank_patterns), ("alpha_pattern", config.alpha_patterns)):
        if any(not any(pattern.match(module) for module in modules) for pattern, _ in patterns):
            warnings.append(f"{config.where}: {key} has keys that fit no layer of this base")
    return tuple(warnings)


def _matches(names: Names, module: str) -> bool:
    if isinstance(names, re.Pattern):
        return names.fullmatch(module) is not None
    return any(_ends_with(module, name) for name in names)


def _ends_with(module: str, name: str) -> bool:
    return module == name or module.endswith(f".{name}")


def _in_layers(config: PeftConfig, module: str) -> bool:
    if config.layers is None:
        return True
    found = next(filter(None, (pattern.match(module) for pattern in config.layer_patterns)), None)
    return found is not None and int(found["idx"]) in config.layers


def _shown_names(names: Names) -> str:
    return shown(names.pattern if isinstance(names, re.Pattern) else sorted(names))


def _limits(config: PeftConfig) -> str:
    limits = [f"layers_to_transform = {shown(sorted(config.layers))}"] if config.layers is not None else []
    if config.excluded:
        limits.append(f"exclude_modules = {_shown_names(config.excluded)}")
    return f" with {' and '.join(limits)}" if limits else ""
