"""An index of runs: what each came to, which workers it called, and its texts for searches. It starts out empty.

`shikisha.journal.run_index` fills it from the events in small steps, older events too, so this takes no time.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the tables, and what searches them in this kind of store."""
    count = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "runs",
        sa.Column("run", sa.Text(), primary_key=True),
        sa.Column("seq", count, nullable=False),
        sa.Column("parent", sa.Text()),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("root", "tenant", "key", "model", "session")),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("conductor", "status", "excerpt", "domain")),
        sa.Column("began", sa.Double(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("pace", sa.Integer(), nullable=False),
        sa.Column("tokens", count, nullable=False),
        sa.Column("dollars", sa.Double()),
        sa.Column("uncertain_dollars", sa.Double(), nullable=False),
        sa.Column("score", sa.Double()),
        sa.Column("searchable", sa.Integer(), nullable=False),
    )
    op.create_index("runs_status", "runs", ["status", "seq"])
    op.create_index("runs_began", "runs", ["began"])
    op.create_index("runs_tenant", "runs", ["tenant", "began"])
    op.create_index("runs_session", "runs", ["session", "began"])
    op.create_table(
        "run_workers",
        sa.Column("run", sa.Text(), primary_key=True),
        sa.Column("worker", sa.Text(), primary_key=True),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("good", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("pace", sa.Integer(), nullable=False),
        sa.Column("tokens", count, nullable=False),
        sa.Column("dollars", sa.Double()),
    )
    op.create_index("run_workers_worker", "run_workers", ["worker", "run"])
    sums = ("tokens", "nanodollars")
    op.create_table(
        "run_days",
        sa.Column("day", sa.Integer(), primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text(), primary_key=True) for name in ("tenant", "key", "model")),
        sa.Column("pace", sa.Integer(), primary_key=True, autoincrement=False),
        *(sa.Column(name, count, nullable=False) for name in ("runs", "done", "failed", "graded", "good", "unpriced")),
        *(sa.Column(name, count, nullable=False) for name in sums),
    )
    op.create_table(
        "worker_days",
        sa.Column("day", sa.Integer(), primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text(), primary_key=True) for name in ("tenant", "worker")),
        sa.Column("pace", sa.Integer(), primary_key=True, autoincrement=False),
        *(sa.Column(name, count, nullable=False) for name in ("calls", "good", "unpriced", *sums)),
    )
    op.create_table(
        "run_texts",
        sa.Column("id", count, primary_key=True),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
    )
    op.create_index("run_texts_run", "run_texts", ["run"])
    indexed = op.create_table("indexed", sa.Column("count", count, nullable=False))
    op.bulk_insert(indexed, [{"count": 0}])
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        words = "regexp_replace(text, '[^[:alnum:]]+', ' ', 'g')"
        op.execute(f"CREATE INDEX run_texts_words ON run_texts USING gin (to_tsvector('simple', {words}))")
    elif connection.execute(sa.text("SELECT sqlite_compileoption_used('ENABLE_FTS5')")).scalar_one():
        # No positions are kept (detail=column), so that a forgotten entry could not be read as a sentence.
        op.execute(
            "CREATE VIRTUAL TABLE run_words USING fts5(text, scope, content='run_texts', content_rowid='id', "
            "detail=column, columnsize=0, tokenize='unicode61 remove_diacritics 2')"
        )
