"""The journal: `open_journal(url)` gives a Journal, which is a Recorder that keeps its events in a database.

Invariant: importing this package imports no database library; a name's module is imported when it is first used, so
that a command which opens no journal does not pay for SQLAlchemy. The engine does not import it; everything above may.
Deliberately absent: the other modules in here, which are this package's own business.
"""

import os
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shikisha.journal.store import (
        ChainCheckpoint,
        ChainProblem,
        ChainSegment,
        ErasureResult,
        Journal,
        SegmentFindings,
        Verification,
        combine_findings,
        split_chain,
    )
    from shikisha.journal.stored_events import RunOverview

_HOMES = {
    "ErasureResult": "store",
    "Journal": "store",
    "ChainCheckpoint": "store",
    "ChainProblem": "store",
    "ChainSegment": "store",
    "RunOverview": "stored_events",
    "SegmentFindings": "store",
    "Verification": "store",
    "combine_findings": "store",
    "split_chain": "store",
}

__all__ = [
    "ChainCheckpoint",
    "ChainProblem",
    "ChainSegment",
    "ErasureResult",
    "Journal",
    "RunOverview",
    "SegmentFindings",
    "Verification",
    "combine_findings",
    "make_private",
    "open_journal",
    "redact_store_url",
    "split_chain",
]


def open_journal(url: str, *, patience: float = 5.0) -> "AbstractAsyncContextManager[Journal]":
    """Open the journal at a URL (`sqlite:///…`, `postgresql://…`) or a SQLite file's path; create it if need be.

    `patience` is how many seconds to wait for a locked store. Raises ConfigError for a URL that names no store,
    JournalUnavailable when the store is away, and on leaving when events that were added could not be stored.
    """
    from shikisha.journal import store

    return store.open_journal(url, patience)


def redact_store_url(url: str) -> str:
    """Return a journal's URL or path as a URL without its password; ConfigError when it names no kind of store."""
    from shikisha.journal import drivers

    return drivers.redacted_url(drivers.parse_store_url(url))


def make_private(path: Path) -> Path:
    """Make a file that its owner alone may read, and its folder, unless they are there; OSError when that fails.

    SQLite gives the files that it keeps next to one the same rights.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return path


def __getattr__(name: str) -> object:
    """Import a public name from its home module on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shikisha.journal' has no attribute {name!r}")
    return getattr(import_module(f"shikisha.journal.{_HOMES[name]}"), name)
