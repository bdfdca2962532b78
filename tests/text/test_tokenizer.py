import json
import threading

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.support.tokenizers import BOS, EOS, IM_END, TOKENIZER_SIZE, byte_tokenizer, write_tokenizer
from tests.text.conftest import WRITERS
from tests.text.folders import write
from turnout.core.errors import BaseModelError, InvalidRequest
from turnout.text.tokenizer import load_tokenizer

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(" ab<s>/é你😀\n")
IDS = st.lists(st.integers(0, 300) | st.integers(0, 50_000), max_size=24)


@pytest.fixture(scope="module", params=WRITERS)
def pair(request, folders, loaded):
    """Ours, and transformers' for the same folder."""
    folder = folders[request.param]
    return loaded[request.param], PreTrainedTokenizerFast.from_pretrained(folder)


@given(text=TEXTS, add_special_tokens=st.booleans())
def test_encodes_as_transformers_does(pair, text, add_special_tokens):
    ours, theirs = pair
    assert ours.encode(text, add_special_tokens=add_special_tokens) == theirs.encode(
        text, add_special_tokens=add_special_tokens
    )


@given(ids=IDS, skip=st.booleans())
def test_decodes_as_transformers_does_whatever_is_valid(pair, ids, skip):
    ours, theirs = pair
    expected = theirs.decode(ids, skip_special_tokens=skip)
    decoded = ours.decode(ids, skip_special_tokens=skip)
    if "\ufffd" not in expected:
        assert decoded == expected
    else:
        assert "\ufffd" in decoded


@given(data=st.binary(max_size=24))
def test_ill_formed_bytes_of_a_byte_level_vocabulary_decode_as_in_the_library(loaded, data):
    ours = loaded["bytes"]
    assert ours.decode(list(data), skip_special_tokens=True) == byte_tokenizer().decode(list(data))
    assert b"".join(map(ours.token_bytes, data)) == data


def test_an_ill_formed_byte_run_is_one_replacement_per_part(loaded):
    ours = loaded["fallback"]
    run = [3 + byte for byte in "你".encode() + b"\xff"]
    assert ours.decode(run, skip_special_tokens=True) == "你\ufffd"


def test_token_bytes_and_special_tokens_of_a_real_vocabulary(loaded):
    ours = loaded["smollm2"]
    emoji = ours.encode(" 😀", add_special_tokens=False)
    assert len(emoji) > 1
    assert b"".join(map(ours.token_bytes, emoji)) == " 😀".encode()
    (turn,) = ours.encode("<|im_start|>", add_special_tokens=False)
    assert ours.is_special(turn) and not ours.is_special(emoji[0])
    assert ours.token_bytes(turn) == b"<|im_start|>"


def test_ids_beyond_the_vocabulary_stand_for_nothing(loaded):
    for ours in loaded.values():
        assert ours.token_bytes(ours.vocab_size) == b""
        assert ours.decode([ours.vocab_size], skip_special_tokens=False) == ""
        assert not ours.is_special(ours.vocab_size)


def test_an_added_token_is_its_own_text(tmp_path):
    backend = byte_tokenizer()
    backend.add_tokens(["<Straße>"])
    write(tmp_path, backend)
    ours = load_tokenizer(tmp_path)
    (token,) = ours.encode("<Straße>", add_special_tokens=False)
    assert ours.token_bytes(token) == "<Straße>".encode()
    assert ours.decode([token], skip_special_tokens=False) == "<Straße>"


@pytest.mark.parametrize("add_bos_token", [None, True, False])
@pytest.mark.parametrize("template", [True, False])
def test_only_the_post_processor_decides_about_bos(tmp_path, add_bos_token, template):
    backend = byte_tokenizer()
    if not template:
        backend.post_processor = tokenizers.processors.ByteLevel()
    config = {} if add_bos_token is None else {"add_bos_token": add_bos_token}
    write(tmp_path, backend, bos_token="<bos>", eos_token="<eos>", **config)
    ids = load_tokenizer(tmp_path).encode("a", add_special_tokens=True)
    assert ids == AutoTokenizer.from_pretrained(tmp_path).encode("a")
    assert ids == ([BOS, ord("a")] if template else [ord("a")])


@pytest.mark.parametrize("where", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_token_named_in_the_configuration_is_special(tmp_path, where):
    backend = byte_tokenizer()
    backend.add_tokens(["<end>", tokenizers.AddedToken("<pad2>", rstrip=True)])
    write(tmp_path, backend, bos_token="<bos>")
    named = {
        "eos_token": {"content": "<end>", "__type": "AddedToken"} if "config" in where else {"content": "<end>"},
        "pad_token": "<pad2>",
        "additional_special_tokens": ["b"],
    }
    config = json.loads((tmp_path / where).read_text()) if (tmp_path / where).exists() else {}
    (tmp_path / where).write_text(json.dumps(config | named))
    ours, theirs = load_tokenizer(tmp_path), PreTrainedTokenizerFast.from_pretrained(tmp_path)
    ids = ours.encode("ab<pad2> <end>c", add_special_tokens=False)
    assert ids == theirs.encode("ab<pad2> <end>c", add_special_tokens=False)
    assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids, skip_special_tokens=True) == "ac"
    assert ours.eos_token_ids == {TOKENIZER_SIZE}


def test_eos_is_the_union_of_what_the_files_say(tmp_path):
    write_tokenizer(tmp_path)
    assert load_tokenizer(tmp_path).eos_token_ids == {EOS}
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, IM_END]}))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    ours = load_tokenizer(tmp_path)
    assert ours.eos_token_ids == {7, EOS, IM_END}
    assert (ours.bos_token_id, ours.vocab_size) == (BOS, TOKENIZER_SIZE)


def test_a_folder_without_configuration_has_no_bos_and_no_eos(tmp_path):
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path)
    assert (ours.bos_token_id, ours.eos_token_ids) == (None, frozenset())


def test_truncation_and_padding_saved_with_a_tokenizer_are_off(tmp_path):
    backend = byte_tokenizer()
    backend.enable_truncation(4)
    backend.enable_padding(length=8)
    write(tmp_path, backend)
    assert load_tokenizer(tmp_path).encode("abcdef", add_special_tokens=False) == list(b"abcdef")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"])
def test_the_revision_follows_every_file_that_counts(tmp_path, name):
    write_tokenizer(tmp_path)
    before = load_tokenizer(tmp_path).revision
    assert before.startswith("sha256:") and before == load_tokenizer(tmp_path).revision
    (tmp_path / "config.json").write_text("{}")
    assert load_tokenizer(tmp_path).revision == before
    (tmp_path / name).write_text('{"x": 1}')
    assert load_tokenizer(tmp_path).revision != before


def test_a_lone_surrogate_is_refused(loaded):
    with pytest.raises(InvalidRequest, match=r"character 1 .* U\+D83D"):
        loaded["bytes"].encode("a\ud83db", add_special_tokens=False)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("tokenizer.json", None, "tokenizer.json is missing"),
        ("tokenizer.json", "{", "cannot be read as a tokenizer"),
        ("tokenizer_config.json", "{", "cannot be read as JSON"),
        ("tokenizer_config.json", "[]", "must hold a JSON object, not list"),
        ("tokenizer_config.json", '{"eos_token": "<nope>"}', "eos_token '<nope>'"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}', "added_tokens_decoder must map"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"999": {"content": "<new>"}}}', "999 .* none"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"1": {"content": "<bos>"}}}', "1 .* and 256"),
        ("generation_config.json", '{"eos_token_id": "<eos>"}', "eos_token_id must be token ids"),
        ("config.json", '{"eos_token_id": [true]}', "eos_token_id must be token ids"),
    ],
)
def test_a_broken_folder_is_refused(tmp_path, file, content, said):
    write_tokenizer(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(BaseModelError, match=said):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        tokenizers.decoders.WordPiece(),
        tokenizers.decoders.BPEDecoder(),
        tokenizers.decoders.Sequence([tokenizers.decoders.ByteLevel(), tokenizers.decoders.Strip(" ", 1, 0)]),
        tokenizers.decoders.Sequence([tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]),
    ],
)
def test_a_decoder_of_another_kind_is_refused(tmp_path, decoder):
    backend = byte_tokenizer()
    backend.decoder = decoder
    write(tmp_path, backend)
    with pytest.raises(BaseModelError, match="decoder"):
        load_tokenizer(tmp_path)


def test_threads_may_share_a_tokenizer(loaded):
    ours = loaded["smollm2"]
    text = "The quick brown fox — 😀 — jumps over 12 dogs. " * 20
    expected = ours.encode(text, add_special_tokens=True)
    results = []

    def work():
        for _ in range(20):
            ids = ours.encode(text, add_special_tokens=True)
            results.append(ids == expected and ours.decode(ids, skip_special_tokens=False) == text)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80
