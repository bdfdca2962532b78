"""What a client writes to the token ids the engine takes, and whether they fit."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnout.core.errors import ContextLengthExceeded, InvalidRequest
from turnout.text.chat import ChatTemplate
from turnout.text.tokenizer import Tokenizer

LONG_TEXT = 20_000
"""Characters from which on a text is tokenised on another thread, not to hold up other requests' streams."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, at least one, and the text they are of."""

    tokens: tuple[int, ...]
    text: str


async def from_text(text: str, tokenizer: Tokenizer) -> Prompt:
    """A raw prompt. An empty one is the tokenizer's beginning-of-sequence token alone, where it has one."""
    tokens = await _encode(text, tokenizer, add_special_tokens=True)
    if not tokens and tokenizer.bos_token_id is not None:
        tokens = [tokenizer.bos_token_id]
    if not tokens:
        raise InvalidRequest("the prompt is empty, and this model has no token to begin from", param="prompt")
    return Prompt(tuple(tokens), text)


def from_tokens(tokens: Sequence[int], tokenizer: Tokenizer, vocab_size: int) -> Prompt:
    """A prompt of token ids, taken as it is. Raises InvalidRequest for ids outside of the model's vocabulary."""
    if not tokens:
        raise InvalidRequest("the prompt holds no token", param="prompt")
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise InvalidRequest(f"token {token} is not in the vocabulary of {vocab_size}", param="prompt")
    return Prompt(tuple(tokens), tokenizer.decode(tokens, skip_special_tokens=True))


async def from_messages(
    messages: Sequence[Mapping[str, Any]], template: ChatTemplate | None, tokenizer: Tokenizer
) -> Prompt:
    """A conversation in the model's own chat template."""
    if template is None:
        raise InvalidRequest(
            "the base model has no chat template; use /v1/completions with a prompt of your own", param="messages"
        )
    text = template.render(messages, add_generation_prompt=True)
    # The template writes the special tokens itself.
    tokens = await _encode(text, tokenizer, add_special_tokens=False)
    if not tokens:
        raise InvalidRequest("the chat template made an empty prompt of these messages", param="messages")
    return Prompt(tuple(tokens), text)


async def _encode(text: str, tokenizer: Tokenizer, *, add_special_tokens: bool) -> list[int]:
    if len(text) < LONG_TEXT:
        return tokenizer.encode(text, add_special_tokens=add_special_tokens)
    return await asyncio.to_thread(tokenizer.encode, text, add_special_tokens=add_special_tokens)


def output_limit(prompt: Prompt, asked: int | None, default: int | None, context_length: int) -> int:
    """How many tokens to generate at most: what was asked for, else `default`, else all the context has room for.

    Raises ContextLengthExceeded when the prompt fills the context, or what was asked for does not fit behind it;
    a default is cut down instead.
    """
    length = len(prompt.tokens)
    room = context_length - length
    if room < 0 or (room == 0 and asked != 0):
        raise ContextLengthExceeded(
            f"this model's context is {context_length} tokens; the prompt alone has {length}, so nothing can be "
            "generated; shorten it"
        )
    if asked is None:
        return room if default is None else min(default, room)
    if asked > room:
        raise ContextLengthExceeded(
            f"this model's context is {context_length} tokens; the prompt has {length} and {asked} were asked for, "
            f"{length + asked} in all; shorten one of them",
            param="max_tokens",
        )
    return asked
