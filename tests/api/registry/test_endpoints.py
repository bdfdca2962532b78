"""What each endpoint does, with a key that may."""

import re
from urllib.parse import quote

import pytest

from tests.api.registry.world import CONFIG, World, digest_of, files_of, listed
from turnout import __version__

API = "/admin/v1"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def test_the_server_tells_what_it_is_and_whose_the_key_is(shared: World) -> None:
    told = shared.send("GET", f"{API}/server", "acme-push").json()
    snapshot = shared.directory.snapshot()
    revisions = {"model_revision": snapshot.model_revision, "tokenizer_revision": snapshot.tokenizer_revision}
    caller = {"prefix": shared.prefixes["acme-push"], "tenant": "acme", "scopes": ["push"]}
    assert told == {"version": __version__, "base": {"name": "base", **revisions}, "key": caller}


def test_an_adapter_from_push_to_deletion(either: World) -> None:
    said = {
        "semantic_version": "1.0.0",
        "metrics": {"f1": 0.91, "samples": 10},
        "dataset": "s3://data\u0000",
        "dataset_digest": "sha1:ab",
        "hyper_parameters": {"lr": 1e-4, "betas": [0.9, 0.99]},
        "owner": "Ada",
        "licence": "MIT",
        "note": "first",
        "signature": {"by": "ada"},
    }
    first = either.push("law/é %", b"one", "acme-push", **said)
    assert first.status_code == 201
    version = first.json()["version"]
    assert first.json()["created"] is True
    assert (version["number"], version["semantic_version"], version["note"]) == (1, "1.0.0", "first")
    assert version["created_by"] == either.prefixes["acme-push"]
    assert version["files"] == listed(files_of(b"one"))
    assert version["claims"] == {key: said[key] for key in version["claims"]}
    assert version["facts"]["config"]["r"] == 8
    assert version["signature"] == {"by": "ada"}
    assert TIME.fullmatch(version["created_at"])
    again = either.push("law/é %", b"one", "acme-push", **said)
    assert (again.status_code, again.json()) == (200, {"created": False, "version": version})
    assert either.push("law/é %", b"two", "acme-push", parent=1).json()["version"]["parent"] == 1

    at = f"{API}/adapters/{quote('law/é %')}"
    assert either.send("GET", f"{at}/versions/1.0.0", "acme-promote").json() == version
    moved = either.send("PUT", f"{at}/aliases/production", "acme-promote", json={"version": "1", "require": ["f1>0.9"]})
    assert moved.status_code == 200
    assert moved.json().items() >= {
        "alias": "production", "kind": "promote", "before": None, "after": 1, "reason": "",
        "requirements": ["f1>0.9"], "created_by": either.prefixes["acme-promote"], "unchanged": False,
    }.items()  # fmt: skip
    still = either.send("PUT", f"{at}/aliases/production", "acme-promote", json={"version": "1.0.0", "reason": "why"})
    assert still.json() == {**moved.json(), "unchanged": True}
    either.send("PUT", f"{at}/aliases/production", "acme-promote", json={"version": "2", "reason": "better"})
    back = either.send("POST", f"{at}/aliases/production/rollback", "acme-promote", json={"reason": "worse"}).json()
    assert (back["kind"], back["before"], back["after"], back["reason"]) == ("rollback", 2, 1, "worse")
    moves = either.send("GET", f"{at}/history", "acme-push").json()["data"]
    assert [move["kind"] for move in moves] == ["promote", "promote", "rollback"]
    assert moves[-1] == back

    shown = either.send("GET", at, "acme-push").json()
    assert shown["versions"][0] == version
    assert (shown["name"], shown["latest"], shown["aliases"]) == ("law/é %", 2, {"production": 1})
    summary = either.send("GET", f"{API}/adapters", "acme-push").json()["data"]
    brief = ("number", "semantic_version", "digest", "model_revision", "created_at")
    in_short = [{key: each[key] for key in brief} for each in shown["versions"]]
    assert summary == [{**shown, "versions": in_short}]

    difference = either.send("GET", f"{at}/diff?from=1&to=2", "acme-push").json()
    assert difference["claims"]["metrics.f1"] == {"before": 0.91, "after": None}
    assert difference["files"]["adapter_model.safetensors"]["after"] == digest_of(b"two")
    assert difference["facts"] == difference["modules"] == {}

    shared_with = either.send("PUT", f"{at}/visibility", "acme-admin", json={"shared_with": ["globex"]})
    assert (shared_with.json()["shared_with"], shared_with.json()["public"]) == (["globex"], False)
    refused = either.send("DELETE", f"{at}/versions/1", "acme-admin")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "version_in_use")
    removed = either.send("DELETE", f"{at}/aliases/production?reason=gone", "acme-promote").json()
    assert (removed["kind"], removed["before"], removed["after"], removed["reason"]) == ("remove", 1, None, "gone")
    assert either.send("DELETE", f"{at}/versions/1", "acme-admin").json() == {"number": 1}
    assert either.send("DELETE", at, "acme-admin").status_code == 204
    assert either.send("GET", at, "acme-admin").status_code == 404
    entries = either.send("GET", f"{API}/audit", "acme-admin").json()["data"]
    actions = [entry["action"] for entry in entries if entry["actor"] != "tester"]
    assert actions == [
        "version.push", "version.push", "alias.promote", "alias.promote", "alias.rollback", "adapter.visibility",
        "alias.remove", "version.delete", "adapter.delete",
    ]  # fmt: skip
    assert either.send("GET", f"{API}/audit/verify").json()["faults"] == []


def test_promotion_tells_what_is_not_met(shared: World) -> None:
    shared.push("gated", b"gated", "acme-all", metrics={"f1": 0.5})
    answer = shared.send(
        "PUT", f"{API}/adapters/gated/aliases/dev", "acme-all", json={"version": "1", "require": ["f1>=0.9"]}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "gate_not_met")
    assert shared.send("GET", f"{API}/adapters/gated", "acme-all").json()["aliases"] == {}


def test_changes_route_at_once(shared: World) -> None:
    shared.push("routed", b"routed", "acme-all")
    assert shared.directory.snapshot().adapters["acme", "routed"].versions[0].number == 1
    shared.send("DELETE", f"{API}/adapters/routed", "acme-all")
    assert ("acme", "routed") not in shared.directory.snapshot().adapters


def test_files_come_back_as_they_were_sent(shared: World) -> None:
    weights = bytes(range(256)) * 12_000
    shared.push("files", weights, "acme-push")
    at = f"{API}/adapters/files/versions/1/files"
    got = shared.send("GET", f"{at}/adapter_model.safetensors", "acme-push")
    assert (got.content, got.headers["content-length"]) == (weights, str(len(weights)))
    assert shared.send("GET", f"{at}/adapter_config.json", "acme-push").content == CONFIG
    assert shared.send("GET", f"{at}/nothing", "acme-push").json()["error"]["code"] == "artifact_not_found"


def test_a_rotten_file_is_not_given_for_a_whole_one(fresh: World, tmp_path) -> None:
    fresh.push("files", b"weights", "acme-push")
    name = digest_of(b"weights").removeprefix("sha256:")
    stored = tmp_path / "store" / "sha256" / name[:2] / name
    stored.chmod(0o600)
    stored.write_bytes(b"wrights")
    answer = fresh.send("GET", f"{API}/adapters/files/versions/1/files/adapter_model.safetensors", "acme-push")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "artifact_corrupt")
    faults = fresh.send("POST", f"{API}/verify").json()["faults"]
    assert [fault["subject"] for fault in faults] == ["acme/files@1"]


def test_operators_work_for_any_tenant(shared: World) -> None:
    assert shared.push("mine", b"mine", "operator").status_code == 201
    assert shared.send("GET", f"{API}/adapters/mine").json()["tenant"] == "default"
    for data in files_of(b"theirs").values():
        shared.upload(data)
    body = {"files": listed(files_of(b"theirs"))}
    made = shared.send("POST", f"{API}/adapters/theirs/versions?tenant=globex", json=body)
    assert made.status_code == 201
    assert shared.send("GET", f"{API}/adapters/theirs", "globex-push").json()["tenant"] == "globex"


def test_tenants_and_signatures(fresh: World) -> None:
    made = fresh.send("POST", f"{API}/tenants", json={"name": "initech"})
    assert (made.status_code, made.json()["name"], made.json()["signed_aliases"]) == (201, "initech", [])
    assert fresh.send("POST", f"{API}/tenants", json={"name": "initech"}).json()["error"]["code"] == "tenant_exists"
    names = [tenant["name"] for tenant in fresh.send("GET", f"{API}/tenants").json()["data"]]
    assert names == ["acme", "default", "globex", "initech"]
    signed = fresh.send("PUT", f"{API}/tenants/acme/signed_aliases", json={"aliases": ["production", "dev"]})
    assert signed.json()["signed_aliases"] == ["dev", "production"]
    fresh.push("legal", b"unsigned", "acme-all")
    answer = fresh.send("PUT", f"{API}/adapters/legal/aliases/dev", "acme-all", json={"version": "1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "signature_required")


def test_the_audit_of_all_and_of_a_tenant(fresh: World) -> None:
    fresh.push("one", b"one", "acme-all")
    fresh.push("two", b"two", "globex-all")
    fresh.push("three", b"three", "acme-all")
    everything = fresh.send("GET", f"{API}/audit").json()
    last = everything["data"][-1]
    assert everything["head"] == {"sequence": last["sequence"], "hash": last["hash"]}
    assert [entry["sequence"] for entry in everything["data"]] == list(range(1, last["sequence"] + 1))
    page = fresh.send("GET", f"{API}/audit?after=2&limit=3").json()
    assert page["data"] == everything["data"][2:5]
    of_acme = [entry for entry in everything["data"] if entry["tenant"] == "acme"]
    assert fresh.send("GET", f"{API}/audit?tenant=acme").json()["data"] == of_acme
    own = fresh.send("GET", f"{API}/audit", "acme-admin").json()
    assert own["head"] is None
    assert own["data"] == [{**entry, "sequence": number, "hash": ""} for number, entry in enumerate(of_acme, 1)]
    assert fresh.send("GET", f"{API}/audit?after=1&limit=2", "acme-admin").json()["data"] == own["data"][1:3]


@pytest.mark.parametrize("address", ["/server", "/adapters", "/tenants"])
def test_typing_errors_in_addresses_are_refused(shared: World, address: str) -> None:
    answer = shared.send("GET", f"{API}{address}?tenent=acme")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tenent")


def test_the_documentation_describes_every_endpoint(shared: World) -> None:
    described = shared.app.openapi()["paths"]
    operations = [(path, method, each) for path, methods in described.items() for method, each in methods.items()]
    assert len(operations) == 28
    for path, method, operation in operations:
        assert operation["description"], path
        if method in ("post", "put") and not path.endswith("/verify"):
            assert operation["requestBody"], path
