"""Every endpoint with every kind of key: who gets what they ask for, and who gets which refusal."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.registry.world import World, digest_of, files_of, listed

API = "/admin/v1"
READ = {"push", "promote", "admin"}
PUSH, PROMOTE, ADMIN = {"push"}, {"promote"}, {"admin"}
OPERATOR: set[str] = set()


def bare(method: str, path: str, **options: Any) -> Callable[[World, str], tuple[str, str, dict[str, Any]]]:
    return lambda world, name: (method, path.replace("{name}", name), options)


def push(world: World, name: str) -> tuple[str, str, dict[str, Any]]:
    body = {"files": listed(files_of(b"first"))}
    return "POST", f"/adapters/{name}/versions", {"json": body}


def revoke(world: World, name: str) -> tuple[str, str, dict[str, Any]]:
    world.make_key(name, "acme", frozenset({"infer"}), "open-x")
    return "DELETE", f"/keys/{world.prefixes[name]}", {}


def new_tenant(world: World, name: str) -> tuple[str, str, dict[str, Any]]:
    return "POST", "/tenants", {"json": {"name": f"tenant-{name}"}}


def upload(world: World, name: str) -> tuple[str, str, dict[str, Any]]:
    return "PUT", f"/blobs/{digest_of(b'bytes')}", {"content": b"bytes"}


def find(world: World, name: str) -> tuple[str, str, dict[str, Any]]:
    return "HEAD", f"/blobs/{digest_of(b'first')}", {}


# Whether an adapter is asked for, which scopes open the endpoint (none: an operator's key), the answer to who may.
ENDPOINTS = {
    "server": (False, READ, 200, bare("GET", "/server")),
    "blob": (True, PUSH, 200, find),
    "upload": (False, PUSH, 201, upload),
    "push": (True, PUSH, 200, push),
    "adapters": (False, READ, 200, bare("GET", "/adapters")),
    "adapter": (True, READ, 200, bare("GET", "/adapters/{name}")),
    "delete": (True, ADMIN, 204, bare("DELETE", "/adapters/{name}")),
    "share": (True, ADMIN, 200, bare("PUT", "/adapters/{name}/visibility", json={"public": True})),
    "history": (True, READ, 200, bare("GET", "/adapters/{name}/history")),
    "diff": (True, READ, 200, bare("GET", "/adapters/{name}/diff?from=1&to=2")),
    "version": (True, READ, 200, bare("GET", "/adapters/{name}/versions/dev")),
    "delete version": (True, ADMIN, 200, bare("DELETE", "/adapters/{name}/versions/1")),
    "file": (True, READ, 200, bare("GET", "/adapters/{name}/versions/1/files/adapter_config.json")),
    "promote": (True, PROMOTE, 200, bare("PUT", "/adapters/{name}/aliases/dev", json={"version": "1"})),
    "unalias": (True, PROMOTE, 200, bare("DELETE", "/adapters/{name}/aliases/dev")),
    "rollback": (True, PROMOTE, 200, bare("POST", "/adapters/{name}/aliases/back/rollback")),
    "keys": (False, ADMIN, 200, bare("GET", "/keys")),
    "new key": (False, ADMIN, 201, bare("POST", "/keys", json={"scopes": ["admin"], "adapters": ["open-*"]})),
    "revoke": (False, ADMIN, 200, revoke),
    "tenants": (False, OPERATOR, 200, bare("GET", "/tenants")),
    "new tenant": (False, OPERATOR, 201, new_tenant),
    "signed": (False, OPERATOR, 200, bare("PUT", "/tenants/globex/signed_aliases", json={"aliases": ["x"]})),
    "audit": (False, ADMIN, 200, bare("GET", "/audit?limit=2")),
    "audit check": (False, OPERATOR, 200, bare("GET", "/audit/verify")),
    "request": (False, ADMIN, 200, bare("GET", "/lineage/some/id")),
    "lineage": (False, ADMIN, 200, bare("GET", "/lineage")),
    "verify": (False, OPERATOR, 200, bare("POST", "/verify")),
    "gc": (False, OPERATOR, 200, bare("POST", "/gc", json={"dry_run": True})),
}
KINDS = {
    "none": (None, set()),
    "nonsense": ("tk_nonsense", set()),
    "ended": ("ended", set()),
    **{scope: (f"acme-{scope}", {scope}) for scope in ("infer", "push", "promote", "admin")},
    "all": ("acme-all", READ),
    "restricted": ("acme-open", READ),
    "other tenant": ("globex-all", READ),
    "operator": ("operator", READ),
}
# What is not about one adapter but is all the same not for keys that are for some.
WHOLE = {"audit": 403, "revoke": 404}


def expected(endpoint: str, kind: str) -> int:
    adapter, scopes, success, _ = ENDPOINTS[endpoint]
    if kind in ("none", "nonsense", "ended"):
        return 401
    if kind == "operator":
        return success
    if not scopes & KINDS[kind][1]:
        return 403
    if kind == "other tenant":
        return 404 if adapter or endpoint == "revoke" else success
    if kind == "restricted":
        return 404 if adapter else WHOLE.get(endpoint, success)
    return success


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_who_gets_in(shared: World, endpoint: str, kind: str) -> None:
    name = f"legal-{next(shared.numbers)}"
    if ENDPOINTS[endpoint][0]:
        shared.make_adapter("acme", name, b"first", b"second", aliases={"dev": 2, "back": 1})
        shared.make_adapter("acme", name, aliases={"back": 2})
    method, path, options = ENDPOINTS[endpoint][3](shared, name)
    if kind == "operator" and ENDPOINTS[endpoint][0]:
        path += ("&" if "?" in path else "?") + "tenant=acme"
    before = len(shared.failures)
    answer = shared.send(method, API + path, KINDS[kind][0], **options)
    assert answer.status_code == expected(endpoint, kind), answer.text
    refused = answer.status_code == 401 or (answer.status_code == 403 and (kind, endpoint) != ("restricted", "audit"))
    assert len(shared.failures) - before == refused


@pytest.mark.parametrize(
    "endpoint", [name for name, (_, scopes, *_) in ENDPOINTS.items() if scopes and name != "server"]
)
def test_another_tenant_is_answered_like_one_that_does_not_exist(shared: World, endpoint: str) -> None:
    name = f"legal-{next(shared.numbers)}"
    shared.make_adapter("globex", name, b"theirs")
    method, path, options = ENDPOINTS[endpoint][3](shared, name)
    path += "&" if "?" in path else "?"
    asked = {"X-Request-ID": "same"}
    theirs = shared.send(method, f"{API}{path}tenant=globex", "acme-all", headers=asked, **options)
    nobodys = shared.send(method, f"{API}{path}tenant=nobody", "acme-all", headers=asked, **options)
    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.text.replace("globex", "nobody") == nobodys.text
    assert method == "HEAD" or theirs.json()["error"]["code"] == "tenant_not_found"
    assert theirs.headers == nobodys.headers


@pytest.mark.parametrize("endpoint", [name for name, (adapter, *_) in ENDPOINTS.items() if adapter and name != "blob"])
def test_a_forbidden_adapter_is_answered_like_one_that_does_not_exist(shared: World, endpoint: str) -> None:
    number = next(shared.numbers)
    shared.make_adapter("acme", f"secret-{number}", b"secret", b"secrets", aliases={"dev": 2})
    asked = {"X-Request-ID": "same"}
    answers = []
    for name in (f"secret-{number}", f"absent-{number}"):
        method, path, options = ENDPOINTS[endpoint][3](shared, name)
        answer = shared.send(method, API + path, "acme-open", headers=asked, **options)
        answers.append((answer.status_code, answer.text.replace(name, "NAME"), answer.headers))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


def test_a_restricted_key_sees_its_own_adapters_only(shared: World) -> None:
    shared.make_adapter("acme", "open-list", b"open")
    shared.make_adapter("acme", "closed-list", b"closed")
    listing = shared.send("GET", f"{API}/adapters", "acme-open").json()["data"]
    assert {adapter["name"] for adapter in listing} == {"open-list"}
    prefixes = {key["prefix"] for key in shared.send("GET", f"{API}/keys", "acme-open").json()["data"]}
    assert shared.prefixes["acme-open"] in prefixes
    assert shared.prefixes["acme-all"] not in prefixes


def test_shared_adapters_of_others_are_not_for_the_admin_api(shared: World) -> None:
    shared.make_adapter("globex", "common", b"common")
    shared.send("PUT", f"{API}/adapters/common/visibility", "globex-admin", json={"public": True})
    for name in ("common", "globex/common"):
        assert shared.send("GET", f"{API}/adapters/{name}", "acme-all").status_code == 404
    listing = shared.send("GET", f"{API}/adapters", "acme-all").json()["data"]
    assert {adapter["tenant"] for adapter in listing} == {"acme"}
