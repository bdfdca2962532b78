import json

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tests.support.tokenizers import byte_tokenizer, write_tokenizer
from tests.text.folders import smollm2_metadata, write
from tests.text.templates import FAMILIES
from turnout.core.errors import BaseModelError, InvalidRequest
from turnout.text import sandbox
from turnout.text.chat import load_chat_template

CONTENTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [" padded \n", "<b>&'\"</b>", "{{ 7 * 7 }}", "é你😀"]
)
USER = [{"role": "user", "content": "hi"}]
CALL = {"id": "1", "type": "function", "function": {"name": "find", "arguments": {"q": "é<>"}}}
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["system", "user", "assistant", "tool"]),
        CONTENTS,
    )
    | st.just({"role": "assistant", "content": None, "tool_calls": [CALL]})
    | st.just({"role": "user", "content": [{"type": "text", "text": "part"}]}),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="module", params=["smollm2", *FAMILIES])
def pair(request, folders, tmp_path_factory):
    """Our template, and transformers' tokenizer for the same folder."""
    folder = folders["smollm2"]
    if request.param in FAMILIES:
        folder = tmp_path_factory.mktemp(request.param)
        template = FAMILIES[request.param]
        write(folder, byte_tokenizer(), bos_token="<bos>", eos_token="<eos>", chat_template=template)
    return load_chat_template(folder), PreTrainedTokenizerFast.from_pretrained(folder)


def rendered(render):
    """The text, or None when the template refuses the messages."""
    try:
        return render()
    except (InvalidRequest, jinja2.TemplateError, TypeError, ValueError):
        return None


@given(messages=MESSAGES, prompt=st.booleans())
def test_renders_as_transformers_does(pair, messages, prompt):
    ours, theirs = pair
    expected = rendered(lambda: theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt))
    assert rendered(lambda: ours.render(messages, add_generation_prompt=prompt)) == expected


def test_every_family_renders_a_plain_chat(pair):
    ours, theirs = pair
    expected = theirs.apply_chat_template(USER, tokenize=False, add_generation_prompt=True)
    assert ours.render(USER) == expected
    assert "hi" in expected


def test_the_real_template_is_the_one_of_the_model(folders):
    assert load_chat_template(folders["smollm2"]).source == smollm2_metadata()["chat_template"]


def template(folder, source):
    write(folder, byte_tokenizer(), bos_token="<bos>", chat_template=source)
    return load_chat_template(folder)


def test_the_file_wins_over_the_configuration(tmp_path):
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "config"}))
    (tmp_path / "chat_template.jinja").write_text("file")
    assert load_chat_template(tmp_path).render(USER) == "file"
    (tmp_path / "chat_template.jinja").unlink()
    assert load_chat_template(tmp_path).render(USER) == "config"


def test_of_named_templates_the_default_one_is_used(tmp_path):
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    assert template(tmp_path, named).render(USER) == "plain"
    assert template(tmp_path, named[:1]) is None


def test_no_template_is_none(tmp_path):
    assert template(tmp_path, None) is None


def test_a_template_that_does_not_compile_is_the_model_s_fault(tmp_path):
    with pytest.raises(BaseModelError, match=r"chat template in .* cannot be used"):
        template(tmp_path, "{% for %}")
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(BaseModelError, match=r"chat template in .* cannot be used"):
        load_chat_template(tmp_path)


def test_the_words_of_a_refusal_reach_the_client(tmp_path):
    with pytest.raises(InvalidRequest, match="roles must alternate") as refusal:
        template(tmp_path, "{{ raise_exception('roles must alternate') }}").render(USER)
    assert refusal.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[9].content }}",
        "{{ messages[0].content.nothing.more }}",
        "{{ 1 // 0 }}",
        "{{ nothing | tojson }}",
        "{{ nothing() }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[0].update(role='x') }}",
        "{{ lipsum() }}",
    ],
)
def test_what_a_template_cannot_do_is_a_bad_request(tmp_path, source):
    with pytest.raises(InvalidRequest, match="cannot render") as refusal:
        template(tmp_path, source).render(USER)
    assert refusal.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10 ** 12 }}",
        "{{ 10 ** 12 * [1] }}",
        "{{ 9 ** 99999 }}",
        "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
    ],
)
def test_a_template_that_would_run_away_is_stopped(tmp_path, source):
    with pytest.raises(InvalidRequest):
        template(tmp_path, source).render(USER)


def test_the_limits_count_for_one_rendering_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_LOOP_STEPS", 10)
    chat = template(tmp_path, "{% for i in range(9) %}{{ i * 2 }}{{ '-' * 2 }}{{ i ** 2 }}{% endfor %}")
    assert chat.render(USER) == chat.render(USER)


def test_an_empty_chat_is_refused(folders):
    with pytest.raises(InvalidRequest, match="at least one message"):
        load_chat_template(folders["smollm2"]).render([])


def test_the_messages_are_left_as_they_were(folders):
    messages = [{"role": "user", "content": "hi", "name": None}]
    load_chat_template(folders["smollm2"]).render(messages)
    assert messages == [{"role": "user", "content": "hi", "name": None}]
