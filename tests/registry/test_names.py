"""What an adapter may be called."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import InvalidRequest
from turnout.registry.names import MAX_NAME_LENGTH, check_name

PLAIN = [
    "x",
    "org/sql-v2",
    "base:sql",
    "适配器-β",
    "with space",
    "a@1",
    "a.b",
    "é",
    "\U0001f600",
    "x" * MAX_NAME_LENGTH,
]
LIKE_PATHS_YET_NOT = ["..a", "a..b", ".hidden", "org/.hidden", "%2e%2e", "a?b#c", "C:", "~", "'\"<>"]
INVISIBLE = ["a\nb", "a\x00b", "\x7f", "a\x85b", "a\u2028b", "a\u202eb", "a\u200bb", "\ufeffa", "\ud800"]
BLANK_OR_LONG = ["", " ", " a", "a ", "\u3000a", "x" * 300, "x" * (MAX_NAME_LENGTH + 1)]
PATHS = [
    ".",
    "..",
    "../x",
    "../../etc/x",
    "/etc/x",
    "a/../b",
    "a/..",
    "a/./b",
    "a//b",
    "a/",
    "/",
    "..\\x",
    "\\x",
    "a\\",
]


@pytest.mark.parametrize("name", [*PLAIN, *LIKE_PATHS_YET_NOT])
def test_names_that_people_use_are_fine(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", [*INVISIBLE, *BLANK_OR_LONG, *PATHS, "e\u0301"])
def test_names_that_cannot_be_told_apart_shown_or_sent_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_name(name)
    assert caught.value.param == "lora_name"
    assert caught.value.message.isprintable()


@given(st.text(max_size=MAX_NAME_LENGTH + 2))
def test_a_name_that_passes_survives_a_header_a_path_and_unicode(name: str) -> None:
    try:
        check_name(name)
    except InvalidRequest:
        return
    assert 0 < len(name) <= MAX_NAME_LENGTH
    assert name == name.strip() == unicodedata.normalize("NFC", name)
    assert name.encode().decode() == name
    assert len(name.splitlines()) == 1
    assert all(part not in ("", ".", "..") for part in name.split("/"))
