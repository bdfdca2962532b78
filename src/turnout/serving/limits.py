"""Limits of an API key: requests and tokens a minute, and requests at a time; each server process counts for itself.

Requests and tokens fill a bucket each, which holds a minute's worth and is refilled steadily. Whole numbers throughout,
so nothing is rounded: a bucket counts in parts of one 60-millionth, of which `limit` come in with every microsecond.
"""

import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from turnout.core.errors import RateLimit, RateLimited
from turnout.registry.keys import Key, Limits

MINUTE = 60 * 10**6
"""Microseconds, and the parts in which a bucket counts one request or token."""


@dataclass(slots=True, eq=False)
class Bucket:
    """A minute's worth of something, at most; below nothing when more was used than was reserved."""

    limit: int
    seen: int
    parts: int = field(init=False)

    def __post_init__(self) -> None:
        self.parts = self.limit * MINUTE

    def refill(self, now: int) -> None:
        """Bring it up to this time. A clock that stands or steps back adds nothing."""
        if now > self.seen:
            self.parts = min(self.limit * MINUTE, self.parts + (now - self.seen) * self.limit)
            self.seen = now

    def wait(self, amount: int) -> int:
        """Microseconds until it has this much."""
        return max(0, -((self.parts - amount * MINUTE) // self.limit))

    def take(self, amount: int) -> None:
        """Take this much out."""
        self.parts -= amount * MINUTE

    def put_back(self, amount: int, most: int) -> None:
        """Put this much back, or with a minus take it, so that there are no more than `most` parts."""
        self.parts = min(most, self.parts + amount * MINUTE)

    @property
    def remaining(self) -> int:
        """What may be taken now, in whole numbers."""
        return max(0, self.parts // MINUTE)


@dataclass(slots=True)
class _Usage:
    """What a key has left, and how many of its requests run.

    `since` has, for each of these in the order they came, a bucket of tokens that was full right after the request had
    taken its own. What the request puts back at its end was never missing, so it must not have made room for a refill:
    no more goes back than that bucket has.
    """

    requests: Bucket | None
    tokens: Bucket | None
    running: int = 0
    since: list[Bucket] = field(default_factory=list)

    def refill(self, now: int) -> None:
        for bucket in (self.requests, self.tokens, *self.since):
            if bucket is not None:
                bucket.refill(now)

    def take_tokens(self, amount: int) -> Bucket | None:
        """Take them for a request that begins; gives its bucket of `since`."""
        if self.tokens is None:
            return None
        for bucket in (self.tokens, *self.since):
            bucket.take(amount)
        self.since.append(Bucket(self.tokens.limit, self.tokens.seen))
        return self.since[-1]

    def put_tokens_back(self, amount: int, own: Bucket | None) -> None:
        """Put back, or with a minus take, what a request with this bucket of `since` reserved and did not use."""
        if self.tokens is None or own is None:
            return
        place = self.since.index(own)
        for bucket in (self.tokens, *self.since[:place]):
            bucket.put_back(amount, own.parts)
        del self.since[place]


class Limiter:
    """Counts the requests of all keys; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usages: dict[str, _Usage] = {}

    def admit(self, key: Key, tokens: int, now: int) -> "Admission":
        """Let a request in that may use up to `tokens` (its prompt, and the longest answer it allows).

        `now` is any clock that never goes back, in microseconds. Raises RateLimited, and then nothing is counted.
        """
        with self._lock:
            usage = self._usage(key, now)
            usage.refill(now)
            _check(usage, key.limits, tokens)
            usage.running += 1
            if usage.requests is not None:
                usage.requests.take(1)
            return Admission(self._lock, usage, tokens, usage.take_tokens(tokens))

    def running(self, key: Key) -> int:
        """How many of the key's requests are let in and not finished."""
        with self._lock:
            usage = self._usages.get(key.prefix)
            return 0 if usage is None else usage.running

    def _usage(self, key: Key, now: int) -> _Usage:
        usage = self._usages.get(key.prefix)
        if usage is None:
            usage = self._usages[key.prefix] = _Usage(
                _bucket(key.limits.requests_per_minute, now), _bucket(key.limits.tokens_per_minute, now)
            )
        return usage


class Admission:
    """One request that was let in. It ends once: by `finish`, or on leaving a `with` block, whichever comes first.

    `headers` are the `x-ratelimit-*` ones of its answer.
    """

    def __init__(self, lock: threading.Lock, usage: _Usage, reserved: int, since: Bucket | None) -> None:
        self._lock = lock
        self._usage = usage
        self._reserved = reserved
        self._since = since
        self._ended = False
        self.headers = _headers(usage)

    def finish(self, tokens: int) -> None:
        """The request has ended, for whatever reason, and used this many tokens; the rest of its own go back.

        Only the first call counts.
        """
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._usage.running -= 1
            self._usage.put_tokens_back(self._reserved - tokens, self._since)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Where nobody has said what was used, it may have been everything.
        self.finish(self._reserved)


def _bucket(limit: int | None, now: int) -> Bucket | None:
    return None if limit is None else Bucket(limit, now)


def _check(usage: _Usage, limits: Limits, tokens: int) -> None:
    most = limits.concurrent_requests
    if most is not None and usage.running >= most:
        message = f"{usage.running} requests of this key are running, and its limit is {most} at a time"
        raise _limited("concurrent requests", message, 1, usage)
    if usage.requests is not None and (wait := usage.requests.wait(1)):
        message = f"this key's limit of {usage.requests.limit} requests a minute is reached"
        raise _limited("requests", message, _whole_seconds(wait), usage)
    if usage.tokens is None:
        return
    if tokens > usage.tokens.limit:
        message = (
            f"the request may use up to {tokens} tokens, prompt and answer, and this key's limit is "
            f"{usage.tokens.limit} a minute; set a lower max_tokens or shorten the prompt"
        )
        raise _limited("tokens", message, None, usage)
    if wait := usage.tokens.wait(tokens):
        message = (
            f"the request may use up to {tokens} tokens, prompt and answer, and of this key's {usage.tokens.limit} "
            f"a minute {usage.tokens.remaining} are left"
        )
        raise _limited("tokens", message, _whole_seconds(wait), usage)


def _limited(limit: RateLimit, message: str, retry_after: int | None, usage: _Usage) -> RateLimited:
    advice = "" if retry_after is None else f"; try again in {retry_after} s"
    return RateLimited(message + advice, limit=limit, retry_after=retry_after, headers=_headers(usage))


def _whole_seconds(microseconds: int) -> int:
    return -(-microseconds // 10**6)


def _headers(usage: _Usage) -> dict[str, str]:
    """OpenAI's: the limit, what is left of it, and how long until all of it is there again."""
    headers = {}
    for name, bucket in (("requests", usage.requests), ("tokens", usage.tokens)):
        if bucket is not None:
            headers[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(bucket.remaining)
            headers[f"x-ratelimit-reset-{name}"] = _duration(bucket.wait(bucket.limit))
    return headers


def _duration(microseconds: int) -> str:
    """As OpenAI writes them: `0s`, `120ms`, `7.5s`, `1m3s`; rounded up to milliseconds."""
    milliseconds = -(-microseconds // 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return f"{minutes}m{seconds}" if minutes else seconds
