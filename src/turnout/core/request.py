"""What crosses from the asking side to the engine: a route, token ids and how to sample."""

from dataclasses import dataclass

from turnout.core.identity import Route


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens. Values are already checked; the defaults change nothing.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 filter nothing. `logprobs` is the number of
    alternatives reported beside each chosen token (0: only the chosen one), None for none at all;
    `prompt_logprobs` the same for the tokens of the prompt. `max_tokens` 0 scores the prompt and generates nothing.
    `logit_bias` pairs token ids with what is added to their logits.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    logprobs: int | None = None
    prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate. `id` is unique among the requests the engine holds.

    `prompt` holds at least one token id; `arrived` is `time.monotonic()` in seconds when the request came in.
    """

    id: str
    route: Route
    prompt: tuple[int, ...]
    sampling: SamplingParams
    arrived: float
