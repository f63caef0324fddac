"""The revisions, in files named by their number; each is found by alembic and run by `shikisha.journal.schema`.

Deliberately absent: imports of the package's own tables; a revision stays what it was when they change.
"""
