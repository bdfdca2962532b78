"""A base model's tokenizer, from its folder, without transformers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tokenizers

from turnout.core.errors import BaseModelError, InvalidRequest
from turnout.core.identity import Digest
from turnout.text.config import TokenizerConfig, read_object, read_tokenizer_config, tokenizer_revision
from turnout.text.pieces import PieceDecoder, read_decoder, strip_spaces


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Text to token ids and back. Nothing in it changes once loaded, so threads may share it.

    `eos_token_ids` are all ids that end a text for this model. `vocab_size` counts the tokenizer's own tokens;
    a model's table may be longer, and the ids beyond stand for no text at all.
    """

    revision: Digest
    bos_token_id: int | None
    eos_token_ids: frozenset[int]
    vocab_size: int
    _backend: tokenizers.Tokenizer = field(repr=False)
    _pieces: PieceDecoder = field(repr=False)
    _added: Mapping[int, str] = field(repr=False)
    _special: frozenset[int] = field(repr=False)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of a text; special tokens written out in it become their ids.

        `add_special_tokens` puts around it what the post-processor of tokenizer.json says, `<bos>` for most
        models. Like transformers 5, this ignores `add_bos_token` in tokenizer_config.json.
        Raises InvalidRequest for a lone surrogate, which JSON can carry but UTF-8 cannot.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise InvalidRequest(
                f"character {error.start} of the text is U+{code:04X}, half of a surrogate pair, "
                "and stands for nothing; send whole characters"
            ) from error
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of the ids, as the tokenizers library has it but for two cases.

        Bytes that are not UTF-8 become one U+FFFD for each ill-formed part, however the vocabulary spells bytes
        (the library: one for every byte of a byte-fallback run), and an added token is its own text even if all
        its characters happen to be in the byte-level table. Nothing is cleaned up.
        """
        shown = [token for token in ids if self.shows(token, skip_special_tokens=skip_special_tokens)]
        data = b"".join(self.token_bytes(token, first=n == 0) for n, token in enumerate(shown))
        text, _ = strip_spaces(data.decode(errors="replace"), self.leading_spaces)
        return text

    def token_bytes(self, token: int, *, first: bool = False) -> bytes:
        """The exact bytes of one token; none for an id without a token.

        `first` when it opens a text: some vocabularies leave out the space before the first word.
        """
        added = self._added.get(token)
        if added is not None and self._pieces.byte_level:
            return added.encode()
        piece = added if added is not None else self._backend.id_to_token(token)
        return b"" if piece is None else self._pieces.to_bytes(piece, first=first)

    def shows(self, token: int, *, skip_special_tokens: bool) -> bool:
        """Whether the token stands for any part of a decoded text."""
        if skip_special_tokens and token in self._special:
            return False
        return self._backend.id_to_token(token) is not None

    def is_special(self, token: int) -> bool:
        """Whether the token marks structure, such as the end of a turn, and is no part of the text."""
        return token in self._special

    @property
    def leading_spaces(self) -> int:
        """The most spaces that `decode` takes off the front of a text."""
        return self._pieces.strip


def load_tokenizer(folder: Path) -> Tokenizer:
    """Read tokenizer.json and what the folder's configurations add to it.

    Raises BaseModelError when a file is missing or unreadable, contradicts tokenizer.json, or asks for a kind of
    decoder that is not supported.
    """
    backend = _read_backend(folder / "tokenizer.json")
    config = read_tokenizer_config(folder)
    _check_agreement(backend, config, folder)
    _mark_special(backend, [*config.named_tokens.values(), *config.extra_tokens])
    added = backend.get_added_tokens_decoder()
    decoder = backend.decoder
    return Tokenizer(
        revision=tokenizer_revision(folder),
        bos_token_id=_named_id(backend, config, "bos_token"),
        eos_token_ids=_eos_token_ids(backend, config, folder),
        vocab_size=backend.get_vocab_size(with_added_tokens=True),
        _backend=backend,
        _pieces=read_decoder(None if decoder is None else json.loads(decoder.__getstate__())),
        _added={index: token.content for index, token in added.items()},
        _special=frozenset(index for index, token in added.items() if token.special),
    )


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise BaseModelError(
            f"{path} is missing; write it with AutoTokenizer.from_pretrained(...).save_pretrained(...) of transformers"
        )
    try:
        backend = tokenizers.Tokenizer.from_buffer(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BaseModelError(f"{path} cannot be read as a tokenizer: {error}") from error
    # Either may have been saved along with a training set-up, and would cut or fill up prompts.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _check_agreement(backend: tokenizers.Tokenizer, config: TokenizerConfig, folder: Path) -> None:
    for index, text in config.added_tokens.items():
        found = backend.token_to_id(text)
        if found != index:
            raise BaseModelError(
                f"{folder}: token {text!r} has id {index} in tokenizer_config.json and "
                f"{'none' if found is None else found} in tokenizer.json; save both anew from one tokenizer"
            )
    for name in ("bos_token", "eos_token"):
        named = config.named_tokens.get(name)
        if named is not None and backend.token_to_id(named) is None:
            raise BaseModelError(f"{folder}: the {name} {named!r} of tokenizer_config.json is not in tokenizer.json")


def _mark_special(backend: tokenizers.Tokenizer, named: Iterable[str]) -> None:
    """As in transformers, a token that the configuration names is special even if tokenizer.json is silent."""
    added = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    for text in named:
        token = added.get(text) or tokenizers.AddedToken(text, normalized=False)
        if backend.token_to_id(text) is not None and not token.special:
            token.special = True
            backend.add_special_tokens([token])


def _named_id(backend: tokenizers.Tokenizer, config: TokenizerConfig, name: str) -> int | None:
    text = config.named_tokens.get(name)
    return None if text is None else backend.token_to_id(text)


def _eos_token_ids(backend: tokenizers.Tokenizer, config: TokenizerConfig, folder: Path) -> frozenset[int]:
    """All that any of the three files calls an end: each of them is incomplete for some published model."""
    ids = {_named_id(backend, config, "eos_token")} - {None}
    for name in ("generation_config.json", "config.json"):
        value = read_object(folder / name).get("eos_token_id")
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(index) is int and index >= 0 for index in listed):
            raise BaseModelError(f"{folder / name}: eos_token_id must be token ids, not {value!r}")
        ids.update(listed)
    return frozenset(index for index in ids if index is not None)
