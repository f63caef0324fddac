"""What erasure means for served runs: their rows lose the words too, and nobody takes them up again.

Each function is one transaction's work. Invariant: a run that anyone performs or may claim is not erased. What stays of
a row is who ordered what sort of run, when, and what it cost. Deliberately absent: the texts (`journal.erasing`).
"""

import time
from collections.abc import Sequence

from sqlalchemy import Connection, select, update

from shikisha.errors import StillOpen
from shikisha.journal.erased import sign
from shikisha.journal.tables import SERVED
from shikisha.server.store.filters import Filter, conditions
from shikisha.server.store.members import Member
from shikisha.server.store.rows import State

_AT_ONCE = 500  # values in an IN list


def oldest(connection: Connection, asked: Filter) -> tuple[str, ...]:
    """Return the runs that are asked for, are not open, and are not erased yet."""
    where = (*conditions(asked), SERVED.c.state != State.OPEN, SERVED.c.erased.is_(None))
    found = select(SERVED.c.run).where(*where).order_by(SERVED.c.created, SERVED.c.run).limit(max(asked.limit, 1))
    return tuple(connection.execute(found).scalars())


def blank(me: Member, connection: Connection, runs: Sequence[str]) -> None:
    """Take the words out of these runs' rows, and end those that rested; StillOpen where one is open."""
    me.fence(connection)
    for start in range(0, len(runs), _AT_ONCE):
        _blank(connection, runs[start : start + _AT_ONCE])


def _blank(connection: Connection, runs: Sequence[str]) -> None:
    some, now = SERVED.c.run.in_(runs), time.time()
    held = select(SERVED.c.run, SERVED.c.state).where(some).order_by(SERVED.c.run).with_for_update()
    for run, state in connection.execute(held).all():
        if state == State.OPEN:
            raise StillOpen(f"run {run} is being performed: cancel it before it is erased")
    words = {"wire": "{}", "metadata": "{}", "excerpt": sign(now)}
    connection.execute(update(SERVED).where(some).values(state=State.ENDED, erased=now, **words))
