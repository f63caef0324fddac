"""Governance records in the hash chain: what the tables hold now is chained as it is found."""

from alembic import op

from shikisha.journal.records import chain_present

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Chain the rows that are there."""
    chain_present(op.get_bind())
