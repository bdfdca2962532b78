"""Typed reading of a base model's `config.json`; every failure names the key, what was found and what is right."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from turnout.core.errors import BaseModelError


def read_config(folder: Path) -> dict[str, Any]:
    """The object in the folder's `config.json`. Raises BaseModelError when there is none or it is not JSON."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BaseModelError(f"{path} does not exist; a base model is a folder with a config.json") from None
    except (OSError, ValueError) as error:
        raise BaseModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise BaseModelError(f"{path} holds a JSON {type(config).__name__}, expected an object")
    return config


def count(config: Mapping[str, Any], key: str) -> int:
    """An integer from 1 on."""
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise unsupported(key, value, "a positive integer")
    return value


def number(config: Mapping[str, Any], key: str) -> float:
    """A finite number above 0."""
    value = config.get(key)
    if type(value) not in (int, float) or not 0 < cast(float, value) < math.inf:
        raise unsupported(key, value, "a positive number")
    return float(cast(float, value))


def flag(config: Mapping[str, Any], key: str) -> bool:
    """A switch; missing or null means off."""
    value = config.get(key)
    if value is not None and type(value) is not bool:
        raise unsupported(key, value, "true or false")
    return bool(value)


def unsupported(key: str, found: object, supported: str) -> BaseModelError:
    """The error for a key whose value is not one that this decoder computes."""
    return BaseModelError(f"the base model's config has {key} = {found!r}; supported: {supported}")
