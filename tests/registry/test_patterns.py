"""Patterns of adapter names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import InvalidRequest
from turnout.registry.patterns import check_pattern, matches

# Few letters, so that parts repeat and overlap; and what other pattern languages give a meaning.
LETTERS = st.text(alphabet="ab*[]?.\\\n", max_size=12)


@given(LETTERS, LETTERS)
def test_a_star_is_anything_and_everything_else_itself(pattern: str, name: str) -> None:
    oracle = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert matches(pattern, name) == (re.fullmatch(oracle, name, re.DOTALL) is not None)


@given(st.lists(st.text(alphabet="ab", max_size=3), min_size=1, max_size=5), st.data())
def test_a_name_made_from_a_pattern_fits_it(parts: list[str], data: st.DataObject) -> None:
    name = parts[0] + "".join(data.draw(st.text(alphabet="ab", max_size=3)) + part for part in parts[1:])
    assert matches("*".join(parts), name)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("legal", "legal", True),
        ("legal", "Legal", False),
        ("legal", "legal-2", False),
        ("support-*", "support-", True),
        ("support-*", "support-de/v2", True),
        ("support-*", "my-support-de", False),
        ("a*a", "a", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a?", "ab", False),
        ("*", "", True),
    ],
)
def test_examples(pattern: str, name: str, fits: bool) -> None:
    assert matches(pattern, name) == fits


def test_a_pattern_of_many_stars_takes_no_longer_than_its_length() -> None:
    assert not matches("a*" * 120 + "b", "a" * 100_000)


@pytest.mark.parametrize("pattern", ["", " ", " legal", "a\nb", "a\u200bb", "x" * 256])
def test_a_pattern_that_fits_by_mistake_only_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="no pattern of adapter names"):
        check_pattern(pattern)
