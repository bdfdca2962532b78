"""What the engine tells about a request.

In this order: PromptScored if asked for, Prefilled, Token for each, Finished; or Failed at any point, as the last.
"""

from dataclasses import dataclass
from typing import Literal

from turnout.core.errors import TurnoutError
from turnout.core.identity import Digest

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probability of one token, from the raw logits, and of the likeliest alternatives, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptScored:
    """Log-probabilities of the prompt's tokens from the second on: the first has nothing before it."""

    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """The next token. A stop token is reported too; what to show of it is the receiver's affair."""

    token: int
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class Phases:
    """Where a request's time went inside the engine, in seconds.

    `queue`: from arrival to admission; `adapter_load`: of that, waiting for the adapter's weights to become hot;
    `cache_lookup`: matching the prefix cache; `prefill`: from admission to the end of the prompt's last chunk;
    `first_token`: from arrival to the first token; `decode`: from the first token to the last.
    """

    queue: float = 0.0
    adapter_load: float = 0.0
    cache_lookup: float = 0.0
    prefill: float = 0.0
    first_token: float = 0.0
    decode: float = 0.0


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt has its state. `phases` holds what is known by now: all but `first_token` and `decode`.

    `cached_tokens` counts the prompt's tokens whose state came from the prefix cache.
    """

    cached_tokens: int
    phases: Phases


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a request that was served.

    `digest` is that of the weights which produced the tokens, for the receiver to compare with its Route.
    """

    reason: FinishReason
    digest: Digest
    phases: Phases


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that could not be served."""

    error: TurnoutError


Event = PromptScored | Prefilled | Token | Finished | Failed
