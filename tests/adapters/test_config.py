"""What a configuration says, what is harmless in it, and what is refused."""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.adapters.folders import CONFIG, adapter, factors, load, modules, same_weights, set_config
from turnout.adapters.config_keys import IRRELEVANT, READ, REFUSED_IN_EFFECT
from turnout.core.errors import AdapterConfigError, AdapterFileError, AdapterUnsupported, TurnoutError

MS_SWIFT = r"^(model(?=\.).*\.(q_proj|v_proj))$"
UNSLOTH = (
    r"(?:.*?(?:language|text).*?(?:self_attn|attn|mlp).*?\.(?:q_proj|v_proj))|(?:\bmodel\.layers\.[\d]{1,}"
    r"(?!.*\.experts\.\d)\..*?(?:self_attn|attn|mlp).*?\.(?:(?:q_proj|v_proj)))"
)
ALL_BUT_HEADS = r"^(model)(?!.*(lm_head|output|emb|wte|shared)).*"

NEWEST = {
    "peft_version": "0.21.2",
    "eva_config": None,
    "corda_config": None,
    "exclude_modules": None,
    "lora_bias": False,
    "trainable_token_indices": None,
    "target_parameters": None,
    "use_qalora": False,
    "qalora_group_size": 16,
    "ensure_weight_tying": False,
    "megatron_core": "megatron.core",
    "auto_mapping": {"base_model_class": "X", "unsloth_fixed": True},
    "kasa_config": None,
    "lora_dropout": 0.05,
}


class TestTargets:
    @pytest.mark.parametrize("targets", [MS_SWIFT, UNSLOTH, ["v_proj", "q_proj"], None, "model.*[qv]_proj"])
    def test_all_spellings_are_one_adapter(self, tmp_path: Path, targets: Any) -> None:
        plain = load(adapter(tmp_path))
        spelled = load(set_config(tmp_path, target_modules=targets))
        assert same_weights(spelled, plain)
        assert spelled.digest == plain.digest
        assert spelled.warnings == plain.warnings == ()
        assert (spelled.adapted, spelled.untouched, spelled.ranks) == (4, 10, (4,))

    @pytest.mark.parametrize("targets", ["all-linear", "All-Linear", ALL_BUT_HEADS, ".*"])
    def test_targets_without_weights_stay_as_they_are(self, tmp_path: Path, targets: str) -> None:
        plain = load(adapter(tmp_path))
        broad = load(set_config(tmp_path, target_modules=targets))
        assert same_weights(broad, plain)
        (warning,) = broad.warnings
        assert "10 targeted modules have no weights" in warning
        assert "model.layers.0.mlp.down_proj" in warning

    @pytest.mark.parametrize(
        "config",
        [
            {"target_modules": "auto"},
            {"target_modules": ["auto"]},
            {"target_modules": ["all-linear"]},
            {"target_modules": []},
            {"target_modules": ""},
            {"target_modules": ["proj"]},
            {"target_modules": "q_proj"},
            {"target_modules": ["c_attn", "lm_head"]},
            {"exclude_modules": ["q_proj", "v_proj"]},
            {"exclude_modules": ".*"},
            {"layers_to_transform": [2]},
            {"layers_to_transform": [0], "layers_pattern": "blocks"},
        ],
    )
    def test_targets_that_name_nothing(self, tmp_path: Path, config: dict[str, Any]) -> None:
        with pytest.raises(AdapterConfigError, match=r"adapter_config\.json.*target_modules = .*no linear layer"):
            load(adapter(tmp_path, **config))

    def test_words_and_patterns_that_fit_nothing_are_told(self, tmp_path: Path) -> None:
        state = load(
            adapter(
                tmp_path,
                target_modules=["q_proj", "v_proj", "W_pack", "lm_head"],
                rank_pattern={"query": 2},
                alpha_pattern={"v_proj": 4, "value": 2},
            )
        )
        words, ranks, alphas = state.warnings
        assert "'W_pack', 'lm_head'" in words
        assert "rank_pattern" in ranks
        assert "alpha_pattern" in alphas

    @pytest.mark.parametrize("layers", [1, [1]])
    def test_layers_as_number_or_list(self, tmp_path: Path, layers: Any) -> None:
        state = load(adapter(tmp_path, factors(modules("q_proj", layers=[1])), layers_to_transform=layers))
        assert [(module.layer, module.target) for module in state.modules] == [(1, "q_proj")]

    def test_empty_values_are_off(self, tmp_path: Path) -> None:
        off = {"layers_to_transform": [], "layers_pattern": "", "exclude_modules": "", "rank_pattern": None}
        state = load(adapter(tmp_path, target_modules=MS_SWIFT, **off))
        assert state.adapted == 4


class TestScale:
    def test_rslora_divides_by_the_root(self, tmp_path: Path) -> None:
        adapter(tmp_path, factors(modules("q_proj"), rank=16), r=16, lora_alpha=16)
        assert {module.scale for module in load(tmp_path).modules} == {1.0}
        plain = load(tmp_path).digest
        stabilised = load(set_config(tmp_path, use_rslora=True))
        assert {module.scale for module in stabilised.modules} == {4.0}
        assert stabilised.digest != plain
        assert load(set_config(tmp_path, use_rslora=False)).digest == plain

    def test_patterns_per_module(self, tmp_path: Path) -> None:
        tensors = factors(modules("q_proj"), rank=2) | factors(modules("v_proj"), rank=4)
        config = {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {r"layers\.1\.self_attn\.v_proj": 1.5}}
        state = load(adapter(tmp_path, tensors, **config))
        assert state.ranks == (2, 4)
        assert [module.scale for module in state.modules] == [4.0, 2.0, 4.0, 0.375]

    def test_defaults_are_those_of_peft(self, tmp_path: Path) -> None:
        adapter(tmp_path, factors(modules("q_proj", "v_proj"), rank=8))
        (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
        assert [(module.rank, module.scale) for module in load(tmp_path).modules] == [(8, 1.0)] * 4


class TestOtherVersions:
    def test_newest_keys_change_nothing(self, tmp_path: Path) -> None:
        plain = load(adapter(tmp_path))
        newest = load(set_config(tmp_path, **NEWEST))
        assert same_weights(newest, plain)
        assert newest.digest == plain.digest
        assert newest.warnings == ()

    def test_oldest_keys_change_nothing_and_unknown_ones_are_told(self, tmp_path: Path) -> None:
        plain = load(adapter(tmp_path))
        oldest = {
            "peft_type": "LORA",
            **CONFIG,
            "lora_dropout": 0.1,
            "bias": "none",
            "fan_in_fan_out": False,
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "x/y",
            "inference_mode": True,
            "enable_lora": None,
            "merge_weights": False,
        }
        (tmp_path / "adapter_config.json").write_text(json.dumps(oldest))
        old = load(tmp_path)
        assert same_weights(old, plain)
        assert old.digest == plain.digest
        (warning,) = old.warnings
        assert "'enable_lora', 'merge_weights'" in warning

    @pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}])
    def test_unknown_key_switched_off(self, tmp_path: Path, value: Any) -> None:
        (warning,) = load(adapter(tmp_path, use_hypernova=value)).warnings
        assert "use_hypernova" in warning

    @pytest.mark.parametrize("value", [True, 1, -0.5, "none", [0], {"a": None}])
    def test_unknown_key_in_effect(self, tmp_path: Path, value: Any) -> None:
        with pytest.raises(AdapterUnsupported, match=r"adapter_config\.json.*'use_hypernova' = "):
            load(adapter(tmp_path, use_hypernova=value))

    @pytest.mark.parametrize("key", sorted(IRRELEVANT))
    def test_irrelevant_keys_change_nothing(self, tmp_path: Path, key: str) -> None:
        plain = load(adapter(tmp_path))
        state = load(set_config(tmp_path, **{key: {"some": "value"}}))
        assert state.digest == plain.digest
        assert state.warnings == ()


class TestRefusals:
    @pytest.mark.parametrize("key", sorted(REFUSED_IN_EFFECT))
    def test_what_is_not_computed(self, tmp_path: Path, key: str) -> None:
        adapter(tmp_path)
        for off in (None, False, [], {}):
            assert load(set_config(tmp_path, **{key: off})).warnings == ()
        for on in (True, ["embed_tokens"], {"a": 1}, "false"):
            with pytest.raises(AdapterUnsupported, match=rf"adapter_config\.json'?: {key} = .* is not supported"):
                load(set_config(tmp_path, **{key: on}))

    @pytest.mark.parametrize("init", ["pissa", "pissa_niter_4", "olora", "OLoRA", "corda", "loftq", "lora_ga"])
    def test_weights_that_fit_a_changed_base_only(self, tmp_path: Path, init: str) -> None:
        with pytest.raises(AdapterUnsupported, match=rf"init_lora_weights = '{init}'.*convert the adapter to plain"):
            load(adapter(tmp_path, init_lora_weights=init))

    @pytest.mark.parametrize("init", [True, False, None, "gaussian", "eva", "orthogonal", "mica"])
    def test_initialisations_that_leave_the_base_alone(self, tmp_path: Path, init: Any) -> None:
        plain = load(adapter(tmp_path))
        assert load(set_config(tmp_path, init_lora_weights=init)).digest == plain.digest

    @pytest.mark.parametrize("init", ["svd_of_the_future", "true", ["gaussian"], 2])
    def test_unknown_initialisation(self, tmp_path: Path, init: Any) -> None:
        with pytest.raises(AdapterUnsupported, match="init_lora_weights"):
            load(adapter(tmp_path, init_lora_weights=init))

    @pytest.mark.parametrize("method", ["ADALORA", "IA3", "lora", None, ["LORA"]])
    def test_other_methods(self, tmp_path: Path, method: Any) -> None:
        with pytest.raises(AdapterUnsupported, match="peft_type"):
            load(adapter(tmp_path, peft_type=method))

    def test_no_method(self, tmp_path: Path) -> None:
        adapter(tmp_path)
        (tmp_path / "adapter_config.json").write_text(json.dumps(CONFIG))
        with pytest.raises(AdapterConfigError, match="peft_type is missing"):
            load(tmp_path)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("r", 0),
            ("r", -4),
            ("r", 4.0),
            ("r", "4"),
            ("r", True),
            ("lora_alpha", "8"),
            ("lora_alpha", True),
            ("lora_alpha", [8]),
            ("lora_alpha", 10**400),
            ("lora_alpha", 1e300),
            ("use_rslora", "true"),
            ("use_rslora", 1),
            ("fan_in_fan_out", "no"),
            ("bias", "some"),
            ("bias", True),
            ("target_modules", 3),
            ("target_modules", [1]),
            ("target_modules", {"q_proj": True}),
            ("target_modules", "(q_proj"),
            ("target_modules", "*q_proj"),
            ("exclude_modules", "[a-"),
            ("exclude_modules", 5),
            ("rank_pattern", ["q_proj"]),
            ("rank_pattern", {"q_proj": 0}),
            ("rank_pattern", {"q_proj": None}),
            ("rank_pattern", {"(": 4}),
            ("alpha_pattern", {"q_proj": "8"}),
            ("alpha_pattern", {"q_proj)": 8}),
            ("alpha_pattern", "q_proj"),
            ("layers_to_transform", "all"),
            ("layers_to_transform", [0.0]),
            ("layers_to_transform", True),
        ],
    )
    def test_values_that_mean_nothing(self, tmp_path: Path, key: str, value: Any) -> None:
        with pytest.raises(AdapterConfigError, match=rf"adapter_config\.json.*{key}"):
            load(adapter(tmp_path, **{key: value}))

    def test_layers_pattern_must_be_a_pattern(self, tmp_path: Path) -> None:
        with pytest.raises(AdapterConfigError, match="layers_pattern"):
            load(adapter(tmp_path, layers_to_transform=[0], layers_pattern=["("]))

    @pytest.mark.parametrize("targets", ["all-linear", MS_SWIFT])
    def test_layers_beside_a_string_of_targets(self, tmp_path: Path, targets: str) -> None:
        with pytest.raises(AdapterConfigError, match="layers_to_transform"):
            load(adapter(tmp_path, target_modules=targets, layers_to_transform=[0]))

    def test_long_values_are_shortened(self, tmp_path: Path) -> None:
        with pytest.raises(AdapterUnsupported) as caught:
            load(adapter(tmp_path, modules_to_save=["\ud800\n" * 500] * 500))
        assert len(caught.value.message) < 3000
        caught.value.message.encode()


class TestWarnings:
    @pytest.mark.parametrize("bias", ["lora_only", "all"])
    def test_bias_without_bias_tensors(self, tmp_path: Path, bias: str) -> None:
        plain = load(adapter(tmp_path))
        state = load(set_config(tmp_path, bias=bias))
        assert same_weights(state, plain)
        (warning,) = state.warnings
        assert f"bias = '{bias}'" in warning

    def test_bias_none_is_quiet(self, tmp_path: Path) -> None:
        assert load(adapter(tmp_path, bias="none")).warnings == ()

    def test_transposed_weights_mean_nothing_here(self, tmp_path: Path) -> None:
        plain = load(adapter(tmp_path))
        state = load(set_config(tmp_path, fan_in_fan_out=True))
        assert same_weights(state, plain)
        assert "fan_in_fan_out" in state.warnings[0]

    @pytest.mark.parametrize("recorded", ["someorg/other-7b-bnb-4bit", "/home/me/models/other-7b/"])
    def test_another_base_name_is_only_told(self, tmp_path: Path, recorded: str) -> None:
        adapter(tmp_path, base_model_name_or_path=recorded)
        (warning,) = load(tmp_path, base_names=["org/tiny", "tiny-alias"]).warnings
        assert recorded in warning
        assert load(tmp_path, base_names=["elsewhere/Other-7B-bnb-4bit", "other-7b"]).warnings == ()
        assert load(tmp_path).warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b'{"peft_type": "LORA", "r": NaN}',
        b'{"peft_type": "LORA", "r": Infinity}',
        b'{"peft_type": "LORA", "r": 4, "r": 8}',
        b'{"peft_type": "LORA"',
        b'{"peft_type": "LORA"} {}',
        b'{"peft_type": "\xff"}',
        b'{"x": ' + b"[" * 100_000,
        b'{"r": ' + b"9" * 10_000 + b"}",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    ],
    ids=lambda text: repr(text[:24]),
)
def test_configuration_that_is_no_json_object(tmp_path: Path, text: bytes) -> None:
    adapter(tmp_path)
    (tmp_path / "adapter_config.json").write_bytes(text)
    with pytest.raises(AdapterFileError, match=r"adapter_config\.json"):
        load(tmp_path)


def test_configuration_cut_anywhere(tmp_path: Path) -> None:
    path = adapter(tmp_path) / "adapter_config.json"
    text = path.read_bytes()
    for length in np.linspace(0, len(text) - 1, 20, dtype=int):
        path.write_bytes(text[:length])
        with pytest.raises(AdapterFileError):
            load(tmp_path)
    path.write_bytes(text)
    assert load(tmp_path).adapted == 4


def test_overlong_configuration(tmp_path: Path) -> None:
    with (adapter(tmp_path) / "adapter_config.json").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(AdapterFileError, match="larger than"):
        load(tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(allow_nan=False) | st.sampled_from(["q_proj", "(", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["q_proj", "("]), inner, max_size=2),
    max_leaves=4,
)


@given(config=st.dictionaries(st.sampled_from(sorted({*READ, *IRRELEVANT, "use_dora", "x"})), json_values, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_configuration_loads_or_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    adapter(tmp_path, **config)
    with contextlib.suppress(TurnoutError):
        assert load(tmp_path).adapted == 4


def test_text_files_of_its_own_are_not_used_and_that_is_said(tmp_path) -> None:
    folder = adapter(tmp_path / "a")
    plain = load(folder)
    assert plain.warnings == ()
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "tokenizer.json").write_text("{}")
    (warning,) = load(folder).warnings
    assert "tokenizer.json, chat_template.jinja" in warning
    assert load(folder).digest == plain.digest
