"""The JSON shapes of answers: plain dictionaries, for a stream makes hundreds of them a second."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from turnout.core.events import TokenLogprob
from turnout.serving.choice import Piece, ScoredToken
from turnout.serving.generate import Usage
from turnout.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Head:
    """What all chunks of one answer share. `model` is the name that was asked for."""

    id: str
    created: int
    model: str

    def around(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """An answer or chunk with these choices."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


class Shape(Protocol):
    """How one endpoint writes its answers."""

    @property
    def kind(self) -> str:
        """The `object` of a whole answer."""
        ...

    @property
    def chunk_kind(self) -> str:
        """The `object` of a stream's chunk."""
        ...

    def opening(self, index: int) -> dict[str, Any] | None:
        """The choice of a stream's first chunk for `index`, before any piece; None where there is none."""
        ...

    def delta(self, piece: Piece) -> dict[str, Any]:
        """The choice of a stream's chunk for a piece."""
        ...

    def choice(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """A whole choice, of all its pieces."""
        ...


def usage_json(usage: Usage) -> dict[str, Any]:
    """OpenAI's `usage`."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def joined(pieces: Sequence[Piece]) -> Piece:
    """All pieces of one choice as one."""
    return Piece(
        pieces[0].index,
        "".join(piece.text for piece in pieces),
        tuple(scored for piece in pieces for scored in piece.scored),
        pieces[-1].finish_reason,
    )


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """A token as text; one that is part of a character only, as `bytes:\\xf0\\x9f`."""
    raw = tokenizer.token_bytes(token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


@dataclass(frozen=True, slots=True)
class CompletionShape:
    """/v1/completions."""

    tokenizer: Tokenizer
    logprobs: bool
    kind: str = "text_completion"
    chunk_kind: str = "text_completion"

    def opening(self, index: int) -> None:  # noqa: ARG002
        """There is none: a completion has no role to tell."""
        return

    def delta(self, piece: Piece) -> dict[str, Any]:
        """The choice with what is new of its text."""
        return {
            "index": piece.index,
            "text": piece.text,
            "logprobs": self._logprobs(piece.scored) if self.logprobs else None,
            "finish_reason": piece.finish_reason,
        }

    def choice(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The choice with all its text."""
        return self.delta(joined(pieces))

    def _logprobs(self, scored: Iterable[ScoredToken]) -> dict[str, Any]:
        entries = list(scored)
        return {
            "tokens": [token_text(self.tokenizer, entry.token) for entry in entries],
            "token_logprobs": [entry.logprob and entry.logprob.logprob for entry in entries],
            "top_logprobs": [entry.logprob and self._top(entry.logprob) for entry in entries],
            "text_offset": [entry.offset for entry in entries],
        }

    def _top(self, logprob: TokenLogprob) -> dict[str, float]:
        """The likeliest, and the chosen one whether or not it is among them."""
        likeliest = (*logprob.top, (logprob.token, logprob.logprob))
        return {token_text(self.tokenizer, token): value for token, value in likeliest}


@dataclass(frozen=True, slots=True)
class ChatShape:
    """/v1/chat/completions."""

    tokenizer: Tokenizer
    logprobs: bool
    kind: str = "chat.completion"
    chunk_kind: str = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any]:
        """Who speaks."""
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(self, piece: Piece) -> dict[str, Any]:
        """The choice with what is new of its content."""
        return {
            "index": piece.index,
            "delta": {"content": piece.text} if piece.text else {},
            "logprobs": self._logprobs(piece.scored),
            "finish_reason": piece.finish_reason,
        }

    def choice(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The choice with its whole message."""
        whole = joined(pieces)
        return {
            "index": whole.index,
            "message": {"role": "assistant", "content": whole.text, "refusal": None},
            "logprobs": self._logprobs(whole.scored),
            "finish_reason": whole.finish_reason,
        }

    def _logprobs(self, scored: Iterable[ScoredToken]) -> dict[str, Any] | None:
        if not self.logprobs:
            return None
        return {"content": [self._entry(entry.logprob) for entry in scored if entry.logprob is not None]}

    def _entry(self, logprob: TokenLogprob) -> dict[str, Any]:
        top = [self._token(token, value) for token, value in logprob.top]
        return {**self._token(logprob.token, logprob.logprob), "top_logprobs": top}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        raw = self.tokenizer.token_bytes(token)
        return {"token": token_text(self.tokenizer, token), "logprob": logprob, "bytes": list(raw)}
