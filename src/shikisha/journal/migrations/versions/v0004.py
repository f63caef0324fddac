"""Poison runs: how a server ended, and how often a run was in flight, or was the only suspect, when one ended badly."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns that blame is counted in."""
    op.add_column("members", sa.Column("ended", sa.Text()))
    for name in ("ends", "strikes"):
        op.add_column("served", sa.Column(name, sa.Integer(), nullable=False, server_default=sa.text("0")))
