"""Nothing that a tenant asks for tells it anything of another's private adapters, on the endpoints that serve.

The same requests go to two servers. On one of them the tenant `globex` has private adapters, and uses them in between;
on the other it has none. The answers must be the same but for what is random in each: ids, times, phases.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.test_keys import as_key, make_key, make_tenant, publish
from tests.support.adapters import marker_adapter
from tests.support.servers import BASE, Served, serving
from turnout.core.identity import Digest

RANDOM = re.compile(r"\b[0-9a-f]{32}\b|\"created\": ?[0-9]+")


@dataclass(frozen=True)
class World:
    """A server, acme's keys by name, and globex's key where it has adapters."""

    served: Served
    keys: dict[str, str]
    globex: str | None
    digests: tuple[Digest, Digest]


@pytest.fixture(scope="module")
def worlds(alphabet_base, tmp_path_factory) -> Iterator[tuple[World, World]]:
    root = tmp_path_factory.mktemp("isolated")
    theirs, ours = marker_adapter(root / "theirs", ord("B")), marker_adapter(root / "ours", ord("A"))
    with ExitStack() as opened:
        made = []
        for there in (True, False):
            served = opened.enter_context(serving(alphabet_base))
            for tenant in ("acme", "globex"):
                make_tenant(served, tenant)
            publish(served, "acme", "ours", ours)
            globex = None
            if there:
                for name in ("legal", "secret", "acme/ours"):
                    publish(served, "globex", name, theirs)
                globex = make_key(served, "globex")
            keys = {
                "all": make_key(served, "acme"),
                "narrow": make_key(served, "acme", patterns=("ours",)),
                "default": make_key(served, "acme", default_adapter="globex/legal"),
            }
            digests = served.bench.read(ours).digest, served.bench.read(theirs).digest
            made.append(World(served, keys, globex, digests))
        yield made[0], made[1]


names = st.sampled_from(
    ["ours", "legal", "secret", "globex/legal", "globex/secret", "globex/acme/ours", "nobody/legal"]
)
selectors = st.sampled_from(["", "@1", "@2", "@production", "@1.0.0", "@OURS", "@THEIRS", "@sha256:abc"])
references = st.builds(lambda name, selector: name + selector, names, selectors) | st.just(BASE)
requests = st.one_of(
    st.tuples(st.just("model"), references),
    st.tuples(st.just("header"), references),
    st.tuples(st.just("chat"), references),
    st.tuples(st.just("card"), references),
    st.tuples(st.just("list"), st.just("")),
)


def ask(world: World, key: str, kind: str, reference: str) -> Any:
    reference = reference.replace("OURS", world.digests[0][:20]).replace("THEIRS", world.digests[1][:20])
    http, headers = world.served.http, as_key(world.keys[key])
    body = {"max_tokens": 2, "temperature": 0}
    if kind == "list":
        return http.get("/v1/models", headers=headers)
    if kind == "card":
        return http.get(f"/v1/models/{reference}", headers=headers)
    if kind == "chat":
        messages = [{"role": "user", "content": "Q"}]
        return http.post(
            "/v1/chat/completions", json={"model": reference, "messages": messages, **body}, headers=headers
        )
    if kind == "header":
        headers["X-Adapter-ID"] = reference
        return http.post("/v1/completions", json={"model": BASE, "prompt": "Q", **body}, headers=headers)
    return http.post("/v1/completions", json={"model": reference, "prompt": "Q", **body}, headers=headers)


def told(response: Any) -> Any:
    headers = {name: value for name, value in response.headers.items() if name not in ("date", "x-request-id")}
    return response.status_code, headers, RANDOM.sub("X", response.text)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(asked=st.lists(st.tuples(st.sampled_from(["all", "narrow", "default"]), requests), min_size=1, max_size=6))
def test_another_tenants_private_adapters_are_not_to_be_told_from_none(worlds, asked) -> None:
    there, absent = worlds
    for key, (kind, reference) in asked:
        theirs = there.served.http.post(
            "/v1/completions",
            json={"model": "secret", "prompt": "Q", "max_tokens": 2, "temperature": 0},
            headers=as_key(there.globex or ""),
        )
        assert theirs.json()["choices"][0]["text"] == "BB"
        assert told(ask(there, key, kind, reference)) == told(ask(absent, key, kind, reference))


@pytest.mark.parametrize("path", ["/metrics", "/health", "/ready", "/openapi.json"])
def test_pages_without_a_key_name_nobodys_adapters(worlds, path) -> None:
    there, _ = worlds
    page = there.served.http.get(path).text
    for secret in ("secret", "globex", "acme", there.digests[1], there.digests[1][7:20]):
        assert secret not in page
