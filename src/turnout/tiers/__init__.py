"""Adapters' weights between the artefact store and the engine: who is in RAM, who comes, who leaves."""

from turnout.tiers.manager import Tiers

__all__ = ["Tiers"]
