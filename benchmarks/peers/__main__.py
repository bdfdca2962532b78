"""Turnout and its peers on the same load, in one run.

    python -m benchmarks.peers [--peers llama.cpp,openvino,peft] [--scale 1.0]

Installs what is missing into environments of its own, starts one after the other, gives all of them the same prompts,
adapters, numbers of threads and clients, and prints one table. Ratios are Turnout's to the best peer's. `--scale`
changes the number of requests; `--peers ''` measures Turnout alone. Use a machine that does nothing else.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from benchmarks.adapters import write_mix
from benchmarks.load import Report
from benchmarks.peers import llama_cpp, openvino, ours, peft
from benchmarks.peers.case import Case, Figures, Setup
from turnout.artifacts.sources import locate_base
from turnout.build import base_folder

PEERS = {"llama.cpp": llama_cpp, "openvino": openvino, "peft": peft}
BASE = "smollm2-135m"
ADAPTERS = 32

CASES = (
    Case("16 clients, 32 adapters by Zipf", 16, 160, "zipf"),
    Case("16 clients, one adapter", 16, 160, "one"),
    Case("16 clients, base alone", 16, 160, "base"),
    Case("1 client, one adapter", 1, 16, "one"),
    Case("1 client, base alone", 1, 16, "base"),
    Case("1 client, 1024-token prompt: first token", 1, 10, "base", 1024, 2, measure="ttft"),
    Case("1 client, base, int8 or Q8_0", 1, 16, "base", weights="int8"),
)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--environments", type=Path, default=Path.home() / ".cache" / "turnout-benchmarks")
    options = parser.parse_args()
    cases = [replace(case, requests=max(case.clients, round(case.requests * options.scale))) for case in CASES]
    chosen = [PEERS[name] for name in options.peers.split(",") if name]
    with tempfile.TemporaryDirectory() as files:
        setup = _setup(options.environments, options.threads, Path(files))
        measured: dict[str, Figures] = {}
        for peer in (ours, *chosen):
            title = f"{peer.name} {peer.version(setup)}"
            measured[title] = peer.measure(setup, cases)
            for name, figure in measured[title].items():
                print(
                    figure.line(f"{peer.name}: {name}")
                    if isinstance(figure, Report)
                    else f"{peer.name}: {name}: {figure}",
                    flush=True,
                )
    print(f"\n{BASE}, bfloat16, {options.threads} threads, {_processor()}, {date.today()}\n")
    print(_table(cases, measured))


def _setup(environments: Path, threads: int, files: Path) -> Setup:
    folder = base_folder(BASE)
    config = json.loads((folder / "config.json").read_text())
    adapters = write_mix(files, config, ADAPTERS)
    return Setup(folder, locate_base(BASE), config, adapters, threads, files, environments)


def _table(cases: list[Case], measured: Mapping[str, Figures]) -> str:
    ours_, *peers = measured
    lines = [
        "| load | " + " | ".join([*peers, ours_]) + " | to the best peer |",
        "| --- |" + " --- |" * (len(measured) + 1),
    ]
    for case in cases:
        own = _value(case, measured[ours_])
        theirs = [value for peer in peers if (value := _value(case, measured[peer])) is not None]
        cells = [_cell(case, measured[title]) for title in (*peers, ours_)]
        ratio = ""
        if own is not None and theirs:
            ratio = f"{own / max(theirs):.2f}×" if case.measure == "tokens" else f"{own / min(theirs):.2f} of the time"
        lines.append(f"| {case.name} | " + " | ".join(cells) + f" | {ratio} |")
    return "\n".join(lines)


def _value(case: Case, figures: Figures) -> float | None:
    figure = figures.get(case.name)
    if not isinstance(figure, Report):
        return None
    return figure.tokens_per_second if case.measure == "tokens" else figure.ttft_p50


def _cell(case: Case, figures: Figures) -> str:
    value = _value(case, figures)
    if value is None:
        return str(figures.get(case.name, "—"))
    return f"{value:.0f} tok/s" if case.measure == "tokens" else f"{value * 1e3:.0f} ms"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


if __name__ == "__main__":
    main()
