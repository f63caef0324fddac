"""The index of runs: which grades are a language model's, apart from what people and programs found. Saved views."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

# The index is made again from the first of a model's grades on, page by page as it always is; what it has stays until
# then. Grades before that are nobody's word but a person's or a program's.
_FIRST = """
UPDATE indexed SET count = COALESCE((
  SELECT MIN(events.seq) FROM events JOIN runs ON runs.run = events.run
  WHERE runs.score IS NOT NULL AND events.data LIKE '%"judged"_true%' AND events.seq < indexed.count
), count)
"""


def upgrade() -> None:
    """Add the columns, and have the index read again what a model graded."""
    count = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("runs", sa.Column("judged", sa.Boolean(), nullable=False, server_default=sa.false()))
    for name in ("judged", "judged_good"):
        op.add_column("run_days", sa.Column(name, count, nullable=False, server_default="0"))
    op.execute(_FIRST)
    key = [sa.Column(name, sa.Text(), nullable=False) for name in ("tenant", "name", "address")]
    op.create_table("views", *key, sa.PrimaryKeyConstraint("tenant", "name"))
