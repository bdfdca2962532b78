"""How the pieces of a vocabulary spell bytes, read off the tokenizer's own decoder."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnout.core.errors import BaseModelError


@dataclass(frozen=True, slots=True)
class PieceDecoder:
    """The three spellings in use among decoder-only models.

    `byte_level`: every character stands for one byte (GPT-2's table). Otherwise pieces are plain text in which
    `space` stands for a space and, with `byte_fallback`, a piece `<0xNN>` for one byte.
    At the start of a text, `first_drops_space` leaves out the spaces of the first piece (Metaspace decoder), and
    `strip` is the most leading spaces of the whole text that go (Strip decoder).
    """

    byte_level: bool = False
    space: str = ""
    byte_fallback: bool = False
    first_drops_space: bool = False
    strip: int = 0

    def to_bytes(self, piece: str, *, first: bool) -> bytes:
        """The bytes of a piece of the vocabulary, `first` when no piece stands before it in the text."""
        if self.byte_level:
            return _from_alphabet(piece)
        if self.byte_fallback and (spelt := _FALLBACK.fullmatch(piece)):
            return bytes.fromhex(spelt[1])
        return piece.replace(self.space, "" if first and self.first_drops_space else " ").encode()


def read_decoder(state: Mapping[str, Any] | None) -> PieceDecoder:
    """Understand the `decoder` section of a tokenizer.json; BaseModelError when it is of another kind."""
    state = state or {"type": None}
    match state.get("decoders", [state]):
        case [{"type": "ByteLevel"}]:
            return PieceDecoder(byte_level=True)
        case [{"type": "Metaspace", "replacement": space, "prepend_scheme": scheme}]:
            return PieceDecoder(space=space, first_drops_space=scheme != "never")
        case [
            {"type": "Replace", "pattern": {"String": space}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *rest,
        ]:
            match rest:
                case []:
                    return PieceDecoder(space=space, byte_fallback=True)
                case [{"type": "Strip", "content": " ", "start": strip, "stop": 0}]:
                    return PieceDecoder(space=space, byte_fallback=True, strip=strip)
    raise BaseModelError(
        f"the tokenizer's decoder {state} is not supported: expected ByteLevel, Metaspace, or the sequence "
        "Replace, ByteFallback, Fuse and optionally Strip"
    )


def strip_spaces(text: str, left: int) -> tuple[str, int]:
    """Take up to `left` spaces off the front of the next part of a text.

    Returns the rest, and how many may still be taken from the part after it.
    """
    stripped = text.lstrip(" ")
    taken = min(left, len(text) - len(stripped))
    return text[taken:], 0 if stripped else left - taken


def _from_alphabet(piece: str) -> bytes:
    try:
        return bytes([_BYTE_OF[character] for character in piece])
    except KeyError:
        # A character outside the table: the piece is not spelt in it, and means itself.
        return piece.encode()


def _alphabet() -> dict[str, int]:
    """GPT-2's table: printable bytes stand for themselves, the others for U+0100 and on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _alphabet()
_FALLBACK = re.compile("<0x([0-9A-Fa-f]{2})>")
