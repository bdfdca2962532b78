"""API keys: making, listing and revoking them. What they may do is in the record; their text is nowhere."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from sqlalchemy import Connection, Row, Select, insert, select, update

from turnout.core.errors import InvalidRequest, KeyNotFound
from turnout.registry import audit, tables
from turnout.registry.database import Write
from turnout.registry.patterns import check_pattern, matches
from turnout.registry.tokens import hash_token, new_prefix, new_token

Scope = Literal["infer", "push", "promote", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

MAX_PATTERNS = 64
MAX_KEY_NAME = 128
MAX_REFERENCE = 512
MAX_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be asked with one key; None for as much as the server can do."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be made. Without a tenant it is an operator's, which is good for every tenant."""

    tenant: str | None
    name: str
    scopes: frozenset[Scope]
    patterns: tuple[str, ...] = ("*",)
    default_adapter: str | None = None
    limits: Limits = Limits()
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """Whose a key is and what it may do. Times are microseconds since 1970.

    A scope gives what it says and no other. `default_adapter` is the reference that stands in where a request names no
    model.
    """

    prefix: str
    tenant: str | None
    name: str
    scopes: frozenset[Scope]
    patterns: tuple[str, ...]
    default_adapter: str | None
    limits: Limits
    created_by: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None

    def may(self, scope: Scope) -> bool:
        """Whether the key has this scope."""
        return scope in self.scopes

    def may_use(self, adapter: str) -> bool:
        """Whether an adapter of this name fits any of the key's patterns."""
        return any(matches(pattern, adapter) for pattern in self.patterns)

    def state(self, now: int) -> Literal["live", "expired", "revoked"]:
        """Whether the key works at this time, and if not, why."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and now >= self.expires_at else "live"


def create(write: Write, new: NewKey) -> tuple[Key, str]:
    """Make a key; returns its record and its text, which cannot be had again. Raises InvalidRequest."""
    _check(new, write.now)
    if new.tenant is not None and not _tenant_exists(write.connection, new.tenant):
        raise InvalidRequest(f"there is no tenant {new.tenant!r}; make it first", param="tenant")
    key = Key(
        prefix=new_prefix(),
        tenant=new.tenant,
        name=new.name,
        scopes=new.scopes,
        patterns=new.patterns,
        default_adapter=new.default_adapter,
        limits=new.limits,
        created_by=write.actor,
        created_at=write.now,
        expires_at=new.expires_at,
        revoked_at=None,
    )
    token = new_token(key.prefix)
    rights = _rights(key)
    write.connection.execute(
        insert(tables.keys).values(
            prefix=key.prefix,
            token_hash=hash_token(token),
            tenant=key.tenant,
            created_by=key.created_by,
            created_at=key.created_at,
            **rights,
        )
    )
    audit.record(write, "key.create", key.tenant, key.prefix, **rights)
    write.changed()
    return key, token


def revoke(write: Write, prefix: str, *, tenant: str | None = None) -> Key:
    """End a key for good; one that has ended stays as it is. With `tenant`, only a key of that tenant.

    Raises KeyNotFound.
    """
    key = find(write.connection, prefix, tenant=tenant)
    if key.revoked_at is not None:
        return key
    write.connection.execute(update(tables.keys).where(tables.keys.c.prefix == prefix).values(revoked_at=write.now))
    audit.record(write, "key.revoke", key.tenant, prefix)
    write.changed()
    return find(write.connection, prefix)


def find(connection: Connection, prefix: str, *, tenant: str | None = None) -> Key:
    """The key with this prefix; with `tenant`, only if it is that tenant's. Raises KeyNotFound."""
    row = connection.execute(_of_tenant(tenant).where(tables.keys.c.prefix == prefix)).one_or_none()
    if row is None:
        raise no_key(prefix)
    return from_row(row)


def no_key(prefix: str) -> KeyNotFound:
    """The error for a key that does not exist, or that whoever asks is not to know of."""
    return KeyNotFound(f"there is no key {prefix!r}; `turnout keys list` shows the prefixes of those there are")


def listing(connection: Connection, *, tenant: str | None = None) -> list[Key]:
    """All keys, or those of one tenant, oldest first; expired and revoked ones too."""
    ordered = _of_tenant(tenant).order_by(tables.keys.c.created_at, tables.keys.c.prefix)
    return [from_row(row) for row in connection.execute(ordered)]


def from_row(row: Row[Any]) -> Key:
    """A row of the table as a record."""
    return Key(
        prefix=row.prefix,
        tenant=row.tenant,
        name=row.name,
        scopes=frozenset(row.scopes),
        patterns=tuple(row.patterns),
        default_adapter=row.default_adapter,
        limits=Limits(row.requests_per_minute, row.tokens_per_minute, row.concurrent_requests),
        created_by=row.created_by,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


def _of_tenant(tenant: str | None) -> Select[Any]:
    wanted = select(tables.keys)
    return wanted if tenant is None else wanted.where(tables.keys.c.tenant == tenant)


def _tenant_exists(connection: Connection, tenant: str) -> bool:
    return connection.execute(select(tables.tenants.c.name).where(tables.tenants.c.name == tenant)).first() is not None


def _rights(key: Key) -> dict[str, Any]:
    """The columns that say what a key is for, as they are kept and audited."""
    return {
        "name": key.name,
        "scopes": [scope for scope in SCOPES if scope in key.scopes],
        "patterns": list(key.patterns),
        "default_adapter": key.default_adapter,
        **asdict(key.limits),
        "expires_at": key.expires_at,
    }


def _check(new: NewKey, now: int) -> None:
    if not new.name.strip() or len(new.name) > MAX_KEY_NAME or not new.name.isprintable():
        raise InvalidRequest(f"a key's name has 1 to {MAX_KEY_NAME} visible characters", param="name")
    _check_scopes(new.scopes)
    if not 1 <= len(new.patterns) <= MAX_PATTERNS:
        raise InvalidRequest(f"a key has 1 to {MAX_PATTERNS} patterns; * allows every adapter", param="patterns")
    for pattern in new.patterns:
        check_pattern(pattern)
    if new.default_adapter is not None:
        _check_default(new.default_adapter, new.patterns)
    for name, limit in asdict(new.limits).items():
        if limit is not None and not 1 <= limit <= MAX_LIMIT:
            raise InvalidRequest(
                f"{name} must be from 1 to {MAX_LIMIT}, not {limit}; leave it out for none", param=name
            )
    if new.expires_at is not None and new.expires_at <= now:
        raise InvalidRequest("the key would have expired already; choose a time to come", param="expires_at")


def parse_scopes(names: Collection[str]) -> frozenset[Scope]:
    """The scopes with these names. Raises InvalidRequest for one that there is not."""
    unknown = sorted(set(names) - set(SCOPES))
    if unknown:
        raise InvalidRequest(f"there is no scope {unknown[0]!r}; the scopes are {', '.join(SCOPES)}", param="scopes")
    return frozenset(scope for scope in SCOPES if scope in names)


def _check_scopes(scopes: Collection[str]) -> None:
    known = ", ".join(SCOPES)
    if not parse_scopes(scopes):
        raise InvalidRequest(f"a key without a scope opens nothing; give one or more of {known}", param="scopes")


def _check_default(reference: str, patterns: tuple[str, ...]) -> None:
    # `legal@production` is an adapter's name with an alias, or a name as a whole; which, only routing knows.
    names = (reference, reference.rpartition("@")[0])
    if not reference or len(reference) > MAX_REFERENCE or not reference.isprintable():
        raise InvalidRequest(f"a default adapter is 1 to {MAX_REFERENCE} visible characters", param="default_adapter")
    if not any(matches(pattern, name) for pattern in patterns for name in names):
        raise InvalidRequest(
            f"the key's patterns do not allow its default adapter {reference!r}; add a pattern for it",
            param="default_adapter",
        )
