"""A tokenizer whose ids can be read off the text: ids 0 to 255 are the bytes, five special tokens follow."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

BOS, EOS, IM_START, IM_END, PAD = range(256, 261)
SPECIAL_TOKENS = {"<bos>": BOS, "<eos>": EOS, "<|im_start|>": IM_START, "<|im_end|>": IM_END, "<pad>": PAD}
TOKENIZER_SIZE = 261

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    """Byte-level, without merges: a character of n UTF-8 bytes is n tokens. `<bos>` precedes raw prompts."""
    tokenizer = Tokenizer(BPE(vocab={character: byte for byte, character in _byte_characters()}, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS])
    tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", BOS)]
    )
    return tokenizer


def write_tokenizer(folder: Path) -> None:
    """The tokenizer as a Hugging Face folder has it, with a chat template: ChatML, without `<bos>`."""
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def _byte_characters() -> list[tuple[int, str]]:
    """GPT-2's table: printable bytes stand for themselves, the others move to U+0100 and on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(256))
    return [(byte, chr(byte) if byte in printable else chr(256 + next(moved))) for byte in range(256)]
