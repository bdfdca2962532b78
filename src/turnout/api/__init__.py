"""HTTP: OpenAI's endpoints, administration, health and metrics."""

from turnout.api.app import Services, create_app

__all__ = ["Services", "create_app"]
