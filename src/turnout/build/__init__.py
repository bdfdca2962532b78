"""The composition root: settings to a running server. The only place that names concrete classes."""

from turnout.build.base import Base, base_folder, load_base
from turnout.build.server import Server, build_server

__all__ = ["Base", "Server", "base_folder", "build_server", "load_base"]
