"""State keys: equal exactly when everything the state depends on is equal."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import InvalidRequest
from turnout.core.identity import Digest, StateRoot, VersionRef, chain, parse_digest

parts = st.text(max_size=4)
roots = st.builds(StateRoot, parts, parts, parts, parts)
tokens = st.lists(st.integers(0, 2**32 - 1), max_size=4)


@given(roots, roots)
def test_different_roots_have_different_keys(one: StateRoot, other: StateRoot) -> None:
    assert (one.key() == other.key()) == (one == other)


@given(st.text(min_size=1, max_size=4), parts)
def test_no_text_can_move_from_one_part_to_the_next(head: str, tail: str) -> None:
    together = StateRoot(Digest(head + tail), Digest(""), "", Digest(""))
    apart = StateRoot(Digest(head), Digest(tail), "", Digest(""))
    assert (together.key() == apart.key()) == (tail == "")


@given(roots, roots, tokens, tokens)
def test_a_chained_key_depends_on_parent_and_tokens(
    one: StateRoot, other: StateRoot, a: list[int], b: list[int]
) -> None:
    assert (chain(one.key(), a) == chain(other.key(), b)) == ((one, a) == (other, b))
    assert len(chain(one.key(), a)) == 32


def test_a_version_is_written_as_clients_write_it() -> None:
    assert str(VersionRef("org/sql", 3, Digest("sha256:00"))) == "org/sql@3"
    assert VersionRef("base", 0, Digest("sha256:00")).is_base
    assert not VersionRef("base", 1, Digest("sha256:00")).is_base


@given(st.binary(max_size=4))
def test_a_digest_has_one_spelling(data: bytes) -> None:
    spelt = f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert parse_digest(spelt) == spelt
    for other in (spelt.upper(), spelt[7:], spelt[:-1], spelt + "0", spelt + "\n", f" {spelt}", spelt[:-1] + "/"):
        with pytest.raises(InvalidRequest, match="is no digest"):
            parse_digest(other)
