"""Tables of rotary position embeddings."""

import math

import torch
from torch import Tensor

from turnout.models.spec import RopeSpec


def rope_tables(rope: RopeSpec, head_dim: int, context_length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32 [context_length, head_dim / 2], of the angle position * frequency of each pair.

    Frequencies are theta^(-2i / head_dim) for pair i (Su et al. 2021, https://arxiv.org/abs/2104.09864); `linear`
    divides them all by the factor, which is the same as dividing positions (https://arxiv.org/abs/2306.15595).
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / rope.theta**exponents
    if rope.scaling == "linear":
        frequencies = frequencies / rope.factor
    elif rope.scaling == "llama3":
        frequencies = _scale_llama3(frequencies, rope)
    angles = torch.outer(torch.arange(context_length, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def _scale_llama3(frequencies: Tensor, rope: RopeSpec) -> Tensor:
    """Divide low frequencies by the factor, keep high ones, and blend between, as Llama 3.1 was trained.

    Source: `apply_scaling` in https://github.com/meta-llama/llama-models/blob/main/models/llama3/model.py
    """
    turns = rope.original_context * frequencies / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    kept = blend.clamp(0, 1)
    return kept * frequencies + (1 - kept) * frequencies / rope.factor
