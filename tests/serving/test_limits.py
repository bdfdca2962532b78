"""Limits of a key, held to what a token bucket means: over any span, no more than a minute's worth and the refill."""

import contextlib
import threading
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import RateLimited
from turnout.registry.keys import Key, Limits
from turnout.serving.limits import Admission, Limiter

SECOND = 10**6
MINUTE = 60 * SECOND
START = 10**12


def key(prefix: str = "0123456789ab", **limits: int) -> Key:
    return Key(prefix, "default", "ci", frozenset({"infer"}), ("*",), None, Limits(**limits), "tester", 0, None, None)


def room(limit: int, spent: list[tuple[int, int]], now: int) -> Fraction:
    """What a bucket of `limit` a minute has at `now`, after (time, amount) was spent; by its meaning, not by steps.

    From each past moment on, what was spent since then is at most a minute's worth and what came in since then.
    """
    levels = [Fraction(limit)]
    for moment in {time for time, _ in spent}:
        since = sum(amount for time, amount in spent if time >= moment)
        levels.append(limit + Fraction(limit * (now - moment), MINUTE) - since)
    return min(levels)


GAPS = st.one_of(st.just(0), st.integers(0, 3 * MINUTE), st.integers(0, 3 * SECOND))


@given(st.integers(1, 20), st.lists(GAPS, max_size=40))
def test_requests_are_let_in_exactly_when_a_bucket_has_room(limit: int, gaps: list[int]) -> None:
    limiter, caller, now = Limiter(), key(requests_per_minute=limit), START
    spent: list[tuple[int, int]] = []
    for gap in gaps:
        now += gap
        left = room(limit, spent, now)
        if left >= 1:
            admission = limiter.admit(caller, 5, now)
            spent.append((now, 1))
            assert admission.headers["x-ratelimit-remaining-requests"] == str(int(left - 1))
        else:
            with pytest.raises(RateLimited) as refused:
                limiter.admit(caller, 5, now)
            assert refused.value.headers["x-ratelimit-remaining-requests"] == "0"
            wait = refused.value.retry_after
            assert wait is not None
            assert room(limit, spent, now + wait * SECOND) >= 1 > room(limit, spent, now + (wait - 1) * SECOND)


@given(
    st.integers(1, 1000), st.lists(st.tuples(GAPS, st.integers(0, 1200), st.integers(0, 100)), max_size=40), st.data()
)
def test_tokens_that_were_used_never_exceed_what_a_bucket_gives(
    limit: int, steps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    limiter, caller, now = Limiter(), key(tokens_per_minute=limit), START
    running: list[tuple[Admission, int, int]] = []
    used: list[tuple[int, int]] = []
    for gap, tokens, percent in steps:
        now += gap
        try:
            admission = limiter.admit(caller, tokens, now)
        except RateLimited as refused:
            headers = refused.headers
        else:
            headers = admission.headers
            running.append((admission, now, tokens * percent // 100))
        assert 0 <= int(headers["x-ratelimit-remaining-tokens"]) <= limit
        if running and data.draw(st.booleans()):
            admission, at, actual = running.pop(data.draw(st.integers(0, len(running) - 1)))
            admission.finish(actual)
            used.append((at, actual))
    for admission, at, actual in running:
        admission.finish(actual)
        used.append((at, actual))
    assert room(limit, used, now) >= 0
    assert all(room(limit, [spent for spent in used if spent[0] <= at], at) >= 0 for at, _ in used)
    assert limiter.running(caller) == 0


@given(st.integers(1, 500), st.lists(st.tuples(GAPS, st.integers(0, 500)), max_size=30))
def test_tokens_are_let_in_exactly_when_a_bucket_has_room(limit: int, steps: list[tuple[int, int]]) -> None:
    limiter, caller, now = Limiter(), key(tokens_per_minute=limit), START
    spent: list[tuple[int, int]] = []
    for gap, tokens in steps:
        now += gap
        fits = tokens <= room(limit, spent, now)
        with contextlib.nullcontext() if fits else pytest.raises(RateLimited):
            limiter.admit(caller, tokens, now).finish(tokens)
        spent += [(now, tokens)] * fits


@given(st.integers(1, 5), st.lists(st.booleans(), max_size=40))
def test_so_many_run_at_a_time_and_none_is_left_at_the_end(limit: int, steps: list[bool]) -> None:
    limiter, caller = Limiter(), key(concurrent_requests=limit)
    running: list[Admission] = []
    for starts in steps:
        if starts and len(running) < limit:
            running.append(limiter.admit(caller, 1, START))
        elif starts:
            with pytest.raises(RateLimited, match="at a time") as refused:
                limiter.admit(caller, 1, START)
            assert (refused.value.limit, refused.value.retry_after) == ("concurrent requests", 1)
        elif running:
            running.pop().finish(1)
        assert limiter.running(caller) == len(running) <= limit
    for admission in running:
        admission.finish(1)
        admission.finish(1)
    assert limiter.running(caller) == 0


def test_what_was_reserved_and_not_used_goes_back() -> None:
    limiter, caller = Limiter(), key(tokens_per_minute=100)
    first = limiter.admit(caller, 100, START)
    with pytest.raises(RateLimited, match=r"up to 1 tokens.* 0 are left; try again in 1 s"):
        limiter.admit(caller, 1, START)
    first.finish(40)
    first.finish(0)
    assert limiter.admit(caller, 60, START).headers["x-ratelimit-remaining-tokens"] == "0"


def test_what_goes_back_was_never_missing_and_so_makes_no_room_for_a_refill() -> None:
    limiter, caller = Limiter(), key(tokens_per_minute=100)
    unused = limiter.admit(caller, 60, START)
    limiter.admit(caller, 50, START + 30 * SECOND)
    unused.finish(0)
    assert limiter.admit(caller, 50, START + 30 * SECOND).headers["x-ratelimit-remaining-tokens"] == "0"


def test_more_used_than_reserved_is_owed() -> None:
    limiter, caller = Limiter(), key(tokens_per_minute=60)
    limiter.admit(caller, 60, START).finish(70)
    with pytest.raises(RateLimited) as refused:
        limiter.admit(caller, 1, START + 5 * SECOND)
    assert refused.value.retry_after == 6
    assert refused.value.headers["x-ratelimit-remaining-tokens"] == "0"
    limiter.admit(caller, 1, START + 11 * SECOND)


def test_a_block_left_by_an_error_frees_its_place_and_keeps_its_tokens() -> None:
    limiter, caller = Limiter(), key(tokens_per_minute=100, concurrent_requests=1)
    with pytest.raises(ZeroDivisionError), limiter.admit(caller, 60, START):
        raise ZeroDivisionError
    assert limiter.running(caller) == 0
    with limiter.admit(caller, 40, START) as admission:
        admission.finish(10)
    assert limiter.admit(caller, 30, START).headers["x-ratelimit-remaining-tokens"] == "0"


def test_a_refusal_counts_for_nothing() -> None:
    limiter, caller = Limiter(), key(requests_per_minute=2, tokens_per_minute=10, concurrent_requests=2)
    for _ in range(5):
        with pytest.raises(RateLimited, match="up to 11 tokens") as refused:
            limiter.admit(caller, 11, START)
        assert (refused.value.limit, refused.value.retry_after) == ("tokens", None)
    headers = limiter.admit(caller, 10, START).headers
    assert headers["x-ratelimit-remaining-requests"] == "1"
    assert limiter.running(caller) == 1


def test_headers_are_openais() -> None:
    limiter, caller = Limiter(), key(requests_per_minute=60, tokens_per_minute=40_000)
    assert limiter.admit(caller, 39_000, START).headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "40000",
        "x-ratelimit-remaining-tokens": "1000",
        "x-ratelimit-reset-tokens": "58.5s",
    }


@pytest.mark.parametrize(
    ("used", "reset"), [(0, "0s"), (1, "1ms"), (60, "60ms"), (1500, "1.5s"), (60_000, "1m0s"), (90_250, "1m30.25s")]
)
def test_resets_read_as_openai_writes_them(used: int, reset: str) -> None:
    limiter, caller = Limiter(), key(tokens_per_minute=60_000)
    limiter.admit(caller, 0, START).finish(used)
    with pytest.raises(RateLimited) as refused:
        limiter.admit(caller, 60_001, START)
    assert refused.value.headers["x-ratelimit-reset-tokens"] == reset


def test_keys_count_apart_and_one_without_limits_has_no_headers() -> None:
    limiter = Limiter()
    one, other = key("a", requests_per_minute=1), key("b", requests_per_minute=1)
    limiter.admit(one, 1, START)
    limiter.admit(other, 1, START)
    assert limiter.admit(key("c"), 10**9, START).headers == {}
    with pytest.raises(RateLimited):
        limiter.admit(one, 1, START)


def test_nothing_is_let_in_a_microsecond_early() -> None:
    limiter, caller = Limiter(), key(requests_per_minute=7)
    for _ in range(7):
        limiter.admit(caller, 1, START)
    # A seventh of a minute is 8,571,428.57… microseconds.
    with pytest.raises(RateLimited):
        limiter.admit(caller, 1, START + 8_571_428)
    limiter.admit(caller, 1, START + 8_571_429)


def test_a_clock_that_steps_back_takes_nothing() -> None:
    limiter, caller = Limiter(), key(requests_per_minute=2)
    limiter.admit(caller, 1, START)
    limiter.admit(caller, 1, START - MINUTE)


def test_a_clock_that_steps_back_gives_nothing() -> None:
    limiter, caller = Limiter(), key(requests_per_minute=1)
    limiter.admit(caller, 1, START)
    for now in (START - MINUTE, START, START + MINUTE - 1):
        with pytest.raises(RateLimited):
            limiter.admit(caller, 1, now)
    limiter.admit(caller, 1, START + MINUTE)


def test_threads_share_one_count() -> None:
    limiter, caller = Limiter(), key(requests_per_minute=500)
    admitted: list[Admission] = []

    def work() -> None:
        with contextlib.suppress(RateLimited):
            while True:
                admitted.append(limiter.admit(caller, 1, START))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == limiter.running(caller) == 500
