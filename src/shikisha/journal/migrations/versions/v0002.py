"""Serving: servers that share the journal, the runs they perform, and whose a body is."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the servers' tables, and note from now on which run a body is of."""
    count = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("bodies", sa.Column("run", sa.Text()))
    op.add_column("bodies", sa.Column("shared", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "applied",
        sa.Column("writer", sa.Text(), primary_key=True),
        sa.Column("batch", count, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
    )
    op.create_table(
        "members",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("alive_until", sa.Double(), nullable=False),
        sa.Column("began", sa.Double(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
    )
    needed = ("state", "tenant", "key", "api", "model", "conductor")
    texts = ("request_hash", "metadata", "excerpt", "domain", "labels")
    op.create_table(
        "served",
        sa.Column("run", sa.Text(), primary_key=True),
        sa.Column("owner", sa.Text()),
        *(sa.Column(name, sa.Text(), nullable=False) for name in needed),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("updated", sa.Double(), nullable=False),
        sa.Column("wire", sa.Text(), nullable=False),
        sa.Column("idempotency", sa.Text()),
        *(sa.Column(name, sa.Text(), nullable=False) for name in texts),
        sa.Column("detached", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("tokens", count, nullable=False),
        sa.Column("dollars", sa.Double()),
        sa.Column("stopping", sa.Boolean(), nullable=False),
        sa.Column("erased", sa.Double()),
    )
    op.create_index("served_created", "served", ["created", "run"])
    for name in ("tenant", "key", "state"):
        op.create_index(f"served_{name}", "served", [name, "created", "run"])
    op.create_index("served_once", "served", ["key", "idempotency"], unique=True)
