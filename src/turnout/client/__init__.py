"""The Python client of a server's registry: `turnout.Client`."""

from turnout.client.client import Client

__all__ = ["Client"]
