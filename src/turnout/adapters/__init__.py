"""PEFT LoRA adapters: from a folder of files to a checked, immutable AdapterState. No torch in here."""

from turnout.adapters.loading import load
from turnout.adapters.paths import contained

__all__ = ["contained", "load"]
