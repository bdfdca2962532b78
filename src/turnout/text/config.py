"""What a Hugging Face folder says about its tokenizer besides the vocabulary."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from typing import Any

from turnout.core.errors import BaseModelError
from turnout.core.identity import Digest

REVISION_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
"""The files that decide which token ids a text or a chat becomes; only the first must exist."""


@dataclass(frozen=True, slots=True)
class TokenizerConfig:
    """The parts of `tokenizer_config.json` and `special_tokens_map.json` that bear on inference.

    `named_tokens` maps `bos_token`, `eos_token` and other names ending in `_token` to their text; chat templates
    see them under these names. `extra_tokens` are special without a name. `added_tokens` maps ids to the texts
    that the configuration expects there. `chat_template` is the default one, if any.
    """

    named_tokens: Mapping[str, str]
    extra_tokens: tuple[str, ...]
    added_tokens: Mapping[int, str]
    chat_template: str | None


def read_tokenizer_config(folder: Path) -> TokenizerConfig:
    """Read both files, each of which may be missing; BaseModelError when one is not a JSON object."""
    config = read_object(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in config:
        # As in transformers: the older file counts, and wins, where the newer list is missing.
        config |= read_object(folder / "special_tokens_map.json")
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    named = {name: value for name, value in config.items() if name.endswith("_token")}
    if isinstance(extra, dict):
        named, extra = named | extra, []
    texts = {name: _text(value) for name, value in named.items()}
    return TokenizerConfig(
        named_tokens={name: text for name, text in texts.items() if text is not None},
        extra_tokens=tuple(text for text in map(_text, extra) if text is not None),
        added_tokens=_added_tokens(config, folder),
        chat_template=_default_template(config.get("chat_template")),
    )


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, empty when there is no such file; BaseModelError when it is something else."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BaseModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise BaseModelError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def tokenizer_revision(folder: Path) -> Digest:
    """SHA-256 over the REVISION_FILES that exist: each one's name and bytes, behind their lengths."""
    hasher = hashlib.sha256()
    for name in REVISION_FILES:
        path = folder / name
        if path.is_file():
            for part in (name.encode(), path.read_bytes()):
                hasher.update(pack("<Q", len(part)) + part)
    return Digest(f"sha256:{hasher.hexdigest()}")


def _text(token: object) -> str | None:
    """A token is written as its text or as an object with the text under `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _added_tokens(config: Mapping[str, Any], folder: Path) -> dict[int, str]:
    entries = config.get("added_tokens_decoder") or {}
    try:
        return {int(index): entry["content"] for index, entry in entries.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        where = folder / "tokenizer_config.json"
        raise BaseModelError(f"{where}: added_tokens_decoder must map ids to objects with 'content'") from error


def _default_template(value: object) -> str | None:
    """One template, or a list of named ones of which only "default" is for plain chats."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None
