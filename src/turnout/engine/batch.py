"""Turns a step's chunks into the arrays a decoder takes. Built afresh for every step; nothing is remembered."""

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from turnout.core.identity import Digest
from turnout.engine.residency import Residency
from turnout.engine.scheduler import Chunk
from turnout.engine.sequence import Sequence
from turnout.kernels.interface import AttentionRows, LoraSegments
from turnout.models.decoder import StepBatch


@dataclass(frozen=True, slots=True)
class Sample:
    """Row `row` of the step's logits gives the next token of `sequence`."""

    sequence: Sequence
    row: int


@dataclass(frozen=True, slots=True)
class Score:
    """Rows `row` onwards of the step's logits give the probabilities of prompt tokens `start` to `stop`."""

    sequence: Sequence
    start: int
    stop: int
    row: int


@dataclass(frozen=True, slots=True)
class Batch:
    """All facts about one step, and what its logits are for."""

    step: StepBatch
    segments: LoraSegments
    samples: tuple[Sample, ...]
    scores: tuple[Score, ...]


def build_batch(
    chunks: Ordered[Chunk], residency: Residency, arena: Tensor, block_size: int, device: torch.device
) -> Batch:
    """The arrays of one step, rows ordered by adapter so that each adapter is one segment."""
    chunks = sorted(chunks, key=lambda chunk: chunk.sequence.digest)
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    query_starts = [0]
    logit_rows: list[int] = []
    samples: list[Sample] = []
    scores: list[Score] = []
    for chunk in chunks:
        sequence, first_row = chunk.sequence, len(token_ids)
        token_ids += sequence.tokens[chunk.start : chunk.stop]
        positions += range(chunk.start, chunk.stop)
        slots += [
            sequence.blocks[position // block_size] * block_size + position % block_size
            for position in range(chunk.start, chunk.stop)
        ]
        query_starts.append(len(token_ids))
        score = _score(chunk, len(logit_rows))
        if score is not None:
            scores.append(score)
            logit_rows += range(first_row, first_row + score.stop - score.start)
        if chunk.reaches_end and sequence.sampling.max_tokens > 0:
            samples.append(Sample(sequence, len(logit_rows)))
            logit_rows.append(len(token_ids) - 1)
    rows = AttentionRows(
        query_starts=np.array(query_starts, np.int32),
        context_lengths=np.array([chunk.stop for chunk in chunks], np.int32),
        block_tables=_block_tables(chunks),
    )
    step = StepBatch(
        token_ids=_tensor(token_ids, device),
        positions=_tensor(positions, device),
        slots=_tensor(slots, device),
        rows=rows,
        logit_rows=_tensor(logit_rows, device),
    )
    return Batch(step, _segments(chunks, residency, arena), tuple(samples), tuple(scores))


def _score(chunk: Chunk, row: int) -> Score | None:
    """What of the prompt this chunk's logits score: the row of a token gives the probability of the one after it."""
    if chunk.sequence.sampling.prompt_logprobs is None:
        return None
    stop = min(chunk.stop + 1, len(chunk.sequence.request.prompt))
    return Score(chunk.sequence, chunk.start + 1, stop, row) if stop > chunk.start + 1 else None


def _block_tables(chunks: Ordered[Chunk]) -> np.ndarray:
    width = max((len(chunk.sequence.blocks) for chunk in chunks), default=0)
    tables = np.zeros((len(chunks), width), np.int32)
    for table, chunk in zip(tables, chunks, strict=True):
        table[: len(chunk.sequence.blocks)] = chunk.sequence.blocks
    return tables


def _segments(chunks: Ordered[Chunk], residency: Residency, arena: Tensor) -> LoraSegments:
    starts = [0]
    digests: list[Digest] = []
    for digest, group in groupby(chunks, key=lambda chunk: chunk.sequence.digest):
        digests.append(digest)
        starts.append(starts[-1] + sum(chunk.stop - chunk.start for chunk in group))
    placed = [residency.hot(digest) for digest in digests]
    return LoraSegments(
        starts=np.array(starts, np.int32),
        arena=arena,
        a_offsets=np.stack([table.a_offsets + start for table, start in placed], axis=-1),
        b_offsets=np.stack([table.b_offsets + start for table, start in placed], axis=-1),
        ranks=np.stack([table.ranks for table, _ in placed], axis=-1),
        scales=np.stack([table.scales for table, _ in placed], axis=-1),
    )


def _tensor(values: list[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
