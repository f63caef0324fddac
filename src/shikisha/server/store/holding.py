"""Who works on a run that has no row: one that the command line performed, and that no server knows.

Invariant: of all members that are alive, one at most holds a run; they ask one after another, under the lock of the
journal's head. A holder that gave no sign for its lease is dead from then on, and what it still says is not stored.
Deliberately absent: letting go (who leaves holds nothing).
"""

from sqlalchemy import Connection, select, update

import shikisha.journal.chain as chain
from shikisha.journal.tables import MEMBERS
from shikisha.server.store.members import Life, Member, bury


def hold(connection: Connection, me: Member, run: str) -> bool:
    """Make `me` the holder of a run; False when another is."""
    chain.hold(connection)
    me.fence(connection)
    bury(connection, me.id)
    place = f"run {run}"
    others = select(MEMBERS.c.id).where(MEMBERS.c.place == place, MEMBERS.c.state == Life.ALIVE, MEMBERS.c.id != me.id)
    if connection.execute(others).first() is not None:
        return False
    connection.execute(update(MEMBERS).where(MEMBERS.c.id == me.id).values(place=place))
    return True
