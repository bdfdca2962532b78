"""Names and values from files nobody vouches for, made fit for one line of a message."""

import reprlib
from collections.abc import Sequence

_FIRST = 3

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 120


def shown(value: object) -> str:
    """A value as one short, printable piece of text."""
    return _brief.repr(value)


def first_of(names: Sequence[str]) -> str:
    """The first few of many names, and how many more there are."""
    more = f" and {len(names) - _FIRST} more" if len(names) > _FIRST else ""
    return ", ".join(shown(name) for name in names[:_FIRST]) + more
