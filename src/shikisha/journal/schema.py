"""The tables of a journal, and the migrations that create them or bring them up to date.

Invariants: rows of `events`, each of one event or several (`codec.bundle_events`), are only ever added; those of
`bodies` too, but for erasure. The one row of `head` has the number of rows and the last one's hash, and a writer that
appends locks that row. `members`, `served` and `views` are the servers' own (which are alive, which performs which run,
what lists show) and may lag behind: a run is a fold over its events. `runs`, `run_workers`, their sums by day and
`run_texts` are an index of the events before place `indexed`, made and kept by `run_index`; without it everything is
still there, only slower. Migrations run under the store's write lock in one transaction, so of several processes that
open a fresh or an older store one migrates it and the others find it done; a newer store is refused. A test compares
the tables below with what the migrations make. Deliberately absent: downgrades, and anything in the index that its
events do not say.
"""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from sqlalchemy import (
    URL,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
    inspect,
    literal_column,
    text,
)
from sqlalchemy.exc import DBAPIError

from shikisha.core.errors import JournalError
from shikisha.journal.chain import execute_rows
from shikisha.journal.drivers import JournalDriver, store_module
from shikisha.journal.stored_events import CURRENT_REVISION

_MIGRATIONS = Path(__file__).parent / "migrations"
_ONE_AT_A_TIME = Lock()  # alembic's `op` is a global of the process


async def prepare_tables(url: URL, driver: JournalDriver, patience: float) -> None:
    """Bring the store's tables to this version; JournalError when they are of a newer one."""
    if await driver.read(table_revision) == CURRENT_REVISION:
        return
    with ThreadPoolExecutor(1, "journal-schema") as thread:
        await asyncio.get_running_loop().run_in_executor(thread, _migrate, url, patience)


def table_revision(connection: Connection) -> str | None:
    """Return the revision of the store's tables; None for a fresh store."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return None if found is None else str(found)


def _migrate(url: URL, patience: float) -> None:
    with _ONE_AT_A_TIME:
        store_module(url).migrate(url, patience, upgrade_tables)


def upgrade_tables(connection: Connection, folder: Path = _MIGRATIONS) -> None:
    """Run the revisions that the store lacks, in a transaction that holds its lock; JournalError for a newer store."""
    # alembic takes a quarter of a second to import, and most stores are up to date.
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(folder))
    newest_first = list(scripts.walk_revisions())
    found = table_revision(connection)
    known = [script.revision for script in newest_first]
    if found is not None and found not in known:
        raise JournalError(
            f"the journal's tables are of version {found}, and this Shikisha knows them up to {CURRENT_REVISION}: "
            "a newer one wrote them"
        )
    missing = newest_first if found is None else newest_first[: known.index(found)]
    context = MigrationContext.configure(connection)
    with Operations.context(context):
        for script in reversed(missing):
            try:
                script.module.upgrade()
            except DBAPIError as error:
                if not _says_that_tables_differ(error):
                    raise
                raise JournalError(
                    f"the journal's tables say that they are of version {found or 'none'}, and the step to "
                    f"{script.revision} does not fit them ({error.orig}): something else migrated them, or only half "
                    "of a copy was taken. Nothing was changed here: go on from a whole copy"
                ) from error
            context.stamp(scripts, script.revision)


def _says_that_tables_differ(error: DBAPIError) -> bool:
    """Whether a statement was refused for the tables that it found, and not because the store is away or locked."""
    if isinstance(error.orig, sqlite3.Error):
        return error.orig.sqlite_errorcode == sqlite3.SQLITE_ERROR
    return str(getattr(error.orig, "sqlstate", None)).startswith("42")  # as in "42P07": the table is there already


METADATA = MetaData()
_COUNT = BigInteger().with_variant(Integer, "sqlite")  # in SQLite only an INTEGER key is the row's own number

EVENTS = Table(
    "events",
    METADATA,
    Column("seq", _COUNT, primary_key=True, autoincrement=False),
    Column("run", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("data", Text, nullable=False),
    Column("hash", Text, nullable=False),
)
Index("events_run", EVENTS.c.run, EVENTS.c.seq)
STARTED = EVENTS.c.kind == literal_column("'run.started'")
Index("events_started", EVENTS.c.seq)  # of started runs only; saying so here would import every dialect named

BODIES = Table(
    "bodies",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("run", Text),  # the first that referred to it; NULL: of before this was noted
    Column("shared", Boolean, nullable=False, server_default=false()),  # whether another did too
)

HEAD = Table(
    "head",
    METADATA,
    Column("count", _COUNT, nullable=False),
    Column("hash", Text, nullable=False),
)

APPLIED = Table(  # the last batch of works alone that each writer stored: a retry looks whether it was
    "applied",
    METADATA,
    Column("writer", Text, primary_key=True),
    Column("batch", _COUNT, nullable=False),
    Column("at", Double, nullable=False),
)

MEMBERS = Table(
    "members",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("alive_until", Double, nullable=False),  # by the store's own clock
    Column("began", Double, nullable=False),
    Column("place", Text, nullable=False),
    Column("ended", Text),  # how (`store.blame`); NULL: it lives, or nobody has judged its end yet
)

SERVED = Table(
    "served",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("owner", Text),
    Column("state", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("api", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("conductor", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("wire", Text, nullable=False),
    Column("idempotency", Text),
    Column("request_hash", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("excerpt", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("detached", Boolean, nullable=False),
    Column("status", Text, nullable=False),
    Column("tokens", _COUNT, nullable=False),
    Column("dollars", Double),
    Column("stopping", Boolean, nullable=False),  # someone wants its owner to stop it
    Column("erased", Double),
    Column("ends", Integer, nullable=False, server_default=text("0")),  # unclean ends of servers that performed it
    Column("strikes", Integer, nullable=False, server_default=text("0")),  # those for which it was the only suspect
    Column("uncertain_tokens", _COUNT, nullable=False, server_default="0"),
    Column("uncertain_dollars", Double, nullable=False, server_default="0"),
)
Index("served_created", SERVED.c.created, SERVED.c.run)
Index("served_tenant", SERVED.c.tenant, SERVED.c.created, SERVED.c.run)
Index("served_key", SERVED.c.key, SERVED.c.created, SERVED.c.run)
Index("served_state", SERVED.c.state, SERVED.c.created, SERVED.c.run)
Index("served_once", SERVED.c.key, SERVED.c.idempotency, unique=True)

VIEWS = Table(  # pages with their filters, which the logins of a tenant share
    "views",
    METADATA,
    Column("tenant", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("address", Text, nullable=False),
)

RUNS = Table(  # an index: see `run_index`
    "runs",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("seq", _COUNT, nullable=False),  # the place of its first event
    Column("parent", Text),
    Column("root", Text, nullable=False),
    Column("tenant", Text, nullable=False),  # this, key, model, session: "" where no server was asked for it
    Column("key", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("conductor", Text, nullable=False),
    Column("status", Text, nullable=False),  # "": its events make no run
    Column("excerpt", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("began", Double, nullable=False),
    Column("day", Integer, nullable=False),  # since 1970, UTC
    Column("seconds", Double, nullable=False),
    Column("pace", Integer, nullable=False),  # the seconds on a logarithmic scale, for quantiles by counting
    Column("tokens", _COUNT, nullable=False),
    Column("dollars", Double),
    Column("uncertain_dollars", Double, nullable=False),
    Column("score", Double),
    Column("judged", Boolean, nullable=False, server_default=false()),  # the score is a language model's
    Column("searchable", Integer, nullable=False),  # how many of its texts `run_texts` has
)
Index("runs_status", RUNS.c.status, RUNS.c.seq)
Index("runs_began", RUNS.c.began)
Index("runs_tenant", RUNS.c.tenant, RUNS.c.began)
Index("runs_session", RUNS.c.session, RUNS.c.began)

RUN_WORKERS = Table(
    "run_workers",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("calls", Integer, nullable=False),
    Column("good", Integer, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("pace", Integer, nullable=False),  # of the mean seconds of a good call; NO_PACE without any
    Column("tokens", _COUNT, nullable=False),
    Column("dollars", Double),
)
Index("run_workers_worker", RUN_WORKERS.c.worker, RUN_WORKERS.c.run)

RUN_DAYS = Table(  # sums over `runs`: root runs that a server performed
    "run_days",
    METADATA,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("pace", Integer, primary_key=True, autoincrement=False),
    *(Column(name, _COUNT, nullable=False) for name in ("runs", "done", "failed", "graded", "good", "unpriced")),
    Column("tokens", _COUNT, nullable=False),
    Column("nanodollars", _COUNT, nullable=False),  # whole, so that what is taken out again leaves exactly nothing
    *(Column(name, _COUNT, nullable=False, server_default=text("0")) for name in ("judged", "judged_good")),
)

WORKER_DAYS = Table(  # sums over `run_workers`, of runs that a server performed and their child runs
    "worker_days",
    METADATA,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("pace", Integer, primary_key=True, autoincrement=False),
    *(Column(name, _COUNT, nullable=False) for name in ("calls", "good", "unpriced", "tokens", "nanodollars")),
)

RUN_TEXTS = Table(
    "run_texts",
    METADATA,
    Column("id", _COUNT, primary_key=True),
    Column("run", Text, nullable=False),
    Column("root", Text, nullable=False),
    Column("scope", Text, nullable=False),  # a word that stands for the tenant
    Column("part", Text, nullable=False),  # task, step, or answer
    Column("text", Text, nullable=False),
)
Index("run_texts_run", RUN_TEXTS.c.run)

INDEXED = Table("indexed", METADATA, Column("count", _COUNT, nullable=False))


def add_rows(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, object]], *, missing: bool = False
) -> None:
    """Add rows, each with the same columns; `missing`: unless they are there."""
    if rows:
        names = tuple(rows[0])
        sql = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
        sql += " ON CONFLICT DO NOTHING" if missing else ""
        execute_rows(connection, sql, [tuple([row[name] for name in names]) for row in rows])
