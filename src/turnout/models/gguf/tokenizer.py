"""The tokenizer files that a GGUF file's metadata amounts to."""

from collections.abc import Mapping, Sequence
from typing import Any

from turnout.core.errors import BaseModelError
from turnout.models.gguf.metadata import required

_CONTROL, _USER_DEFINED = 3, 4
"""Token types of the GGUF specification that are matched whole in a text, before it is split."""


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(number: str) -> dict[str, Any]:
    regex = (
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


_PRE_TOKENIZERS: Mapping[str, list[dict[str, Any]]] = {
    "smollm": [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)],
    "qwen2": [_split(r"\p{N}"), _byte_level(use_regex=False)],
    "llama-bpe": [_split(r"\p{N}{1,3}"), _byte_level(use_regex=False)],
}
"""By `tokenizer.ggml.pre`, how the model's own `tokenizer.json` splits text before the merges."""


def tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `tokenizer.json`. Raises BaseModelError for a tokenizer other than byte-level BPE as above."""
    kind, pre = (str(metadata.get(f"tokenizer.ggml.{name}")) for name in ("model", "pre"))
    if kind != "gpt2":
        raise BaseModelError(f"the GGUF file's tokenizer.ggml.model is {kind!r}; supported: gpt2")
    if pre not in _PRE_TOKENIZERS:
        raise BaseModelError(f"the GGUF file's tokenizer.ggml.pre is {pre!r}; supported: {', '.join(_PRE_TOKENIZERS)}")
    tokens = required(metadata, "tokenizer.ggml.tokens")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, required(metadata, "tokenizer.ggml.token_type")),
        # Qwen's own tokenizers normalize; their GGUF files do not say so.
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[pre]},
        "post_processor": _bos_before_text(metadata) if _adds_bos(metadata) else None,
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": required(metadata, "tokenizer.ggml.merges"),
            # Llama 3 takes a word that is a token whole, whether or not merges lead to it.
            "ignore_merges": pre == "llama-bpe",
        },
    }


def tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `tokenizer_config.json`: special tokens and chat template, as far as the file names them."""
    tokens = required(metadata, "tokenizer.ggml.tokens")
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {token: metadata.get(f"tokenizer.ggml.{name}_token_id") for token, name in names.items()}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": _adds_bos(metadata),
        **{token: None if index is None else tokens[index] for token, index in ids.items()},
    }
    template = metadata.get("tokenizer.chat_template")
    return config if template is None else {**config, "chat_template": template}


def generation_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `generation_config.json`. A turn's end and a text's end both end a generation."""
    ends = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    return {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": sorted({token for token in ends if token is not None}),
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
    }


def _added_tokens(tokens: Sequence[str], types: Sequence[int]) -> list[dict[str, Any]]:
    whole = [index for index, kind in enumerate(types) if kind in (_CONTROL, _USER_DEFINED)]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [{"id": index, "content": tokens[index], **plain, "special": types[index] == _CONTROL} for index in whole]


def _adds_bos(metadata: Mapping[str, Any]) -> bool:
    """Whether raw prompts begin with the bos token; files that do not say so mean Llama 3's only."""
    if metadata.get("tokenizer.ggml.add_eos_token"):
        raise BaseModelError("the GGUF file's tokenizer.ggml.add_eos_token is set: a prompt that ends is not supported")
    return bool(metadata.get("tokenizer.ggml.add_bos_token", metadata["tokenizer.ggml.pre"] == "llama-bpe"))


def _bos_before_text(metadata: Mapping[str, Any]) -> dict[str, Any]:
    index = required(metadata, "tokenizer.ggml.bos_token_id")
    bos = required(metadata, "tokenizer.ggml.tokens")[index]
    first: list[dict[str, Any]] = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [index], "tokens": [bos]}},
    }
