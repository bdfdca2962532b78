"""A pytest plugin (`-p`): the native kernels are those of the file TURNOUT_EXTENSION, not the installed ones."""

import importlib.util
import os
import sys

NAME = "turnout.kernels._cpu"


def _load(path: str) -> None:
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module  # found here first, whatever is installed
    spec.loader.exec_module(module)


def pytest_report_header() -> str:
    """Say which file is tested."""
    from turnout.kernels import native

    return f"native kernels: {native._cpu.__file__}"


_load(os.environ["TURNOUT_EXTENSION"])
