"""Which adapter answers, what the answer says of it, and names that are hard to handle (field case 26)."""

from urllib.parse import quote

import pytest

from tests.support.adapters import marker_adapter
from tests.support.servers import BASE, serving


def text(response) -> str:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


def test_each_adapter_answers_as_itself(alphabet) -> None:
    assert text(alphabet.complete(prompt="ABC", max_tokens=4)) == "DEFG"
    for model, answer in (("always-A", "AAAA"), ("always-B", "BBBB"), (BASE, "DEFG"), ("alias", "DEFG")):
        response = alphabet.complete(model=model, prompt="ABC", max_tokens=4)
        assert text(response) == answer
        assert response.json()["model"] == model


def test_the_answer_names_its_route(alphabet) -> None:
    cards = {card["id"]: card for card in alphabet.http.get("/v1/models").json()["data"]}
    base, adapter = alphabet.complete(prompt="A"), alphabet.complete(model="always-A", prompt="A")
    assert base.headers["X-Turnout-Adapter"] == f"{BASE}@0"
    assert base.headers["X-Turnout-Digest"] == cards[BASE]["digest"]
    assert base.headers["X-Turnout-Route-Reason"] == "base model by default"
    assert adapter.headers["X-Turnout-Adapter"] == "always-A@1"
    assert adapter.headers["X-Turnout-Digest"] == cards["always-A"]["digest"]
    assert adapter.headers["X-Turnout-Route-Reason"] == "model field, latest version"


def test_what_the_headers_say_can_be_asked_for(alphabet) -> None:
    for model in (BASE, "always-B"):
        first = alphabet.complete(model=model, prompt="A")
        for reference in (
            first.headers["X-Turnout-Adapter"],
            f"{model}@{first.headers['X-Turnout-Digest']}",
            f"{model}@{first.headers['X-Turnout-Digest'][:15]}",
        ):
            again = alphabet.complete(model=reference, prompt="A")
            assert text(again) == text(first)
            assert again.headers["X-Turnout-Digest"] == first.headers["X-Turnout-Digest"]


def test_header_and_field_choose_too(alphabet) -> None:
    body = {"prompt": "ABC", "max_tokens": 2, "temperature": 0}
    by_header = alphabet.http.post("/v1/completions", json=body, headers={"X-Adapter-ID": "always-A"})
    assert text(by_header) == "AA"
    assert by_header.headers["X-Turnout-Route-Reason"] == "X-Adapter-ID header, latest version"
    assert text(alphabet.complete(adapter_id="always-B", prompt="ABC", max_tokens=2)) == "BB"
    # The base in `model` is what an adapter sits on, no contradiction.
    assert text(alphabet.complete(model=BASE, adapter_id="always-B", prompt="ABC", max_tokens=2)) == "BB"
    same = alphabet.http.post(
        "/v1/completions", json={**body, "model": "always-A@1"}, headers={"X-Adapter-ID": "always-A"}
    )
    assert text(same) == "AA"


@pytest.mark.parametrize(
    ("body", "header"),
    [
        ({"model": "always-A", "adapter_id": "always-B"}, None),
        ({"model": "always-A"}, "always-B"),
        ({"adapter_id": "always-A"}, "always-B"),
        ({"adapter_id": "always-A"}, BASE),
    ],
)
def test_two_that_disagree_are_refused(alphabet, body, header) -> None:
    headers = {} if header is None else {"X-Adapter-ID": header}
    response = alphabet.http.post("/v1/completions", json={"prompt": "A", **body}, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "adapter_conflict"


@pytest.mark.parametrize("model", ["nobody", "always-A@2", "always-A@latest", "nobody@1", "always-A@sha256:0000"])
def test_what_does_not_exist_is_not_served_by_another(alphabet, model) -> None:
    response = alphabet.complete(model=model, prompt="A")
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"], error["type"]) == ("model_not_found", "model", "invalid_request_error")
    assert "always-B" not in error["message"]


def test_an_empty_header_is_no_request_for_the_base(alphabet) -> None:
    """A client whose variable was not set shall not get the base in silence."""
    response = alphabet.http.post("/v1/completions", json={"prompt": "A"}, headers={"X-Adapter-ID": ""})
    assert response.status_code == 400 and response.json()["error"]["param"] == "X-Adapter-ID"
    assert alphabet.complete(model="", prompt="A").status_code == 400


AWKWARD = ["org/sql-v2", "base:sql", "适配器-β", "with space", "a@1", "100%25", "ft:tiny:acme::id", "a?b#c", "x" * 255]


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names_work_everywhere(alphabet_base, tmp_path, name) -> None:
    folder = marker_adapter(tmp_path / "z", ord("Z"))
    with serving(alphabet_base, roots=(tmp_path,)) as served:
        assert served.load(name, folder).status_code == 200
        ids = [card["id"] for card in served.http.get("/v1/models").json()["data"]]
        assert name in ids
        encoded = quote(name, safe="")
        assert served.http.get(f"/v1/models/{encoded}").json()["id"] == name
        assert served.openai().models.retrieve(name).id == name
        if not set(name) & set("%?#"):
            assert served.http.get(f"/v1/models/{name}").json()["id"] == name
        response = served.complete(model=name, prompt="A", max_tokens=3)
        assert text(response) == "ZZZ" and response.json()["model"] == name
        header = {"X-Adapter-ID": encoded}
        by_header = served.http.post("/v1/completions", json={"prompt": "A", "temperature": 0}, headers=header)
        assert by_header.json()["model"] == name
        stream = served.openai().completions.create(model=name, prompt="A", max_tokens=2, stream=True)
        assert {chunk.model for chunk in stream} == {name}
        assert served.unload(name).status_code == 200
        assert served.http.get(f"/v1/models/{encoded}").status_code == 404


@pytest.mark.parametrize("name", ["..", "../../etc/x", "a\nb", "", "x" * 300, "/abs", "a/../b", "\x00", "\u2028"])
def test_bad_names_are_refused_and_leave_nothing(alphabet_base, tmp_path, name) -> None:
    folder = marker_adapter(tmp_path / "z", ord("Z"))
    before = sorted(tmp_path.rglob("*"))
    with serving(alphabet_base, roots=(tmp_path,)) as served:
        response = served.load(name, folder)
        assert response.status_code == 400 and response.json()["error"]["param"] == "lora_name"
        assert len(served.http.get("/v1/models").json()["data"]) == 2
        assert served.engine.stats().adapters_loaded == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_no_adapter_hides_the_base(alphabet_base, tmp_path) -> None:
    folder = marker_adapter(tmp_path / "z", ord("Z"))
    with serving(alphabet_base, roots=(tmp_path,)) as served:
        for name in (BASE, "alias"):
            response = served.load(name, folder)
            assert response.status_code == 409 and response.json()["error"]["code"] == "adapter_exists"
        assert text(served.complete(model=BASE, prompt="A", max_tokens=1)) == "B"


def test_models_tell_what_an_adapter_is(tiny) -> None:
    card = tiny.http.get("/v1/models/x").json()
    assert (card["object"], card["parent"], card["number"], card["aliases"]) == ("model", BASE, 1, {})
    assert card["owned_by"] == "default"
    assert card["max_model_len"] == 256
    base = tiny.http.get(f"/v1/models/{BASE}").json()
    assert base["parent"] is None and base["root"] == BASE
