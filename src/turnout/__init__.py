"""Turnout serves many LoRA adapters on one resident base model."""

__version__ = "0.1.0"
