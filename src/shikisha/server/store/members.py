"""Servers that share a journal: each is a member with a lease, which it renews while it lives.

Invariant: a member that is marked dead stays so, and whatever it still wants to write is refused in the transaction
that would write it (`fence`). Times are the store's own: PostgreSQL's clock, or this machine's for a file. Deliberately
absent: elections; members are equals.
"""

import os
import socket
import time
from dataclasses import dataclass
from enum import StrEnum
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    bindparam,
    cast,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from shikisha.errors import Expelled
from shikisha.journal.statements import Statement
from shikisha.journal.tables import MEMBERS, SERVED
from shikisha.server.store.rows import State

_LONG = 3600.0  # seconds that a dead member is shown, and beyond which no lease reaches


class Life(StrEnum):
    """Whether a member may write."""

    ALIVE = "alive"  # it may, until another marks it dead
    DEAD = "dead"  # never again


_FENCE = Statement.of(select(MEMBERS.c.state).where(MEMBERS.c.id == bindparam("member")).with_for_update(read=True))


@dataclass(frozen=True, slots=True)
class Member:
    """This server among those that share the journal; `lease` is how many seconds it is trusted without a sign."""

    id: str
    lease: float

    def join(self, connection: Connection) -> None:
        """Become a member."""
        here, now = f"{socket.gethostname()}:{os.getpid()}", clock(connection)
        values = {"state": Life.ALIVE, "alive_until": now + self.lease, "began": now, "place": here}
        if not connection.execute(select(MEMBERS.c.id).where(MEMBERS.c.id == self.id)).first():
            connection.execute(insert(MEMBERS).values(id=self.id, **values))

    def renew(self, connection: Connection) -> bool:
        """Prolong the lease; return whether it had not run out. Expelled when another marked this one dead."""
        mine, now = MEMBERS.c.id == self.id, clock(connection)
        asked = select(MEMBERS.c.state, MEMBERS.c.alive_until >= now).where(mine).with_for_update()
        state, in_time = connection.execute(asked).one_or_none() or (Life.DEAD, False)
        self._check(state)
        connection.execute(update(MEMBERS).where(mine).values(alive_until=now + self.lease))
        return bool(in_time)

    def leave(self, connection: Connection) -> None:
        """Be dead; what it owned may be claimed."""
        values = {"state": Life.DEAD, "ended": "left"}
        connection.execute(update(MEMBERS).where(MEMBERS.c.id == self.id).values(values))

    def fence(self, connection: Connection) -> None:
        """Hold the member alive until this transaction ends; Expelled when it is not."""
        (state,) = _FENCE.one(connection, {"member": self.id}) or (None,)
        self._check(state)

    def _check(self, state: object) -> None:
        if state != Life.ALIVE:
            raise Expelled(f"server {self.id} was taken for dead: it gave no sign for {self.lease:g} s")


def new_member(lease: float) -> Member:
    """Return a member with a name of its own, which has not joined yet."""
    return Member(uuid4().hex, lease)


def clock(connection: Connection) -> ColumnElement[float]:
    """Return the store's time, in seconds since 1970."""
    if connection.dialect.name == "postgresql":
        return cast(func.extract("epoch", func.clock_timestamp()), Double)
    return literal(time.time(), Double)


def bury(connection: Connection, me: str) -> None:
    """Mark other members dead whose lease ran out; one whose batch is being stored now is left for the next time.

    A lease that ends in hours was taken by a clock that was ahead: whoever lives under it renews it in a moment.
    """
    now = clock(connection)
    over = or_(MEMBERS.c.alive_until < now, MEMBERS.c.alive_until > now + _LONG)
    late = select(MEMBERS.c.id).where(MEMBERS.c.state == Life.ALIVE, MEMBERS.c.id != me, over)
    gone = connection.execute(late.with_for_update(skip_locked=True)).scalars().all()
    if gone:
        connection.execute(update(MEMBERS).where(MEMBERS.c.id.in_(gone)).values(state=Life.DEAD))


def forget(connection: Connection) -> None:
    """Delete members that have long been dead and own nothing."""
    owning = exists().where(SERVED.c.owner == MEMBERS.c.id, SERVED.c.state == State.OPEN)
    now = clock(connection)
    long = or_(MEMBERS.c.alive_until < now - _LONG, MEMBERS.c.alive_until > now + _LONG)
    old = select(MEMBERS.c.id).where(MEMBERS.c.state == Life.DEAD, long, ~owning)
    gone = connection.execute(old.with_for_update(skip_locked=True)).scalars().all()
    if gone:
        connection.execute(delete(MEMBERS).where(MEMBERS.c.id.in_(gone)))
