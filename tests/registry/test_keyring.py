"""Whose a token is; and that a wrong one learns nothing from the refusal."""

import hmac
from dataclasses import replace
from types import MappingProxyType

import pytest

from turnout.core.errors import Unauthorized
from turnout.registry import keyring
from turnout.registry.keyring import KeyRing, Member, static_key
from turnout.registry.keys import SCOPES, Key, Limits
from turnout.registry.tokens import hash_token, new_prefix, new_token

NOW = 1_000_000


def member(**changes: object) -> tuple[Member, str]:
    key = Key(new_prefix(), "acme", "ci", frozenset({"infer"}), ("*",), None, Limits(), "tester", 0, None, None)
    token = new_token(key.prefix)
    return Member(replace(key, **changes), hash_token(token)), token  # type: ignore[arg-type]


LIVE, LIVE_TOKEN = member(expires_at=NOW + 1)
EXPIRED, EXPIRED_TOKEN = member(expires_at=NOW)
REVOKED, REVOKED_TOKEN = member(revoked_at=NOW - 1)
API = static_key("plain-words", prefix="env:api", tenant="default", scopes=frozenset({"infer"}))
ADMIN = static_key("other-words", prefix="env:admin", tenant=None, scopes=frozenset(SCOPES))
RING = KeyRing(MappingProxyType({found.key.prefix: found for found in (LIVE, EXPIRED, REVOKED)}), static=(API, ADMIN))

REFUSED = {
    "unknown prefix": (new_token(new_prefix()), "unknown key", None),
    "wrong secret": (new_token(LIVE.key.prefix), "wrong secret", LIVE.key.prefix),
    "expired": (EXPIRED_TOKEN, "expired key", EXPIRED.key.prefix),
    "revoked": (REVOKED_TOKEN, "revoked key", REVOKED.key.prefix),
    "empty": ("", "no key", None),
    "prefix alone": (f"tk_{LIVE.key.prefix}_", "unknown key", None),
    "hash": (LIVE.token_hash, "unknown key", None),
    "capitals": (LIVE_TOKEN.upper(), "unknown key", None),
    "a line more": (LIVE_TOKEN + "\n", "unknown key", None),
    "no ASCII": ("schlüssel", "unknown key", None),
    "part of a static key": ("plain-word", "unknown key", None),
}


def test_a_token_is_its_keys() -> None:
    assert RING.authenticate(LIVE_TOKEN, NOW) == LIVE.key
    assert RING.authenticate("plain-words", NOW) == API.key
    assert RING.authenticate("other-words", NOW) == ADMIN.key


def test_a_key_ends_at_its_time() -> None:
    with pytest.raises(Unauthorized):
        RING.authenticate(LIVE_TOKEN, NOW + 1)


@pytest.mark.parametrize(("token", "why", "prefix"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_tell_the_audit_why_and_the_caller_nothing(token: str, why: str, prefix: str | None) -> None:
    with pytest.raises(Unauthorized) as refused:
        RING.authenticate(token, NOW)
    assert str(refused.value) == "a valid key is needed: send 'Authorization: Bearer <key>'"
    assert (refused.value.why, refused.value.key_prefix) == (why, prefix)


def test_every_token_is_compared_with_as_many_hashes_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(sent: str, known: str) -> bool:
        compared.append((len(sent), len(known)))
        return hmac.compare_digest(sent, known)

    monkeypatch.setattr(keyring, "hmac", type("Counted", (), {"compare_digest": staticmethod(compare)}))
    for token in (LIVE_TOKEN, "plain-words", "other-words"):
        RING.authenticate(token, NOW)
    for token, _, _ in REFUSED.values():
        with pytest.raises(Unauthorized):
            RING.authenticate(token, NOW)
    assert compared == [(64, 64)] * 3 * (3 + len(REFUSED))


def test_of_static_keys_with_one_text_the_later_counts() -> None:
    admin = static_key("plain-words", prefix="env:admin", tenant=None, scopes=frozenset(SCOPES))
    assert KeyRing({}, (API, admin)).authenticate("plain-words", NOW) == admin.key


def test_a_static_key_may_look_like_an_issued_one() -> None:
    token = new_token(LIVE.key.prefix)
    static = static_key(token, prefix="env:api", tenant="default", scopes=frozenset({"infer"}))
    assert replace(RING, static=(static,)).authenticate(token, NOW) == static.key
