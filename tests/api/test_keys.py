"""Keys, tenants, limits and lineage over HTTP, on a real server and registry."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.adapters import marker_adapter
from tests.support.servers import ADMIN, BASE, Served, serving
from turnout.core.identity import Digest
from turnout.registry import aliases, audit, keys, lineage, tenants
from turnout.registry.adapters import delete_adapter, set_visibility
from turnout.registry.keys import Limits, NewKey

PATIENCE = 20


def publish(served: Served, tenant: str, name: str, folder: Path) -> int:
    return served.registry.publisher.publish("tester", tenant, name, folder).version.number


def make_tenant(served: Served, name: str) -> None:
    with served.registry.directory.write("tester") as write:
        tenants.create_tenant(write, name)


def make_key(served: Served, tenant: str, **options: Any) -> str:
    new = NewKey(tenant=tenant, name="test", scopes=frozenset({"infer"}), **options)
    with served.registry.directory.write("tester") as write:
        return keys.create(write, new)[1]


def as_key(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def complete(served: Served, token: str, **body: Any) -> httpx.Response:
    body = {"prompt": "Q", "max_tokens": 3, "temperature": 0, **body}
    return served.http.post("/v1/completions", json=body, headers=as_key(token))


def text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("letters")
    return {letter: marker_adapter(root / letter, ord(letter)) for letter in "ABC"}


@contextmanager
def two_tenants(base: Path, folders: dict[str, Path], **options: Any) -> Iterator[tuple[Served, str, str]]:
    """Acme has `legal` (A) and `shared` (C), globex has `legal` (B); and a key of each."""
    with serving(base, **options) as served:
        for tenant in ("acme", "globex"):
            make_tenant(served, tenant)
        publish(served, "acme", "legal", folders["A"])
        publish(served, "acme", "shared", folders["C"])
        publish(served, "globex", "legal", folders["B"])
        yield served, make_key(served, "acme"), make_key(served, "globex")


def test_each_tenant_is_served_by_its_own_adapter(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, acme, globex):
        assert (text(complete(served, acme, model="legal")), text(complete(served, globex, model="legal"))) == (
            "AAA",
            "BBB",
        )
        listed = {
            token: [card["id"] for card in served.http.get("/v1/models", headers=as_key(token)).json()["data"]]
            for token in (acme, globex)
        }
        assert listed == {acme: ["alias", BASE, "legal", "shared"], globex: ["alias", BASE, "legal"]}


def test_unknown_and_forbidden_are_the_same_404(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, _, globex):
        narrow = make_key(served, "acme", patterns=("nothing-*",))
        for token, forbidden, unknown in ((globex, "acme/shared", "acme/sharec"), (narrow, "legal", "regal")):
            answers = []
            for name in (forbidden, unknown):
                response = complete(served, token, model=name)
                card = served.http.get(f"/v1/models/{name}", headers=as_key(token))
                headers = {key: value for key, value in response.headers.items() if key not in ("date", "x-request-id")}
                answers.append((response.status_code, headers, response.text.replace(name, "NAME"), card.status_code))
                assert card.text.replace(name, "NAME") == response.text.replace(name, "NAME").replace('"', '"')
            assert answers[0] == answers[1]
            assert answers[0][0] == 404


def test_a_shared_adapter_is_named_with_its_owner(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, acme, globex):
        assert complete(served, globex, model="acme/shared").status_code == 404
        with served.registry.directory.write("tester") as write:
            set_visibility(write, "acme", "shared", shared_with=["globex"])
        response = complete(served, globex, model="acme/shared")
        assert text(response) == "CCC"
        assert response.headers["X-Turnout-Adapter"] == "acme/shared@1"
        assert complete(served, acme, model="shared").headers["X-Turnout-Adapter"] == "shared@1"
        with served.registry.directory.write("tester") as write:
            set_visibility(write, "acme", "shared")
        assert complete(served, globex, model="acme/shared").status_code == 404


def test_a_revoked_or_expired_key_opens_nothing_and_the_audit_knows(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, acme, _):
        short = make_key(served, "acme", expires_at=time.time_ns() // 1000 + 300_000)
        assert complete(served, acme, model="legal").status_code == 200
        with served.registry.directory.write("tester") as write:
            keys.revoke(write, acme.split("_")[1])
        refused = complete(served, acme, model="legal")
        assert refused.status_code == 401
        until(lambda: complete(served, short, model="legal").status_code == 401)
        assert complete(served, "nonsense", model="legal").text == refused.text
        # A key that has ended leaves the server as closed as it was.
        assert served.complete(prompt="Q").status_code == 401

        def failures() -> list[audit.AuditEntry]:
            with served.registry.directory.database.read() as connection:
                return [each for each in audit.entries(connection) if each.action == "authorization.failure"]

        until(lambda: {"revoked key", "expired key", "unknown key"} <= {each.detail["what"] for each in failures()})
        assert acme not in json.dumps([dict(each.detail) for each in failures()])


def test_promotion_and_rollback_move_live_traffic(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, acme, _):
        assert publish(served, "acme", "legal", folders["B"]) == 2
        assert text(complete(served, acme, model="legal")) == "BBB"
        directory = served.registry.directory
        with directory.write("tester") as write:
            aliases.promote(write, "acme", "legal", "1", "production", "known to be good")
        assert text(complete(served, acme, model="legal")) == "AAA"
        with directory.write("tester") as write:
            aliases.promote(write, "acme", "legal", "2", "production", "better")
        response = complete(served, acme, model="legal")
        assert text(response) == "BBB"
        assert response.headers["X-Turnout-Route-Reason"] == "model field, alias production"
        with directory.write("tester") as write:
            aliases.rollback(write, "acme", "legal", "production", "worse")
        assert text(complete(served, acme, model="legal")) == "AAA"
        assert text(complete(served, acme, model="legal@2")) == "BBB"


def test_a_stream_keeps_its_route_through_promotion_and_deletion(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, acme, _):
        client = served.openai(api_key=acme)
        stream = client.completions.create(model="legal", prompt="Q", max_tokens=100, stream=True, temperature=0)
        told = ""
        for seen, chunk in enumerate(stream):
            told += chunk.choices[0].text
            if seen == 3:
                publish(served, "acme", "legal", folders["C"])
                with served.registry.directory.write("tester") as write:
                    delete_adapter(write, "acme", "legal")
                assert complete(served, acme, model="legal").status_code == 404
        assert told == "A" * 100


def test_the_default_adapter_of_a_key_serves_who_names_the_base(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, _, _):
        token = make_key(served, "acme", default_adapter="legal@1")
        response = complete(served, token, model=BASE)
        assert text(response) == "AAA"
        assert response.headers["X-Turnout-Route-Reason"] == "default of the key"
        assert text(complete(served, token)) == "AAA"


def test_limits_answer_429_with_the_usual_headers(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, _, _):
        token = make_key(served, "acme", limits=Limits(requests_per_minute=2, tokens_per_minute=100))
        first = complete(served, token, model="legal")
        assert (first.headers["x-ratelimit-limit-requests"], first.headers["x-ratelimit-remaining-requests"]) == (
            "2",
            "1",
        )
        assert complete(served, token, model="legal").status_code == 200
        third = complete(served, token, model="legal")
        assert (third.status_code, third.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(third.headers["retry-after"]) >= 1
        assert third.headers["x-ratelimit-remaining-requests"] == "0"
        long = make_key(served, "acme", limits=Limits(tokens_per_minute=100))
        assert complete(served, long, model="legal", max_tokens=200).status_code == 429
        # What was reserved and not used comes back.
        for _ in range(4):
            assert complete(served, long, model="legal", max_tokens=60, stop="AA").status_code == 200


def test_a_limit_on_concurrency_counts_streams_until_they_end_or_are_dropped(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, _, _):
        token = make_key(served, "acme", limits=Limits(concurrent_requests=1))
        client = served.openai(api_key=token)
        stream = client.completions.create(model="legal", prompt="Q", max_tokens=200, stream=True, temperature=0)
        next(iter(stream))
        assert complete(served, token, model="legal").status_code == 429
        stream.close()
        until(lambda: complete(served, token, model="legal").status_code == 200)


@pytest.mark.parametrize("keep_prompts", [False, True])
def test_which_weights_gave_an_answer_is_known_from_its_request_id(alphabet_base, folders, keep_prompts) -> None:
    with two_tenants(alphabet_base, folders, keep_prompts=keep_prompts) as (served, acme, _):
        response = complete(served, acme, model="legal", prompt="a secret")

        def find() -> list[lineage.LineageRecord]:
            with served.registry.directory.database.read() as connection:
                return lineage.find(connection, response.headers["X-Request-ID"])

        (record,) = until(find)
        assert (record.tenant, record.owner, record.adapter, record.number) == ("acme", "acme", "legal", 1)
        assert record.digest == Digest(response.headers["X-Turnout-Digest"])
        assert record.key_prefix == acme.split("_")[1]
        assert (record.outcome, record.prompt_tokens, record.completion_tokens) == ("finished", 9, 3)
        assert record.reason == response.headers["X-Turnout-Route-Reason"]
        assert record.timings["total_ms"] > 0
        assert record.prompt == ("a secret" if keep_prompts else None)


def test_a_dropped_stream_leaves_a_record_too(alphabet_base, folders) -> None:
    with two_tenants(alphabet_base, folders) as (served, acme, _):
        client = served.openai(api_key=acme, default_headers={"X-Request-ID": "dropped-1"})
        stream = client.completions.create(model="legal", prompt="Q", max_tokens=200, stream=True, temperature=0)
        next(iter(stream))
        stream.close()

        def find() -> list[lineage.LineageRecord]:
            with served.registry.directory.database.read() as connection:
                return lineage.find(connection, "dropped-1")

        (record,) = until(find)
        assert record.outcome == "aborted" and record.completion_tokens < 200


def test_a_key_of_the_settings_and_one_of_the_registry_work_side_by_side(alphabet_base, folders) -> None:
    with serving(alphabet_base, {"x": folders["A"]}, api_key="user-secret") as served:
        token = make_key(served, "default")
        for bearer in ("user-secret", token, "admin-secret"):
            assert text(complete(served, bearer, model="x")) == "AAA"
        assert (
            served.http.post("/v1/unload_lora_adapter", json={"lora_name": "x"}, headers=as_key(token)).status_code
            == 403
        )
        assert served.http.post("/v1/unload_lora_adapter", json={"lora_name": "x"}, headers=ADMIN).status_code == 200
