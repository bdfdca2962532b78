"""Reading a GGUF file's key-value metadata."""

from collections.abc import Mapping
from typing import Any

from turnout.core.errors import BaseModelError


def required(metadata: Mapping[str, Any], name: str) -> Any:
    """The value of a key that no supported file lacks. Raises BaseModelError when it does."""
    if name not in metadata:
        raise BaseModelError(f"the GGUF file's metadata lacks {name}")
    return metadata[name]
