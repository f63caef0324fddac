"""The tables of a journal, and the migrations that create them or bring them up to date.

Invariants: rows of `events` are only ever added; those of `bodies` too, but for erasure. The one row of `head` has the
number of events and the last one's hash, and a writer that appends locks that row. `members` and `served` are the
servers' own (which are alive, which performs which run, what lists show) and may lag behind: a run is a fold over its
events. Migrations run under the store's write lock in one transaction, so of several processes that open a fresh or an
older store one migrates it and the others find it done; a newer store is refused. A test compares the tables below with
what the migrations make. Deliberately absent: downgrades, and what a run came to anywhere but in its events.
"""

import asyncio
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

from shikisha.core.errors import JournalError
from shikisha.journal.drivers import JournalDriver, store_module

CURRENT_REVISION = "0006"
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
            script.module.upgrade()
            context.stamp(scripts, script.revision)


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
