"""A fresh journal of SQLite's, of a file that the migrations made once in this process."""

import tempfile
from functools import cache
from pathlib import Path

from shikisha.journal.drivers import parse_store_url, store_module
from shikisha.journal.schema import upgrade_tables


@cache
def _fresh() -> bytes:
    """The file of a fresh journal, as the migrations make it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "journal.db"
        store_module(parse_store_url(str(file))).migrate(parse_store_url(str(file)), 5.0, upgrade_tables)
        return file.read_bytes()


def fresh(journal: str) -> str:
    """Lay a fresh journal at a path where there is none yet, which is quicker than to migrate one; return the path."""
    if "://" not in journal and not Path(journal).exists():
        Path(journal).write_bytes(_fresh())
    return journal
