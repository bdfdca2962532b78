"""The tree at the top of core/errors.py is the tree of classes."""

import re
from collections.abc import Iterator

from turnout.core import errors
from turnout.core.errors import TurnoutError


def tree(error: type[TurnoutError], depth: int = 0) -> Iterator[tuple[int, str, int, str]]:
    yield depth, error.__name__, error.status, error.code
    for child in error.__subclasses__():
        yield from tree(child, depth + 1)


def test_the_drawn_tree_is_complete_and_right() -> None:
    drawn = [
        (len(match["indent"]) // 4 - 1, match["name"], int(match["status"]), match["code"])
        for match in re.finditer(
            r"^(?P<indent>[ │├└─]+)(?P<name>[A-Z]\w+) +(?P<status>\d{3}) (?P<code>\w+)",
            errors.__doc__ or "",
            re.MULTILINE,
        )
    ]
    assert drawn == list(tree(TurnoutError))


def test_codes_are_unique_and_statuses_are_errors() -> None:
    codes = [code for _, _, _, code in tree(TurnoutError)]
    assert len(set(codes)) == len(codes)
    assert all(400 <= status < 600 for _, _, status, _ in tree(TurnoutError))
