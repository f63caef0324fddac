"""Phones: passkeys of keys, subscriptions to push messages, and codes that count once."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the tables."""
    count = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "passkeys",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("sign_count", count, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("used", sa.Double()),
    )
    op.create_index("passkeys_key", "passkeys", ["key"])
    op.create_table(
        "codes",
        sa.Column("hash", sa.Text(), primary_key=True),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("nonce", sa.LargeBinary(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
    )
    op.create_index("codes_key", "codes", ["key", "purpose"])
    op.create_table(
        "push_subscriptions",
        sa.Column("hash", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("p256dh", sa.LargeBinary(), nullable=False),
        sa.Column("auth", sa.LargeBinary(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
    )
    op.create_index("push_subscriptions_key", "push_subscriptions", ["key"])
