"""The client: whom it asks, with which key, and what becomes of errors."""

import logging
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.client.server import TOKEN, Registry
from turnout import Client
from turnout.client.errors import CLASSES, refusal
from turnout.client.references import parse_reference
from turnout.core import errors
from turnout.core.errors import (
    GateNotMet,
    InvalidRequest,
    ModelNotFound,
    NothingToRollBack,
    RateLimited,
    ServerUnreachable,
    SettingsError,
    TurnoutError,
    Unauthorized,
    UnexpectedAnswer,
    VersionInUse,
)


def test_a_life_of_an_adapter(registry: Registry, client: Client, folder: Path) -> None:
    client.adapters.push(folder, "legal", metrics={"f1": 0.5})
    (folder / "adapter_model.safetensors").write_bytes(b"better")
    client.adapters.push(folder, "legal", metrics={"f1": 0.9})
    assert client.adapters.promote("legal@1", "production")["after"] == 1
    moved = client.adapters.promote("legal@2", "production", reason="better", require=["f1>=0.9"])
    assert (moved["before"], moved["after"], moved["requirements"]) == (1, 2, ["f1>=0.9"])
    assert client.adapters.promote("legal@2", "production")["unchanged"]
    assert client.adapters.version("legal@production")["number"] == 2
    assert client.adapters.diff("legal@1", "legal@2")["claims"]["metrics.f1"] == {"before": 0.5, "after": 0.9}
    assert client.adapters.rollback("legal")["after"] == 1
    assert [move["kind"] for move in client.adapters.history("legal")] == ["promote", "promote", "rollback"]
    assert client.adapters.share("legal", shared_with=["globex"])["shared_with"] == ["globex"]
    with pytest.raises(VersionInUse):
        client.adapters.delete_version("legal@1")
    assert client.adapters.remove_alias("legal", "production", reason="over & out")["after"] is None
    assert registry.moves["legal"][-1]["reason"] == "over & out"
    assert client.adapters.delete_version("legal@1") == 1
    assert [adapter["name"] for adapter in client.adapters.list()] == ["legal"]
    assert [version["number"] for version in client.adapters.get("legal")["versions"]] == [2]
    client.adapters.delete("legal")
    assert list(client.adapters.list()) == []


def test_errors_come_as_the_classes_they_were_raised_as(registry: Registry, client: Client, folder: Path) -> None:
    client.adapters.push(folder, "legal", metrics={"f1": 0.5})
    with pytest.raises(GateNotMet, match=r"f1 must be >= 0.9, found 0.5") as gate:
        client.adapters.promote("legal@1", "production", require=["f1>=0.9"])
    assert gate.value.param == "requirements"
    with pytest.raises(InvalidRequest, match="cannot be read"):
        client.adapters.promote("legal@1", "production", require=["f1 is good"])
    with pytest.raises(ModelNotFound):
        client.adapters.version("legal@7")
    client.adapters.promote("legal@1", "production")
    with pytest.raises(NothingToRollBack):
        client.adapters.rollback("legal")


def answered(status: int, body: object, **headers: str) -> TurnoutError:
    request = httpx.Request("GET", "http://127.0.0.1/admin/v1/adapters?tenant=acme")
    return refusal(httpx.Response(status, json=body, headers=headers, request=request))


@pytest.mark.parametrize("code", CLASSES)
def test_every_code_is_known(code: str) -> None:
    found = answered(400, {"error": {"message": "so it is", "param": "x", "code": code}})
    assert type(found) is CLASSES[code] and found.message == "so it is"


def test_the_table_of_codes_is_complete() -> None:
    classes = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, TurnoutError)}
    assert set(CLASSES.values()) == classes


def test_a_limit_says_when_to_come_back() -> None:
    said = {"error": {"message": "60 tokens a minute; try again in 7 s", "code": "rate_limit_exceeded"}}
    limited = answered(429, said, **{"Retry-After": "7", "x-ratelimit-limit-tokens": "60"})
    assert isinstance(limited, RateLimited)
    assert (limited.limit, limited.retry_after, limited.headers) == ("tokens", 7, {"x-ratelimit-limit-tokens": "60"})


@pytest.mark.parametrize("body", ["<html>", [], {}, {"error": "no"}, {"error": {"message": "m", "code": "teapot"}}])
def test_what_no_turnout_server_says_is_named_as_that(body: object) -> None:
    assert isinstance(answered(502, body), UnexpectedAnswer)
    assert isinstance(answered(200, body), UnexpectedAnswer)


def test_no_server_says_which_url_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but not listening: refused
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with Client(url, key="secret") as client, pytest.raises(ServerUnreachable) as unreachable:
            client.adapters.list()
    assert url in unreachable.value.message and "turnout serve" in unreachable.value.message


def test_names_are_encoded_and_lead_nowhere_else(registry: Registry, client: Client, folder: Path) -> None:
    name = "org/ä b?#%41@x&y=z"
    client.adapters.push(folder, name)
    client.adapters.promote(f"{name}@1", "production")
    assert client.adapters.get(name)["aliases"] == {"production": 1}
    assert client.adapters.version(f"{name}@production")["number"] == 1
    assert list(registry.adapters) == [name]
    before = len(registry.requests)
    for outside in ("../keys/ab", "a/../../keys", "a//b", "", ".", "/a"):
        with pytest.raises(InvalidRequest):
            client.adapters.delete(outside)
    assert len(registry.requests) == before


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("legal", ("legal", None)),
        ("legal@4", ("legal", "4")),
        ("org/a@1@sha256:9f2c", ("org/a@1", "sha256:9f2c")),
        ("legal@", None),
        ("@4", None),
        ("", None),
    ],
)
def test_references(text: str, parts: tuple[str, str | None] | None) -> None:
    if parts is None:
        with pytest.raises(InvalidRequest):
            parse_reference(text)
    else:
        assert parse_reference(text) == parts


def test_a_version_must_be_named_where_one_is_meant(registry: Registry, client: Client) -> None:
    with pytest.raises(InvalidRequest, match="which version of 'legal'"):
        client.adapters.promote("legal", "production")
    with pytest.raises(InvalidRequest, match="two adapters"):
        client.adapters.diff("legal@1", "sql@1")
    assert registry.requests == []


def test_the_tenant_is_asked_for_where_there_is_one(registry: Registry) -> None:
    with Client(tenant="acme") as client:
        client.adapters.list()
        client.keys.create(["infer"])
        client.tenants.list()
        client.audit.list()
        client.audit.verify()
        client.server()
    assert registry.requests == [
        "GET /admin/v1/adapters?tenant=acme",
        "POST /admin/v1/keys",
        "GET /admin/v1/tenants",
        "GET /admin/v1/audit?tenant=acme&after=0&limit=1000",
        "GET /admin/v1/audit/verify",
        "GET /admin/v1/server",
    ]
    assert registry.bodies[0] == {"tenant": "acme", "scopes": ["infer"]}


def test_an_operators_key_is_asked_for_by_a_null(registry: Registry, client: Client) -> None:
    client.keys.create(["admin"], operator=True, expires="90d", adapters=["legal"])
    assert registry.bodies == [{"tenant": None, "scopes": ["admin"], "expires": "90d", "adapters": ["legal"]}]


def test_the_key_is_the_given_one_then_the_environments_then_the_local_servers(registry, tmp_path, monkeypatch) -> None:
    with Client(key="wrong") as client, pytest.raises(Unauthorized):
        client.server()
    with Client() as client:
        client.server()
    monkeypatch.delenv("TURNOUT_API_KEY")
    with pytest.raises(SettingsError, match="set TURNOUT_API_KEY, or start a server here"):
        Client()
    file = tmp_path / "home" / "admin-token"
    file.write_text(f"{TOKEN}\n")
    with Client() as client:
        client.server()
    # That one is for this machine alone.
    with pytest.raises(SettingsError, match=r"no key for https://turnout.example.org: set TURNOUT_API_KEY$"):
        Client("https://turnout.example.org")


@pytest.mark.parametrize(
    "url",
    ["ftp://host", "host:8000", "http://", "http://host?x=1", "http://[::1", "http://host:x", "http://host:99999"],
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="no server's URL"):
        Client(url, key="secret")


def test_secrets_are_not_repeated(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for url, key in ((None, "with space\n"), ("http://user:hunter2@host", "secret")):
        with pytest.raises(SettingsError) as refused:
            Client(url, key=key)
        assert not any(secret in str(refused.value) for secret in ("with space", "hunter2", "secret"))
    with Client() as client:
        client.server()
        shown = (
            repr(client) + repr(client.adapters) + repr(client.adapters._connection.http.headers) + str(vars(client))
        )
    assert TOKEN not in shown + caplog.text


def test_turnout_stays_light_until_the_client_is_asked_for() -> None:
    code = "import sys, turnout; assert 'httpx' not in sys.modules; turnout.Client; assert 'httpx' in sys.modules"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'numpy' not in sys.modules"], check=True)
