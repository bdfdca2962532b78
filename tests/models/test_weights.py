"""Reading checkpoints: whole or sharded, refused where they do not fit, identified by content."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.bases import write_random_base
from tests.support.steps import start_run
from turnout.core.errors import BaseModelError
from turnout.kernels import reference
from turnout.models.config import read_config
from turnout.models.decoder import DecoderWeights
from turnout.models.spec import DecoderSpec
from turnout.models.weights import load_weights, model_revision

Tensors = dict[str, torch.Tensor]
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_base(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def base(llama: Path, tmp_path: Path) -> Path:
    return shutil.copytree(llama, tmp_path / "base")


def _load(folder: Path, dtype: torch.dtype = torch.float32) -> DecoderWeights:
    spec = DecoderSpec.from_config(read_config(folder))
    return load_weights(folder, spec, reference, dtype, torch.device("cpu"))


def _change(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def _configure(folder: Path, **changes: object) -> None:
    config = read_config(folder)
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def _shard(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    weight_map = {name: file for file, members in shards.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model.safetensors").unlink()


def _logits(folder: Path) -> torch.Tensor:
    return start_run(folder, reference).step({"text": [1, 2, 3]})["text"]


def test_shards_hold_the_same_model(base: Path) -> None:
    whole = _logits(base)
    _shard(base)
    assert torch.equal(_logits(base), whole)


def test_half_precision_files_are_read_into_the_compute_dtype(base: Path) -> None:
    _change(base, lambda tensors: tensors.update({name: t.half() for name, t in tensors.items()}))
    weights = _load(base, torch.bfloat16)
    stored = load_file(base / "model.safetensors")
    assert torch.equal(weights.embedding, stored["model.embed_tokens.weight"].bfloat16())
    assert weights.layers[0].qkv[0].dtype == torch.bfloat16


def test_projections_are_fused_in_order(base: Path) -> None:
    layer, stored = _load(base).layers[1], load_file(base / "model.safetensors")
    modules = [f"model.layers.1.self_attn.{name}_proj.weight" for name in "qkv"]
    assert torch.equal(layer.qkv[0], torch.cat([stored[name] for name in modules]))
    modules = [f"model.layers.1.mlp.{name}_proj.weight" for name in ("gate", "up")]
    assert torch.equal(layer.gate_up[0], torch.cat([stored[name] for name in modules]))


def test_tied_embeddings_share_memory(tmp_path: Path) -> None:
    weights = _load(write_random_base(tmp_path, tied=True))
    assert weights.head[0].data_ptr() == weights.embedding.data_ptr()


def test_weights_do_not_depend_on_the_file_any_more(base: Path) -> None:
    weights = _load(base)
    before = weights.layers[0].down[0].clone()
    path = base / "model.safetensors"
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    assert torch.equal(weights.layers[0].down[0], before)


def test_tensors_without_effect_are_passed_over(base: Path) -> None:
    before = _logits(base)
    _change(base, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}))
    assert torch.equal(_logits(base), before)


def test_a_head_beside_tied_embeddings_must_equal_them(tmp_path: Path) -> None:
    base = write_random_base(tmp_path, tied=True)
    embedding = load_file(base / "model.safetensors")["model.embed_tokens.weight"]
    _change(base, lambda tensors: tensors.update({"lm_head.weight": embedding.clone()}))
    _load(base)
    _change(base, lambda tensors: tensors.update({"lm_head.weight": embedding + 1}))
    with pytest.raises(BaseModelError, match=r"lm_head\.weight differs"):
        _load(base)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda tensors: tensors.pop(Q_PROJ), f"{Q_PROJ} missing"),
        (lambda tensors: tensors.update({Q_PROJ: torch.ones(64, 63)}), rf"{Q_PROJ} has shape \[64, 63\]"),
        (lambda tensors: tensors.update({Q_PROJ: torch.ones(64, 64, dtype=torch.int8)}), f"{Q_PROJ} is stored as I8"),
        (lambda tensors: tensors.update({"model.layers.2.mlp.x": torch.ones(1)}), r"model\.layers\.2\.mlp\.x unexp"),
        (lambda tensors: tensors.clear(), r"and 18 more missing"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(
    base: Path, change: Callable[[Tensors], object], names: str
) -> None:
    _change(base, change)
    with pytest.raises(BaseModelError, match=names):
        _load(base)


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _outside(folder: Path) -> None:
    _shard(folder)
    (folder / "a.safetensors").rename(folder.parent / "a.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("a.safetensors", "../a.safetensors"))


def _twice(folder: Path) -> None:
    _shard(folder)
    shutil.copy(folder / "a.safetensors", folder / "c.safetensors")
    index = folder / "model.safetensors.index.json"
    weight_map = {**json.loads(index.read_text())["weight_map"], "more": "c.safetensors"}
    index.write_text(json.dumps({"weight_map": weight_map}))


def _no_index(folder: Path) -> None:
    _shard(folder)
    (folder / "model.safetensors.index.json").write_text("[]")


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (_pickled, "convert them to safetensors"),
        (_cut, r"model\.safetensors cannot be read"),
        (_outside, r"shard '\.\./a\.safetensors'"),
        (_twice, "in another shard as well"),
        (_no_index, "not an index of shards"),
    ],
)
def test_files_that_cannot_be_read_are_refused(base: Path, damage: Callable[[Path], None], names: str) -> None:
    damage(base)
    with pytest.raises(BaseModelError, match=names):
        _load(base)


def test_revision_follows_the_content_alone(base: Path, tmp_path: Path) -> None:
    revision = model_revision(base)
    assert revision.startswith("sha256:")
    assert len(revision) == 71
    moved = shutil.copytree(base, tmp_path / "moved")
    _configure(moved, torch_dtype="float16", transformers_version="0", _name_or_path="elsewhere")
    (moved / "tokenizer.json").unlink()
    assert model_revision(moved) == revision
    _configure(moved, rms_norm_eps=2e-6)
    assert model_revision(moved) != revision


def test_revision_changes_with_one_weight(base: Path) -> None:
    revision = model_revision(base)
    _change(base, lambda tensors: tensors[Q_PROJ][3, 4].add_(1e-3))
    assert model_revision(base) != revision


def test_revision_of_shards_does_not_depend_on_their_names(base: Path) -> None:
    _shard(base)
    revision = model_revision(base)
    index = base / "model.safetensors.index.json"
    (base / "a.safetensors").rename(base / "z.safetensors")
    index.write_text(index.read_text().replace("a.safetensors", "z.safetensors"))
    assert model_revision(base) == revision
