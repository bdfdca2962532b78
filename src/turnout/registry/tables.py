"""The registry's tables. Times are microseconds since 1970; a `detail` or list is JSON.

What these say today, the migrations build up step by step; a test holds the two equal.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Id = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only in a column of exactly this type."""

state = Table(
    "state",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="single"), primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    Column("audit_sequence", BigInteger, nullable=False),
    Column("audit_hash", String(64), nullable=False),
)
"""One row, which every writer locks first: `revision` counts changes, the rest is the end of the audit's chain."""

tenants = Table(
    "tenants",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("signed_aliases", JSON, nullable=False),
)
"""`signed_aliases`: the aliases that only a signed version may have."""

adapters = Table(
    "adapters",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant", ForeignKey("tenants.name"), nullable=False),
    Column("name", String(255), nullable=False),
    Column("public", Boolean, nullable=False),
    Column("last_number", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("deleted_at", BigInteger),
    Column("revision", BigInteger, nullable=False, index=True),
    UniqueConstraint("tenant", "name"),
)
"""A deleted adapter's row stays, so that a number never stands for other bytes. `revision`: the registry's, when it,
its versions, aliases or shares last changed."""

shares = Table(
    "shares",
    metadata,
    Column("adapter_id", ForeignKey("adapters.id"), primary_key=True),
    Column("tenant", ForeignKey("tenants.name"), primary_key=True),
)
"""The tenants an adapter is shared with, besides its owner."""

versions = Table(
    "versions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("adapter_id", ForeignKey("adapters.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("semantic_version", String(128)),
    Column("digest", String(71), nullable=False),
    Column("model_revision", String(71), nullable=False),
    Column("files", JSON, nullable=False),
    Column("facts", JSON, nullable=False),
    Column("claims", JSON, nullable=False),
    Column("parent", Integer),
    Column("note", String, nullable=False),
    Column("signature", JSON(none_as_null=True)),
    Column("flags", JSON, nullable=False),
    Column("created_by", String(128), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("deleted_at", BigInteger),
    UniqueConstraint("adapter_id", "number"),
    UniqueConstraint("adapter_id", "semantic_version"),
    UniqueConstraint("adapter_id", "digest"),
)
"""`files`: name to [digest, bytes]. `facts`: what was measured at push (configuration, ranks, bytes, norms).
`claims`: what the pusher says (metrics, training data, hyper-parameters, licence, owner)."""

aliases = Table(
    "aliases",
    metadata,
    Column("adapter_id", ForeignKey("adapters.id"), primary_key=True),
    Column("alias", String(63), primary_key=True),
    Column("number", Integer, nullable=False),
)

uploads = Table(
    "uploads",
    metadata,
    Column("key_prefix", String(16), primary_key=True),
    Column("digest", String(71), primary_key=True),
    Column("uploaded_at", BigInteger, nullable=False, index=True),
)
"""Which key has shown the artefact store the bytes with which digest: to know a digest is not to have its bytes."""

promotions = Table(
    "promotions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("adapter_id", ForeignKey("adapters.id"), nullable=False, index=True),
    Column("alias", String(63), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("from_number", Integer),
    Column("to_number", Integer),
    Column("reason", String, nullable=False),
    Column("requirements", JSON, nullable=False),
    Column("created_by", String(128), nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
"""Every move of every alias, in order. `kind`: promote, rollback or remove."""

keys = Table(
    "keys",
    metadata,
    Column("prefix", String(16), primary_key=True),
    Column("token_hash", String(64), nullable=False),
    Column("tenant", ForeignKey("tenants.name"), index=True),
    Column("name", String(128), nullable=False),
    Column("scopes", JSON, nullable=False),
    Column("patterns", JSON, nullable=False),
    Column("default_adapter", String(512)),
    Column("requests_per_minute", Integer),
    Column("tokens_per_minute", Integer),
    Column("concurrent_requests", Integer),
    Column("created_by", String(128), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
)
"""Of a key's text only the prefix and the SHA-256 of the whole are kept. Without a tenant it is an operator's."""

audit = Table(
    "audit",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("action", String(64), nullable=False),
    Column("tenant", String(63)),
    Column("subject", String(512), nullable=False),
    Column("detail", JSON, nullable=False),
    Column("hash", String(64), nullable=False),
)
"""Append-only; `hash` is over the entry and the hash before it."""

lineage = Table(
    "lineage",
    metadata,
    Column("id", Id, primary_key=True),
    Column("request_id", String(128), nullable=False, index=True),
    Column("at", BigInteger, nullable=False, index=True),
    Column("tenant", String(63), nullable=False),
    Column("key_prefix", String(16)),
    Column("owner", String(63)),
    Column("adapter", String(255), nullable=False),
    Column("number", Integer, nullable=False),
    Column("digest", String(71), nullable=False),
    Column("model_revision", String(71), nullable=False),
    Column("tokenizer_revision", String(71), nullable=False),
    Column("reason", String, nullable=False),
    Column("outcome", String(32), nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("timings", JSON, nullable=False),
    Column("prompt", JSON(none_as_null=True)),
)
"""One row for each served request. `prompt` only where the operator wants prompts kept; as JSON, for PostgreSQL's plain
strings cannot hold the character U+0000, and prompts can."""

Index(None, lineage.c.digest, lineage.c.at)
