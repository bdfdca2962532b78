"""OpenVINO GenAI, in-process, for it has no server of its own.

It has no figure for a mix of adapters: a batch whose requests name different ones is answered with the first one's
adapter for all of them, without an error.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load import Report
from benchmarks.peers.case import Case, Figures, Setup
from benchmarks.peers.environment import environment
from benchmarks.peers.environment import version as installed
from benchmarks.peers.in_process import drive

name = "OpenVINO GenAI"

TORCH = "torch==2.13.0"
PACKAGES = [TORCH, "openvino-genai", "optimum-intel[openvino]"]


def version(setup: Setup) -> str:
    """Of the package."""
    return installed(_python(setup), "openvino-genai")


def measure(setup: Setup, cases: Sequence[Case]) -> Figures:
    """The cases with one adapter with that one registered, the others on a pipeline without adapters."""
    model = _exported(setup)
    figures: dict[str, Report | str] = {}
    chosen = [case for case in cases if case.weights == "bfloat16"]
    figures |= {case.name: "one adapter for all" for case in chosen if case.models == "zipf"}
    adapter = list(setup.adapters)[1]
    for kind, adapters in (("base", {}), ("one", {adapter: setup.adapters[adapter]})):
        own = [case for case in chosen if case.models == kind]
        if own:
            figures |= drive(_python(setup), "openvino_worker.py", setup, model, own, adapters)
    return figures


def _exported(setup: Setup) -> Path:
    model = setup.files / "openvino"
    if not model.exists():
        command = [_python(setup).with_name("optimum-cli"), "export", "openvino", "-m", setup.folder]
        command += ["--task", "text-generation-with-past", "--weight-format", "fp16", model]
        subprocess.run(command, check=True, capture_output=True)
    return model


def _python(setup: Setup) -> Path:
    return environment(setup.environments / "openvino", [TORCH], PACKAGES, remove=["torchvision"])
