"""The journal: `open_journal(url)` gives a Journal, which is a Recorder that keeps its events in a database.

Each name is imported when it is first used, so that a command which needs no journal does not pay for SQLAlchemy.
Deliberately absent: everything else in here; it is this package's own business.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shikisha.journal.erasing import Gone
    from shikisha.journal.listing import Summary
    from shikisha.journal.store import Journal, open_journal
    from shikisha.journal.verify import Problem, Verification

_HOMES = {
    "Gone": "erasing",
    "Journal": "store",
    "Problem": "verify",
    "Summary": "listing",
    "Verification": "verify",
    "open_journal": "store",
}

__all__ = ["Gone", "Journal", "Problem", "Summary", "Verification", "open_journal"]


def __getattr__(name: str) -> object:
    """Import a public name from its home module on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shikisha.journal' has no attribute {name!r}")
    return getattr(import_module(f"shikisha.journal.{_HOMES[name]}"), name)
