"""GGUF files turned, once, into Hugging Face folders that the rest of Turnout can read."""

from turnout.models.gguf.conversion import convert

__all__ = ["convert"]
