"""Served runs: which server performs each of them, and what lists show. `open_store(journal)` gives a RunStore.

Reading order: `served_rows` (a served run and its row), `members` (servers and their leases), `claims` (who performs
what, and quarantine), `run_store` (the API). It shares the journal's database and transactions. `lifecycle`, the APIs
and `cli` import it.
"""

from shikisha.server.store.run_store import RunStore, open_store
from shikisha.server.store.served_rows import RunFilter, RunPage, ServedRun, ServedState

__all__ = ["RunFilter", "RunPage", "RunStore", "ServedRun", "ServedState", "open_store"]
