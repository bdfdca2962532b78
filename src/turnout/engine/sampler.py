"""Chooses tokens from logits. A row's token depends on its own logits, history and generator alone."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from turnout.core.events import TokenLogprob
from turnout.core.request import SamplingParams

TOP_WIDTHS = (64, 1024)
"""How many of the likeliest tokens a nucleus is looked for in before the whole vocabulary is sorted."""


def sample(
    logits: Tensor, params: SamplingParams, prompt: Sequence[int], output: Sequence[int], generator: np.random.Generator
) -> int:
    """The next token for one row of float32 logits [vocab].

    In vLLM's order: bias and penalties, temperature, then top-k, top-p and min-p. One uniform number is drawn from
    `generator` per sampled token, whatever the filters.
    """
    logits = adjust(logits, params, prompt, output)
    if params.temperature == 0:
        return int(logits.argmax())
    probabilities, tokens = _candidates(logits / params.temperature, params)
    # Inverse transform sampling: robust to the last bits of the logits, unlike one random number per token.
    cumulative = torch.cumsum(probabilities.double(), 0)
    point = generator.random() * float(cumulative[-1])
    chosen = int(torch.searchsorted(cumulative, point, right=True))
    chosen = min(chosen, len(cumulative) - 1)
    return chosen if tokens is None else int(tokens[chosen])


def is_plain_greedy(params: SamplingParams) -> bool:
    """Whether the row's argmax is its token, so that rows can be done together."""
    return params.temperature == 0 and not _is_adjusted(params)


def _is_adjusted(params: SamplingParams) -> bool:
    return bool(
        params.logit_bias or params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0
    )


def adjust(logits: Tensor, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
    """Apply bias and penalties; a new tensor if there are any.

    Presence and frequency penalties count the output only (OpenAI's definition); the repetition penalty covers
    prompt and output and divides positive logits, multiplies negative ones (CTRL, arXiv:1909.05858, section 4.1).
    """
    if not _is_adjusted(params):
        return logits
    logits = logits.clone()
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sorted({*prompt, *output}), device=logits.device)
        values = logits[seen]
        penalty = params.repetition_penalty
        logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if output and (params.presence_penalty or params.frequency_penalty):
        counts = Counter(output)
        tokens = torch.tensor(list(counts), device=logits.device)
        times = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
        logits[tokens] -= params.presence_penalty + params.frequency_penalty * times
    for token, bias in params.logit_bias:
        logits[token] += bias
    return logits


def _candidates(logits: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor | None]:
    """Unnormalised probabilities of what the filters leave, and their tokens (None: all, in order of id)."""
    if params.top_k > 0:
        logits, tokens = torch.topk(logits, min(params.top_k, len(logits)))
        kept = _nucleus(torch.softmax(logits, 0), params)
        return kept, tokens[: len(kept)]
    probabilities = torch.softmax(logits, 0)
    if params.top_p >= 1.0:
        # min-p needs no order: it compares each with the likeliest.
        floor = params.min_p * probabilities.max()
        return torch.where(probabilities >= floor, probabilities, 0.0), None
    for best, tokens in _widening_top(probabilities):
        if float(best.sum()) >= params.top_p or len(best) == len(probabilities):
            kept = _nucleus(best, params)
            return kept, tokens[: len(kept)]
    raise AssertionError("unreachable: the last width is the whole vocabulary")


def _widening_top(probabilities: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for width in TOP_WIDTHS:
        if width < len(probabilities):
            yield torch.topk(probabilities, width)
    yield torch.sort(probabilities, descending=True, stable=True)


def _nucleus(probabilities: Tensor, params: SamplingParams) -> Tensor:
    """The shortest prefix of descending `probabilities` that top-p and min-p allow, never empty."""
    keep = len(probabilities)
    if params.top_p < 1.0:
        before = torch.cumsum(probabilities, 0) - probabilities
        keep = int((before < params.top_p).sum())
    if params.min_p > 0.0:
        keep = min(keep, int((probabilities >= params.min_p * probabilities[0]).sum()))
    return probabilities[: max(keep, 1)]


def logprobs_of(logits: Tensor, tokens: Sequence[int], alternatives: int) -> list[TokenLogprob]:
    """Log-probabilities of `tokens`, one per row of float32 logits [rows, vocab], with the best `alternatives`."""
    logprobs = torch.log_softmax(logits, -1)
    chosen = logprobs.gather(1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0].tolist()
    if alternatives == 0:
        return [TokenLogprob(token, value) for token, value in zip(tokens, chosen, strict=True)]
    values, ids = torch.topk(logprobs, min(alternatives, logprobs.shape[1]))
    return [
        TokenLogprob(token, value, tuple(zip(row_ids, row_values, strict=True)))
        for token, value, row_ids, row_values in zip(tokens, chosen, ids.tolist(), values.tolist(), strict=True)
    ]
