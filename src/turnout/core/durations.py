"""Spans of time, as people write them."""

import re

from turnout.core.errors import InvalidRequest

MICROSECONDS = {"s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
"""In a second, minute, hour and day."""

_DURATION = re.compile(r"(?P<number>[0-9]{1,6})(?P<unit>[smhd])")


def parse_duration(text: str) -> int:
    """Microseconds in `90d`, `12h`, `30m` or `45s`; at least one second. Raises InvalidRequest."""
    match = _DURATION.fullmatch(text)
    if match is None or int(match["number"]) == 0:
        raise InvalidRequest(f"'{text}' is not a span of time; write it as 90d, 12h, 30m or 45s")
    return int(match["number"]) * MICROSECONDS[match["unit"]]
