"""Whole logits against transformers and PEFT on the same files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.adapters import merged_logits, peft_logits, random_adapter
from tests.support.bases import write_random_base
from tests.support.steps import PagedRun, hold_adapter, lora_segments, start_run
from turnout.kernels import onednn, reference
from turnout.kernels.interface import AttentionRows, Kernels
from turnout.models.decoder import StepBatch, forward

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}

BASES = {
    "llama": {"family": "llama"},
    "llama tied": {"family": "llama", "tied": True},
    "llama with biases": {"family": "llama", "attention_bias": True, "mlp_bias": True},
    "llama with llama3 rope": {"family": "llama", "rope_parameters": LLAMA3_ROPE},
    "llama with linear rope": {"family": "llama", "rope_parameters": LINEAR_ROPE},
    "llama with one key head": {"family": "llama", "num_key_value_heads": 1},
    "mistral": {"family": "mistral", "sliding_window": None},
    "mistral with window": {"family": "mistral", "sliding_window": 11},
    "mistral with wide heads": {"family": "mistral", "head_dim": 32, "sliding_window": 16},
    "qwen2": {"family": "qwen2"},
    "qwen2 tied with window": {
        "family": "qwen2",
        "tied": True,
        "use_sliding_window": True,
        "sliding_window": 9,
        "max_window_layers": 0,
    },
    "qwen3": {"family": "qwen3", "head_dim": 32},
    "qwen3 tied": {"family": "qwen3", "tied": True, "attention_bias": True},
}

LENGTHS = {"one": 1, "short": 7, "block": 8, "long": 61, "longest": 200}


def _texts(seed: int = 0) -> dict[str, list[int]]:
    random = np.random.default_rng(seed)
    return {name: random.integers(0, 320, length).tolist() for name, length in LENGTHS.items()}


def _run_in_chunks(run: PagedRun, texts: dict[str, list[int]], **step: object) -> dict[str, torch.Tensor]:
    """Feed the texts in pieces of 1, 5 and 32 tokens, sequences coming and going; all logits by sequence."""
    pieces = {name: [] for name in texts}
    sizes = np.random.default_rng(1)
    left = {name: list(tokens) for name, tokens in texts.items()}
    while any(left.values()):
        chunks = {}
        for name, tokens in left.items():
            size = int(sizes.choice([0, 1, 1, 5, 32]))
            if tokens[:size]:
                chunks[name], left[name] = tokens[:size], tokens[size:]
        if chunks:
            for name, logits in run.step(chunks, **step).items():
                pieces[name].append(logits)
    return {name: torch.cat(parts) for name, parts in pieces.items()}


@pytest.fixture(params=[reference, onednn], ids=lambda kernels: kernels.name)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return request.param


@pytest.mark.parametrize("name", BASES)
def test_logits_equal_transformers(tmp_path: Path, name: str, kernels: Kernels) -> None:
    base = write_random_base(tmp_path, **BASES[name])
    texts = _texts()
    for sequence, logits in _run_in_chunks(start_run(base, kernels), texts).items():
        assert logits.dtype == torch.float32
        assert (logits - merged_logits(base, None, texts[sequence])).abs().max() < 1e-4, sequence


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_bfloat16_stays_close_to_float32(tmp_path: Path, family: str, kernels: Kernels) -> None:
    base = write_random_base(tmp_path, family=family)
    texts = _texts()
    got = _run_in_chunks(start_run(base, kernels, torch.bfloat16), texts)
    for sequence, logits in got.items():
        right = merged_logits(base, None, texts[sequence])
        # transformers' own bfloat16 run of these models is off by about as much.
        assert (logits - right).abs().mean() < 0.03 * right.std()


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_adapters_in_one_batch_equal_peft_each(tmp_path: Path, family: str, kernels: Kernels) -> None:
    base = write_random_base(tmp_path / "base", family=family, head_dim=16)
    made = {
        "one": {"rank": 1, "targets": ("down_proj",), "layers": [1]},
        "block": {"rank": 8, "targets": ("q_proj", "v_proj")},
        "long": {"rank": 5, "targets": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")},
        "longest": {"rank": 3, "targets": ("up_proj", "o_proj", "k_proj"), "layers": [0]},
    }
    folders = {
        name: random_adapter(tmp_path / name, base, seed=seed, alpha=12, **how)
        for seed, (name, how) in enumerate(made.items())
    }
    run = start_run(base, kernels)
    held = {name: hold_adapter(folder, run.weights.spec, 12 / made[name]["rank"]) for name, folder in folders.items()}
    texts = _texts(2)
    for sequence, logits in _run_in_chunks(run, texts, adapters=held).items():
        folder = folders.get(sequence)
        right = (
            merged_logits(base, None, texts[sequence]) if folder is None else peft_logits(base, folder, texts[sequence])
        )
        assert (logits - right).abs().max() < 1e-4, sequence


def test_only_the_rows_asked_for_get_logits(tmp_path: Path, kernels: Kernels) -> None:
    run = start_run(write_random_base(tmp_path), kernels)
    rows = AttentionRows(np.array([0, 3], np.int32), np.array([3], np.int32), np.array([[4]], np.int32))
    tokens = torch.tensor([5, 6, 7])
    batch = StepBatch(tokens, torch.arange(3), torch.arange(32, 35), rows, torch.arange(3))
    segments = lora_segments(run.weights.spec, [None], [3], torch.float32)
    every = forward(run.weights, batch, run.kv, segments, kernels)
    some = forward(run.weights, replace(batch, logit_rows=torch.tensor([2, 0])), run.kv, segments, kernels)
    none = forward(run.weights, replace(batch, logit_rows=torch.arange(0)), run.kv, segments, kernels)
    assert torch.allclose(some, every[[2, 0]], atol=1e-5)
    assert none.shape == (0, 320)
