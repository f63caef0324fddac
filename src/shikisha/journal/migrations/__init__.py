"""The journal's schema, one alembic revision a file under `versions`.

Invariant: a released revision never changes; `shikisha.journal.stored_events.CURRENT_REVISION` names the newest.
Deliberately absent: an alembic environment (`env.py`), since `shikisha.journal.schema` runs the revisions itself, under
the store's lock.
"""
