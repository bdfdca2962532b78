"""What adapters cost in a decode step, and how far from the machine's limit a step is.

    python -m benchmarks.step [--rank 16] [--context 100] [--requests 160]

First whole forward passes, in turns: the base alone, and a distinct adapter on all linear layers for each row. Then
over HTTP: as many clients as a batch has rows, each with an adapter of its own, against the same clients on the base.

The limit of a pass is the longer of two times: reading every byte it needs once (weights, adapters, keys and values)
at the speed at which this machine sums up a large buffer, and its multiplications and additions at the speed of this
machine's best large matrix product. A perfect program would overlap the two, so the longer one bounds it.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.adapters import write_adapter
from benchmarks.forward import Pass, adapter_elements, decode_pass, distinct_lora, no_lora
from benchmarks.load import Load, run
from benchmarks.server import serve
from turnout.build.base import Base, base_folder, load_base
from turnout.models.spec import linears

ROWS = (1, 8, 16, 32)
ROUNDS = 30
CLIENTS = 16


@dataclass(frozen=True)
class Machine:
    """What the machine can do: bytes read and operations computed, per second."""

    bandwidth: float
    arithmetic: float

    def limit(self, nbytes: float, operations: float) -> float:
        """Seconds that no program can do without."""
        return max(nbytes / self.bandwidth, operations / self.arithmetic)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--context", type=int, default=100)
    parser.add_argument("--requests", type=int, default=160)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    base = load_base(base_folder(options.base), dtype="bfloat16", device="cpu")
    machine = _measure()
    print(
        f"{options.base}, kernels {base.kernels.name}, {options.threads} threads: this machine reads "
        f"{machine.bandwidth / 1e9:.0f} GB/s and computes {machine.arithmetic / 1e9:.0f} GFLOP/s in bfloat16"
    )
    print("rows   base alone: best, median, limit      adapters: best, median, limit        tax   adapters / limit")
    for rows in ROWS:
        _compare(base, rows, options.rank, options.context, machine)
    _over_http(options)


def _compare(base: Base, rows: int, rank: int, context: int, machine: Machine) -> None:
    passes = (
        decode_pass(base, rows, context, no_lora(base, range(rows + 1))),
        decode_pass(base, rows, context, distinct_lora(base, rows, rank)),
    )
    times = _in_turns([each.logits for each in passes])
    limits = [machine.limit(*_needs(each, rank=rank if i else 0)) for i, each in enumerate(passes)]
    best = [min(each) for each in times]
    cells = [
        f"{best[i] * 1e3:6.1f} {statistics.median(times[i]) * 1e3:6.1f} {limits[i] * 1e3:6.1f} ms" for i in range(2)
    ]
    print(
        f"{rows:4}          {cells[0]}           {cells[1]}    {100 * (best[1] / best[0] - 1):5.0f} %"
        f"   {best[1] / limits[1]:10.2f}"
    )


def _needs(each: Pass, rank: int) -> tuple[float, float]:
    """Bytes and operations of a pass: two operations for each weight and row, four for each key's element and head."""
    spec, rows = each.base.spec, len(each.batch.token_ids)
    context = int(each.batch.rows.context_lengths.sum())
    weights = sum(linear.in_features * linear.out_features for linear in linears(spec).values())
    weights += spec.vocab_size * spec.hidden_size
    adapter = adapter_elements(spec, rank)
    state = 2 * spec.layers * context * spec.kv_heads * spec.head_dim
    attention = 4 * spec.layers * context * spec.heads * spec.head_dim
    return 2.0 * (weights + rows * adapter + state), 2.0 * rows * (weights + adapter) + attention


def _in_turns(calls: list[Callable[[], object]]) -> list[list[float]]:
    """Times of each call; turn by turn, so that what else the machine does falls on all alike."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, own in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            own.append(time.perf_counter() - began)
    return times


def _measure() -> Machine:
    buffer = torch.ones(1 << 27, dtype=torch.int64)
    (reading,) = _in_turns([buffer.sum])
    a, b = torch.randn(2, 2048, 2048).bfloat16()
    (computing,) = _in_turns([lambda: a @ b])
    return Machine(buffer.nbytes / min(reading), 2 * 2048**3 / min(computing))


def _over_http(options: argparse.Namespace) -> None:
    config = json.loads((base_folder(options.base) / "config.json").read_text())
    load = Load(CLIENTS, options.requests, 64, 64, config["vocab_size"])
    with tempfile.TemporaryDirectory() as folder:
        names = [f"a{index:02}" for index in range(CLIENTS)]
        for index, name in enumerate(names):
            write_adapter(Path(folder) / name, config, rank=options.rank, seed=index)
        arguments = ["--base", options.base, "--served-model-name", "base", "--adapters", folder]
        with serve([*arguments, "--dtype", "bfloat16", "--threads", str(options.threads)]) as port:
            alone = run(port, itertools.repeat("base"), load)
            adapted = run(port, itertools.cycle(names), load)
    print(alone.line("over HTTP, base alone"))
    print(adapted.line(f"over HTTP, {CLIENTS} adapters in turn"))
    print(f"tax: {100 * (alone.tokens_per_second / adapted.tokens_per_second - 1):.0f} %")


if __name__ == "__main__":
    main()
