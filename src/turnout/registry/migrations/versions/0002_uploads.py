"""Which key has uploaded which bytes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "uploads",
        sa.Column("key_prefix", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("uploaded_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_prefix", "digest", name=op.f("pk_uploads")),
    )
    op.create_index(op.f("ix_uploads_uploaded_at"), "uploads", ["uploaded_at"])
