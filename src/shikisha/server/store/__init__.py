"""Which runs are served, by whom they are performed, and what lists show: `open_store(journal)` gives a Store.

Reading order: `rows` (a served run), `members` (servers and their leases), `batch` (what rides on the journal's
commits), `claims` (who performs what), `filters` (lists), `store`. Deliberately absent: the events (`journal`).
"""

from shikisha.server.store.filters import Filter, Page
from shikisha.server.store.rows import Served, State
from shikisha.server.store.store import Store, open_store

__all__ = ["Filter", "Page", "Served", "State", "Store", "open_store"]
