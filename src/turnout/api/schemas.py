"""The bodies clients send. Whatever would change the answer is honoured or refused by name, never ignored."""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from turnout.core.errors import InvalidRequest
from turnout.core.request import SamplingParams

MAX_CHOICES = 128
MAX_STOPS = 16
MAX_LOGPROBS = 20
SEEDS = 1 << 64

Value = TypeVar("Value")
Text = Annotated[str, Field(min_length=1)]
Token = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """No conversions, no unknown fields, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class StreamOptions(Strict):
    """OpenAI's `stream_options`."""

    include_usage: bool = False


class Sampling(Strict):
    """The fields that both endpoints share."""

    model: str | None = None
    adapter_id: Text | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    seed: int | None = Field(None, ge=-(1 << 63), lt=SEEDS)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stop: Text | Annotated[list[Text], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: list[Token] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    include_timings: bool | None = None
    # About the request, not about its answer.
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @field_validator("logit_bias")
    @classmethod
    def _token_ids(cls, bias: dict[str, float] | None) -> dict[str, float] | None:
        if bias is not None and not all(key.isascii() and key.isdigit() and len(key) < 10 for key in bias):
            raise ValueError("keys must be token ids")
        return bias

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options is only allowed with stream: true", param="stream_options")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(
        self, eos_token_ids: frozenset[int], *, logprobs: int | None, prompt_logprobs: int | None
    ) -> SamplingParams:
        """The engine's parameters; `max_tokens` is set where the prompt's length is known."""
        stops = frozenset(self.stop_token_ids or ()) | (frozenset() if self.ignore_eos else eos_token_ids)
        return SamplingParams(
            max_tokens=0,
            temperature=_or(self.temperature, 1.0),
            top_p=_or(self.top_p, 1.0),
            top_k=max(_or(self.top_k, 0), 0),
            min_p=_or(self.min_p, 0.0),
            presence_penalty=_or(self.presence_penalty, 0.0),
            frequency_penalty=_or(self.frequency_penalty, 0.0),
            repetition_penalty=_or(self.repetition_penalty, 1.0),
            logit_bias=tuple((int(token), bias) for token, bias in (self.logit_bias or {}).items()),
            seed=None if self.seed is None else self.seed % SEEDS,
            stop_token_ids=stops,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
        )


def _or(value: Value | None, default: Value) -> Value:
    return default if value is None else value


def _only(*allowed: object, hint: str = "") -> Any:
    """A validator for fields of which only some values are served."""

    def check(value: object) -> object:
        if value not in allowed:
            raise ValueError(f"not supported{hint}; leave it out")
        return value

    return check


class CompletionBody(Sampling):
    """POST /v1/completions."""

    prompt: str | list[str] | list[Token] | list[list[Token]]
    max_tokens: int | None = Field(None, ge=0)
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    best_of: int | None = None
    suffix: str | None = None

    @field_validator("prompt")
    @classmethod
    def _some_prompt(cls, prompt: str | list[Any]) -> str | list[Any]:
        if isinstance(prompt, list) and not prompt:
            raise ValueError("the list of prompts is empty")
        return prompt

    @model_validator(mode="after")
    def _served(self) -> Self:
        if self.best_of not in (None, 1) or (self.best_of == 1 and (self.n or 1) > 1):
            raise InvalidRequest("best_of is not supported; ask for n choices and choose among them", param="best_of")
        if self.suffix:
            raise InvalidRequest("suffix is not supported", param="suffix")
        return self


class TextPart(Strict):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message. Fields of other kinds of message may be there, as clients resend them, but only empty."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None
    name: str | None = None

    @model_validator(mode="after")
    def _served(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"content of a {self.role} message must be text")
        for field, value in (self.model_extra or {}).items():
            if value not in (None, [], {}):
                raise ValueError(f"'{field}' in a message is not supported")
        return self

    def plain(self) -> dict[str, str]:
        """What the chat template sees: parts joined, and `developer` under its older name."""
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        message = {"role": "system" if self.role == "developer" else self.role, "content": text}
        return message if self.name is None else {**message, "name": self.name}


class ChatBody(Sampling):
    """POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    function_call: Any = None

    _no_tools = field_validator("tools", "functions", "function_call")(_only(None))
    _no_tool_choice = field_validator("tool_choice")(_only(None, "none"))
    _text_only = field_validator("response_format")(_only(None, {"type": "text"}, hint=" but {'type': 'text'}"))
    _text_alone = field_validator("modalities")(_only(None, ["text"], hint=" but ['text']"))

    @model_validator(mode="after")
    def _served(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs: true", param="top_logprobs")
        both = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(both) > 1:
            raise InvalidRequest("max_tokens and max_completion_tokens differ; give one", param="max_tokens")
        return self

    @property
    def output_limit(self) -> int | None:
        """The asked-for length, under either name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class LoadBody(Strict):
    """POST /v1/load_lora_adapter."""

    lora_name: str
    lora_path: Text
    load_inplace: bool = False


class UnloadBody(Strict):
    """POST /v1/unload_lora_adapter. `lora_int_id` is of clients of other servers; names are enough here."""

    lora_name: str
    lora_int_id: int | None = None
