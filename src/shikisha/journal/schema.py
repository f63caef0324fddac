"""The version of a store's tables: created when fresh, brought up to date when older, refused when newer.

Invariant: revisions run under the store's write lock in one transaction, so of several processes that open a fresh or
an older store one does it and the others find it done. alembic is imported only when there is something to do (it
takes a quarter of a second), and by one thread at a time (its `op` is a global). Deliberately absent: downgrades.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from sqlalchemy import URL, Connection, inspect, text

from shikisha.errors import JournalError
from shikisha.journal.drivers import Driver
from shikisha.journal.stores import store

CURRENT = "0005"
_MIGRATIONS = Path(__file__).parents[1] / "migrations"
_ONE_AT_A_TIME = Lock()


async def prepare(url: URL, driver: Driver, patience: float) -> None:
    """Bring the store's tables to this version; JournalError when they are of a newer one."""
    if await driver.read(version) == CURRENT:
        return
    with ThreadPoolExecutor(1, "journal-schema") as thread:
        await asyncio.get_running_loop().run_in_executor(thread, _migrate, url, patience)


def version(connection: Connection) -> str | None:
    """Return the revision of the store's tables; None for a fresh store."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return None if found is None else str(found)


def _migrate(url: URL, patience: float) -> None:
    with _ONE_AT_A_TIME:
        store(url).migrate(url, patience, upgrade)


def upgrade(connection: Connection, folder: Path = _MIGRATIONS) -> None:
    """Run the revisions that the store lacks, in a transaction that holds its lock; JournalError for a newer store."""
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(folder))
    newest_first = list(scripts.walk_revisions())
    found = version(connection)
    known = [script.revision for script in newest_first]
    if found is not None and found not in known:
        raise JournalError(
            f"the journal's tables are of version {found}, which this Shikisha (up to {CURRENT}) does not know: "
            "a newer one wrote them"
        )
    missing = newest_first if found is None else newest_first[: known.index(found)]
    context = MigrationContext.configure(connection)
    with Operations.context(context):
        for script in reversed(missing):
            script.module.upgrade()
            context.stamp(scripts, script.revision)
