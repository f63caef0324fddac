"""The first schema: events in a hash chain, bodies by content hash, the head of the chain."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables and the head of an empty chain."""
    count = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "events",
        sa.Column("seq", count, primary_key=True, autoincrement=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
    )
    op.create_index("events_run", "events", ["run", "seq"])
    started = sa.text("kind = 'run.started'")
    op.create_index("events_started", "events", ["seq"], sqlite_where=started, postgresql_where=started)
    op.create_table(
        "bodies",
        sa.Column("hash", sa.Text(), primary_key=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    head = op.create_table(
        "head",
        sa.Column("count", count, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
    )
    op.bulk_insert(head, [{"count": 0, "hash": "0" * 64}])
