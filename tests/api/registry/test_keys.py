"""Making keys: nobody gives what they do not have."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.api.registry.world import World

KEYS = "/admin/v1/keys"


def test_a_key_is_made_works_and_ends(either: World) -> None:
    body = {
        "name": "ci", "scopes": ["promote", "push"], "adapters": ["legal", "support-*"], "default_adapter": "legal@dev",
        "expires": "90d", "requests_per_minute": 5, "tokens_per_minute": 6, "concurrent_requests": 7,
    }  # fmt: skip
    made = either.send("POST", KEYS, "acme-all", json=body)
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    key, token = made.json()["key"], made.json()["token"]
    assert token.startswith(f"tk_{key['prefix']}_")
    assert {name: key[name] for name in body if name != "expires"} == {
        name: value if name != "scopes" else ["push", "promote"] for name, value in body.items() if name != "expires"
    }
    assert (key["tenant"], key["created_by"], key["revoked_at"]) == ("acme", either.prefixes["acme-all"], None)
    lasts = datetime.fromisoformat(key["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=89) < lasts < timedelta(days=91)
    listed = either.send("GET", KEYS, "acme-admin")
    assert key in listed.json()["data"]
    assert token not in listed.text
    assert either.send("GET", "/admin/v1/server", token).json()["key"]["scopes"] == ["push", "promote"]
    ended = either.send("DELETE", f"{KEYS}/{key['prefix']}", "acme-admin").json()
    assert ended["revoked_at"] is not None
    assert either.send("DELETE", f"{KEYS}/{key['prefix']}", "acme-admin").json() == ended
    assert either.send("GET", "/admin/v1/server", token).status_code == 401


def test_an_end_may_be_a_time(shared: World) -> None:
    body = {"scopes": ["infer"], "expires": "2999-01-01T01:00:00+01:00"}
    made = shared.send("POST", KEYS, json=body).json()["key"]
    assert (made["expires_at"], made["tenant"]) == ("2999-01-01T00:00:00.000000Z", "default")


@pytest.mark.parametrize(
    ("key", "body", "status"),
    [
        ("acme-all", {"scopes": ["infer"], "tenant": None}, 403),
        ("acme-admin", {"scopes": ["infer"]}, 403),
        ("acme-admin", {"scopes": ["admin"]}, 201),
        ("acme-all", {"scopes": ["infer"], "tenant": "acme"}, 201),
        ("acme-all", {"scopes": ["infer"], "tenant": "globex"}, 404),
        ("acme-all", {"scopes": ["infer"], "tenant": "nobody"}, 404),
        ("acme-open", {"scopes": ["infer"]}, 201),
        ("acme-open", {"scopes": ["infer"], "adapters": ["open-*"]}, 201),
        ("acme-open", {"scopes": ["infer"], "adapters": ["*"]}, 403),
        ("acme-open", {"scopes": ["infer"], "adapters": ["open-*", "legal"]}, 403),
        ("operator", {"scopes": ["infer"], "tenant": None}, 201),
        ("operator", {"scopes": ["infer"], "tenant": "acme"}, 201),
        ("operator", {"scopes": ["infer"], "tenant": "nobody"}, 404),
        ("operator", {"scopes": ["infer"], "tenant": "no\0body"}, 404),
        ("operator", {"scopes": ["everything"]}, 400),
        ("operator", {"scopes": []}, 400),
        ("operator", {"scopes": ["infer"], "adapters": []}, 400),
        ("operator", {"scopes": ["infer"], "adapters": ["\0"]}, 400),
        ("operator", {"scopes": ["infer"], "expires": "soon"}, 400),
        ("operator", {"scopes": ["infer"], "expires": "2020-01-01T00:00:00Z"}, 400),
        ("operator", {"scopes": ["infer"], "expires": "2999-01-01T00:00:00"}, 400),
        ("operator", {"scopes": ["infer"], "requests_per_minute": 0}, 400),
        ("operator", {"scopes": ["infer"], "name": ""}, 400),
    ],
)
def test_what_may_be_given(shared: World, key: str, body: dict, status: int) -> None:
    before = {each["prefix"] for each in shared.send("GET", KEYS).json()["data"]}
    answer = shared.send("POST", KEYS, key, json=body)
    assert answer.status_code == status, answer.text
    after = {each["prefix"] for each in shared.send("GET", KEYS).json()["data"]}
    assert len(after - before) == (status == 201)


def test_a_key_gets_its_makers_patterns_if_none_are_said(shared: World) -> None:
    made = shared.send("POST", KEYS, "acme-open", json={"scopes": ["push"]}).json()
    assert made["key"]["adapters"] == ["open-*"]


def test_a_query_and_a_body_that_disagree_are_refused(shared: World) -> None:
    body = {"scopes": ["infer"], "tenant": "acme"}
    assert shared.send("POST", f"{KEYS}?tenant=globex", json=body).status_code == 400
    assert shared.send("POST", f"{KEYS}?tenant=globex", json={"scopes": ["infer"], "tenant": None}).status_code == 400
    assert shared.send("POST", f"{KEYS}?tenant=acme", json=body).json()["key"]["tenant"] == "acme"
    made = shared.send("POST", f"{KEYS}?tenant=globex", json={"scopes": ["infer"]})
    assert made.json()["key"]["tenant"] == "globex"


def test_keys_of_others_do_not_exist(shared: World) -> None:
    asked = {"X-Request-ID": "same"}
    foreign = (shared.prefixes["globex-all"], shared.prefixes["operator"], "0123456789ab")
    answers = [shared.send("DELETE", f"{KEYS}/{prefix}", "acme-all", headers=asked) for prefix in foreign]
    texts = {answer.text.replace(prefix, "X") for prefix, answer in zip(foreign, answers, strict=True)}
    assert len(texts) == 1
    assert {answer.status_code for answer in answers} == {404}
    outside = shared.send("DELETE", f"{KEYS}/{shared.prefixes['acme-all']}", "acme-open", headers=asked)
    assert outside.text.replace(shared.prefixes["acme-all"], "X") in texts
    assert shared.send("GET", "/admin/v1/server", "globex-all").status_code == 200


def test_operators_see_all_keys_or_those_of_a_tenant(shared: World) -> None:
    everybody = {key["tenant"] for key in shared.send("GET", KEYS).json()["data"]}
    assert {None, "acme", "globex"} <= everybody
    assert {key["tenant"] for key in shared.send("GET", f"{KEYS}?tenant=globex").json()["data"]} == {"globex"}
