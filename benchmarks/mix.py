"""Many adapters at once: 16 clients, 32 adapters drawn by Zipf, against the base alone.

    python -m benchmarks.mix [--clients 16] [--requests 160] [--adapters 32] ...

Adapters have ranks 8, 16, 32, 8, … on all seven linear layers; the k-th is drawn with weight 1/k. Prompts are fresh
random token ids; every answer has exactly the asked-for length, greedy. Server and clients share the machine.
"""

import argparse
import json
import random
import tempfile
from itertools import repeat
from pathlib import Path

from benchmarks.adapters import write_mix
from benchmarks.load import Load, Report, run, zipf
from benchmarks.server import serve
from turnout.build import base_folder


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--adapters", type=int, default=32)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=160)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=64)
    options = parser.parse_args()
    config = json.loads((base_folder(options.base) / "config.json").read_text())
    load = Load(options.clients, options.requests, options.prompt_tokens, options.output_tokens, config["vocab_size"])
    with tempfile.TemporaryDirectory() as folder:
        names = list(write_mix(Path(folder), config, options.adapters))
        arguments = ["--base", options.base, "--served-model-name", "base", "--adapters", folder]
        arguments += ["--dtype", options.dtype, "--threads", str(options.threads)]
        with serve(arguments) as port:
            mixed = run(port, zipf(names, 1.0, random.Random(0)), load)
            single = run(port, repeat(names[1]), load)
            alone = run(port, repeat("base"), load)
    _print(options, mixed, single, alone)


def _print(options: argparse.Namespace, mixed: Report, single: Report, alone: Report) -> None:
    print(
        f"{options.base} {options.dtype}, {options.threads} threads, {options.clients} clients, "
        f"{options.prompt_tokens} tokens in, {options.output_tokens} out, {options.requests} requests each"
    )
    print(mixed.line(f"{options.adapters} adapters by Zipf (1/k)"))
    print(single.line("one adapter (rank 16)"))
    print(alone.line("base alone"))
    print(f"mix / base alone: {mixed.tokens_per_second / alone.tokens_per_second:.2f}")


if __name__ == "__main__":
    main()
