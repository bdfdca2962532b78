"""Computes one planned step: logits from a batch, tokens and log-probabilities from logits."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from turnout.core.events import TokenLogprob
from turnout.engine.batch import Batch, Sample
from turnout.engine.sampler import is_plain_greedy, logprobs_of, sample
from turnout.engine.sequence import Sequence
from turnout.kernels.interface import Kernels
from turnout.models.decoder import DecoderWeights, KVCache, forward


@dataclass(frozen=True, slots=True)
class Runner:
    """The resident model: weights, kernels and the KV cache its steps read and write."""

    weights: DecoderWeights
    kernels: Kernels
    kv: KVCache

    def logits(self, batch: Batch) -> Tensor:
        """float32 logits [rows asked for, vocab]; the state of all the batch's tokens is in the cache afterwards."""
        return forward(self.weights, batch.step, self.kv, batch.segments, self.kernels)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A sequence's next token; `token` is None where its logits were not finite, so that there is none."""

    sequence: Sequence
    token: int | None
    logprob: TokenLogprob | None = None


def choose(batch: Batch, logits: Tensor) -> Iterator[Chosen]:
    """The next token of every sequence whose last token was in the step."""
    if not batch.samples:
        return
    # For all rows at once: the likeliest tokens, and which rows hold a NaN or an infinity, for then their maximum is
    # one. numpy finds it in a fraction of torch's time.
    values = logits.cpu().numpy()
    likeliest = values.argmax(-1)
    finite = np.isfinite(values[np.arange(len(values)), likeliest]).tolist()
    greedy = likeliest.tolist()
    for wanted in batch.samples:
        row = logits[wanted.row]
        if not finite[wanted.row]:
            yield Chosen(wanted.sequence, None)
            continue
        token = greedy[wanted.row]
        if not is_plain_greedy(wanted.sequence.sampling):
            token = _sampled(wanted, row)
        yield Chosen(wanted.sequence, token, _logprob(wanted, row, token))


def _sampled(wanted: Sample, row: Tensor) -> int:
    sequence = wanted.sequence
    return sample(row, sequence.sampling, sequence.request.prompt, sequence.output, sequence.generator)


def _logprob(wanted: Sample, row: Tensor, token: int) -> TokenLogprob | None:
    alternatives = wanted.sequence.sampling.logprobs
    return None if alternatives is None else logprobs_of(row[None], [token], alternatives)[0]


def score(batch: Batch, logits: Tensor) -> Iterator[tuple[Sequence, list[TokenLogprob]]]:
    """Log-probabilities of the prompt tokens which the step's logits score."""
    for wanted in batch.scores:
        rows = logits[wanted.row : wanted.row + wanted.stop - wanted.start]
        tokens = wanted.sequence.tokens[wanted.start : wanted.stop]
        yield wanted.sequence, logprobs_of(rows, tokens, wanted.sequence.sampling.prompt_logprobs or 0)
