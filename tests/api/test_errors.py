"""The answers to errors."""

import json

from turnout.api.errors import answer
from turnout.core.errors import RateLimited


def test_a_limit_says_when_to_come_back_and_what_is_left() -> None:
    left = {"x-ratelimit-remaining-requests": "0"}
    sent = answer(RateLimited("too many", limit="requests", retry_after=3, headers=left))
    assert (sent.status_code, sent.headers["retry-after"]) == (429, "3")
    assert sent.headers["x-ratelimit-remaining-requests"] == "0"
    assert json.loads(sent.body)["error"]["type"] == "rate_limit_error"


def test_a_limit_that_waiting_does_not_lift_says_no_time() -> None:
    sent = answer(RateLimited("too large", limit="tokens", retry_after=None, headers={}))
    assert "retry-after" not in sent.headers
