"""The registry's first tables, with their one row of state and the tenant of those who name none."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "audit",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(length=128), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=True),
        sa.Column("subject", sa.String(length=512), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_audit")),
    )
    op.create_table(
        "lineage",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("request_id", sa.String(length=128), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("key_prefix", sa.String(length=16), nullable=True),
        sa.Column("owner", sa.String(length=63), nullable=True),
        sa.Column("adapter", sa.String(length=255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("model_revision", sa.String(length=71), nullable=False),
        sa.Column("tokenizer_revision", sa.String(length=71), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("timings", sa.JSON(), nullable=False),
        sa.Column("prompt", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lineage")),
    )
    op.create_index(op.f("ix_lineage_at"), "lineage", ["at"], unique=False)
    op.create_index(op.f("ix_lineage_digest_at"), "lineage", ["digest", "at"], unique=False)
    op.create_index(op.f("ix_lineage_request_id"), "lineage", ["request_id"], unique=False)
    op.create_table(
        "state",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("audit_sequence", sa.BigInteger(), nullable=False),
        sa.Column("audit_hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_state")),
    )
    op.create_table(
        "tenants",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("signed_aliases", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenants")),
    )
    op.create_table(
        "adapters",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("public", sa.Boolean(), nullable=False),
        sa.Column("last_number", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_adapters_tenant")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_adapters")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_adapters_tenant_name")),
    )
    op.create_index(op.f("ix_adapters_revision"), "adapters", ["revision"], unique=False)
    op.create_table(
        "keys",
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=True),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("patterns", sa.JSON(), nullable=False),
        sa.Column("default_adapter", sa.String(length=512), nullable=True),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("tokens_per_minute", sa.Integer(), nullable=True),
        sa.Column("concurrent_requests", sa.Integer(), nullable=True),
        sa.Column("created_by", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_keys_tenant")),
        sa.PrimaryKeyConstraint("prefix", name=op.f("pk_keys")),
    )
    op.create_index(op.f("ix_keys_tenant"), "keys", ["tenant"], unique=False)
    op.create_table(
        "aliases",
        sa.Column("adapter_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("alias", sa.String(length=63), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["adapter_id"], ["adapters.id"], name=op.f("fk_aliases_adapter_id")),
        sa.PrimaryKeyConstraint("adapter_id", "alias", name=op.f("pk_aliases")),
    )
    op.create_table(
        "promotions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("adapter_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("alias", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("from_number", sa.Integer(), nullable=True),
        sa.Column("to_number", sa.Integer(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("requirements", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["adapter_id"], ["adapters.id"], name=op.f("fk_promotions_adapter_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_promotions")),
    )
    op.create_index(op.f("ix_promotions_adapter_id"), "promotions", ["adapter_id"], unique=False)
    op.create_table(
        "shares",
        sa.Column("adapter_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(["adapter_id"], ["adapters.id"], name=op.f("fk_shares_adapter_id")),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_shares_tenant")),
        sa.PrimaryKeyConstraint("adapter_id", "tenant", name=op.f("pk_shares")),
    )
    op.create_table(
        "versions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("adapter_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("semantic_version", sa.String(length=128), nullable=True),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("model_revision", sa.String(length=71), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("claims", sa.JSON(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("signature", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("flags", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["adapter_id"], ["adapters.id"], name=op.f("fk_versions_adapter_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_versions")),
        sa.UniqueConstraint("adapter_id", "digest", name=op.f("uq_versions_adapter_id_digest")),
        sa.UniqueConstraint("adapter_id", "number", name=op.f("uq_versions_adapter_id_number")),
        sa.UniqueConstraint("adapter_id", "semantic_version", name=op.f("uq_versions_adapter_id_semantic_version")),
    )
    state = sa.table("state", *map(sa.column, ("id", "revision", "audit_sequence", "audit_hash")))
    op.bulk_insert(state, [{"id": 1, "revision": 1, "audit_sequence": 0, "audit_hash": "0" * 64}])
    tenants = sa.table("tenants", sa.column("name"), sa.column("created_at"), sa.column("signed_aliases", sa.JSON))
    op.bulk_insert(tenants, [{"name": "default", "created_at": time.time_ns() // 1000, "signed_aliases": []}])
