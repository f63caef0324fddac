"""Which server performs which run: claims of orphaned runs, and the quarantine of runs that take servers down.

Each function is one transaction's work. Invariant: a run gets a new owner only in a transaction that locks its row,
only from nobody or from a dead member, and the new owner is alive in that transaction. A row without events belongs
to a run that was never acknowledged and is deleted. The oldest runs are claimed first.

A server ends uncleanly when it crashes, is killed, or hangs until its watchdog ends it. Being in flight then is no
proof of guilt. What counts:

- A run is *named* when it was being computed at that moment: its task was on the event loop, or a call of it was in a
  thread (`ops.watchdog` marks both in memory that outlives the process). `kill -9` from outside mostly names none.
- A hang has a cause in the server: the *only suspect* of one gets a strike, which is the only run that is named, or
  the only one of them that was *on trial*.
- A process that is gone may have been killed from outside, whatever it was doing. A run that is named then goes on
  trial first. It gets a strike only where it was on trial, and was named again or was the one run in flight.
- Where several runs are named, or a server hung and none is, each suspect goes on trial. So does a run that was in
  flight at TRIAL_ENDS unclean ends, which catches what leaves no mark.
- A server performs at most one run on trial at a time, so that the next end names it. A run that survives for a while
  is cleared.

With QUARANTINE_STRIKES strikes a run is quarantined until a person releases it. An end is judged once, in the
transaction that frees its runs; a clean end and waiting for a person count for nothing.
"""

import time
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
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

from shikisha.core.errors import IdempotencyConflict, RunStillOpen
from shikisha.core.events import RunStatus
from shikisha.core.fast_dataclass import dataclass
from shikisha.journal import chain
from shikisha.journal.records import note_rows, recorded
from shikisha.journal.schema import EVENTS, MEMBERS, SERVED, add_rows
from shikisha.server.store.members import MemberState, ServerMember, delete_long_dead, mark_gone_dead, mark_lapsed_dead
from shikisha.server.store.served_rows import ServedRun, ServedState

TRIAL_ENDS = 3  # unclean ends in flight from which on a run is performed on trial
QUARANTINE_STRIKES = 2  # with which it is quarantined
_ALIVE, _DEAD = "alive", "dead"


class MemberEnd(StrEnum):
    """How a server ended."""

    LEFT = "left"  # it released what it performed
    LOST = "lost"  # it gave no sign for its lease; nobody saw its end
    CRASHED = "crashed"  # its watchdog saw the process go
    STALLED = "stalled"  # its watchdog ended it: its event loop stood still


def judge_end(connection: Connection, member: str, ended: MemberEnd, named: Collection[str] = ()) -> str | None:
    """Free the runs of a member that ended, and return the run that gets a strike for it, if one does.

    A watchdog may come after another server has judged the end as LOST: then the run that it names gets the strike.
    """
    mine = MEMBERS.c.id == member
    row = connection.execute(select(MEMBERS.c.ended).where(mine).with_for_update()).one_or_none()
    if row is None:
        return None
    before = str(row.ended or "").split()  # how it ended, and whom that was blamed on
    if before:
        return _judge_late(connection, member, ended, before, named)
    in_flight = _open_runs(connection, SERVED.c.owner == member)
    accused = [run for run in in_flight if run.run in named] or in_flight
    certain = accused is not in_flight or ended is MemberEnd.STALLED
    tried = [run for run in accused if run.ends >= TRIAL_ENDS]
    if ended is MemberEnd.STALLED:
        alone = tried or accused
    else:  # perhaps by a kill from outside, for which no run is to blame
        alone = [run for run in tried if run.run in named or len(in_flight) == 1]
    struck = alone[0].run if len(alone) == 1 else None
    for run in in_flight:
        counted = run in accused and struck in (None, run.run)
        ends = max(run.ends + counted, TRIAL_ENDS if counted and certain else 0)
        _blame_run(connection, run, member, ends, struck=run.run == struck)
    told = str(ended) if struck is None else f"{ended} {struck}"
    connection.execute(update(MEMBERS).where(mine).values(state=_DEAD, ended=told))
    return struck


def judge_lost_members(connection: Connection) -> None:
    """Judge the unclean ends that no server judged yet."""
    unjudged = select(MEMBERS.c.id).where(MEMBERS.c.state == _DEAD, MEMBERS.c.ended.is_(None))
    for member in connection.execute(unjudged.order_by(MEMBERS.c.id).with_for_update(skip_locked=True)).scalars().all():
        judge_end(connection, member, MemberEnd.LOST)


def clear_suspicion(connection: Connection, me: str, run: str) -> None:
    """Record that a run of `me` survived its trial."""
    connection.execute(update(SERVED).where(SERVED.c.run == run, SERVED.c.owner == me).values(ends=0))


def has_unannounced(connection: Connection) -> bool:
    """Whether there may be a quarantined run whose quarantine is not in the journal yet."""
    mine = (
        SERVED.c.state == ServedState.STOPPED,
        SERVED.c.status == RunStatus.QUARANTINED,
        SERVED.c.owner.is_not(None),
    )
    return connection.execute(select(SERVED.c.run).where(*mine).limit(1)).first() is not None


def take_unannounced(connection: Connection, me: str) -> tuple[ServedRun, ...]:
    """Take the quarantined runs whose quarantine is not in the journal yet, so that `me` writes it there, once."""
    alive = select(MEMBERS.c.id).where(MEMBERS.c.state == _ALIVE)
    mine = (
        SERVED.c.state == ServedState.STOPPED,
        SERVED.c.status == RunStatus.QUARANTINED,
        SERVED.c.owner.is_not(None),
        SERVED.c.owner.not_in(alive),
    )
    held = select(SERVED).where(*mine).order_by(SERVED.c.created).with_for_update(skip_locked=True, of=SERVED)
    found = connection.execute(held).mappings().all()
    for row in found:
        connection.execute(update(SERVED).where(SERVED.c.run == row["run"]).values(owner=me))
    return tuple(ServedRun.of(dict(row)) for row in found)


def release_quarantined(connection: Connection, run: str) -> bool:
    """Release a quarantined run with a clean record; False when it is not quarantined."""
    mine = (SERVED.c.run == run, SERVED.c.state == ServedState.STOPPED, SERVED.c.status == RunStatus.QUARANTINED)
    free = {
        "state": ServedState.OPEN,
        "status": RunStatus.RUNNING,
        "owner": None,
        "ends": 0,
        "strikes": 0,
        "stopping": False,
    }
    return bool(connection.execute(update(SERVED).where(*mine).values(free)).rowcount)


class _SuspectRun(NamedTuple):
    run: str
    ends: int
    strikes: int


def _open_runs(connection: Connection, where: ColumnElement[bool]) -> list[_SuspectRun]:
    asked = select(SERVED.c.run, SERVED.c.ends, SERVED.c.strikes).where(SERVED.c.state == ServedState.OPEN, where)
    return [_SuspectRun(*row) for row in connection.execute(asked.order_by(SERVED.c.run).with_for_update())]


def _judge_late(
    connection: Connection, member: str, ended: MemberEnd, before: list[str], named: Collection[str]
) -> str | None:
    """Blame the run that a watchdog names after its server's end was judged without its word, unless it was then."""
    open_ones = [run for run in _open_runs(connection, SERVED.c.run.in_(tuple(named))) if run.run not in before]
    if before[0] != MemberEnd.LOST or len(open_ones) != 1 or len(before) > 1:
        return None
    (run,) = open_ones
    struck = ended is MemberEnd.STALLED or run.ends >= TRIAL_ENDS
    connection.execute(update(MEMBERS).where(MEMBERS.c.id == member).values(ended=f"{ended} {run.run}"))
    _blame_run(connection, run, member, max(run.ends, TRIAL_ENDS), struck=struck, free=False)
    return run.run if struck else None


def _blame_run(
    connection: Connection, run: _SuspectRun, member: str, ends: int, *, struck: bool, free: bool = True
) -> None:
    strikes = run.strikes + struck
    values: dict[str, object] = {"ends": ends, "strikes": strikes}
    if strikes >= QUARANTINE_STRIKES:  # the member stays its owner until the journal has it (`unannounced`)
        values |= {"state": ServedState.STOPPED, "status": RunStatus.QUARANTINED, "owner": member}
    elif free:
        values["owner"] = None
    connection.execute(update(SERVED).where(SERVED.c.run == run.run).values(values))


_MAX_IN_LIST = 500  # values in an IN list


@recorded
def add_once(connection: Connection, me: ServerMember, row: Mapping[str, object]) -> None:
    """Add a run under its idempotency key; Conflict when another run has the key."""
    me.fence(connection)
    add_rows(connection, SERVED, [row], missing=True)
    mine = and_(SERVED.c.key == row["key"], SERVED.c.idempotency == row["idempotency"])
    found = connection.execute(select(SERVED.c.run, SERVED.c.request_hash).where(mine)).one()
    if found.run != row["run"]:
        raise IdempotencyConflict(str(found.run), same=found.request_hash == row["request_hash"])
    note_rows(connection, "served", [(found.run,)])


class OwnRuns(NamedTuple):
    """The runs that `me` knows to be its own: those known when it set out to look, and whether it knows one by now."""

    known: frozenset[str]
    has: Callable[[str], bool]
    tries: bool = False  # whether one of them is on trial


def claim_runs(
    connection: Connection,
    me: ServerMember,
    most: int,
    ours: OwnRuns,
    *,
    also_late: bool,
    gone: Collection[str] = (),
) -> tuple[ServedRun, ...]:
    """Give `me` open runs of nobody, of dead members, or of `me` itself that it does not know; return them.

    `gone` are members whose processes are known to have ended, `also_late`: those too that gave no sign in time.
    """
    me.fence(connection)
    mark_gone_dead(connection, gone)
    if also_late:
        mark_lapsed_dead(connection, me.id)
    judge_lost_members(connection)
    delete_long_dead(connection)
    orphaned = ~exists().where(MEMBERS.c.id == SERVED.c.owner, MEMBERS.c.state == MemberState.ALIVE)
    lost = and_(SERVED.c.owner == me.id, SERVED.c.run.not_in(ours.known))
    free = select(SERVED).where(SERVED.c.state == ServedState.OPEN, or_(SERVED.c.owner.is_(None), orphaned, lost))
    suspected = SERVED.c.ends >= TRIAL_ENDS
    worst_first = (SERVED.c.strikes.desc(), SERVED.c.ends.desc(), SERVED.c.created, SERVED.c.run)
    held = _lock_runs(connection, free.where(~suspected).order_by(SERVED.c.created, SERVED.c.run).limit(most))
    if not ours.tries:
        held += _lock_runs(connection, free.where(suspected).order_by(*worst_first).limit(1))
    others = _alive_members(
        connection, {row["owner"] for row in held} - {me.id}
    )  # now that their rows are held: who joined
    found = [row for row in held if row["owner"] not in others]  # a moment ago was not seen above
    found = [
        row for row in found if row["owner"] != me.id or not ours.has(row["run"])
    ]  # begun since: its row came first
    begun = _runs_with_events(connection, [row["run"] for row in found])
    never = [row["run"] for row in found if row["run"] not in begun]
    if never:
        connection.execute(delete(SERVED).where(SERVED.c.run.in_(never)))
    if begun:
        connection.execute(update(SERVED).where(SERVED.c.run.in_(begun)).values(owner=me.id, updated=time.time()))
    return tuple(ServedRun.of({**row, "owner": me.id}) for row in found if row["run"] in begun)


@dataclass(slots=True)
class TakeRun:
    """Making a run that waits or was stopped `me`'s, once: tried again after a lost answer, it says what it said.

    `ended`: whichever rests, one that is over or quarantined too: a person wants it rolled back or cancelled.
    """

    me: ServerMember
    run: str
    ended: bool = False
    tried: bool = False

    def __call__(self, connection: Connection) -> bool:
        """Return whether the run is `me`'s to perform."""
        self.me.fence(connection)
        again, self.tried = self.tried, True
        mine = SERVED.c.run == self.run
        resting = SERVED.c.state.in_(
            [ServedState.WAITING, ServedState.STOPPED, *([ServedState.ENDED] if self.ended else [])]
        )
        allowed = or_(SERVED.c.status != RunStatus.QUARANTINED, literal(self.ended))  # a person wants the ended one
        values = {"state": ServedState.OPEN, "owner": self.me.id, "updated": time.time(), "stopping": False, "ends": 0}
        if connection.execute(update(SERVED).where(mine, resting, allowed).values(values)).rowcount:
            return True
        ours = select(SERVED.c.run).where(mine, SERVED.c.state == ServedState.OPEN, SERVED.c.owner == self.me.id)
        return again and connection.execute(ours).first() is not None


def release_run(connection: Connection, me: ServerMember, run: str) -> None:
    """Release an open run of `me`, so that any server can claim it."""
    me.fence(connection)
    where: tuple[ColumnElement[bool], ...] = (SERVED.c.run == run, SERVED.c.owner == me.id)
    connection.execute(update(SERVED).where(*where, SERVED.c.state == ServedState.OPEN).values(owner=None))


def request_stop(connection: Connection, run: str) -> bool:
    """Ask the owner of an open run to stop it; return whether it is open."""
    mine = (SERVED.c.run == run, SERVED.c.state == ServedState.OPEN)
    return bool(connection.execute(update(SERVED).where(*mine).values(stopping=True)).rowcount)


def free_idempotency_key(connection: Connection, run: str) -> None:
    """Free a run's idempotency key for another run."""
    connection.execute(update(SERVED).where(SERVED.c.run == run).values(idempotency=None))


def stop_requests(connection: Connection, me: ServerMember) -> tuple[str, ...]:
    """Return the open runs of `me` and all waiting runs that are to be stopped."""
    mine = and_(SERVED.c.state == ServedState.OPEN, SERVED.c.owner == me.id)
    wanted = select(SERVED.c.run).where(or_(mine, SERVED.c.state == ServedState.WAITING), SERVED.c.stopping)
    return tuple(connection.execute(wanted.order_by(SERVED.c.created)).scalars())


def state_of_run(connection: Connection, run: str) -> ServedState | None:
    """Return where a run stands; None: no server knows it."""
    state = connection.execute(select(SERVED.c.state).where(SERVED.c.run == run)).scalar_one_or_none()
    return None if state is None else ServedState(state)


def reopen_run(connection: Connection, run: str) -> None:
    """Open a waiting run whose answer came from outside a server, so that a server resumes it."""
    mine = (SERVED.c.run == run, SERVED.c.state == ServedState.WAITING)
    connection.execute(update(SERVED).where(*mine).values(state=ServedState.OPEN, owner=None, updated=time.time()))


def set_aside(connection: Connection, run: str) -> ServedState | None:
    """Take a run from the servers for the command line, and return its state; None: no server knows it.

    StillOpen when a server performs it. A server that gave no sign for its lease is dead from now on.
    """
    held = select(SERVED.c.state, SERVED.c.owner).where(SERVED.c.run == run).with_for_update()
    row = connection.execute(held).one_or_none()
    if row is None:
        return None
    if row.state == ServedState.OPEN:
        mark_lapsed_dead(connection, "")
        if _alive_members(connection, {row.owner}):
            raise RunStillOpen(f"run {run} is being performed by a server: it goes on with it by itself")
    connection.execute(update(SERVED).where(SERVED.c.run == run).values(state=ServedState.STOPPED, owner=None))
    return ServedState(row.state)


def _lock_runs(connection: Connection, free: Select[*tuple[object, ...]]) -> list[RowMapping]:
    return list(connection.execute(free.with_for_update(skip_locked=True, of=SERVED)).mappings().all())


def _alive_members(connection: Connection, members: set[str | None]) -> set[str]:
    asked = select(MEMBERS.c.id).where(MEMBERS.c.id.in_(members), MEMBERS.c.state == MemberState.ALIVE)
    return set(connection.execute(asked).scalars())


def _runs_with_events(connection: Connection, runs: list[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(runs), _MAX_IN_LIST):
        some = runs[start : start + _MAX_IN_LIST]
        found.update(connection.execute(select(EVENTS.c.run).where(EVENTS.c.run.in_(some)).distinct()).scalars())
    return found


def hold_run(connection: Connection, me: ServerMember, run: str) -> bool:
    """Make `me` the holder of a run; False when another is."""
    chain.lock_head(connection)
    me.fence(connection)
    mark_lapsed_dead(connection, me.id)
    place = f"run {run}"
    others = select(MEMBERS.c.id).where(
        MEMBERS.c.place == place, MEMBERS.c.state == MemberState.ALIVE, MEMBERS.c.id != me.id
    )
    if connection.execute(others).first() is not None:
        return False
    connection.execute(update(MEMBERS).where(MEMBERS.c.id == me.id).values(place=place))
    return True
