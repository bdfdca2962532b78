"""Many adapters that do not fit, against a few that do: 1,000 drawn uniformly with room for 64, against 5.

    python -m benchmarks.many [--adapters 1000] [--hot 64] [--requests 320]

Rank 8 on q_proj and v_proj, as in S-LoRA's measurements (Sheng et al. 2023, https://arxiv.org/abs/2311.03285). Both
loads go to one server, with one size of adapter memory.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.adapters import module_shapes, write_adapter
from benchmarks.load import Load, run
from benchmarks.server import serve
from turnout.build import base_folder

TARGETS = ("q_proj", "v_proj")
RANK = 8
FEW = 5


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--adapters", type=int, default=1000)
    parser.add_argument("--hot", type=int, default=64)
    parser.add_argument("--requests", type=int, default=320)
    options = parser.parse_args()
    config = json.loads((base_folder(options.base) / "config.json").read_text())
    load = Load(16, options.requests, 64, 64, config["vocab_size"])
    with tempfile.TemporaryDirectory() as folder:
        names = [f"a{index:04}" for index in range(options.adapters)]
        for index, name in enumerate(names):
            write_adapter(Path(folder) / name, config, rank=RANK, seed=index, targets=TARGETS)
        each = 2 * RANK * sum(sum(shape) for shape in module_shapes(config, TARGETS).values())
        arguments = ["--base", options.base, "--served-model-name", "base", "--adapters", folder]
        arguments += ["--dtype", "bfloat16", "--threads", str(options.threads)]
        arguments += ["--adapter-memory", str(options.hot * each)]
        began = time.perf_counter()
        with serve(arguments) as port:
            print(f"{options.adapters} adapters of {each / 1e6:.2f} MB, ready in {time.perf_counter() - began:.0f} s")
            few = run(port, _uniform(names[:FEW]), load)
            many = run(port, _uniform(names), load)
    print(few.line(f"{FEW} adapters"))
    print(many.line(f"{options.adapters} adapters, room for {options.hot}"))
    print(f"many / few: {many.tokens_per_second / few.tokens_per_second:.3f}")


def _uniform(names: list[str]) -> Iterator[str]:
    pick = random.Random(0)
    while True:
        yield pick.choice(names)


if __name__ == "__main__":
    main()
