"""Turnout serves many LoRA adapters on one resident base model."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout.client import Client

__version__ = "0.1.0"
__all__ = ["Client", "__version__"]


def __getattr__(name: str) -> Any:
    # On demand, so that `import turnout` stays light.
    if name == "Client":
        from turnout.client import Client  # noqa: PLC0415

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
