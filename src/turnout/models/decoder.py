"""The decoder's forward pass: a function of weights, a step's tokens, the KV cache and the adapters in use."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from torch import Tensor

from turnout.core.adapter import TARGETS
from turnout.kernels.interface import AttentionRows, Kernels, LoraColumns, LoraSegments
from turnout.models.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One block. Linears are in the kernels' own form; `qkv` and `gate_up` are fused in this order of outputs.

    Norms are tensors [hidden_size], `query_norm` and `key_norm` [head_dim], or None without QK-norm.
    """

    attention_norm: Tensor
    qkv: Any
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Any
    mlp_norm: Tensor
    gate_up: Any
    down: Any


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """A base model, ready for one kernel set. `embedding` [vocab, hidden_size], `norm` [hidden_size].

    `cos` and `sin`: float32 [context_length, head_dim / 2].
    """

    spec: DecoderSpec
    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Any
    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The tokens of one step, one row each: T rows, ordered as `kernels.interface` says.

    `token_ids`, `positions` and `slots` are int64 [T]; slot b * block_size + i is place i of KV block b.
    `logit_rows` int64 [L]: the rows whose logits are wanted.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    rows: AttentionRows
    logit_rows: Tensor


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values of all layers, each [layers, blocks, block_size, kv_heads, head_dim]."""

    k: Tensor
    v: Tensor


def forward(weights: DecoderWeights, batch: StepBatch, kv: KVCache, lora: LoraSegments, kernels: Kernels) -> Tensor:
    """Run a step's tokens through the model; their keys and values are written to `kv`.

    Returns float32 logits [L, vocab] of `batch.logit_rows`.
    """
    spec = weights.spec
    columns = _fused_columns(spec)
    adapted = bool(lora.ranks.any())

    def project(x: Tensor, packed: Any, layer: int, fused: str) -> Tensor:
        if adapted:
            return kernels.adapted_linear(x, packed, lora, layer, columns[fused])
        return kernels.linear(x, packed)

    x = weights.embedding.index_select(0, batch.token_ids)
    cos = weights.cos.index_select(0, batch.positions)
    sin = weights.sin.index_select(0, batch.positions)
    normed = kernels.rms_norm(x, weights.layers[0].attention_norm, spec.rms_norm_eps)
    next_norms = (*(layer.attention_norm for layer in weights.layers[1:]), weights.norm)
    for index, (layer, next_norm) in enumerate(zip(weights.layers, next_norms, strict=True)):
        k_cache, v_cache = kv.k[index], kv.v[index]
        q, k, v = _heads(project(normed, layer.qkv, index, "qkv"), layer, spec, kernels)
        q = kernels.rope_and_cache(q, k, v, cos, sin, k_cache, v_cache, batch.slots)
        attended = kernels.attention(q, k_cache, v_cache, batch.rows, spec.head_dim**-0.5, spec.sliding_window)
        delta = project(attended.flatten(1), layer.output, index, "output")
        x, normed = kernels.add_rms_norm(x, delta, layer.mlp_norm, spec.rms_norm_eps)
        gated = kernels.silu_mul(project(normed, layer.gate_up, index, "gate_up"))
        delta = project(gated, layer.down, index, "down")
        x, normed = kernels.add_rms_norm(x, delta, next_norm, spec.rms_norm_eps)
    return kernels.logits(normed.index_select(0, batch.logit_rows), weights.head)


def _heads(qkv: Tensor, layer: LayerWeights, spec: DecoderSpec, kernels: Kernels) -> tuple[Tensor, Tensor, Tensor]:
    """Split the fused projection into heads: q [T, heads, d], k and v [T, kv_heads, d]."""
    by_head = qkv.view(len(qkv), -1, spec.head_dim)
    q, k, v = by_head.tensor_split((spec.heads, spec.heads + spec.kv_heads), 1)
    if layer.query_norm is not None and layer.key_norm is not None:
        q = kernels.rms_norm(q, layer.query_norm, spec.rms_norm_eps)
        k = kernels.rms_norm(k, layer.key_norm, spec.rms_norm_eps)
    return q, k, v


def _fused_columns(spec: DecoderSpec) -> dict[str, tuple[LoraColumns, ...]]:
    """Which outputs of each (fused) linear belong to which adaptable target."""
    query, key_value = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    widths = {
        "qkv": {"q_proj": query, "k_proj": key_value, "v_proj": key_value},
        "output": {"o_proj": spec.hidden_size},
        "gate_up": {"gate_proj": spec.intermediate_size, "up_proj": spec.intermediate_size},
        "down": {"down_proj": spec.hidden_size},
    }
    return {
        fused: tuple(
            LoraColumns(TARGETS.index(target), stop - width, stop)
            for (target, width), stop in zip(parts.items(), accumulate(parts.values()), strict=True)
        )
        for fused, parts in widths.items()
    }
