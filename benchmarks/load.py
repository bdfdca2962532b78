"""A closed loop of streaming clients, light enough to share two cores with the server it measures."""

import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: `requests` in all, from `clients` that each wait for an answer before asking again."""

    clients: int
    requests: int
    prompt_tokens: int
    output_tokens: int
    vocab_size: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server is asked for a greedy stream of exactly so many tokens, and how its stream says how many came.

    `body` takes model, prompt and number of tokens. `tokens` gives the number of an event that counts the answer's
    tokens, None for one that brings tokens.
    """

    path: str
    body: Callable[[str, list[int], int], Mapping[str, Any]]
    tokens: Callable[[Mapping[str, Any]], int | None]


def _openai_body(model: str, prompt: list[int], output_tokens: int) -> Mapping[str, Any]:
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _openai_tokens(event: Mapping[str, Any]) -> int | None:
    return None if event["choices"] else event["usage"]["completion_tokens"]


OPENAI = Dialect("/v1/completions", _openai_body, _openai_tokens)


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds since the request was sent, for each token event."""

    sent: float
    arrivals: tuple[float, ...]

    @property
    def ttft(self) -> float:
        """Time to first token."""
        return self.arrivals[0] - self.sent

    @property
    def gaps(self) -> list[float]:
        """Times between tokens."""
        return [later - earlier for earlier, later in pairwise(self.arrivals)]


@dataclass(frozen=True, slots=True)
class Report:
    """What came back, in tokens per second and seconds."""

    tokens_per_second: float
    ttft_p50: float
    ttft_p95: float
    time_per_output_token: float

    def line(self, name: str) -> str:
        """One row of a table."""
        return (
            f"{name:<34} {self.tokens_per_second:8.1f} tok/s   TTFT p50 {self.ttft_p50 * 1e3:7.1f} ms"
            f"   p95 {self.ttft_p95 * 1e3:7.1f} ms   per output token {self.time_per_output_token * 1e3:6.1f} ms"
        )


def zipf(models: Sequence[str], exponent: float, pick: random.Random) -> Iterator[str]:
    """Names drawn by true Zipf: the k-th has weight 1 / k**exponent."""
    weights = [1 / (k + 1) ** exponent for k in range(len(models))]
    while True:
        yield from pick.choices(models, weights, k=64)


def run(port: int, models: Iterator[str], load: Load, dialect: Dialect = OPENAI) -> Report:
    """Drive a server on loopback; the first `clients` requests warm it up and are not counted."""
    return asyncio.run(_run(port, models, load, dialect))


def prompts(load: Load) -> Iterator[list[int]]:
    """Fresh random ids for each request: a prefix cache has nothing to find. The same ones every time."""
    pick = random.Random(load.seed)
    while True:
        yield [pick.randrange(1000, load.vocab_size) for _ in range(load.prompt_tokens)]


def report(answers: Sequence[Answer], elapsed: float, load: Load) -> Report:
    """Sum up answers that took `elapsed` seconds together."""
    ttfts = [answer.ttft for answer in answers]
    gaps = [gap for answer in answers for gap in answer.gaps]
    return Report(
        tokens_per_second=len(answers) * load.output_tokens / elapsed,
        ttft_p50=statistics.median(ttfts),
        ttft_p95=statistics.quantiles(ttfts, n=20)[-1] if len(ttfts) > 1 else ttfts[0],
        time_per_output_token=statistics.fmean(gaps) if gaps else 0.0,
    )


async def _run(port: int, models: Iterator[str], load: Load, dialect: Dialect) -> Report:
    bodies = [
        json.dumps(dialect.body(next(models), prompt, load.output_tokens)).encode()
        for prompt in islice(prompts(load), load.clients + load.requests)
    ]
    await _drive(port, bodies[: load.clients], load, dialect)
    began = time.perf_counter()
    answers = await _drive(port, bodies[load.clients :], load, dialect)
    return report(answers, time.perf_counter() - began, load)


async def _drive(port: int, bodies: Sequence[bytes], load: Load, dialect: Dialect) -> list[Answer]:
    todo = iter(bodies)

    async def client() -> list[Answer]:
        return [await _ask(port, body, load.output_tokens, dialect) for body in todo]

    answers = await asyncio.gather(*(client() for _ in range(load.clients)))
    return [answer for each in answers for answer in each]


async def _ask(port: int, body: bytes, output_tokens: int, dialect: Dialect) -> Answer:
    """One request on a connection of its own; every token must arrive, or the figures would flatter."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST {dialect.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    sent = time.perf_counter()
    writer.write(head.encode() + body)
    arrivals: list[float] = []
    counted = 0
    try:
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"{status.decode().strip()}: {(await reader.read()).decode()[-500:]}")
        async for line in reader:
            if not line.startswith(b"data: {"):
                continue
            arrived = time.perf_counter()
            tokens = dialect.tokens(json.loads(line[6:]))
            if tokens is None:
                arrivals.append(arrived)
            else:
                counted = tokens
    finally:
        writer.close()
    if counted != output_tokens:
        raise RuntimeError(f"asked for {output_tokens} tokens and got {counted}")
    return Answer(sent, tuple(arrivals))
