"""What int8 weights cost in quality: how far the next token's probabilities move, on the demo's prompts.

    python -m benchmarks.quality [--base smollm2-135m]

Kullback-Leibler divergence, in nats, of every position's distribution from that of the weights in float32; bfloat16
is the yardstick. The prompts are those that `turnout demo` asks its adapters, rendered as chats.
"""

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.forward import prompt_pass
from turnout.build.base import Base, base_folder, load_base
from turnout.core.adapter import Dtype

DEMO = Path(__file__).parents[1] / "examples" / "adapters" / "demo.json"


@dataclass(frozen=True)
class Distance:
    """Of one prompt: each position's divergence, and how often the likeliest token is the same."""

    divergences: list[float]
    same_token: int


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="smollm2-135m")
    options = parser.parse_args()
    folder = base_folder(options.base)
    oracle = load_base(folder, dtype="float32", device="cpu")
    prompts = _prompts(oracle)
    right = [_log_probabilities(oracle, prompt) for prompt in prompts]
    print(f"{options.base}: {len(prompts)} prompts, {sum(map(len, prompts))} tokens; against float32")
    dtypes: tuple[tuple[str, Dtype, bool], ...] = (("bfloat16", "bfloat16", False), ("int8", "bfloat16", True))
    seen: dict[str, list[torch.Tensor]] = {}
    for name, dtype, int8 in dtypes:
        base = load_base(folder, dtype=dtype, device="cpu", int8_weights=int8)
        seen[name] = [_log_probabilities(base, prompt) for prompt in prompts]
        _report(name, right, seen[name])
    print("against bfloat16")
    _report("int8", seen["bfloat16"], seen["int8"])


def _prompts(base: Base) -> list[tuple[int, ...]]:
    assert base.chat_template is not None
    texts = json.loads(DEMO.read_text()).values()
    rendered = [base.chat_template.render([{"role": "user", "content": text}]) for text in texts]
    return [tuple(base.tokenizer.encode(text, add_special_tokens=False)) for text in rendered]


def _log_probabilities(base: Base, prompt: tuple[int, ...]) -> torch.Tensor:
    return prompt_pass(base, prompt).logits().log_softmax(-1)


def _report(name: str, right: list[torch.Tensor], got: list[torch.Tensor]) -> None:
    distances = [_distance(*pair) for pair in zip(right, got, strict=True)]
    divergences = [value for distance in distances for value in distance.divergences]
    same = sum(distance.same_token for distance in distances)
    print(
        f"  {name:<9} KL mean {statistics.fmean(divergences):.5f}, median {statistics.median(divergences):.5f}, "
        f"95 % {statistics.quantiles(divergences, n=20)[-1]:.5f}, greatest {max(divergences):.4f}; "
        f"same likeliest token {100 * same / len(divergences):.1f} %"
    )


def _distance(right: torch.Tensor, got: torch.Tensor) -> Distance:
    divergences = (right.exp() * (right - got)).sum(-1)
    return Distance(divergences.tolist(), int((right.argmax(-1) == got.argmax(-1)).sum()))


if __name__ == "__main__":
    main()
