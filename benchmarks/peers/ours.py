"""Turnout itself, served as a user would serve it."""

from collections.abc import Sequence

from benchmarks.load import Report, run
from benchmarks.peers.case import BASE, Case, Figures, Setup
from benchmarks.server import serve
from turnout import __version__

name = "Turnout"


def version(_: Setup) -> str:
    """Of this checkout."""
    return __version__


def measure(setup: Setup, cases: Sequence[Case]) -> Figures:
    """One server in bfloat16 with all adapters, one in int8."""
    common = ["--base", str(setup.folder), "--served-model-name", BASE, "--dtype", "bfloat16"]
    common += ["--threads", str(setup.threads)]
    adapters = [argument for name, path in setup.adapters.items() for argument in ("--adapter", f"{name}={path}")]
    return {
        **_serve([*common, *adapters], setup, [case for case in cases if case.weights == "bfloat16"]),
        **_serve([*common, "--weights", "int8"], setup, [case for case in cases if case.weights == "int8"]),
    }


def _serve(arguments: list[str], setup: Setup, cases: Sequence[Case]) -> dict[str, Report]:
    if not cases:
        return {}
    with serve(arguments) as port:
        names = list(setup.adapters)
        return {case.name: run(port, case.drawn(names), case.load(setup.config["vocab_size"])) for case in cases}
