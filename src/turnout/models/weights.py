"""A base model's weights: read from a Hugging Face folder, fused and packed for the kernels; and their identity."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from turnout.core.errors import BaseModelError
from turnout.core.identity import Digest
from turnout.kernels.interface import Kernels
from turnout.models.checkpoint import open_checkpoint, weight_files
from turnout.models.config import read_config
from turnout.models.decoder import DecoderWeights, LayerWeights
from turnout.models.rope import rope_tables
from turnout.models.spec import DecoderSpec, linears

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
NORM = "model.norm.weight"

Read = Callable[[str], Tensor]
"""A tensor of the checkpoint by name, in the compute dtype on its device."""


def load_weights(
    folder: Path, spec: DecoderSpec, kernels: Kernels, dtype: torch.dtype, device: torch.device
) -> DecoderWeights:
    """Read the model in `folder`, one layer at a time, so that no second copy of it is ever held.

    Raises BaseModelError when tensors are missing, unexpected or of another shape than `spec` asks for.
    """
    with open_checkpoint(folder) as checkpoint:
        shapes = _tensor_shapes(spec)
        checkpoint.check(shapes, ignored=frozenset({HEAD}) if spec.tied_embeddings else frozenset())

        def read(name: str) -> Tensor:
            return checkpoint.read(name, dtype, device)

        embedding = read(EMBEDDING)
        if spec.tied_embeddings and HEAD in checkpoint.files and not torch.equal(read(HEAD), embedding):
            raise BaseModelError(f"{folder}: {HEAD} differs from {EMBEDDING}, but the config ties them")
        cos, sin = rope_tables(spec.rope, spec.head_dim, spec.context_length)
        return DecoderWeights(
            spec=spec,
            embedding=embedding,
            layers=tuple(_layer(index, spec, read, kernels) for index in range(spec.layers)),
            norm=read(NORM),
            head=kernels.pack_linear(embedding if spec.tied_embeddings else read(HEAD), None),
            cos=cos.to(device),
            sin=sin.to(device),
        )


def model_revision(folder: Path) -> Digest:
    """The identity of the function that `folder` holds: of all its config that matters and its weight files' bytes.

    Where the folder is, what its files are called and what else is in it makes no difference.
    """
    spec = DecoderSpec.from_config(read_config(folder))
    hasher = hashlib.sha256(json.dumps(asdict(spec), sort_keys=True).encode())
    for digest in sorted(_file_digest(path) for path in weight_files(folder)):
        hasher.update(digest)
    return Digest(f"sha256:{hasher.hexdigest()}")


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _layer(index: int, spec: DecoderSpec, read: Read, kernels: Kernels) -> LayerWeights:
    prefix = f"model.layers.{index}"

    def fused(bias: bool, *modules: str) -> Any:
        names = [f"{prefix}.{module}" for module in modules]
        weight = _joined([read(f"{name}.weight") for name in names])
        return kernels.pack_linear(weight, _joined([read(f"{name}.bias") for name in names]) if bias else None)

    return LayerWeights(
        attention_norm=read(f"{prefix}.input_layernorm.weight"),
        qkv=fused(spec.qkv_bias, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        query_norm=read(f"{prefix}.self_attn.q_norm.weight") if spec.qk_norm else None,
        key_norm=read(f"{prefix}.self_attn.k_norm.weight") if spec.qk_norm else None,
        output=fused(spec.output_bias, "self_attn.o_proj"),
        mlp_norm=read(f"{prefix}.post_attention_layernorm.weight"),
        gate_up=fused(spec.mlp_bias, "mlp.gate_proj", "mlp.up_proj"),
        down=fused(spec.mlp_bias, "mlp.down_proj"),
    )


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _tensor_shapes(spec: DecoderSpec) -> Mapping[str, tuple[int, ...]]:
    """Every tensor that a checkpoint of this spec holds, by name."""
    hidden = (spec.hidden_size,)
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (spec.vocab_size, spec.hidden_size), NORM: hidden}
    if not spec.tied_embeddings:
        shapes[HEAD] = shapes[EMBEDDING]
    for index in range(spec.layers):
        prefix = f"model.layers.{index}"
        shapes[f"{prefix}.input_layernorm.weight"] = hidden
        shapes[f"{prefix}.post_attention_layernorm.weight"] = hidden
        if spec.qk_norm:
            shapes[f"{prefix}.self_attn.q_norm.weight"] = (spec.head_dim,)
            shapes[f"{prefix}.self_attn.k_norm.weight"] = (spec.head_dim,)
    for name, linear in linears(spec).items():
        shapes[f"{name}.weight"] = (linear.out_features, linear.in_features)
        if _has_bias(spec, linear.target):
            shapes[f"{name}.bias"] = (linear.out_features,)
    return shapes


def _has_bias(spec: DecoderSpec, target: str) -> bool:
    if target in ("q_proj", "k_proj", "v_proj"):
        return spec.qkv_bias
    return spec.output_bias if target == "o_proj" else spec.mlp_bias
