"""All keys as one immutable picture, which answers whose a token is without asking the database."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlalchemy import Connection, select

from turnout.core.errors import Unauthorized
from turnout.registry import tables
from turnout.registry.keys import Key, Limits, Scope, from_row
from turnout.registry.tokens import hash_token, new_prefix, new_token, prefix_of


@dataclass(frozen=True, slots=True)
class Member:
    """A key and what is kept of its text."""

    key: Key
    token_hash: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """`issued`: the registry's keys by prefix, those that have ended too. `static`: keys from the server's settings."""

    issued: Mapping[str, Member]
    static: tuple[Member, ...] = ()

    @property
    def guards_inference(self) -> bool:
        """Whether inference takes a key; once there was one it does, for ending it must not open the server."""
        return bool(self.issued) or any(
            member.key.may("infer") and not member.key.may("admin") for member in self.static
        )

    def authenticate(self, token: str, now: int) -> Key:
        """The key whose text this is, if it works at this time (microseconds since 1970).

        Raises Unauthorized with one and the same message whatever is wrong. The work is the same too, down to a
        comparison with a hash that nothing has, and tells by its time nothing about any secret.
        """
        sent = hash_token(token)
        prefix = prefix_of(token)
        issued = self.issued.get(prefix, _NOBODY) if prefix is not None else _NOBODY
        found = None
        for member in (issued, *self.static):
            if hmac.compare_digest(sent, member.token_hash):
                found = member.key
        if found is None:
            known = issued is not _NOBODY
            why = "wrong secret" if known else "unknown key" if token else "no key"
            raise _unauthorized(why, prefix if known else None)
        if (state := found.state(now)) != "live":
            raise _unauthorized(f"{state} key", found.prefix)
        return found


def read_keys(connection: Connection, static: tuple[Member, ...] = ()) -> KeyRing:
    """The registry's keys as they are now, with the static ones beside them."""
    rows = connection.execute(select(tables.keys))
    return KeyRing(MappingProxyType({row.prefix: Member(from_row(row), row.token_hash) for row in rows}), static)


def static_key(token: str, *, prefix: str, tenant: str | None, scopes: frozenset[Scope]) -> Member:
    """A key that the server's settings hold, without limits or end. `prefix` is its name in records.

    Of two with the same text the later in the ring counts.
    """
    key = Key(prefix, tenant, prefix, scopes, ("*",), None, Limits(), "settings", 0, None, None)
    return Member(key, hash_token(token))


def _unauthorized(why: str, key_prefix: str | None) -> Unauthorized:
    message = "a valid key is needed: send 'Authorization: Bearer <key>'"
    return Unauthorized(message, why=why, key_prefix=key_prefix)


_NOBODY = Member(
    Key("", None, "", frozenset(), (), None, Limits(), "", 0, expires_at=0, revoked_at=0),
    # Of a text that nobody has seen.
    hash_token(new_token(new_prefix())),
)
