import itertools

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from turnout.core.errors import InvalidRequest
from turnout.text.stop import StopScanner

LETTERS = st.text("ab", max_size=30)
STOPS = st.lists(st.text("ab", min_size=1, max_size=6), max_size=4).map(tuple)
CUTS = st.lists(st.integers(0, 30), max_size=8)


def cut(text, cuts):
    borders = [0, *sorted(min(place, len(text)) for place in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(borders)]


def scan(stops, parts):
    """All that was sent, part by part, and whether a stop string ended it."""
    scanner, sent = StopScanner(stops), []
    for part in parts:
        text, hit = scanner.push(part)
        sent.append(text)
        if hit:
            return sent, True
    return [*sent, scanner.flush()], False


def first_complete(stops, text):
    """Where the text ends by plain search: the stop string that is complete first, the longest of those."""
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    return (text[: min(found)[1]], True) if found else (text, False)


@given(stops=STOPS, text=LETTERS, cuts=CUTS)
@example(stops=("abab", "bb"), text="abababb", cuts=[3])
@example(stops=("aab",), text="aaab", cuts=[2])
def test_any_cutting_gives_what_plain_search_gives(stops, text, cuts):
    sent, hit = scan(stops, cut(text, cuts))
    assert ("".join(sent), hit) == first_complete(stops, text)


@given(stops=STOPS, text=LETTERS, cuts=CUTS)
def test_the_earliest_occurrence_wins(stops, text, cuts):
    assume(not any(inner in outer[1:-1] for inner in stops for outer in stops))
    sent, hit = scan(stops, cut(text, cuts))
    starts = [text.find(stop) for stop in stops if stop in text]
    assert ("".join(sent), hit) == (text[: min(starts)] if starts else text, bool(starts))


@given(stops=STOPS, text=LETTERS, cuts=CUTS)
def test_only_a_possible_beginning_is_held_back(stops, text, cuts):
    scanner, sent, seen = StopScanner(stops), "", ""
    for part in cut(text, cuts):
        out, hit = scanner.push(part)
        sent, seen = sent + out, seen + part
        if hit:
            return
        held = seen.removeprefix(sent)
        assert not held or any(stop.startswith(held) for stop in stops)


def test_a_stop_string_across_parts_is_never_sent():
    assert scan(("###",), ["answer#", "#", "#more"]) == (["answer", "", ""], True)


def test_the_longer_of_two_that_end_together_wins():
    assert scan(("b", "ab"), ["xab"]) == (["x"], True)


def test_nothing_follows_a_hit():
    scanner = StopScanner(("!",))
    assert scanner.push("a!b") == ("a", True)
    assert scanner.push("c") == ("", True)
    assert scanner.flush() == ""


def test_an_empty_stop_string_is_refused():
    with pytest.raises(InvalidRequest, match="must not be empty") as refusal:
        StopScanner(("a", ""))
    assert refusal.value.param == "stop"
