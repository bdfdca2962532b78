"""Casts are torch's, bit for bit, and what is not finite after the cast is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.adapters.folders import PREFIX, QUERY, adapter, factors, load, query_and_value, values
from turnout.adapters.tensors import to_bfloat16, to_float32
from turnout.core.errors import AdapterTensorError

STORED = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
B = f"{PREFIX}{QUERY}.lora_B.weight"


def every_kind(dtype: str) -> torch.Tensor:
    """All bit patterns of a half-precision type; of float32 those near each bfloat16, and random ones."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    if dtype != "F32":
        return torch.from_numpy(halves).view(STORED[dtype])
    near = [(halves.astype(np.uint32) << 16) + np.uint32(low) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    return torch.from_numpy(np.concatenate([*near, random])).view(torch.float32)


@pytest.mark.parametrize("dtype", STORED)
def test_casts_are_those_of_torch(dtype: str) -> None:
    tensor = every_kind(dtype)
    raw = tensor.view(torch.uint8).numpy()
    expected = tensor.to(torch.float32)
    number = ~expected.isnan()
    single = torch.from_numpy(to_float32(raw, dtype))
    half = torch.from_numpy(to_bfloat16(raw, dtype)).view(torch.bfloat16)
    assert torch.equal(single[number].view(torch.int32), expected[number].view(torch.int32))
    assert torch.equal(half[number].view(torch.int16), tensor.to(torch.bfloat16)[number].view(torch.int16))
    assert single[~number].isnan().all()
    assert half[~number].isnan().all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("a", "b"), [("F32", "BF16"), ("F16", "F16"), ("BF16", "F16"), ("F16", "F32")])
def test_mixed_files_are_cast_first(tmp_path: Path, dtype: str, a: str, b: str) -> None:
    tensors = {
        name: tensor.to(STORED[a if "lora_A" in name else b]) for name, tensor in factors([QUERY], seed=3).items()
    }
    (module,) = load(adapter(tmp_path, tensors, target_modules=["0.self_attn.q_proj"]), dtype).modules
    expected_b, expected_a = (tensors[name].to(getattr(torch, dtype)).float() for name in (B, B.replace("_B", "_A")))
    assert module.a.dtype == module.b.dtype == (np.float32 if dtype == "float32" else np.uint16)
    assert np.array_equal(values(module.a), expected_a.numpy())
    assert np.array_equal(values(module.b), expected_b.numpy())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("factor", ["lora_A", "lora_B"])
def test_one_value_that_is_not_finite(tmp_path: Path, dtype: str, stored: str, value: float, factor: str) -> None:
    tensors = {name: tensor.to(STORED[stored]) for name, tensor in query_and_value().items()}
    bad = f"{PREFIX}model.layers.1.self_attn.v_proj.{factor}.weight"
    tensors[bad][-1, -1] = value
    with pytest.raises(AdapterTensorError, match=rf"tensor {bad} has values that are not finite in {dtype}"):
        load(adapter(tmp_path, tensors), dtype)


def test_finite_in_the_file_but_not_in_the_compute_dtype(tmp_path: Path) -> None:
    tensors = query_and_value()
    tensors[B][0, 0] = -3.4e38
    adapter(tmp_path, tensors)
    assert load(tmp_path, "float32").adapted == 4
    with pytest.raises(AdapterTensorError, match=rf"tensor {B} has values that are not finite in bfloat16"):
        load(tmp_path, "bfloat16")


def test_the_arrays_are_the_states_own(tmp_path: Path) -> None:
    state = load(adapter(tmp_path))
    before = [module.a.copy() for module in state.modules]
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert all(np.array_equal(module.a, old) for module, old in zip(state.modules, before, strict=True))
