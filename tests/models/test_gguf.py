"""GGUF files as Hugging Face folders, held to transformers' own reading of the same files."""

import json
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tokenizers import Tokenizer

from tests.models.conftest import SMOLLM2_GGUF
from tests.models.gguf_files import TENSOR_NAMES, write_gguf
from tests.support.bases import write_random_base
from tests.support.tokenizers import BOS, EOS, IM_END, IM_START
from turnout.core.errors import BaseModelError
from turnout.models.config import read_config
from turnout.models.gguf import convert
from turnout.models.spec import DecoderSpec

LLAMA_CPP_IDS = {
    "Hello, world!": [19556, 28, 905, 17],
    "   1   22": [333, 33, 333, 34, 34],
    "$100,000.00 or 12%": [20, 33, 32, 32, 28, 32, 32, 32, 30, 32, 32, 355, 216, 33, 34, 21],
    "²³ ½ Ⅷ": [19133, 39050, 216, 16738, 216, 173, 223, 117],
    "a ٣٤ 𝟙𝟚": [81, 216, 164, 113, 164, 114, 216, 23159, 249, 243, 23159, 249, 244],
    "def f(x):\n    return x**2\n": [1604, 275, 24, 104, 727, 472, 1003, 1792, 828, 34, 198],
    "<|im_start|>user\n2+2?<|im_end|>\n": [1, 4093, 198, 34, 27, 34, 47, 2, 198],
    "你好 2024年": [18645, 250, 48392, 138, 216, 34, 32, 34, 36, 32090, 129],
    "I'LL don't 3's": [57, 23, 16421, 1326, 982, 216, 35, 506],
}
"""What llama.cpp 0.3.36 (its Python package) makes of texts with digits, which transformers does not split off."""

PIECES = ["hello", "Hello World", " ", "\n\n", "\t", "\r\n", "don't", "it's", "naïve", "漢字かな", "😀👩‍👩‍👧", "é"]
PIECES += ["\u00a0", "\u200b", "\x00\x01", "{x: [y]}", "::=", "…—“”", "def f():\n    return"]
PIECES += ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_"]


def test_the_real_file_equals_transformers(smollm2: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(SMOLLM2_GGUF.parent, gguf_file=SMOLLM2_GGUF.name, dtype=torch.float32)
    right = dict(model.named_parameters())
    weights = load_file(smollm2 / "model.safetensors")
    assert weights.keys() == right.keys()
    assert all(torch.equal(weights[name], parameter) for name, parameter in right.items())
    spec = DecoderSpec.from_config(read_config(smollm2))
    config = model.config
    assert (spec.layers, spec.hidden_size, spec.heads, spec.kv_heads) == (30, 576, 9, 3)
    assert (spec.context_length, spec.vocab_size) == (config.max_position_embeddings, config.vocab_size)
    assert (spec.rms_norm_eps, spec.rope.theta) == (config.rms_norm_eps, config.rope_parameters["rope_theta"])
    assert spec.tied_embeddings


@pytest.fixture(scope="module")
def tokenizers(smollm2: Path) -> tuple[Tokenizer, Any]:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(SMOLLM2_GGUF.parent, gguf_file=SMOLLM2_GGUF.name)
    return Tokenizer.from_file(str(smollm2 / "tokenizer.json")), theirs


@given(text=st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=12).map("".join))
@settings(max_examples=500, deadline=None)
def test_real_tokens_equal_transformers_but_for_digits(tokenizers: tuple[Tokenizer, Any], text: str) -> None:
    ours, theirs = tokenizers
    text = "".join(character for character in text if not character.isnumeric())
    ids = ours.encode(text).ids
    assert ids == theirs(text).input_ids
    assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids)


@pytest.mark.parametrize("text", LLAMA_CPP_IDS)
def test_real_tokens_equal_llama_cpps(tokenizers: tuple[Tokenizer, Any], text: str) -> None:
    assert tokenizers[0].encode(text).ids == LLAMA_CPP_IDS[text]


def test_real_special_tokens_and_chat_template(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    ours = AutoTokenizer.from_pretrained(smollm2)
    theirs = AutoTokenizer.from_pretrained(SMOLLM2_GGUF.parent, gguf_file=SMOLLM2_GGUF.name)
    assert (ours.bos_token, ours.eos_token, ours.pad_token) == ("<|im_start|>", "<|im_end|>", "<|im_end|>")
    messages = [{"role": "user", "content": "Hi 42"}]
    text = ours.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    generation = json.loads((smollm2 / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": [2], "pad_token_id": 2}


BASES = {
    "llama": {"family": "llama", "head_dim": 32},
    "llama with biases": {"family": "llama", "attention_bias": True},
    "qwen2": {"family": "qwen2", "tied": True},
    "qwen3": {"family": "qwen3", "head_dim": 32},
}


@pytest.mark.parametrize("name", BASES)
def test_every_architecture_comes_back_whole(tmp_path: Path, name: str) -> None:
    base = write_random_base(tmp_path / "base", **BASES[name])
    folder = convert(write_gguf(tmp_path / "base.gguf", base), tmp_path / "cache")
    right, found = load_file(base / "model.safetensors"), load_file(folder / "model.safetensors")
    assert found.keys() == right.keys()
    assert all(torch.equal(found[name], right[name]) for name in right)
    spec, original = (DecoderSpec.from_config(read_config(where)) for where in (folder, base))
    assert spec.rms_norm_eps == pytest.approx(original.rms_norm_eps)
    assert [getattr(spec, name) for name in spec.__slots__ if name != "rms_norm_eps"] == [
        getattr(original, name) for name in spec.__slots__ if name != "rms_norm_eps"
    ]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_base(tmp_path_factory.mktemp("llama"))


def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("pre", ["smollm", "qwen2", "llama-bpe"])
def test_small_vocabularies_equal_transformers(llama: Path, tmp_path: Path, pre: str) -> None:
    from transformers import AutoTokenizer

    path = write_gguf(tmp_path / "base.gguf", llama, pre=pre, tokenizer__ggml__add_bos_token=False)
    ours = _tokenizer(convert(path, tmp_path / "cache"))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in ("hello hello", "  hello's\n\n hello", "!hello<|im_end|>", "Ünïcödé 漢 😀", "\t  x", ""):
        assert ours.encode(text).ids == theirs(text).input_ids, text
    digits = [token for token in ours.encode("hello 123123").tokens if token[0] in "123"]
    assert digits == {"smollm": [*"123123"], "qwen2": [*"123123"], "llama-bpe": ["123", "123"]}[pre]


def test_qwen_text_is_normalized(llama: Path, tmp_path: Path) -> None:
    tokenizer = _tokenizer(convert(write_gguf(tmp_path / "base.gguf", llama, pre="qwen2"), tmp_path / "cache"))
    assert tokenizer.encode("e\u0301").ids == [*"é".encode()]


def test_bos_goes_before_prompts_where_the_file_says_so_and_for_llama3(llama: Path, tmp_path: Path) -> None:
    def first(**how: Any) -> int:
        path = write_gguf(tmp_path / "base.gguf", llama, **how)
        return _tokenizer(convert(path, tmp_path / "cache")).encode("x").ids[0]

    assert first() == ord("x")
    assert first(tokenizer__ggml__add_bos_token=True) == BOS
    assert first(pre="llama-bpe") == BOS
    assert first(pre="llama-bpe", tokenizer__ggml__add_bos_token=False) == ord("x")


def test_special_tokens_are_whole_and_both_ends_end_a_generation(llama: Path, tmp_path: Path) -> None:
    folder = convert(write_gguf(tmp_path / "base.gguf", llama), tmp_path / "cache")
    assert _tokenizer(folder).encode("<|im_start|>x").ids == [IM_START, ord("x")]
    assert _tokenizer(folder).decode([IM_START, ord("x")]) == "x"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [EOS, IM_END]


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ({"general__architecture": "gemma3"}, "general.architecture is 'gemma3'; supported: llama, qwen2, qwen3"),
        ({"llama__expert_count": 8}, "llama.expert_count, which is not understood"),
        ({"llama__rope__scaling__type": "yarn"}, "llama.rope.scaling.type is 'yarn'"),
        ({"llama__rope__dimension_count": 8}, "llama.rope.dimension_count is 8"),
        ({"llama__block_count": None}, "lacks llama.block_count"),
        ({"tokenizer__ggml__model": "llama"}, "tokenizer.ggml.model is 'llama'; supported: gpt2"),
        ({"tokenizer__ggml__pre": "tekken"}, "tokenizer.ggml.pre is 'tekken'; supported: smollm, qwen2, llama-bpe"),
        ({"tokenizer__ggml__merges": None}, "lacks tokenizer.ggml.merges"),
        ({"tokenizer__ggml__add_eos_token": True}, "tokenizer.ggml.add_eos_token"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    llama: Path, tmp_path: Path, metadata: dict[str, Any], names: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = write_gguf(tmp_path / "base.gguf", llama, **metadata)
    with pytest.raises(BaseModelError, match=re.escape(names)):
        convert(path, tmp_path / "cache")
    assert not any((tmp_path / "cache").iterdir())


def test_a_tensor_that_is_not_understood_is_refused_by_name(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TENSOR_NAMES, "mlp.gate_proj", "ffn_gate_exps")
    path = write_gguf(tmp_path / "base.gguf", llama)
    with pytest.raises(BaseModelError, match=r"blk\.0\.ffn_gate_exps\.weight, which is not understood"):
        convert(path, tmp_path / "cache")


@pytest.mark.parametrize(
    "damage", [lambda content: b"", lambda content: b"GGUX" + content[4:], lambda content: content[:-5000]]
)
def test_a_file_that_is_no_whole_gguf_file_is_refused(
    llama: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = write_gguf(tmp_path / "base.gguf", llama)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BaseModelError, match="not a whole GGUF file"):
        convert(path, tmp_path / "cache")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaseModelError, match="No such file"):
        convert(tmp_path / "base.gguf", tmp_path / "cache")


def test_a_second_call_finds_the_folder_by_content(llama: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "base.gguf", llama)
    folder = convert(path, tmp_path / "cache")
    written = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert convert(path.rename(tmp_path / "renamed.gguf"), tmp_path / "cache") == folder
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == written
    assert {file.name for file in written} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    other = write_gguf(tmp_path / "other.gguf", llama, llama__context_length=128)
    assert convert(other, tmp_path / "cache") != folder


def test_a_conversion_that_fails_half_way_leaves_nothing(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "base.gguf", llama)

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("turnout.models.gguf.conversion.save_file", fail)
        with pytest.raises(BaseModelError, match=r"cannot be written to .*disk full"):
            convert(path, tmp_path / "cache")
    assert not any((tmp_path / "cache").iterdir())
    assert (convert(path, tmp_path / "cache") / "model.safetensors").exists()


def test_conversions_at_once_give_one_whole_folder(llama: Path, tmp_path: Path) -> None:
    path, together = write_gguf(tmp_path / "base.gguf", llama), Barrier(4)

    def convert_together() -> Path:
        together.wait()
        return convert(path, tmp_path / "cache")

    with ThreadPoolExecutor(4) as pool:
        folders = {future.result() for future in [pool.submit(convert_together) for _ in range(4)]}
    assert folders == set((tmp_path / "cache").iterdir())
    (folder,) = folders
    assert torch.equal(
        load_file(folder / "model.safetensors")["lm_head.weight"],
        load_file(llama / "model.safetensors")["lm_head.weight"],
    )
