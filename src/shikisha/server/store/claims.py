"""Who performs which run: claiming what dead servers left, taking what waited, one server each.

Each function is one transaction's work. Invariant: a run gets a new owner only in a transaction that holds its row, and
only from a member that is dead or from nobody; the new owner is alive in that same transaction. A row without events is
of a run that was never acknowledged: it goes. A run that is suspected of having taken servers down (`blame`) is claimed
by who has no other such run on trial. Deliberately absent: fairness; the oldest are claimed first.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    and_,
    delete,
    exists,
    literal,
    or_,
    select,
    update,
)

from shikisha.errors import Conflict, StillOpen
from shikisha.events import Status
from shikisha.journal.tables import EVENTS, MEMBERS, SERVED
from shikisha.server.store.batch import ADDING
from shikisha.server.store.blame import SUSPECT, judge_lost
from shikisha.server.store.members import Life, Member, bury, forget
from shikisha.server.store.rows import Served, State

_AT_ONCE = 500  # values in an IN list


def once(me: Member, row: Mapping[str, object], connection: Connection) -> None:
    """Add a run under its idempotency key; Conflict when another run has the key."""
    me.fence(connection)
    ADDING.say(connection, [row])
    mine = and_(SERVED.c.key == row["key"], SERVED.c.idempotency == row["idempotency"])
    found = connection.execute(select(SERVED.c.run, SERVED.c.request_hash).where(mine)).one()
    if found.run != row["run"]:
        raise Conflict(str(found.run), same=found.request_hash == row["request_hash"])


class Ours(NamedTuple):
    """The runs that `me` knows to be its own: those known when it set out to look, and whether it knows one by now."""

    known: frozenset[str]
    has: Callable[[str], bool]
    tries: bool = False  # whether one of them is on trial


def claim(connection: Connection, me: Member, most: int, ours: Ours, *, also_late: bool) -> tuple[Served, ...]:
    """Make open runs `me`'s that are nobody's, a dead member's, or `me`'s without its knowing; return them."""
    me.fence(connection)
    if also_late:
        bury(connection, me.id)
    judge_lost(connection)
    forget(connection)
    orphaned = ~exists().where(MEMBERS.c.id == SERVED.c.owner, MEMBERS.c.state == Life.ALIVE)
    lost = and_(SERVED.c.owner == me.id, SERVED.c.run.not_in(ours.known))
    free = select(SERVED).where(SERVED.c.state == State.OPEN, or_(SERVED.c.owner.is_(None), orphaned, lost))
    suspected = SERVED.c.ends >= SUSPECT
    worst_first = (SERVED.c.strikes.desc(), SERVED.c.ends.desc(), SERVED.c.created, SERVED.c.run)
    held = _held(connection, free.where(~suspected).order_by(SERVED.c.created, SERVED.c.run).limit(most))
    if not ours.tries:
        held += _held(connection, free.where(suspected).order_by(*worst_first).limit(1))
    others = _alive(connection, {row["owner"] for row in held} - {me.id})  # now that their rows are held: who joined
    found = [row for row in held if row["owner"] not in others]  # a moment ago was not seen above
    found = [
        row for row in found if row["owner"] != me.id or not ours.has(row["run"])
    ]  # begun since: its row came first
    begun = _begun(connection, [row["run"] for row in found])
    never = [row["run"] for row in found if row["run"] not in begun]
    if never:
        connection.execute(delete(SERVED).where(SERVED.c.run.in_(never)))
    if begun:
        connection.execute(update(SERVED).where(SERVED.c.run.in_(begun)).values(owner=me.id, updated=time.time()))
    return tuple(Served.of({**row, "owner": me.id}) for row in found if row["run"] in begun)


@dataclass(slots=True)
class Taking:
    """Making a run that waits or was stopped `me`'s, once: tried again after a lost answer, it says what it said.

    `ended`: whichever rests, one that is over or quarantined too: a person wants it rolled back or cancelled.
    """

    me: Member
    run: str
    ended: bool = False
    tried: bool = False

    def __call__(self, connection: Connection) -> bool:
        """Return whether the run is `me`'s to perform."""
        self.me.fence(connection)
        again, self.tried = self.tried, True
        mine = SERVED.c.run == self.run
        resting = SERVED.c.state.in_([State.WAITING, State.STOPPED, *([State.ENDED] if self.ended else [])])
        allowed = or_(SERVED.c.status != Status.QUARANTINED, literal(self.ended))  # a person wants the ended one
        values = {"state": State.OPEN, "owner": self.me.id, "updated": time.time(), "stopping": False, "ends": 0}
        if connection.execute(update(SERVED).where(mine, resting, allowed).values(values)).rowcount:
            return True
        ours = select(SERVED.c.run).where(mine, SERVED.c.state == State.OPEN, SERVED.c.owner == self.me.id)
        return again and connection.execute(ours).first() is not None


def release(connection: Connection, me: Member, run: str) -> None:
    """Leave an open run of `me`'s to whoever claims it."""
    me.fence(connection)
    where: tuple[ColumnElement[bool], ...] = (SERVED.c.run == run, SERVED.c.owner == me.id)
    connection.execute(update(SERVED).where(*where, SERVED.c.state == State.OPEN).values(owner=None))


def stop(connection: Connection, run: str) -> bool:
    """Ask whoever performs an open run to stop it; return whether it is open."""
    mine = (SERVED.c.run == run, SERVED.c.state == State.OPEN)
    return bool(connection.execute(update(SERVED).where(*mine).values(stopping=True)).rowcount)


def free(connection: Connection, run: str) -> None:
    """Let another run have a run's idempotency key."""
    connection.execute(update(SERVED).where(SERVED.c.run == run).values(idempotency=None))


def stopped(connection: Connection, me: Member) -> tuple[str, ...]:
    """Return the open runs of `me`'s, and the waiting ones of nobody's, that someone wants stopped."""
    mine = and_(SERVED.c.state == State.OPEN, SERVED.c.owner == me.id)
    wanted = select(SERVED.c.run).where(or_(mine, SERVED.c.state == State.WAITING), SERVED.c.stopping)
    return tuple(connection.execute(wanted.order_by(SERVED.c.created)).scalars())


def stands(connection: Connection, run: str) -> State | None:
    """Return where a run stands; None: no server knows it."""
    state = connection.execute(select(SERVED.c.state).where(SERVED.c.run == run)).scalar_one_or_none()
    return None if state is None else State(state)


def reopen(connection: Connection, run: str) -> None:
    """Let a server go on with a run that waited, and got what it waited for from somebody who is no server."""
    mine = (SERVED.c.run == run, SERVED.c.state == State.WAITING)
    connection.execute(update(SERVED).where(*mine).values(state=State.OPEN, owner=None, updated=time.time()))


def aside(connection: Connection, run: str) -> State | None:
    """Set a run aside for somebody who is no server, and return where it stood; None: no server knows it.

    StillOpen when a server performs it. A server that gave no sign for its lease is dead from now on.
    """
    held = select(SERVED.c.state, SERVED.c.owner).where(SERVED.c.run == run).with_for_update()
    row = connection.execute(held).one_or_none()
    if row is None:
        return None
    if row.state == State.OPEN:
        bury(connection, "")
        if _alive(connection, {row.owner}):
            raise StillOpen(f"run {run} is being performed by a server: it goes on with it by itself")
    connection.execute(update(SERVED).where(SERVED.c.run == run).values(state=State.STOPPED, owner=None))
    return State(row.state)


def _held(connection: Connection, free: Select[*tuple[object, ...]]) -> list[RowMapping]:
    return list(connection.execute(free.with_for_update(skip_locked=True, of=SERVED)).mappings().all())


def _alive(connection: Connection, members: set[str | None]) -> set[str]:
    asked = select(MEMBERS.c.id).where(MEMBERS.c.id.in_(members), MEMBERS.c.state == Life.ALIVE)
    return set(connection.execute(asked).scalars())


def _begun(connection: Connection, runs: list[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(runs), _AT_ONCE):
        some = runs[start : start + _AT_ONCE]
        found.update(connection.execute(select(EVENTS.c.run).where(EVENTS.c.run.in_(some)).distinct()).scalars())
    return found
