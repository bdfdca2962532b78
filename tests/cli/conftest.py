"""The commands' tests ask the same server in memory as the client's."""

from tests.client.conftest import folder, registry, running_registry

__all__ = ["folder", "registry", "running_registry"]
