"""Tensors and the layers they are for: what is adapted, what is left alone, and what has no place."""

from pathlib import Path

import pytest
import torch

from tests.adapters.folders import (
    CONFIG,
    LINEARS,
    PREFIX,
    QUERY,
    SPEC,
    adapter,
    factors,
    load,
    modules,
    query_and_value,
    same_weights,
)
from tests.support.adapters import write_adapter
from turnout.core.errors import (
    AdapterBaseMismatch,
    AdapterError,
    AdapterFileError,
    AdapterTensorError,
    AdapterTooLarge,
    AdapterUnsupported,
)

A, B = f"{PREFIX}{QUERY}.lora_A.weight", f"{PREFIX}{QUERY}.lora_B.weight"
EXPECTED = r"expected names such as base_model\.model\.model\.layers\.0\.self_attn\.q_proj\.lora_A\.weight"


@pytest.mark.parametrize(
    "names",
    [
        modules("q_proj", layers=[1]),
        modules("q_proj", "k_proj"),
        modules("up_proj"),
        modules("gate_proj", "up_proj", "down_proj"),
        modules("v_proj", layers=[0]) + modules("o_proj", layers=[1]),
        list(LINEARS),
    ],
)
def test_exactly_what_the_file_has_is_adapted(tmp_path: Path, names: list[str]) -> None:
    tensors = factors(names)
    state = load(adapter(tmp_path, tensors, target_modules=names))
    wanted = [(LINEARS[name].layer, LINEARS[name].target) for name in LINEARS if name in names]
    assert [(module.layer, module.target) for module in state.modules] == wanted
    assert (state.adapted, state.untouched) == (len(names), 14 - len(names))
    for name, module in zip([name for name in LINEARS if name in names], state.modules, strict=True):
        assert torch.equal(torch.from_numpy(module.a), tensors[f"{PREFIX}{name}.lora_A.weight"])
        assert torch.equal(torch.from_numpy(module.b), tensors[f"{PREFIX}{name}.lora_B.weight"])
        assert module.a.flags.c_contiguous and module.b.flags.c_contiguous
    assert state.nbytes == sum(tensor.nbytes for tensor in tensors.values())


def test_any_mix_of_ranks(tmp_path: Path) -> None:
    ranks = {name: 1 + index for index, name in enumerate(LINEARS)}
    tensors: dict[str, torch.Tensor] = {}
    for name, rank in ranks.items():
        tensors |= factors([name], rank)
    state = load(adapter(tmp_path, tensors, target_modules="all-linear", rank_pattern=ranks))
    assert [module.rank for module in state.modules] == list(ranks.values())
    assert [module.scale for module in state.modules] == [8 / rank for rank in ranks.values()]


class TestNoPlace:
    @pytest.mark.parametrize(
        "prefix",
        [
            "",
            "base_model.",
            "base_model.model.base_model.model.",
            "base_model.model.model.language_model.",
            "base_model.model.language_model.",
            "model.",
            "module.base_model.model.",
        ],
    )
    def test_other_prefixes_are_refused_whole(self, tmp_path: Path, prefix: str) -> None:
        tensors = factors(modules("q_proj", "v_proj"), prefix=prefix)
        with pytest.raises(AdapterTensorError, match=EXPECTED) as caught:
            load(adapter(tmp_path, tensors))
        assert "8 of its tensors" in caught.value.message
        assert min(tensors) in caught.value.message

    def test_prefix_without_one_model(self, tmp_path: Path) -> None:
        tensors = {name.replace("model.model.model.", "model.model."): t for name, t in query_and_value().items()}
        with pytest.raises(AdapterTensorError, match=EXPECTED):
            load(adapter(tmp_path, tensors))

    @pytest.mark.parametrize(
        ("name", "shape", "said"),
        [
            (f"{PREFIX}model.visual.blocks.0.attn.qkv.lora_A.weight", (4, 64), ""),
            (f"{PREFIX}model.layers.0.self_attn.qkv_proj.lora_B.weight", (128, 4), ""),
            (f"{PREFIX}{QUERY}.lora_magnitude_vector", (64,), "DoRA"),
            (f"{PREFIX}{QUERY}.lora_A.default.weight", (4, 64), ""),
            (f"{PREFIX}{QUERY}.lora_A.Weight", (4, 64), ""),
            (f"{PREFIX}{QUERY}.lora_B.bias", (64,), "biases"),
            (f"{PREFIX}{QUERY}.base_layer.bias", (64,), "biases"),
            (f"{PREFIX}{QUERY}.bias", (64,), "biases"),
            (f"{PREFIX}{QUERY}.weight", (64, 64), ""),
            (f"{PREFIX}{QUERY}.lora_velora_embed", (1,), ""),
            (f"{PREFIX}model.embed_tokens.lora_embedding_A", (4, 320), "LoRA on an embedding"),
            (f"{PREFIX}model.embed_tokens.weight", (320, 64), "for the embedding"),
            (f"{PREFIX}model.embed_tokens.modules_to_save.weight", (324, 64), "for the embedding"),
            (f"{PREFIX}lm_head.weight", (324, 64), "output head"),
            (f"{PREFIX}lm_head.lora_A.weight", (4, 64), "output head"),
            (f"{PREFIX}model.norm.modules_to_save.weight", (64,), "trained copies"),
            (f"{PREFIX}model.layers.0.input_layernorm.weight", (64,), ""),
        ],
    )
    def test_one_tensor_too_many(self, tmp_path: Path, name: str, shape: tuple[int, ...], said: str) -> None:
        with pytest.raises(AdapterTensorError, match=EXPECTED) as caught:
            load(adapter(tmp_path, {**query_and_value(), name: torch.ones(shape)}))
        assert repr(name) in caught.value.message
        assert said in caught.value.message
        assert bool(said) == ("(" in caught.value.message)

    def test_many_are_counted_and_the_first_named(self, tmp_path: Path) -> None:
        tensors = {f"x.{index}": torch.ones(1) for index in range(100)}
        with pytest.raises(AdapterTensorError, match=r"100 of its tensors.* and 97 more"):
            load(adapter(tmp_path, tensors))

    def test_layers_the_base_has_not(self, tmp_path: Path) -> None:
        tensors = {name.replace(".layers.1.", ".layers.11."): tensor for name, tensor in query_and_value().items()}
        with pytest.raises(AdapterBaseMismatch, match=r"layers\.11\..*beyond the base's 2"):
            load(adapter(tmp_path, tensors))

    @pytest.mark.parametrize(
        "config",
        [
            {"target_modules": ["q_proj"]},
            {"target_modules": r".*\.0\..*"},
            {"exclude_modules": ["v_proj"]},
            {"layers_to_transform": 0},
        ],
    )
    def test_tensors_that_the_configuration_does_not_target(self, tmp_path: Path, config: dict[str, object]) -> None:
        with pytest.raises(AdapterTensorError, match=r"does not target: 'model\.layers\.\d\.self_attn\.\w_proj'"):
            load(adapter(tmp_path, **config))


class TestVariants:
    """Whole adapters of kinds that are not served: never their LoRA part alone."""

    def test_dora(self, tmp_path: Path) -> None:
        tensors = factors([QUERY]) | {f"{PREFIX}{QUERY}.lora_magnitude_vector": torch.ones(64)}
        tensors[B].zero_()
        with pytest.raises(AdapterUnsupported, match=r"use_dora = True"):
            load(adapter(tmp_path, tensors, use_dora=True))
        for config in ({"use_dora": False}, {}):
            with pytest.raises(AdapterTensorError, match="lora_magnitude_vector"):
                load(adapter(tmp_path, tensors, **config))

    @pytest.mark.parametrize("rows", [320, 324])
    def test_modules_to_save(self, tmp_path: Path, rows: int) -> None:
        tensors = query_and_value() | {
            f"{PREFIX}model.embed_tokens.weight": torch.ones(rows, 64),
            f"{PREFIX}lm_head.weight": torch.ones(rows, 64),
        }
        with pytest.raises(AdapterUnsupported, match="modules_to_save"):
            load(adapter(tmp_path, tensors, modules_to_save=["embed_tokens", "lm_head"]))
        with pytest.raises(AdapterTensorError, match="embed_tokens"):
            load(adapter(tmp_path, tensors))

    @pytest.mark.parametrize("name", [f"{PREFIX}{QUERY}.base_layer.bias", f"{PREFIX}{QUERY}.bias"])
    @pytest.mark.parametrize("bias", ["all", "lora_only", "none"])
    def test_bias_tensors(self, tmp_path: Path, name: str, bias: str) -> None:
        with pytest.raises(AdapterTensorError, match=r"\.bias'"):
            load(adapter(tmp_path, {**query_and_value(), name: torch.full((64,), 3.0)}, bias=bias))


class TestShapes:
    @pytest.mark.parametrize("lost", [A, B])
    def test_no_partner(self, tmp_path: Path, lost: str) -> None:
        tensors = query_and_value()
        del tensors[lost]
        kept, factor = (B, "lora_A") if lost == A else (A, "lora_B")
        with pytest.raises(AdapterTensorError, match=rf"{kept} has no partner {factor}\.weight"):
            load(adapter(tmp_path, tensors))

    @pytest.mark.parametrize("shape", [(256,), (4, 64, 1), (), (0,)])
    def test_not_a_matrix(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        with pytest.raises(AdapterTensorError, match=rf"{A} has shape .*expected two dimensions"):
            load(adapter(tmp_path, {**query_and_value(), A: torch.ones(shape)}))

    @pytest.mark.parametrize(
        ("name", "shape"),
        [(A, (4, 96)), (A, (64, 4)), (B, (96, 4)), (B, (4, 64)), (A, (4, 0)), (B, (0, 4))],
    )
    def test_another_bases_width(self, tmp_path: Path, name: str, shape: tuple[int, int]) -> None:
        with pytest.raises(AdapterBaseMismatch, match=rf"{QUERY} .*expected \[rank, 64\] and \[64, rank\]") as caught:
            load(adapter(tmp_path, {**query_and_value(), name: torch.ones(shape)}))
        assert str(list(shape)) in caught.value.message

    def test_one_dimension_of_many_differs(self, tmp_path: Path) -> None:
        tensors = factors(LINEARS) | {
            f"{PREFIX}model.layers.1.mlp.down_proj.lora_A.weight": torch.ones(4, 160),
        }
        with pytest.raises(AdapterBaseMismatch, match=r"model\.layers\.1\.mlp\.down_proj .*\[4, 160\].*\[rank, 128\]"):
            load(adapter(tmp_path, tensors, target_modules="all-linear"))

    def test_key_and_value_are_narrower_than_query(self, tmp_path: Path) -> None:
        key = modules("k_proj")[0]
        tensors = {f"{PREFIX}{key}.lora_A.weight": torch.ones(4, 64), f"{PREFIX}{key}.lora_B.weight": torch.ones(64, 4)}
        with pytest.raises(AdapterBaseMismatch, match=r"expected \[rank, 64\] and \[32, rank\]"):
            load(adapter(tmp_path, tensors, target_modules=["k_proj"]))

    @pytest.mark.parametrize(
        ("a_rank", "b_rank", "config"),
        [
            (8, 8, {}),
            (4, 8, {}),
            (8, 4, {}),
            (4, 4, {"r": 8}),
            (4, 4, {"rank_pattern": {"q_proj": 2}}),
            (0, 0, {}),
        ],
    )
    def test_rank_of_tensors_and_configuration(
        self, tmp_path: Path, a_rank: int, b_rank: int, config: dict[str, object]
    ) -> None:
        tensors = query_and_value() | {A: torch.ones(a_rank, 64), B: torch.ones(64, b_rank)}
        with pytest.raises(AdapterTensorError, match=r"rank \d in lora_A and \d in lora_B, expected \d") as caught:
            load(adapter(tmp_path, tensors, **config))
        assert f"rank {a_rank} in lora_A and {b_rank} in lora_B" in caught.value.message

    def test_rank_limit(self, tmp_path: Path) -> None:
        adapter(tmp_path, factors([QUERY], rank=64), r=64)
        with pytest.raises(AdapterTooLarge, match=r"q_proj has rank 64.* up to 16"):
            load(tmp_path, max_rank=16)
        with pytest.raises(AdapterTooLarge, match="up to 63"):
            load(tmp_path, max_rank=63)
        assert load(tmp_path, max_rank=64).ranks == (64,)


class TestEmpty:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_every_tensor_empty(self, tmp_path: Path, dtype: torch.dtype) -> None:
        tensors = {name: torch.zeros(0, dtype=dtype) for name in query_and_value()}
        with pytest.raises(AdapterFileError, match="holds no weights"):
            load(adapter(tmp_path, tensors))

    def test_no_tensors(self, tmp_path: Path) -> None:
        adapter(tmp_path, {})
        text = b'{"__metadata__":{"format":"pt"}}'
        saved = len(text).to_bytes(8, "little") + text
        assert len(saved) == 40
        for content in (saved, b"\x02\0\0\0\0\0\0\0{}"):
            (tmp_path / "adapter_model.safetensors").write_bytes(content)
            with pytest.raises(AdapterFileError, match=r"adapter_model\.safetensors'?: the adapter holds no weights"):
                load(tmp_path)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    @pytest.mark.parametrize("factor", ["lora_A", "lora_B"])
    def test_zero_weights_are_legal_and_told(self, tmp_path: Path, dtype: str, factor: str) -> None:
        tensors = query_and_value()
        for name in tensors:
            if factor in name:
                tensors[name].zero_().neg_()
        state = load(adapter(tmp_path, tensors), dtype)
        assert state.adapted == 4
        assert any("changes nothing" in warning for warning in state.warnings)

    def test_scale_zero_is_told(self, tmp_path: Path) -> None:
        (warning,) = load(adapter(tmp_path, lora_alpha=0)).warnings
        assert "changes nothing" in warning

    def test_one_weight_is_enough(self, tmp_path: Path) -> None:
        tensors = query_and_value()
        for name in tensors:
            if "lora_B" in name:
                tensors[name].zero_()
        tensors[B][3, 1] = 1e-30
        assert load(adapter(tmp_path, tensors), "bfloat16").warnings == ()


def test_a_refused_adapter_leaves_no_trace(tmp_path: Path) -> None:
    good = adapter(tmp_path / "good")
    before = load(good)
    bad = write_adapter(tmp_path / "bad", {**CONFIG, "init_lora_weights": "pissa"}, query_and_value())
    with pytest.raises(AdapterError):
        load(bad)
    assert same_weights(load(good), before)
    assert SPEC.layers == 2
