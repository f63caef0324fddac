"""Virtual keys: what each may do and use, what it used, what servers were granted of that, logins, the audit."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
_CAPS = ("dollars", "tokens", "requests", "dollars_per_day", "tokens_per_day", "requests_per_day")
_SUMS = ("dollars", "tokens", "requests")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), primary_key=True),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("hash", "name", "tenant", "scopes")),
        *(sa.Column(name, sa.Text()) for name in ("workers", "conductors")),
        sa.Column("labels", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Double()) for name in ("expires", "revoked")),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger()) for name in (*_CAPS, "requests_per_minute", "runs_at_once")),
    )
    op.create_table(
        "spend",
        *(sa.Column(name, sa.Text(), primary_key=True) for name in ("key", "day")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _SUMS),
    )
    op.create_table(
        "grants",
        *(sa.Column(name, sa.Text(), primary_key=True) for name in ("key", "day", "member")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _SUMS),
        *(sa.Column(f"used_{name}", sa.BigInteger(), nullable=False) for name in _SUMS),
    )
    op.create_index("grants_member", "grants", ["member"])
    op.create_table(
        "sessions",
        sa.Column("hash", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
    )
    op.create_index("sessions_key", "sessions", ["key"])
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("at", sa.Double(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("actor", "action", "target", "details")),
    )
