"""Served runs: what a run may have used besides what it is known to have used, apart from that."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns; how much of older runs' figures was uncertain is unknown."""
    count = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("served", sa.Column("uncertain_tokens", count, nullable=False, server_default="0"))
    op.add_column("served", sa.Column("uncertain_dollars", sa.Double(), nullable=False, server_default="0"))
