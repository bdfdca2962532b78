"""Server-sent events: UTF-8 (field case 29), framing and usage (31), stop strings, errors around a stream (32)."""

import json
from dataclasses import replace

import pytest

from tests.support.servers import BASE, serving
from turnout.core.errors import EngineFailure
from turnout.core.events import Finished
from turnout.core.fake import FakeEngine


def events(response) -> list[str]:
    return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]


def chunks(response) -> list[dict]:
    data = events(response)
    assert data[-1] == "[DONE]"
    return [json.loads(event) for event in data[:-1]]


def streamed_text(response) -> str:
    return "".join(choice["text"] for chunk in chunks(response) for choice in chunk["choices"])


@pytest.mark.parametrize("extra", [{}, {"logprobs": 1}, {"model": "one"}])
@pytest.mark.parametrize(("max_tokens", "text", "reason", "count"), [(8, "😀", "stop", 5), (2, "\ufffd", "length", 2)])
def test_characters_are_never_cut(scripted, extra, max_tokens, text, reason, count) -> None:
    """Four tokens are one character; a cut one is one U+FFFD at the end, in both modes."""
    whole = scripted.complete(prompt="x", max_tokens=max_tokens, **extra).json()
    choice = whole["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (text, reason)
    assert whole["usage"]["completion_tokens"] == count
    stream = scripted.complete(
        prompt="x", max_tokens=max_tokens, stream=True, stream_options={"include_usage": True}, **extra
    )
    parts = [choice["text"] for chunk in chunks(stream) for choice in chunk["choices"]]
    assert "".join(parts) == text
    assert text == "\ufffd" or not any("\ufffd" in part for part in parts)
    assert chunks(stream)[-1]["usage"]["completion_tokens"] == count


def test_chat_log_probabilities_are_the_bytes(scripted) -> None:
    messages = [{"role": "user", "content": "x"}]
    # The template ends in a newline, whose successor is the next byte; what matters are the shown tokens' bytes.
    body = {"messages": messages, "max_tokens": 3, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    entries = scripted.http.post("/v1/chat/completions", json=body).json()["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in entries] == [[11], [12], [13]]
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert all(entry["top_logprobs"][0]["bytes"] == entry["bytes"] for entry in entries)


def test_two_streams_at_once_do_not_mix(scripted) -> None:
    client = scripted.openai()
    streams = [client.completions.create(model=m, prompt="x", max_tokens=8, stream=True) for m in ("one", "two")]
    texts = ["", ""]
    for pair in zip(*streams, strict=False):
        for index, chunk in enumerate(pair):
            texts[index] += chunk.choices[0].text
    for index, stream in enumerate(streams):
        texts[index] += "".join(chunk.choices[0].text for chunk in stream)
    assert texts == ["😀", "😀"]


@pytest.mark.parametrize("model", [BASE, "always-A"])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("options", [..., None, {}, {"include_usage": False}, {"include_usage": True}])
def test_usage_comes_once_and_only_when_asked_for(alphabet, model, n, options) -> None:
    body = {"model": model, "stream": True, "max_tokens": 3, "n": n}
    if options is not ...:
        body["stream_options"] = options
    response = alphabet.chat("A", **body)
    assert response.headers["content-type"].startswith("text/event-stream")
    got = chunks(response)
    with_usage = [chunk for chunk in got if chunk.get("usage") is not None]
    if options == {"include_usage": True}:
        assert with_usage == [got[-1]] and got[-1]["choices"] == []
        assert got[-1]["usage"]["completion_tokens"] == 3 * n
    else:
        assert with_usage == []
    for index in range(n):
        mine = [c for chunk in got for c in chunk["choices"] if c["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["length"]
    assert len({(chunk["id"], chunk["model"], chunk["created"], chunk["object"]) for chunk in got}) == 1
    assert all("choices" in chunk for chunk in got)


def test_stream_options_without_a_stream_are_refused(alphabet) -> None:
    response = alphabet.chat("A", stream_options={"include_usage": True})
    assert response.status_code == 400 and response.json()["error"]["param"] == "stream_options"


def test_the_openai_client_reads_it_all(alphabet) -> None:
    client = alphabet.openai()
    messages = [{"role": "user", "content": "A"}]
    options = {"model": "always-B", "messages": messages, "max_tokens": 3, "temperature": 0}
    whole = client.chat.completions.create(**options)
    assert whole.choices[0].message.content == "BBB" and whole.usage.completion_tokens == 3
    parts = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in parts if c.choices) == "BBB"
    assert parts[-1].usage.completion_tokens == 3
    with client.chat.completions.stream(**{**options, "model": "always-end"}) as stream:
        assert stream.get_final_completion().choices[0].finish_reason == "stop"
    assert client.completions.create(model=BASE, prompt="ABC", max_tokens=3, temperature=0).choices[0].text == "DEF"


async def test_the_async_client_too(alphabet) -> None:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=f"{alphabet.url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.completions.create(model="always-A", prompt="x", max_tokens=3, stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == "AAA"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "text"),
    [("G", "DEF"), ("FG", "DE"), (["XYZ", "EFGH"], "D"), ("FX", "DEFGHI"), (["HI", "I"], "DEFG"), ("D", "")],
)
def test_stop_strings_across_tokens_are_found_and_not_sent(alphabet, stop, text, stream) -> None:
    response = alphabet.complete(prompt="ABC", max_tokens=6, stop=stop, stream=stream)
    got = streamed_text(response) if stream else response.json()["choices"][0]["text"]
    assert got == text
    last = chunks(response)[-1] if stream else response.json()
    assert last["choices"][0]["finish_reason"] == ("length" if text == "DEFGHI" else "stop")


def test_timings_are_there_when_asked_for(alphabet) -> None:
    names = {"resolve", "queue", "adapter_load", "cache_lookup", "prefill", "first_token", "decode", "total"}
    for options in ({}, {"stop": "E"}):
        whole = alphabet.complete(prompt="ABC", max_tokens=3, include_timings=True, **options).json()["timings"]
        assert set(whole) == {f"{name}_ms" for name in names}
        assert 0 < whole["first_token_ms"] <= whole["total_ms"]
    assert "timings" not in alphabet.complete(prompt="ABC").json()
    for usage in (True, False):
        stream = alphabet.complete(
            prompt="ABC", stream=True, include_timings=True, stream_options={"include_usage": usage}
        )
        assert ["timings" in chunk for chunk in chunks(stream)].index(True) == len(chunks(stream)) - 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_in_the_middle_is_told_and_ends_the_stream(alphabet_base, alphabet, stream) -> None:
    fault = EngineFailure("injected")
    fake = FakeEngine(alphabet.engine.info, fault=lambda request, number: fault if number == 3 else None)
    with serving(alphabet_base, fake=fake) as served:
        response = served.complete(prompt="ABC", max_tokens=8, stream=stream)
        if not stream:
            assert response.status_code == 500
            assert response.json()["error"]["code"] == "engine_failure"
            return
        data = events(response)
        assert response.status_code == 200 and "[DONE]" not in data
        assert json.loads(data[-1])["error"]["code"] == "engine_failure"
        assert len(data) >= 2
        assert 'turnout_requests_total{status="500"} 1.0' in served.http.get("/metrics").text


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_of_our_own_is_told_without_its_insides(alphabet_base, monkeypatch, caplog, stream) -> None:
    def broken(self):
        raise ZeroDivisionError("secret detail")

    with serving(alphabet_base) as served:
        with monkeypatch.context() as patch, caplog.at_level("ERROR"):
            patch.setattr("turnout.serving.choice.Choice.piece", broken)
            response = served.complete(prompt="A", max_tokens=2, stream=stream)
        last = events(response)[-1]
        assert json.loads(last)["error"]["code"] == "internal_error"
        assert response.headers["X-Request-ID"] in last and "secret" not in response.text
        assert "secret detail" in caplog.text
        served.bench.settle()
        assert streamed_text(served.complete(prompt="A", max_tokens=2, stream=True)) == "BC"


def test_an_answer_of_other_weights_than_routed_is_no_answer(alphabet_base, markers, alphabet) -> None:
    """An engine that finishes with a digest other than the route's is caught, whatever it generated."""

    class Mixed(FakeEngine):
        def submit(self, request, listener):
            super().submit(
                request,
                lambda event: listener(replace(event, digest="sha256:x") if isinstance(event, Finished) else event),
            )

    with serving(alphabet_base, markers, fake=Mixed(alphabet.engine.info)) as served:
        response = served.complete(model="always-A", prompt="ABC", max_tokens=2)
        assert response.status_code == 500 and response.json()["error"]["code"] == "engine_failure"


def test_a_parameter_error_is_plain_http_even_for_a_stream(alphabet) -> None:
    for body in ({"prompt": "A", "temperature": 9}, {"prompt": "A", "model": "nobody"}, {"prompt": "A" * 300}):
        response = alphabet.complete(stream=True, **body)
        assert response.status_code in (400, 404)
        assert response.headers["content-type"] == "application/json"
