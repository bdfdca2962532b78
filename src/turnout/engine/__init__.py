"""The local engine: one thread that batches requests for any mix of adapters on one resident base."""

from turnout.engine.config import EngineConfig
from turnout.engine.local import LocalEngine

__all__ = ["EngineConfig", "LocalEngine"]
