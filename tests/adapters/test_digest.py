"""The digest changes with the function and with nothing else."""

import hashlib
import shutil
from pathlib import Path
from struct import pack

import pytest
import torch
from safetensors.torch import save_file

from tests.adapters.folders import CONFIG, PREFIX, QUERY, SPEC, adapter, factors, load, query_and_value, set_config
from tests.support.adapters import write_adapter
from turnout import adapters
from turnout.core.identity import Digest

A, B = f"{PREFIX}{QUERY}.lora_A.weight", f"{PREFIX}{QUERY}.lora_B.weight"


def test_is_what_the_documentation_says(tmp_path: Path) -> None:
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in factors([QUERY]).items()}
    state = load(adapter(tmp_path, tensors, target_modules=["0.self_attn.q_proj"]))
    parts = [b"turnout adapter 1", QUERY.encode(), pack("<d", 2.0)]
    for tensor in (tensors[A], tensors[B]):
        parts += [b"BF16", pack("<2Q", *tensor.shape), tensor.view(torch.uint8).numpy().tobytes()]
    framed = b"".join(pack("<Q", len(part)) + part for part in parts)
    assert state.digest == f"sha256:{hashlib.sha256(framed).hexdigest()}"


def test_does_not_depend_on_name_place_order_or_metadata(tmp_path: Path) -> None:
    tensors = query_and_value()
    plain = load(adapter(tmp_path / "a", tensors))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    save_file(
        dict(sorted(tensors.items(), reverse=True)),
        tmp_path / "b" / "adapter_model.safetensors",
        metadata={"format": "pt", "made": "today"},
    )
    set_config(tmp_path / "b", target_modules=["v_proj", "q_proj"], lora_dropout=0.5, base_model_name_or_path="x/y")
    assert load(tmp_path / "b").digest == plain.digest


def test_does_not_depend_on_compute_dtype_base_or_limits(tmp_path: Path) -> None:
    plain = load(adapter(tmp_path))
    assert load(tmp_path, "bfloat16").digest == plain.digest
    assert load(tmp_path, max_rank=999).digest == plain.digest
    other = Digest("sha256:" + "1" * 64)
    elsewhere = adapters.load(tmp_path, SPEC, other, "float32", 16)
    assert elsewhere.digest == plain.digest
    assert (elsewhere.model_revision, elsewhere.dtype) == (other, "float32")


@pytest.mark.parametrize(
    "config",
    [
        {"lora_alpha": 9},
        {"lora_alpha": 8.000001},
        {"use_rslora": True},
        {"alpha_pattern": {"0.self_attn.v_proj": 4}},
    ],
)
def test_depends_on_every_scale(tmp_path: Path, config: dict[str, object]) -> None:
    plain = load(adapter(tmp_path))
    assert load(set_config(tmp_path, **config)).digest != plain.digest


def test_depends_on_every_byte_of_every_tensor(tmp_path: Path) -> None:
    digests = {load(adapter(tmp_path / "plain")).digest}
    for name in query_and_value():
        tensors = query_and_value()
        tensors[name].view(torch.uint8)[-1, -4] ^= 1
        digests.add(load(adapter(tmp_path / name, tensors)).digest)
    assert len(digests) == 9


def test_depends_on_the_dtype_in_the_file(tmp_path: Path) -> None:
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in query_and_value().items()}
    half = load(adapter(tmp_path / "half", tensors))
    same = load(adapter(tmp_path / "same", {name: tensor.float() for name, tensor in tensors.items()}))
    assert half.digest != same.digest


def test_depends_on_which_module_has_which_weights(tmp_path: Path) -> None:
    tensors = factors([QUERY])
    other = {name.replace("layers.0", "layers.1"): tensor for name, tensor in tensors.items()}
    first = load(write_adapter(tmp_path / "0", CONFIG, tensors))
    second = load(write_adapter(tmp_path / "1", CONFIG, other))
    assert first.digest != second.digest
