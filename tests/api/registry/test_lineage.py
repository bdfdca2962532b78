"""Lineage over HTTP: a tenant's own requests, as far as its key goes."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.api.registry.world import World, digest_of
from turnout.registry.lineage import LineageRecord
from turnout.registry.lineage_log import LineageLog

API = "/admin/v1/lineage"
DAY = 86_400 * 10**6


def record(request_id: str, day: int, tenant: str, owner: str | None, adapter: str) -> LineageRecord:
    digest = digest_of(adapter.encode())
    return LineageRecord(
        request_id=request_id, at=day * DAY, tenant=tenant, key_prefix="k", owner=owner, adapter=adapter, number=1,
        digest=digest, model_revision=digest, tokenizer_revision=digest, reason="model field", outcome="stop",
        prompt_tokens=1, completion_tokens=2, timings={"decode": 1.5},
    )  # fmt: skip


RECORDS = [
    record("first/1", 1, "acme", "acme", "open-a"),
    record("second", 2, "acme", "acme", "closed"),
    record("third", 3, "acme", None, "base"),
    record("fourth", 4, "acme", "globex", "open-b"),
    record("first/1", 5, "globex", "globex", "open-a"),
]


@pytest.fixture(scope="module")
def served(shared: World) -> Iterator[World]:
    log = LineageLog(shared.directory.database)
    for each in RECORDS:
        log.put(each)
    log.close()
    yield shared


def ids(world: World, key: str, **query: Any) -> list[tuple[str, str]]:
    answer = world.send("GET", API, key, params=query)
    assert (answer.status_code, answer.headers["content-length"]) == (200, str(len(answer.content))), answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    return [(line["tenant"], line["request_id"]) for line in lines]


ALL = [(each.tenant, each.request_id) for each in RECORDS]


def test_who_sees_which_requests(served: World) -> None:
    assert ids(served, "operator") == ALL
    assert ids(served, "operator", tenant="globex") == ALL[4:]
    assert ids(served, "acme-admin") == ALL[:4]
    assert ids(served, "acme-open") == [ALL[0], ALL[2]]
    assert ids(served, "globex-admin") == ALL[4:]


def test_requests_are_chosen_by_time_and_weights(served: World) -> None:
    assert ids(served, "operator", since="1970-01-03T00:00:00Z", until="1970-01-05T00:00:00Z") == ALL[1:3]
    assert ids(served, "operator", digest=RECORDS[0].digest) == [ALL[0], ALL[4]]
    assert ids(served, "operator", since="2030-01-01T00:00:00Z") == []


def test_parquet_has_the_same_records(served: World) -> None:
    answer = served.send("GET", f"{API}?format=parquet", "acme-admin")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    table = pq.read_table(io.BytesIO(answer.content))
    assert table.column("request_id").to_pylist() == [request_id for _, request_id in ALL[:4]]


@pytest.mark.parametrize(
    ("key", "request_id", "found"),
    [
        ("operator", "first/1", ["globex", "acme"]),
        ("acme-admin", "first/1", ["acme"]),
        ("acme-admin", "second", ["acme"]),
        ("acme-open", "second", []),
        ("globex-admin", "second", []),
        ("operator", "nothing", []),
    ],
)
def test_a_request_is_found_by_its_id(served: World, key: str, request_id: str, found: list[str]) -> None:
    data = served.send("GET", f"{API}/{request_id}", key).json()["data"]
    assert [each["tenant"] for each in data] == found
    assert all(each["request_id"] == request_id for each in data)
