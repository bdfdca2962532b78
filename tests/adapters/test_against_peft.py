"""PEFT writes the adapter, PEFT says what it adds to each layer; we must read the same from its files."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.adapters.folders import delta, load, name_of
from tests.support.bases import write_random_base
from turnout.adapters.config_keys import IRRELEVANT, READ, REFUSED_IN_EFFECT

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "list": {"target_modules": ["q_proj", "v_proj"], "r": 4, "lora_alpha": 8},
    "full names and endings": {
        "target_modules": ["model.layers.0.mlp.down_proj", "self_attn.o_proj", "1.self_attn.k_proj"],
        "layers_to_transform": [0],
    },
    "regex": {"target_modules": r"model\.layers\.\d+\.(?:self_attn|mlp)\.(?:q|up|down)_proj(?<!0.mlp.up_proj)"},
    "all linear": {"target_modules": "all-linear", "lora_alpha": 3.5},
    "rsLoRA": {"target_modules": ["o_proj"], "r": 16, "lora_alpha": 16, "use_rslora": True},
    "rank and alpha patterns": {
        "target_modules": "all-linear",
        "r": 4,
        "lora_alpha": 8,
        "use_rslora": True,
        # Order, anchors, whole segments only, alternatives: an entry per rule of PEFT's matching.
        "rank_pattern": {
            r"^model.layers.0.self_attn.q_proj": 2,
            "self_attn.q_proj": 6,
            "proj": 3,
            r".*\.mlp\..*": 5,
            "k_proj|v_proj": 1,
        },
        "alpha_pattern": {"layers.1.self_attn.q_proj": 32, "q_proj": 1, "^self_attn.v_proj": 9, "down_proj": 0.25},
    },
    "excluded names": {"target_modules": "all-linear", "exclude_modules": ["v_proj", "layers.0.mlp.up_proj"]},
    "excluded pattern": {"target_modules": ["q_proj", "k_proj"], "exclude_modules": r".*\.1\..*q_proj"},
    "one layer": {"target_modules": ["q_proj", "mlp.up_proj"], "layers_to_transform": 1},
    "layers with a pattern": {
        "target_modules": ["q_proj"],
        "layers_to_transform": [1, 7],
        "layers_pattern": ["blocks", "layers"],
    },
    "orthogonal initialisation": {"target_modules": ["gate_proj"], "init_lora_weights": "orthogonal"},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_base(tmp_path_factory.mktemp("base"))


def peft_adapter(
    base: Path, folder: Path, dtype: torch.dtype, config: Mapping[str, Any]
) -> dict[str, tuple[float, np.ndarray]]:
    """Have PEFT write an adapter with random weights and give its scale and delta by module name."""
    from peft import LoraConfig, get_peft_model
    from peft.tuners.lora import LoraLayer
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        warnings.filterwarnings("ignore", "The following .*_pattern keys did not match", RuntimeWarning)
        peft_model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **config))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in peft_model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator).to(dtype)
    peft_model.save_pretrained(folder)
    return {
        name.removeprefix("base_model.model."): (
            module.scaling["default"],
            module.get_delta_weight("default").detach().float().numpy(),
        )
        for name, module in peft_model.named_modules()
        if isinstance(module, LoraLayer)
    }


@pytest.mark.parametrize("case", CONFIGS)
def test_same_modules_and_deltas_as_peft(base: Path, tmp_path: Path, case: str) -> None:
    expected = peft_adapter(base, tmp_path, torch.float32, CONFIGS[case])
    state = load(tmp_path)
    got = {name_of(module): module for module in state.modules}
    assert got.keys() == expected.keys()
    assert state.untouched == 14 - len(expected)
    for name, (scale, weight) in expected.items():
        assert got[name].scale == scale
        # Sums of up to 16 products in float32, in another order.
        np.testing.assert_allclose(delta(got[name]), weight, rtol=1e-6, atol=1e-6 * np.abs(weight).max())


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_half_precision_files(base: Path, tmp_path: Path, stored: torch.dtype, dtype: str) -> None:
    from safetensors.torch import load_file

    peft_adapter(base, tmp_path, stored, CONFIGS["list"])
    written = load_file(tmp_path / "adapter_model.safetensors")
    for module in load(tmp_path, dtype).modules:
        for factor, array in (("A", module.a), ("B", module.b)):
            tensor = written[f"base_model.model.{name_of(module)}.lora_{factor}.weight"]
            assert tensor.dtype == stored
            got = torch.from_numpy(array).view(getattr(torch, dtype))
            assert torch.equal(got, tensor.to(getattr(torch, dtype)))


def test_every_field_of_peft_is_classified_once() -> None:
    from dataclasses import fields

    from peft import LoraConfig

    tables = [READ, set(IRRELEVANT), set(REFUSED_IN_EFFECT)]
    assert {field.name for field in fields(LoraConfig)} <= set().union(*tables)
    assert sum(map(len, tables)) == len(set().union(*tables))
