"""Requests that mean nothing are refused by name; none is an error of the server's."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.registry.test_scopes import ENDPOINTS
from tests.api.registry.world import World, digest_of, files_of, listed

API = "/admin/v1"
FILES = listed(files_of(b"rubbish"))
CONFIG, WEIGHTS = FILES

nested: dict[str, Any] = {}
for _ in range(40):
    nested = {"deeper": [nested]}

BODIES = [
    ("POST", "/adapters/x/versions", body)
    for body in (
        {},
        {"files": {}},
        {"files": FILES, "unknown": 1},
        {"files": {CONFIG: {"digest": "sha256:1", "bytes": 1}}},
        {"files": {CONFIG: {"digest": FILES[CONFIG]["digest"], "bytes": -1}}},
        {"files": {CONFIG: {"digest": FILES[CONFIG]["digest"], "bytes": 1}}},
        {"files": {"../x": FILES[CONFIG]}},
        {"files": {"adapter_model.bin": FILES[CONFIG]}},
        {"files": FILES, "parent": 0},
        {"files": FILES, "parent": 7},
        {"files": FILES, "parent": "1"},
        {"files": FILES, "parent": 10**30},
        {"files": FILES, "metrics": {"f1": "0.9"}},
        {"files": FILES, "metrics": {"f1 >": 0.9}},
        {"files": FILES, "metrics": {"f1": 10**400}},
        {"files": FILES, "semantic_version": "1"},
        {"files": FILES, "note": "\0"},
        {"files": FILES, "note": "x" * 10_000},
        {"files": FILES, "hyper_parameters": nested},
        {"files": FILES, "signature": nested},
        {"files": FILES, "signature": []},
    )
] + [
    ("PUT", "/adapters/x/visibility", {"public": "yes"}),
    ("PUT", "/adapters/legal/visibility", {"public": True, "shared_with": ["globex"]}),
    ("PUT", "/adapters/legal/visibility", {"shared_with": ["acme"]}),
    ("PUT", "/adapters/legal/aliases/dev", {}),
    ("PUT", "/adapters/legal/aliases/dev", {"version": 1}),
    ("PUT", "/adapters/legal/aliases/dev", {"version": "sha256:1"}),
    ("PUT", "/adapters/legal/aliases/dev", {"version": "1", "reason": "\0"}),
    ("PUT", "/adapters/legal/aliases/dev", {"version": "1", "require": ["f1"]}),
    ("PUT", "/adapters/legal/aliases/1", {"version": "1"}),
    ("POST", "/adapters/legal/aliases/dev/rollback", {"version": "1"}),
    ("POST", "/keys", {"scopes": "infer"}),
    ("POST", "/tenants", {"name": "No Tenant"}),
    ("PUT", "/tenants/acme/signed_aliases", {"aliases": ["3"]}),
    ("POST", "/gc", {"older_than": "never"}),
    ("POST", "/gc", {"older_than": 3600}),
]


@pytest.fixture(scope="module")
def legal(shared: World) -> World:
    shared.make_adapter("acme", "legal", b"legal")
    for data in files_of(b"rubbish").values():
        shared.upload(data)
    return shared


@pytest.mark.parametrize(("method", "path", "body"), BODIES)
def test_a_body_that_means_nothing_is_refused(legal: World, method: str, path: str, body: Any) -> None:
    query = "" if path.startswith(("/tenants", "/gc")) else "?tenant=acme"
    answer = legal.send(method, f"{API}{path}{query}", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"name": NaN}', b"[" * 100_000])
@pytest.mark.parametrize("path", ["/tenants", "/keys", "/adapters/x/versions"])
def test_a_body_that_is_no_object_is_refused(legal: World, path: str, content: bytes) -> None:
    answer = legal.send("POST", API + path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    other = legal.send("POST", API + path, content=content, headers={"Content-Type": "text/plain"})
    assert other.status_code == 415


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/audit?after=-1", 400),
        (f"/audit?after={1 << 63}", 400),
        ("/audit?after=x", 400),
        ("/audit?limit=0", 400),
        ("/audit?limit=1&limit=2", 400),
        ("/audit?tenant=%00", 400),
        ("/audit?tenant=", 404),
        ("/keys?tenant=%ff", 404),
        ("/lineage/%00", 400),
        ("/lineage?since=yesterday", 400),
        ("/lineage?until=2026-01-01T00:00:00", 400),
        ("/lineage?since=0001-01-01T00:00:00%2B23:59", 200),
        ("/lineage?digest=sha256:1", 400),
        ("/lineage?format=csv", 400),
        ("/adapters/legal/diff", 400),
        ("/adapters/legal/diff?from=1", 400),
        ("/adapters/%00", 400),
        ("/adapters/a%2F..%2Fb", 404),
        ("/adapters/legal/versions/%00", 400),
        ("/adapters/legal/versions/999999999999999999999", 404),
        ("/adapters/legal/nothing", 404),
        ("/nothing", 404),
    ],
)
def test_an_address_that_means_nothing_is_refused(legal: World, path: str, status: int) -> None:
    answer = legal.send("GET", API + path)
    assert answer.status_code == status, answer.text
    assert status == 200 or answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["a/b", "a b", "é", "日本", "100%", "a?b", "a#b", "a&b=c", "a@1", "a:b", "a+b", "%2F"])
def test_names_of_any_characters_come_back_as_they_were(legal: World, name: str) -> None:
    answer = legal.push(quote(name), f"weights of {name}".encode(), "acme-all")
    assert answer.status_code == 201, answer.text
    shown = legal.send("GET", f"{API}/adapters/{quote(name)}", "acme-all").json()
    assert (shown["name"], len(shown["versions"])) == (name, 1)
    moved = legal.send("PUT", f"{API}/adapters/{quote(name)}/aliases/dev", "acme-all", json={"version": "1"})
    assert moved.json()["after"] == 1


@pytest.mark.parametrize(
    "name",
    ["", " a", "a ", "a//b", "a/", "e\u0301", "a\u200bb", "a\u0085b", "x" * 256, "a/history", "a/versions/b"],
)
def test_names_that_cannot_be_are_refused(legal: World, name: str) -> None:
    answer = legal.push(quote(name), b"weights", "acme-all")
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_methods_that_are_not_there_are_refused(legal: World, endpoint: str) -> None:
    _, path, _ = ENDPOINTS[endpoint][3](legal, f"m{next(legal.numbers)}")
    assert legal.send("PATCH", API + path).status_code == 405


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    ["files", "metrics", "parent", "version", "reason", "require", "scopes", "adapters", "tenant", "expires", "name",
     "aliases", "shared_with", "public", "older_than", "dry_run", "hyper_parameters", "signature"]
)  # fmt: skip
endpoints = st.sampled_from(
    [("POST", "/adapters/fuzz/versions"), ("PUT", "/adapters/legal/visibility"), ("POST", "/keys"),
     ("PUT", "/adapters/legal/aliases/dev"), ("POST", "/adapters/legal/aliases/dev/rollback"), ("POST", "/gc"),
     ("POST", "/tenants"), ("PUT", "/tenants/acme/signed_aliases")]
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(endpoint=endpoints, body=st.dictionaries(fields, values, max_size=4))
def test_no_body_is_an_error_of_the_servers(legal: World, endpoint: tuple[str, str], body: Any) -> None:
    method, path = endpoint
    headers = {"Content-Type": "application/json"}
    answer = legal.send(method, API + path, content=json.dumps(body).encode(), headers=headers)
    assert answer.status_code < 500, answer.text


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.lists(st.sampled_from(["adapters", "legal", "versions", "aliases", "keys", "lineage", "1", ".."])
                  | st.text(max_size=5), max_size=7),
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]),
)  # fmt: skip
def test_no_address_is_an_error_of_the_servers(legal: World, path: list[str], method: str) -> None:
    address = "/".join(quote(part, safe="", errors="replace") for part in path)
    answer = legal.send(method, f"{API}/{address}", json={})
    assert answer.status_code < 500, answer.text


def test_a_digest_may_be_the_selector(legal: World) -> None:
    shown = legal.send("GET", f"{API}/adapters/legal?tenant=acme").json()["versions"][0]
    at = f"{API}/adapters/legal/versions/{shown['digest'][:20]}?tenant=acme"
    assert legal.send("GET", at).json() == shown
    missing = digest_of(b"nothing")[:20]
    assert legal.send("GET", f"{API}/adapters/legal/versions/{missing}?tenant=acme").status_code == 404
