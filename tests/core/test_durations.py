"""Spans of time, as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.durations import parse_duration
from turnout.core.errors import InvalidRequest

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@given(st.integers(1, 999_999), st.sampled_from("smhd"))
def test_a_number_and_a_unit_are_microseconds(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * SECONDS[unit] * 1_000_000


@pytest.mark.parametrize(
    "text",
    ["", "d", "90", "0d", "000s", "-1d", "+1d", "1.5h", "1 d", " 1d", "1d\n", "1D", "1w", "1d12h", "٣d", "1000000d"],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a span of time"):
        parse_duration(text)
