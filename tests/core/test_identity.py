"""State keys: equal exactly when everything the state depends on is equal."""

from hypothesis import given
from hypothesis import strategies as st

from turnout.core.identity import Digest, StateRoot, VersionRef, chain

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
