"""Which runs are served, by whom they are performed, and what lists show: `open_store(journal)` gives a Store.

Reading order: `rows` (a served run), `members` (servers and their leases), `batch` (what rides on the journal's
commits), `claims` (who performs what), `filters` (lists), `store`. Deliberately absent: the events (`journal`).
"""

from shikisha.server.store.run_store import RunStore, open_store
from shikisha.server.store.served_rows import RunFilter, RunPage, ServedRun, ServedState

__all__ = ["RunFilter", "RunPage", "RunStore", "ServedRun", "ServedState", "open_store"]
