"""Error shapes (field case 32), scoring (34), bounds, empty input and context (35), what is not supported (37)."""

import json
import math

import pytest

from tests.support.adapters import peft_logits
from tests.support.servers import BASE, serving


def refused(response, status: int = 400) -> dict:
    """The envelope of a refusal; it must be valid JSON whatever was sent."""
    assert response.status_code == status, response.text
    error = json.loads(response.text, parse_constant=pytest.fail)["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return error


def raw(served, body: str | bytes, content_type: str | None = "application/json", path: str = "/v1/completions"):
    headers = {} if content_type is None else {"Content-Type": content_type}
    return served.http.post(path, content=body, headers=headers)


GOOD = json.dumps({"prompt": "A", "max_tokens": 1, "temperature": 0})


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", None])
def test_other_content_types_are_named(alphabet, content_type) -> None:
    assert "Content-Type" in refused(raw(alphabet, GOOD, content_type), 415)["message"]


def test_a_charset_is_fine(alphabet) -> None:
    assert raw(alphabet, GOOD, "application/json; charset=utf-8").status_code == 200


@pytest.mark.parametrize("body", ["not json", "", "[1]", '"text"', "{", "\xff", '{"prompt": NaN}', "[" * 100_000])
def test_what_is_no_json_object_is_refused(alphabet, body) -> None:
    refused(raw(alphabet, body.encode("latin-1")))


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/nothing", 404), ("/nothing", 404), ("/v1/completions", 405), ("/v1/models/nobody", 404)]
)
def test_unknown_paths_and_methods_have_the_envelope(alphabet, path, status) -> None:
    refused(alphabet.http.get(path), status)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"n": 10_000}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 10**12}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"999": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop.1"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop_token_ids": [400]}, "stop_token_ids"),
        ({"seed": "x"}, "seed"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True, "x": 1}, "stream": True}, "stream_options.x"),
        ({"never_heard_of": 1}, "never_heard_of"),
        ({"adapter_id": ""}, "adapter_id"),
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [320]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": {"text": "A"}}, "prompt"),
        ({"prompt": ["A"] * 100, "n": 2}, "prompt"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_out_of_bounds_is_refused_by_name(alphabet, body, param, stream) -> None:
    body = {"prompt": "A", "stream": stream, **body}
    assert refused(alphabet.complete(**body))["param"].split(".")[0] == param.split(".")[0]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "seed", "max_tokens"])
def test_numbers_that_are_none_are_refused(alphabet, field, value) -> None:
    refused(raw(alphabet, f'{{"prompt": "A", "{field}": {value}}}'))
    refused(raw(alphabet, f'{{"prompt": "A", "{field}": 1e999}}'))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}]}, "messages"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2, "max_completion_tokens": 3}, "max_tokens"),
        ({"tools": []}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [], "tool_choice": "required"}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": []}, "functions"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": "{}"}}, "response_format"),
        ({"modalities": ["audio"]}, "modalities"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_chat_refuses_by_name_what_it_does_not_do(alphabet, body, param, stream) -> None:
    body = {"messages": [{"role": "user", "content": "A"}], "stream": stream, **body}
    error = refused(alphabet.http.post("/v1/chat/completions", json=body))
    assert error["param"].split(".")[0] == param


def test_harmless_fields_are_taken(alphabet) -> None:
    response = alphabet.chat(
        "A",
        max_completion_tokens=2,
        user="me",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        response_format={"type": "text"},
        modalities=["text"],
        tool_choice="none",
        parallel_tool_calls=True,
        stop=None,
        logit_bias=None,
        n=None,
    )
    assert response.status_code == 200


def test_messages_as_clients_resend_them(alphabet) -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "C", "refusal": None, "annotations": [], "tool_calls": None},
        {"role": "user", "content": "D"},
    ]
    joined = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "AB"},
        {"role": "assistant", "content": "C"},
        {"role": "user", "content": "D"},
    ]
    body = {"max_tokens": 1, "temperature": 0}
    one = alphabet.http.post("/v1/chat/completions", json={"messages": messages, **body}).json()
    two = alphabet.http.post("/v1/chat/completions", json={"messages": joined, **body}).json()
    assert one["usage"]["prompt_tokens"] == two["usage"]["prompt_tokens"]


def test_an_empty_prompt_begins_from_bos(alphabet) -> None:
    for prompt in ("", [""]):
        response = alphabet.complete(prompt=prompt, max_tokens=1)
        assert response.status_code == 200 and response.json()["usage"]["prompt_tokens"] == 1


def test_an_empty_prompt_without_bos_is_refused(alphabet_base, tmp_path) -> None:
    import shutil

    from tokenizers import Tokenizer
    from tokenizers.processors import ByteLevel

    base = shutil.copytree(alphabet_base, tmp_path / "no-bos")
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.post_processor = ByteLevel(trim_offsets=False)
    tokenizer.save(str(base / "tokenizer.json"))
    config = json.loads((base / "tokenizer_config.json").read_text())
    config["bos_token"] = None
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    with serving(base) as served:
        for prompt in ("", [""], []):
            assert refused(served.complete(prompt=prompt))["param"] == "prompt"


def test_the_context_is_kept(tiny) -> None:
    """Context 256, and one `<bos>` before raw prompts."""
    over = refused(tiny.complete(prompt="A" * 256))
    assert over["code"] == "context_length_exceeded" and "256" in over["message"] and "257" in over["message"]
    assert refused(tiny.complete(prompt="A" * 249, max_tokens=50))["code"] == "context_length_exceeded"
    rest = tiny.complete(prompt="A" * 249, ignore_eos=True).json()
    assert rest["usage"]["completion_tokens"] == 6 and rest["choices"][0]["finish_reason"] == "length"
    chat = tiny.chat("A", ignore_eos=True).json()
    assert chat["usage"]["total_tokens"] == 256


def test_a_base_without_a_template_does_not_guess_one(alphabet_base, tmp_path) -> None:
    import shutil

    base = shutil.copytree(alphabet_base, tmp_path / "no-template")
    (base / "chat_template.jinja").unlink()
    with serving(base) as served:
        assert "template" in refused(served.chat("A"))["message"]


@pytest.mark.parametrize("model", [BASE, "x"])
def test_scoring_a_prompt(tiny, model, random_base) -> None:
    """The standard call of evaluation harnesses: echo, log-probabilities, nothing generated."""
    prompt = "Your answer: Yes"
    whole = tiny.complete(model=model, prompt=prompt, echo=True, logprobs=1, max_tokens=0).json()
    choice = whole["choices"][0]
    got = choice["logprobs"]
    assert choice["text"] == prompt and whole["usage"]["completion_tokens"] == 0
    assert got["token_logprobs"][0] is None and all(map(math.isfinite, got["token_logprobs"][1:]))
    assert got["text_offset"] == sorted(got["text_offset"]) and got["text_offset"][-1] < len(prompt)
    assert "".join(got["tokens"][1:]) == prompt
    assert all(len(top) in (1, 2) for top in got["top_logprobs"][1:]) and got["top_logprobs"][0] is None
    if model == "x":
        folder = tiny.folders["x"]
        expected = peft_logits(random_base, folder, [256, *prompt.encode()]).log_softmax(-1)
        for position, token in enumerate(prompt.encode()):
            assert got["token_logprobs"][position + 1] == pytest.approx(float(expected[position, token]), abs=1e-4)


def test_scoring_and_generating_in_one_call(tiny) -> None:
    plain = tiny.complete(prompt="abc", max_tokens=3, logprobs=0, ignore_eos=True).json()["choices"][0]
    echoed = tiny.complete(prompt="abc", max_tokens=3, logprobs=0, echo=True, ignore_eos=True).json()["choices"][0]
    assert echoed["text"] == "abc" + plain["text"]
    assert echoed["logprobs"]["tokens"][-3:] == plain["logprobs"]["tokens"]
    assert echoed["logprobs"]["token_logprobs"][-3:] == pytest.approx(plain["logprobs"]["token_logprobs"], abs=1e-4)
    assert [offset + 3 for offset in plain["logprobs"]["text_offset"]] == echoed["logprobs"]["text_offset"][-3:]
    stream = tiny.complete(prompt="abc", max_tokens=3, logprobs=0, echo=True, ignore_eos=True, stream=True).text
    parts = [json.loads(line[6:])["choices"][0] for line in stream.split("\n\n")[:-2]]
    assert "".join(part["text"] for part in parts) == echoed["text"]
    assert [t for part in parts for t in part["logprobs"]["tokens"]] == echoed["logprobs"]["tokens"]


def test_nothing_asked_for_is_nothing_generated(tiny) -> None:
    response = tiny.complete(prompt="abc", max_tokens=0)
    assert response.status_code == 200 and response.json()["choices"][0]["text"] == ""
    assert tiny.complete(prompt="abc", max_tokens=None).json()["usage"]["completion_tokens"] <= 16


def test_chat_log_probabilities(tiny) -> None:
    plain = tiny.chat("A", logprobs=True, max_tokens=4, ignore_eos=True).json()["choices"][0]
    assert [entry["top_logprobs"] for entry in plain["logprobs"]["content"]] == [[]] * 4
    assert tiny.chat("A", max_tokens=2).json()["choices"][0]["logprobs"] is None
    stream = tiny.chat("A", logprobs=True, max_tokens=4, ignore_eos=True, stream=True).text
    parts = [json.loads(line[6:])["choices"][0] for line in stream.split("\n\n")[:-2]]
    entries = [entry for part in parts if part["logprobs"] for entry in part["logprobs"]["content"]]
    assert [entry["token"] for entry in entries] == [entry["token"] for entry in plain["logprobs"]["content"]]
    assert parts[-1]["finish_reason"] == "length"


def test_choices_have_seeds_of_their_own_and_can_be_had_again(tiny) -> None:
    body = {"prompt": "abc", "n": 4, "max_tokens": 12, "temperature": 1.0, "seed": 7, "ignore_eos": True}
    first = [choice["text"] for choice in tiny.complete(**body).json()["choices"]]
    again = [choice["text"] for choice in tiny.complete(**body).json()["choices"]]
    assert first == again and len(set(first)) > 1
    alone = tiny.complete(**{**body, "n": 1, "seed": 9}).json()["choices"][0]["text"]
    assert alone == first[2]


def test_many_prompts_give_choices_in_order(alphabet) -> None:
    got = alphabet.complete(prompt=["A", "F", "X"], n=2, max_tokens=2).json()
    assert [choice["index"] for choice in got["choices"]] == list(range(6))
    assert [choice["text"] for choice in got["choices"]] == ["BC", "BC", "GH", "GH", "YZ", "YZ"]
    ids = alphabet.complete(prompt=[[256, 65], [256, 70]], max_tokens=1).json()
    assert [choice["text"] for choice in ids["choices"]] == ["B", "G"]


def test_stop_tokens_and_ignore_eos(alphabet) -> None:
    ended = alphabet.complete(model="always-end", prompt="A", max_tokens=5).json()
    assert ended["choices"][0] | {"logprobs": None} == {
        "index": 0,
        "text": "",
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert ended["usage"]["completion_tokens"] == 1
    going_on = alphabet.complete(model="always-end", prompt="A", max_tokens=5, ignore_eos=True).json()
    assert going_on["usage"]["completion_tokens"] == 5 and going_on["choices"][0]["finish_reason"] == "length"
    stopped = alphabet.complete(prompt="A", max_tokens=5, stop_token_ids=[ord("D")]).json()["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == ("BC", "stop")


def test_a_full_queue_says_when_to_come_back(alphabet_base) -> None:
    with serving(alphabet_base, max_waiting=2) as served:
        response = served.complete(prompt="A", n=8, max_tokens=2)
        assert refused(response, 429)["code"] == "overloaded" and int(response.headers["Retry-After"]) >= 1
        # Those of the eight that had been taken are dropped again, as soon as the engine hears of it.
        served.bench.settle()
        assert served.complete(prompt="A", max_tokens=2).status_code == 200
        served.bench.settle()


def test_request_ids(alphabet) -> None:
    sent = alphabet.http.post("/v1/completions", content=GOOD, headers={
        "Content-Type": "application/json", "X-Request-ID": "my-id-1"
    })  # fmt: skip
    assert sent.headers["X-Request-ID"] == "my-id-1" and sent.json()["id"] == "cmpl-my-id-1"
    for odd in ("a b", "x" * 200, "<script>"):
        own = alphabet.http.get("/health", headers={"X-Request-ID": odd}).headers["X-Request-ID"]
        assert own != odd and len(own) == 32
    assert alphabet.complete(prompt="A", model="nobody").headers["X-Request-ID"]


def test_two_requests_with_one_id_do_not_meet(alphabet) -> None:
    """Ids are the clients' to choose; the engine's are not."""
    from concurrent.futures import ThreadPoolExecutor

    def ask(model: str) -> str:
        headers = {"X-Request-ID": "same"}
        body = {"model": model, "prompt": "x", "max_tokens": 40, "temperature": 0}
        return alphabet.http.post("/v1/completions", json=body, headers=headers).json()["choices"][0]["text"]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, ["always-A", "always-B"] * 4)) == ["A" * 40, "B" * 40] * 4
