"""API keys: made, listed, revoked; and that their text is nowhere but in the answer to who made them."""

import logging
import queue
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from turnout.core.errors import InvalidRequest, KeyNotFound, Unauthorized
from turnout.registry import audit, keys, tables
from turnout.registry.database import Database, now, open_database, revision
from turnout.registry.keyring import KeyRing, read_keys
from turnout.registry.keys import Key, Limits, NewKey
from turnout.registry.tokens import new_prefix, new_token
from turnout.registry.watch import Watcher

PLAIN = NewKey("default", "ci", frozenset({"infer"}))
FULL = NewKey(
    "default",
    "ünïcode name",
    frozenset({"infer", "push", "promote", "admin"}),
    ("legal", "support-*"),
    "support-de@production",
    Limits(60, 100_000, 4),
    2**62,
)

SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"tenant": "nobody"}, "tenant"),
    ({"name": ""}, "name"),
    ({"name": " "}, "name"),
    ({"name": "a\nb"}, "name"),
    ({"name": "x" * 129}, "name"),
    ({"scopes": frozenset()}, "scopes"),
    ({"scopes": frozenset({"infer", "root"})}, "scopes"),
    ({"patterns": ()}, "patterns"),
    ({"patterns": ("",)}, "patterns"),
    ({"patterns": ("*",) * 65}, "patterns"),
    ({"patterns": ("legal",), "default_adapter": "finance"}, "default_adapter"),
    ({"default_adapter": ""}, "default_adapter"),
    ({"default_adapter": "x" * 513}, "default_adapter"),
    ({"limits": Limits(requests_per_minute=0)}, "requests_per_minute"),
    ({"limits": Limits(tokens_per_minute=-1)}, "tokens_per_minute"),
    ({"limits": Limits(concurrent_requests=2**31)}, "concurrent_requests"),
    ({"expires_at": 1}, "expires_at"),
]


def make(database: Database, new: NewKey = PLAIN) -> tuple[Key, str]:
    with database.write("tester") as write:
        return keys.create(write, new)


def add_tenant(database: Database, name: str) -> None:
    with database.write("tester") as write:
        write.connection.execute(insert(tables.tenants).values(name=name, created_at=write.now, signed_aliases=[]))


def ring(database: Database) -> KeyRing:
    with database.read() as connection:
        return read_keys(connection)


def actions(database: Database) -> list[tuple[str, str | None, str]]:
    with database.read() as connection:
        assert list(audit.verify(connection)) == []
        return [(entry.action, entry.tenant, entry.subject) for entry in audit.entries(connection)]


def test_a_key_is_what_was_asked_for_and_opens(database: Database) -> None:
    for new in (PLAIN, FULL, replace(PLAIN, tenant=None)):
        key, token = make(database, new)
        asked = NewKey(key.tenant, key.name, key.scopes, key.patterns, key.default_adapter, key.limits, key.expires_at)
        assert asked == new
        assert (key.created_by, key.revoked_at) == ("tester", None)
        assert token.startswith(f"tk_{key.prefix}_")
        assert ring(database).authenticate(token, now()) == key
        with database.read() as connection:
            assert keys.find(connection, key.prefix) == key
            assert key in keys.listing(connection)
        assert actions(database)[-1] == ("key.create", new.tenant, key.prefix)


def test_secrets_have_256_bits_and_differ() -> None:
    parts = [new_token(new_prefix()).split("_") for _ in range(5)]
    assert len({secret for _, _, secret in parts}) == len({prefix for _, prefix, _ in parts}) == 5
    assert all(len(bytes.fromhex(secret)) == 32 for _, _, secret in parts)


def test_a_keys_text_is_kept_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with closing(open_database(tmp_path / "registry.db")) as database:
        key, token = make(database, FULL)
        secret = token.rpartition("_")[2]
        current = ring(database)
        with pytest.raises(Unauthorized) as refused:
            current.authenticate(token[:-1] + ("0" if token[-1] != "0" else "1"), now())
        with database.read() as connection:
            told = [repr(audit.entries(connection)), repr(current), repr(key), repr(refused.value), caplog.text]
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    kept += b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert key.prefix.encode() in kept
    assert secret.encode() not in kept
    assert bytes.fromhex(secret) not in kept
    assert all(secret not in text for text in told)
    assert all(member.token_hash not in repr(current) for member in current.issued.values())


def test_a_revoked_key_is_refused_by_every_server_that_watches(location: str) -> None:
    rings: queue.Queue[KeyRing] = queue.Queue()
    with closing(open_database(location)) as here, closing(open_database(location)) as there:
        key, token = make(here)
        with there.read() as connection:
            seen = revision(connection)
        with closing(Watcher(there, seen, lambda: rings.put(ring(there)))):
            with here.write("tester") as write:
                keys.revoke(write, key.prefix)
            fresh = rings.get(timeout=20)
    with pytest.raises(Unauthorized) as refused:
        fresh.authenticate(token, now())
    assert (refused.value.why, refused.value.key_prefix) == ("revoked key", key.prefix)


def test_revoking_twice_changes_nothing_more(database: Database) -> None:
    key, _ = make(database)
    with database.write("tester") as write:
        first = keys.revoke(write, key.prefix)
    with database.write("another") as write:
        second = keys.revoke(write, key.prefix)
        assert not write.has_changes
    assert first == second == replace(key, revoked_at=first.revoked_at)
    assert first.revoked_at is not None
    assert actions(database) == [("key.create", "default", key.prefix), ("key.revoke", "default", key.prefix)]


def test_a_tenant_sees_and_ends_only_its_own_keys(database: Database) -> None:
    add_tenant(database, "acme")
    own, _ = make(database, replace(PLAIN, tenant="acme"))
    other, _ = make(database)
    operators, _ = make(database, replace(PLAIN, tenant=None))
    with database.read() as connection:
        assert keys.listing(connection, tenant="acme") == [own]
        assert {key.prefix for key in keys.listing(connection)} == {own.prefix, other.prefix, operators.prefix}
    for prefix in (other.prefix, operators.prefix, "0" * 12):
        with database.write("tester") as write, pytest.raises(KeyNotFound) as refused:
            keys.revoke(write, prefix, tenant="acme")
        assert str(refused.value).replace(prefix, "…") == (
            "there is no key '…'; `turnout keys list` shows the prefixes of those there are"
        )
    with database.write("tester") as write:
        assert keys.revoke(write, own.prefix, tenant="acme").revoked_at is not None


def test_a_key_that_makes_no_sense_is_refused(database: Database) -> None:
    for changes, param in SENSELESS:
        with database.write("tester") as write, pytest.raises(InvalidRequest) as refused:
            keys.create(write, replace(PLAIN, **changes))
        assert refused.value.param == param, changes
    assert actions(database) == []
    with database.read() as connection:
        assert connection.execute(select(tables.keys)).all() == []


def test_scopes_imply_no_others_and_patterns_are_all_tried() -> None:
    key = Key("", None, "", frozenset({"admin"}), ("legal", "support-*"), None, Limits(), "", 0, None, None)
    assert [scope for scope in keys.SCOPES if key.may(scope)] == ["admin"]
    names = ("legal", "legal2", "support-de", "Support-de")
    assert [name for name in names if key.may_use(name)] == ["legal", "support-de"]
