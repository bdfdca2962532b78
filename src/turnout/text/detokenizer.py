"""Turning a growing sequence of tokens into text, piece by piece."""

import codecs

from turnout.text.pieces import strip_spaces
from turnout.text.tokenizer import Tokenizer


class Detokenizer:
    """Decodes one sequence as it grows; each token costs the same however long the sequence is.

    All that `push` returned, with `flush` at the end, is exactly `Tokenizer.decode` of all the tokens: both join
    the tokens' bytes and read them as UTF-8. A character is held back until its last byte is there. What is
    still incomplete at the end becomes one U+FFFD, in streams and whole answers alike.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._first = True
        self._strip = tokenizer.leading_spaces

    def push(self, token: int) -> str:
        """Take the next token; returns the characters that are complete with it."""
        if not self._tokenizer.shows(token, skip_special_tokens=self._skip_special_tokens):
            return ""
        data = self._tokenizer.token_bytes(token, first=self._first)
        self._first = False
        return self._stripped(self._utf8.decode(data))

    def flush(self) -> str:
        """End the text; returns U+FFFD when a character was left incomplete, and nothing otherwise."""
        return self._stripped(self._utf8.decode(b"", final=True))

    def _stripped(self, text: str) -> str:
        if self._strip:
            text, self._strip = strip_spaces(text, self._strip)
        return text
