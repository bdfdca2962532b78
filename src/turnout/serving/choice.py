"""One choice of an answer: its tokens become text, up to its stop."""

from dataclasses import dataclass, replace

from turnout.core.events import Finished, FinishReason, Phases, Prefilled, PromptScored, Token, TokenLogprob
from turnout.core.request import Request
from turnout.text.detokenizer import Detokenizer
from turnout.text.stop import StopScanner
from turnout.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token to show with its log-probability; None for a prompt's first, which nothing comes before.

    `offset` is where its text begins in the choice's text, in characters.
    """

    token: int
    logprob: TokenLogprob | None
    offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new of one choice. The last one of a choice has a finish reason."""

    index: int
    text: str
    scored: tuple[ScoredToken, ...]
    finish_reason: FinishReason | None


class Choice:
    """Follows one engine request. Text from a stop string on, and of a stop token, is not shown.

    `prompt_text` is shown first where the caller wants it echoed. `tokens` counts all tokens generated, a stop token
    included.
    """

    def __init__(
        self, index: int, request: Request, tokenizer: Tokenizer, stops: tuple[str, ...], prompt_text: str | None
    ) -> None:
        self.index = index
        self.request = request
        self.tokens = 0
        self.cached_tokens = 0
        self.phases = Phases()
        self.finish_reason: FinishReason | None = None
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._scanner = StopScanner(stops)
        self._text = prompt_text or ""
        self._scored: list[ScoredToken] = []
        self._offset = len(self._text)
        self._echo = prompt_text is not None
        self._first_token = 0.0

    @property
    def done(self) -> bool:
        """Whether nothing more comes of it."""
        return self.finish_reason is not None

    def take(self, event: PromptScored | Prefilled | Token | Finished, now: float) -> bool:
        """Add an event, come at `now` (`time.monotonic()`); True if a stop string ended the choice by itself."""
        match event:
            case PromptScored(logprobs):
                self._score_prompt(logprobs)
            case Prefilled(cached_tokens, phases):
                self.cached_tokens = cached_tokens
                self.phases = phases
            case Token(token, logprob):
                self._first_token = self._first_token or now
                if self._add(token, logprob):
                    self._stop_here(now)
                    return True
            case Finished(reason, _, phases):
                self.phases = phases
                self._text += self._scanner.push(self._detokenizer.flush())[0] + self._scanner.flush()
                self.finish_reason = reason
        return False

    def piece(self) -> Piece | None:
        """What is new since the last piece, None if there is nothing to show yet."""
        if not (self._text or self._scored or self.done):
            return None
        piece = Piece(self.index, self._text, tuple(self._scored), self.finish_reason)
        self._text, self._scored = "", []
        return piece

    def _add(self, token: int, logprob: TokenLogprob | None) -> bool:
        self.tokens += 1
        if token in self.request.sampling.stop_token_ids:
            return False
        if logprob is not None:
            self._scored.append(ScoredToken(token, logprob, self._offset))
        text = self._detokenizer.push(token)
        self._offset += len(text)
        shown, stopped = self._scanner.push(text)
        self._text += shown
        return stopped

    def _stop_here(self, now: float) -> None:
        """The engine does not know of stop strings, so the token phases are taken here."""
        self.finish_reason = "stop"
        first_token = self._first_token - self.request.arrived
        self.phases = replace(self.phases, first_token=first_token, decode=now - self._first_token)

    def _score_prompt(self, logprobs: tuple[TokenLogprob, ...]) -> None:
        if not self._echo:
            return
        detokenizer = Detokenizer(self._tokenizer)
        offset = 0
        for token, logprob in zip(self.request.prompt, (None, *logprobs), strict=True):
            self._scored.append(ScoredToken(token, logprob, offset))
            offset += len(detokenizer.push(token))
