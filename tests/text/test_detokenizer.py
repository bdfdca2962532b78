import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tokenizers import EOS
from tests.text.conftest import WRITERS
from turnout.text.detokenizer import Detokenizer

IDS = st.lists(st.integers(0, 300) | st.integers(0, 50_000), max_size=32)
SPACED = st.text(" ab.é你😀\n", max_size=20)


def chunks(tokenizer, ids, **options):
    detokenizer = Detokenizer(tokenizer, **options)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


@pytest.fixture(scope="module", params=WRITERS)
def tokenizer(request, loaded):
    return loaded[request.param]


@given(ids=IDS, skip=st.booleans())
def test_chunks_join_to_the_decoded_whole(tokenizer, ids, skip):
    parts = chunks(tokenizer, ids, skip_special_tokens=skip)
    assert "".join(parts) == tokenizer.decode(ids, skip_special_tokens=skip)


@given(text=SPACED)
def test_no_chunk_of_a_valid_text_has_a_replacement(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    parts = chunks(tokenizer, ids)
    assert "\ufffd" not in "".join(parts)
    assert parts[-1] == ""


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_byte_level_text_comes_back_whole(loaded, text):
    ids = loaded["bytes"].encode(text, add_special_tokens=False)
    assert "".join(chunks(loaded["bytes"], ids, skip_special_tokens=False)) == text


def test_a_character_appears_with_its_last_byte(loaded):
    parts = chunks(loaded["bytes"], [0x78, 0xF0, 0x9F, 0x98, 0x80, EOS])
    assert parts == ["x", "", "", "", "😀", "", ""]


def test_an_incomplete_character_ends_as_one_replacement(loaded):
    assert chunks(loaded["bytes"], [0x78, 0xF0, 0x9F]) == ["x", "", "", "\ufffd"]


def test_a_byte_run_is_not_held_until_the_next_word(loaded):
    run = [3 + byte for byte in "😀你".encode()]
    assert chunks(loaded["fallback"], run) == ["", "", "", "😀", "", "", "你", ""]


def test_only_the_first_space_of_the_text_goes(loaded):
    tokenizer = loaded["fallback"]
    ids = tokenizer.encode("ab ab", add_special_tokens=False)
    assert "".join(chunks(tokenizer, ids)) == "ab ab"
    assert "".join(chunks(tokenizer, [1, *ids])) == "ab ab"
    assert "".join(chunks(tokenizer, [1, *ids], skip_special_tokens=False)) == "<s> ab ab"


def test_detokenizers_share_nothing(loaded):
    one, two = Detokenizer(loaded["bytes"]), Detokenizer(loaded["bytes"])
    sent = [(one.push(a), two.push(b)) for a, b in zip("😀".encode(), "🎉".encode(), strict=True)]
    assert sent[-1] == ("😀", "🎉")
