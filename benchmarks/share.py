"""What share of a step is Python's, under a served load: 16 clients, 32 adapters drawn by Zipf.

    python -m benchmarks.share [--clients 16] [--requests 96] [--output-tokens 64]

The server runs in this process, its clients in another. The engine's thread is timed around the parts of a step and
around each compiled kernel, so a kernel's Python wrapper counts as Python. It is wall time: a kernel's includes waiting
for the interpreter when it is done, and on a busy machine everything includes waiting for a core, so measure on a quiet
one. Timing costs less than half a microsecond for each kernel, which counts as Python.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.adapters import write_mix
from benchmarks.load import Load, run, zipf
from turnout.build import base_folder, build_server
from turnout.core.settings import Settings
from turnout.engine import loop
from turnout.kernels import native

ADAPTERS = 32
KERNELS = ("linear", "adapted_linear", "attention", "rms_norm", "rope_and_cache", "silu_mul")


class Clock:
    """Seconds of the engine's thread, by part."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = defaultdict(float)

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, its time added to a part."""

        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.parts[name] += time.perf_counter() - began

        return timed


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--output-tokens", type=int, default=64)
    options = parser.parse_args()
    config = json.loads((base_folder(options.base) / "config.json").read_text())
    load = Load(options.clients, options.requests, 64, options.output_tokens, config["vocab_size"])
    clock = Clock()
    steps = _watch(clock)
    with tempfile.TemporaryDirectory() as folder:
        names = list(write_mix(Path(folder), config, ADAPTERS))
        settings = Settings(
            base=options.base,
            adapters=Path(folder),
            port=0,
            dtype="bfloat16",
            threads=options.threads,
            registry=f"{folder}/registry.db",
            artifacts=f"{folder}/artifacts",
        )
        with build_server(settings) as server:
            port = server.listener.getsockname()[1]
            clients = multiprocessing.get_context("spawn").Process(target=_clients, args=(port, names, load))
            clients.start()
            server.run()
            clients.join()
    if clients.exitcode:
        raise SystemExit("the clients failed; see above")
    _print(clock, steps)


def _clients(port: int, names: list[str], load: Load) -> None:
    try:
        print(run(port, zipf(names, 1.0, random.Random(0)), load).line(f"{len(names)} adapters by Zipf, timed"))
    finally:
        os.kill(os.getppid(), signal.SIGTERM)


def _watch(clock: Clock) -> list[int]:
    """Put timers around the engine's parts and the kernels; returns a list that gets each step's number of chunks."""
    engine: Any = loop
    chosen = native.instruction_set(os.environ.get("TURNOUT_CPU"))
    steps: list[int] = []
    run_chunks, choose = engine.EngineLoop._run_chunks, engine.choose

    def counted(self: Any, chunks: list[Any]) -> None:
        steps.append(len(chunks))
        run_chunks(self, chunks)

    engine.EngineLoop._run_chunks = counted
    engine.choose = lambda *arguments: list(choose(*arguments))  # a generator works while it is read
    for owner, attribute, name in (
        (engine.Scheduler, "schedule", "schedule"),
        (engine, "build_batch", "batch"),
        (engine.Runner, "logits", "forward"),
        (engine, "choose", "choose"),
        (engine.EngineLoop, "_publish", "publish"),
        (engine.EngineLoop, "_deliver", "deliver"),
        (engine.EngineLoop, "_step", "step"),
    ):
        setattr(owner, attribute, clock.around(name, getattr(owner, attribute)))
    timed = {name: clock.around(name, getattr(chosen, name)) for name in KERNELS}
    native.instruction_set = lambda _: SimpleNamespace(**timed, name=chosen.name)
    return steps


def _print(clock: Clock, steps: list[int]) -> None:
    count = len(steps)
    rows = _rows(clock.parts)
    whole = sum(rows.values())
    print(f"{count} steps of {sum(steps) / count:.1f} sequences, {whole / count * 1e3:.2f} ms each:")
    for name, seconds in rows.items():
        print(f"{name:<26} {seconds / count * 1e6:9.0f} µs {100 * seconds / whole:7.1f} %")
    print(f"outside the kernels: {100 * (1 - sum(rows[name] for name in KERNELS) / whole):.1f} %")


def _rows(parts: dict[str, float]) -> dict[str, float]:
    """Parts that add up to the whole of the steps."""
    rows = {name: parts[name] for name in KERNELS}
    rows["forward, but for kernels"] = parts["forward"] - sum(rows.values())
    rows |= {name: parts[name] for name in ("schedule", "batch", "choose")}
    rows["rest of the step"] = parts["step"] - sum(parts[name] for name in ("forward", "schedule", "batch", "choose"))
    return rows | {name: parts[name] for name in ("publish", "deliver")}


if __name__ == "__main__":
    main()
