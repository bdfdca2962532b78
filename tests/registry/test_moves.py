"""Where an alias goes back to, for any past."""

from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.registry.moves import Kind, Promotion, number_before


def promotion(kind: Kind, before: int | None, after: int | None) -> Promotion:
    return Promotion("production", kind, before, after, "why", (), "tester", 0)


STEPS = st.one_of(
    st.tuples(st.sampled_from(["promote", "promote", "toggle"]), st.integers(1, 4)),
    st.tuples(st.just("rollback"), st.just(0)),
)


@settings(max_examples=300)
@given(st.lists(STEPS, min_size=20, max_size=40))
def test_a_rollback_goes_where_a_pile_that_is_kept_along_says(steps: list[tuple[str, int]]) -> None:
    moves: list[Promotion] = []
    pile: list[int] = []
    live = {1, 2, 3, 4}
    for kind, number in steps:
        current = pile[-1] if pile else None
        if kind == "toggle" and number != current:
            live ^= {number}
        elif kind == "promote" and number in live and number != current:
            pile.append(number)
            moves.append(promotion("promote", current, number))
        elif kind == "rollback" and current is not None:
            depths = [i for i, other in enumerate(pile) if other in live and other != current]
            expected = pile[depths[-1]] if depths else None
            assert number_before(moves, live) == expected
            if depths:
                del pile[depths[-1] + 1 :]
                moves.append(promotion("rollback", current, expected))
