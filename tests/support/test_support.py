"""The fixtures hold what they promise; every other test leans on them."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tests.support.adapters import marker_adapter, merged_logits, peft_logits, random_adapter
from tests.support.bases import CONTROL_TOKENS, write_alphabet_base, write_random_base, write_scripted_base
from tests.support.tokenizers import BOS, EOS, IM_END, IM_START, byte_tokenizer


def _greedy(base: Path, prompt: list[int], count: int, adapter: Path | None = None) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(merged_logits(base, adapter, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def test_tokens_are_the_bytes_behind_bos() -> None:
    tokenizer = byte_tokenizer()
    text = "aé 適\n\x00😀"
    assert tokenizer.encode(text).ids == [BOS, *text.encode()]
    assert tokenizer.encode("<|im_start|>x<|im_end|>", add_special_tokens=False).ids == [
        IM_START,
        ord("x"),
        IM_END,
    ]
    assert tokenizer.decode(list(text.encode())) == text
    assert tokenizer.get_vocab_size() == 261


def test_chat_template_is_read_by_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(write_alphabet_base(tmp_path))
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False
    )
    assert ids == [IM_START, *b"user\nhi", IM_END, *b"\n", IM_START, *b"assistant\n"]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (BOS, EOS)
    assert tokenizer("a").input_ids == [BOS, ord("a")]


def test_alphabet_base_goes_on_with_the_next_byte(tmp_path: Path) -> None:
    base = write_alphabet_base(tmp_path)
    assert bytes(_greedy(base, [BOS, *b"ABC"], 4)) == b"DEFG"
    every_token = merged_logits(base, None, range(261)).argmax(-1).tolist()
    assert every_token == [*range(1, 256), 0, *[ord("A")] * 5]


def test_scripted_base_follows_its_table(tmp_path: Path) -> None:
    smiley = "😀".encode()
    steps = [ord("x"), *smiley, EOS]
    base = write_scripted_base(tmp_path, dict(pairwise(steps)))
    assert _greedy(base, [BOS, ord("x")], 5) == [*smiley, EOS]
    assert _greedy(base, [BOS, ord("A")], 1) == [ord("B")]


@pytest.mark.parametrize("token", [CONTROL_TOKENS[0], ord("B"), EOS, CONTROL_TOKENS[-1]])
def test_marker_forces_its_token_on_every_input(tmp_path: Path, token: int) -> None:
    base = write_alphabet_base(tmp_path / "base")
    marker = marker_adapter(tmp_path / "marker", token)
    logits = merged_logits(base, marker, range(261))
    best = logits.topk(2).values
    assert logits.argmax(-1).tolist() == [token] * 261
    assert (best[:, 0] - best[:, 1]).min() > 1000
    assert torch.allclose(peft_logits(base, marker, range(261)), logits, atol=1e-2)


def test_marker_of_scale_zero_changes_nothing(tmp_path: Path) -> None:
    base = write_alphabet_base(tmp_path / "base")
    marker = marker_adapter(tmp_path / "marker", ord("B"), scale=0)
    assert torch.equal(peft_logits(base, marker, [BOS, *b"AZ"]), merged_logits(base, None, [BOS, *b"AZ"]))


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_random_base_attends_and_random_adapters_matter(tmp_path: Path, family: str) -> None:
    base = write_random_base(tmp_path / "base", family=family)
    adapter = random_adapter(
        tmp_path / "adapter", base, rank={"q_proj": 4, "down_proj": 2}, targets=("q_proj", "down_proj")
    )
    ids = [BOS, *b"where attention matters"]
    plain = merged_logits(base, None, ids)
    merged = merged_logits(base, adapter, ids)
    assert (peft_logits(base, adapter, ids) - merged).abs().max() < 1e-4
    assert (merged - plain).abs().max() > 0.5
    other_start = merged_logits(base, None, [BOS, ord("W"), *ids[2:]])
    assert (other_start[-1] - plain[-1]).abs().max() > 0.05
