"""Sampling against plain definitions."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core.request import SamplingParams
from turnout.engine.sampler import TOP_WIDTHS, adjust, is_plain_greedy, logprobs_of, sample

VOCAB = TOP_WIDTHS[-1] + 500


def logits(seed: int, spread: float = 2.0) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * spread


def allowed(row: torch.Tensor, params: SamplingParams) -> dict[int, float]:
    """The filtered, normalised distribution by the book: sort everything, apply each filter in turn."""
    scaled = (row.double() / params.temperature).numpy()
    order = np.argsort(-scaled, kind="stable")
    if params.top_k > 0:
        order = order[: params.top_k]
    p = np.exp(scaled[order] - scaled[order].max())
    p /= p.sum()
    before = np.cumsum(p) - p
    keep = (before < params.top_p) & (p >= params.min_p * p[0])
    keep[0] = True
    order, p = order[keep], p[keep]
    return dict(zip(order.tolist(), (p / p.sum()).tolist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.01, 1.0, 5.0]),
    temperature=st.sampled_from([0.2, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 7, 100, VOCAB + 5]),
    top_p=st.sampled_from([0.05, 0.5, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_only_allowed_tokens_are_drawn(seed, spread, temperature, top_k, top_p, min_p) -> None:
    params = SamplingParams(1, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    row = logits(seed, spread)
    book = allowed(row, params)
    drawn = {sample(row, params, [], [], np.random.default_rng(i)) for i in range(20)}
    # The edge of a nucleus lies within rounding: one more or less token of the border is no fault.
    wider = allowed(
        row, SamplingParams(1, temperature=temperature, top_k=top_k, top_p=min(1.0, top_p + 1e-4), min_p=min_p * 0.999)
    )
    assert drawn <= set(book) | set(wider)


def test_draws_follow_the_distribution() -> None:
    row = torch.full((VOCAB,), -30.0)
    row[:4] = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    for params in (
        SamplingParams(1),
        SamplingParams(1, top_p=0.95),
        SamplingParams(1, top_k=4),
        SamplingParams(1, min_p=0.001),
    ):
        generator = np.random.default_rng(7)
        counts = Counter(sample(row, params, [], [], generator) for _ in range(4000))
        for token, share in enumerate((0.4, 0.3, 0.2, 0.1)):
            assert abs(counts[token] / 4000 - share) < 4 * math.sqrt(share * (1 - share) / 4000)


def test_a_seed_gives_the_same_tokens_whatever_else_is_drawn() -> None:
    row = logits(3)
    params = SamplingParams(1, top_p=0.9)
    first = [sample(row, params, [], [], g) for g in [np.random.default_rng(5)] for _ in range(10)]
    mine, other = np.random.default_rng(5), np.random.default_rng(6)
    second = []
    for _ in range(10):
        sample(row, params, [], [], other)
        second.append(sample(row, params, [], [], mine))
    assert first == second


def test_penalties_and_bias_follow_their_formulas() -> None:
    row = torch.tensor([2.0, -2.0, 1.0, 0.5, 0.0])
    params = SamplingParams(
        1, presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0, logit_bias=((4, 9.0),)
    )
    got = adjust(row, params, prompt=[0], output=[1, 1, 2])
    expected = [2.0 / 2, -2.0 * 2 - 0.5 - 0.25 * 2, 1.0 / 2 - 0.5 - 0.25, 0.5, 9.0]
    assert got.tolist() == pytest.approx(expected)
    assert row.tolist() == [2.0, -2.0, 1.0, 0.5, 0.0]


def test_greedy_takes_bias_into_account() -> None:
    row = logits(1)
    params = SamplingParams(1, temperature=0, logit_bias=((17, 100.0),))
    assert not is_plain_greedy(params)
    assert sample(row, params, [], [], np.random.default_rng(0)) == 17
    assert is_plain_greedy(SamplingParams(1, temperature=0))


def test_logprobs_are_those_of_the_raw_logits() -> None:
    rows = torch.stack([logits(1), logits(2)])
    plain = torch.log_softmax(rows.double(), -1)
    got = logprobs_of(rows, [5, 6], 3)
    for index, token in enumerate((5, 6)):
        assert got[index].logprob == pytest.approx(float(plain[index, token]), abs=1e-5)
        best = plain[index].topk(3)
        assert [t for t, _ in got[index].top] == best.indices.tolist()
    assert logprobs_of(rows, [5, 6], 0)[0].top == ()
