"""A fresh journal of SQLite's, of a file that the migrations made once in this process."""

import tempfile
from functools import cache
from pathlib import Path

from shikisha.journal.schema import upgrade
from shikisha.journal.stores import locate, store


@cache
def _fresh() -> bytes:
    """The file of a fresh journal, as the migrations make it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "journal.db"
        store(locate(str(file))).migrate(locate(str(file)), 5.0, upgrade)
        return file.read_bytes()


def fresh(journal: str) -> str:
    """Lay a fresh journal at a path where there is none yet, which is quicker than to migrate one; return the path."""
    if "://" not in journal and not Path(journal).exists():
        Path(journal).write_bytes(_fresh())
    return journal
