"""Servers that share a journal: each is a member with a lease that it renews while it lives.

Invariant: a member that is marked dead stays dead, and whatever it still wants to write is refused in the transaction
that would write it (`fence`). Times are the database's: PostgreSQL's clock, or this machine's for a SQLite file.
Members are equals; there is no leader.
"""

import os
import socket
import time
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
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

from shikisha.core.errors import ServerFenced
from shikisha.core.fast_dataclass import dataclass
from shikisha.journal.chain import first_row
from shikisha.journal.schema import MEMBERS, SERVED
from shikisha.server.store.served_rows import ServedState

_FORGET_SECONDS = 3600.0  # seconds that a dead member is shown, and beyond which no lease reaches


class MemberState(StrEnum):
    """Whether a member may write."""

    ALIVE = "alive"  # it may, until another marks it dead
    DEAD = "dead"  # never again


_STATE_OF = "SELECT state FROM members WHERE id = ?"


@dataclass(frozen=True, slots=True)
class ServerMember:
    """This server among those that share the journal; `lease` is how many seconds it is trusted without a sign."""

    id: str
    lease: float

    def join(self, connection: Connection) -> None:
        """Become a member."""
        here, now = _place_of(os.getpid()), store_time(connection)
        values = {"state": MemberState.ALIVE, "alive_until": now + self.lease, "began": now, "place": here}
        if not connection.execute(select(MEMBERS.c.id).where(MEMBERS.c.id == self.id)).first():
            connection.execute(insert(MEMBERS).values(id=self.id, **values))

    def renew(self, connection: Connection) -> bool:
        """Prolong the lease; return whether it had not run out. Expelled when another marked this one dead."""
        mine, now = MEMBERS.c.id == self.id, store_time(connection)
        asked = select(MEMBERS.c.state, MEMBERS.c.alive_until >= now).where(mine).with_for_update()
        state, in_time = connection.execute(asked).one_or_none() or (MemberState.DEAD, False)
        self._check(state)
        connection.execute(update(MEMBERS).where(mine).values(alive_until=now + self.lease))
        return bool(in_time)

    def leave(self, connection: Connection) -> None:
        """Be dead; what it owned may be claimed."""
        values = {"state": MemberState.DEAD, "ended": "left"}
        connection.execute(update(MEMBERS).where(MEMBERS.c.id == self.id).values(values))

    def fence(self, connection: Connection) -> None:
        """Hold the member alive until this transaction ends; ServerFenced when it is not."""
        (state,) = first_row(connection, _STATE_OF, self.id, lock="FOR SHARE") or (None,)
        self._check(state)

    def __call__(self, connection: Connection) -> None:
        """Be the fence of the journal's writer (`chain.MemberFence`)."""
        self.fence(connection)

    def refusal(self) -> ServerFenced:
        """Return the error that says that the member may write no more."""
        return ServerFenced(f"server {self.id} was taken for dead: it gave no sign for {self.lease:g} s")

    def _check(self, state: object) -> None:
        if state != MemberState.ALIVE:
            raise self.refusal()


def _place_of(process: int) -> str:
    """Return where a process of this machine is: host and number, and on Linux what no later process will be.

    That is the machine's boot, the namespace that numbers processes, and when the process started.
    """
    known = f"{socket.gethostname()}:{process}"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        started = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{known} {boot}:{Path('/proc/self/ns/pid').readlink()}:{started}"
    except (OSError, IndexError):
        return known


def find_gone(connection: Connection, me: str) -> frozenset[str]:
    """Return the other members that were processes of this machine and are no more, whatever their leases say.

    Of another namespace's processes, as in containers that share a host's name, nothing is known.
    """
    here = MEMBERS.c.place.startswith(f"{socket.gethostname()}:", autoescape=True)
    others = select(MEMBERS.c.id, MEMBERS.c.place).where(MEMBERS.c.state == MemberState.ALIVE, MEMBERS.c.id != me, here)
    return frozenset(member for member, place in connection.execute(others) if _is_gone(place))


def _is_gone(place: str) -> bool:
    """Whether a process of this machine ended; False where that cannot be known."""
    own, number = _place_of(os.getpid()), place.partition(" ")[0].rpartition(":")[2]
    same_world = " " in place and place.partition(" ")[2].rpartition(":")[0] == own.partition(" ")[2].rpartition(":")[0]
    return same_world and number.isdecimal() and _place_of(int(number)) != place


def mark_gone_dead(connection: Connection, members: Collection[str]) -> None:
    """Mark members dead whose processes are known to be gone."""
    if members:
        _mark_dead(connection, MEMBERS.c.id.in_(members))


def _mark_dead(connection: Connection, *where: ColumnElement[bool]) -> None:
    alive = select(MEMBERS.c.id).where(MEMBERS.c.state == MemberState.ALIVE, *where)
    gone = connection.execute(alive.with_for_update(skip_locked=True)).scalars().all()
    if gone:
        connection.execute(update(MEMBERS).where(MEMBERS.c.id.in_(gone)).values(state=MemberState.DEAD))


def new_member(lease: float) -> ServerMember:
    """Return a member with a name of its own, which has not joined yet."""
    return ServerMember(uuid4().hex, lease)


def store_time(connection: Connection) -> ColumnElement[float]:
    """Return the store's time, in seconds since 1970."""
    if connection.dialect.name == "postgresql":
        return cast(func.extract("epoch", func.clock_timestamp()), Double)
    return literal(time.time(), Double)


def mark_lapsed_dead(connection: Connection, me: str) -> None:
    """Mark other members dead whose lease ran out; one whose batch is being stored now is left for the next time.

    A lease that ends in hours was taken by a clock that was ahead: whoever lives under it renews it in a moment.
    """
    now = store_time(connection)
    over = or_(MEMBERS.c.alive_until < now, MEMBERS.c.alive_until > now + _FORGET_SECONDS)
    _mark_dead(connection, MEMBERS.c.id != me, over)


def delete_long_dead(connection: Connection) -> None:
    """Delete members that have long been dead and own nothing."""
    owning = exists().where(SERVED.c.owner == MEMBERS.c.id, SERVED.c.state == ServedState.OPEN)
    now = store_time(connection)
    long = or_(MEMBERS.c.alive_until < now - _FORGET_SECONDS, MEMBERS.c.alive_until > now + _FORGET_SECONDS)
    old = select(MEMBERS.c.id).where(MEMBERS.c.state == MemberState.DEAD, long, ~owning)
    gone = connection.execute(old.with_for_update(skip_locked=True)).scalars().all()
    if gone:
        connection.execute(delete(MEMBERS).where(MEMBERS.c.id.in_(gone)))
