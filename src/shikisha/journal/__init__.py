"""The journal: `open_journal(url)` gives a Journal, which is a Recorder that keeps its events in a database.

Each name is imported when it is first used, so that a command which needs no journal does not pay for SQLAlchemy.
Deliberately absent: everything else in here; it is this package's own business.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shikisha.journal.erasure import ErasureResult
    from shikisha.journal.queries import RunOverview
    from shikisha.journal.store import Journal, open_journal
    from shikisha.journal.verification import ChainProblem, Verification

_HOMES = {
    "ErasureResult": "erasure",
    "Journal": "store",
    "ChainProblem": "verification",
    "RunOverview": "queries",
    "Verification": "verification",
    "open_journal": "store",
}

__all__ = ["ChainProblem", "ErasureResult", "Journal", "RunOverview", "Verification", "open_journal"]


def __getattr__(name: str) -> object:
    """Import a public name from its home module on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shikisha.journal' has no attribute {name!r}")
    return getattr(import_module(f"shikisha.journal.{_HOMES[name]}"), name)
