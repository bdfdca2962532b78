"""POST /v1/completions and /v1/chat/completions."""

import time
from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Request, Response

from turnout.api import body
from turnout.api.auth import Check
from turnout.api.openai.respond import Wishes, respond
from turnout.api.openai.shapes import ChatShape, CompletionShape, Head
from turnout.api.schemas import MAX_CHOICES, ChatBody, CompletionBody, Sampling
from turnout.core.engine import EngineInfo
from turnout.core.errors import InvalidRequest, TurnoutError
from turnout.registry.directory import Directory
from turnout.registry.keys import Key
from turnout.routing.resolve import AdapterAsk
from turnout.serving import prompts
from turnout.serving.generate import Ask, Generator
from turnout.serving.prompts import Prompt
from turnout.telemetry.metrics import Metrics
from turnout.text.chat import ChatTemplate
from turnout.text.tokenizer import Tokenizer

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for completions; a chat answer may fill the context."""


def router(
    generator: Generator,
    directory: Directory,
    info: EngineInfo,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    metrics: Metrics,
    caller: Check,
) -> APIRouter:
    """The two endpoints that generate text."""

    async def counted(request: Request) -> AsyncIterator[None]:
        status = 500
        try:
            yield
            status = getattr(request.state, "failed", 200)
        except TurnoutError as error:
            status = error.status
            raise
        finally:
            metrics.answered(status)

    routes = APIRouter(prefix="/v1", tags=["generation"], dependencies=[Depends(counted)])

    def head(request: Request, prefix: str, adapter: AdapterAsk) -> Head:
        asked = adapter.model or adapter.field or adapter.header or directory.snapshot().base.name
        return Head(f"{prefix}-{request.state.request_id}", int(time.time()), asked)

    @routes.post("/completions", openapi_extra=body.documented(CompletionBody))
    async def completions(request: Request, key: Annotated[Key, Depends(caller)]) -> Response:
        """Continue prompts."""
        wanted = await body.read(request, CompletionBody)
        _check_tokens(wanted, info.vocab_size)
        adapter = _adapter(request, wanted)
        shape = CompletionShape(tokenizer, wanted.logprobs is not None)
        generation = await generator.start(
            Ask(
                id=request.state.request_id,
                arrived=request.state.arrived,
                key=key,
                adapter=adapter,
                prompts=await _prompts(wanted, tokenizer, info.vocab_size),
                sampling=wanted.sampling(
                    tokenizer.eos_token_ids,
                    logprobs=wanted.logprobs,
                    prompt_logprobs=wanted.logprobs if wanted.echo else None,
                ),
                max_tokens=wanted.max_tokens,
                default_max_tokens=DEFAULT_COMPLETION_TOKENS,
                n=wanted.n or 1,
                stop=wanted.stops,
                echo=bool(wanted.echo),
            )
        )
        return await respond(request, generation, head(request, "cmpl", adapter), shape, _wishes(wanted))

    @routes.post("/chat/completions", openapi_extra=body.documented(ChatBody))
    async def chat_completions(request: Request, key: Annotated[Key, Depends(caller)]) -> Response:
        """Answer a conversation."""
        wanted = await body.read(request, ChatBody)
        _check_tokens(wanted, info.vocab_size)
        adapter = _adapter(request, wanted)
        messages = [message.plain() for message in wanted.messages]
        shape = ChatShape(tokenizer, bool(wanted.logprobs))
        generation = await generator.start(
            Ask(
                id=request.state.request_id,
                arrived=request.state.arrived,
                key=key,
                adapter=adapter,
                prompts=(await prompts.from_messages(messages, template, tokenizer),),
                sampling=wanted.sampling(
                    tokenizer.eos_token_ids,
                    logprobs=(wanted.top_logprobs or 0) if wanted.logprobs else None,
                    prompt_logprobs=None,
                ),
                max_tokens=wanted.output_limit,
                default_max_tokens=None,
                n=wanted.n or 1,
                stop=wanted.stops,
            )
        )
        return await respond(request, generation, head(request, "chatcmpl", adapter), shape, _wishes(wanted))

    return routes


def _adapter(request: Request, wanted: Sampling) -> AdapterAsk:
    """What the request names. The header is UTF-8, percent-encoded where a client's library wants ASCII."""
    header = request.headers.get("x-adapter-id")
    if header is not None:
        # The server framework reads headers as Latin-1; the bytes are the client's.
        header = unquote(header.encode("latin-1").decode("utf-8", "replace"))
    return AdapterAsk(wanted.model, header, wanted.adapter_id)


async def _prompts(wanted: CompletionBody, tokenizer: Tokenizer, vocab_size: int) -> tuple[Prompt, ...]:
    given = wanted.prompt
    many = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    if len(many) * (wanted.n or 1) > MAX_CHOICES:
        raise InvalidRequest(
            f"{len(many)} prompts with n={wanted.n or 1} make more than {MAX_CHOICES} choices", param="prompt"
        )
    return tuple(
        [
            await prompts.from_text(one, tokenizer)
            if isinstance(one, str)
            else prompts.from_tokens(one, tokenizer, vocab_size)
            for one in many
        ]
    )


def _check_tokens(wanted: Sampling, vocab_size: int) -> None:
    for param, tokens in (("logit_bias", map(int, wanted.logit_bias or ())), ("stop_token_ids", wanted.stop_token_ids)):
        for token in tokens or ():
            if token >= vocab_size:
                raise InvalidRequest(f"token {token} is not in the vocabulary of {vocab_size}", param=param)


def _wishes(wanted: Sampling) -> Wishes:
    return Wishes(bool(wanted.stream), wanted.include_usage, bool(wanted.include_timings))
