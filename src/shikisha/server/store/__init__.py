"""Served runs: which server performs each of them, and what lists show. `open_store(journal)` gives a RunStore.

Reading order: `served_rows` (a served run and its row), `members` (servers and their leases), `claims` (who performs
what, and quarantine), `run_store` (the API). It shares the journal's database and transactions. `lifecycle`, the APIs
and `cli` import it. A name's module is imported when it is first used: commands that touch no store import this too.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shikisha.server.store.claims import release_quarantined, reopen_run, set_aside, state_of_run
    from shikisha.server.store.run_store import RunStore, open_store
    from shikisha.server.store.served_rows import RunFilter, RunOrder, RunPage, ServedRun, ServedState

_HOMES = {
    "RunFilter": "served_rows",
    "RunOrder": "served_rows",
    "RunPage": "served_rows",
    "RunStore": "run_store",
    "ServedRun": "served_rows",
    "ServedState": "served_rows",
    "open_store": "run_store",
    "release_quarantined": "claims",
    "reopen_run": "claims",
    "set_aside": "claims",
    "state_of_run": "claims",
}

__all__ = [
    "RunFilter",
    "RunOrder",
    "RunPage",
    "RunStore",
    "ServedRun",
    "ServedState",
    "open_store",
    "release_quarantined",
    "reopen_run",
    "set_aside",
    "state_of_run",
]


def __getattr__(name: str) -> object:
    """Import a public name from its home module on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shikisha.server.store' has no attribute {name!r}")
    return getattr(import_module(f"shikisha.server.store.{_HOMES[name]}"), name)
