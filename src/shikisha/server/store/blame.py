"""Poison runs: which runs are to blame when a server ends uncleanly, and which nobody performs any more for it.

A server ends uncleanly when it neither leaves nor lives on: it crashed, was killed, or stood still until its watchdog
ended it. Many innocent runs are in flight then, so being in flight is no guilt. What counts:

- A run is *named* when it was being computed at that moment: its task was on the event loop, or a call of it was in a
  thread (`watchdog` marks both in memory that outlives the process). `kill -9` from outside mostly finds nobody named.
- The *only suspect* gets a strike: the only run named; or, whoever is named, the only one that was *on trial*.
- Where several are named, or a server stood still and nobody is, each suspect goes on trial. So does a run that was in
  flight at SUSPECT unclean ends, whoever was named: that catches what leaves no mark.
- A server performs at most one run on trial at a time (`claims`), beside all others, so that the next end names it; who
  survives for a while is cleared.

With STRIKES strikes a run is quarantined: stopped, with the status QUARANTINED, until a person releases it. Invariants:
an end is judged once, in the transaction that makes its runs free; a clean end (`Member.leave`) and waiting for a
person count for nothing. Deliberately absent: telling crashes from kills by the exit status (only a parent knows it).
"""

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, func, select, update

from shikisha.events import Status
from shikisha.journal.tables import MEMBERS, SERVED
from shikisha.server.store.rows import Served, State

SUSPECT = 3  # unclean ends in flight from which on a run is performed on trial
STRIKES = 2  # with which it is quarantined
_ALIVE, _DEAD = "alive", "dead"


class Ended(StrEnum):
    """How a server ended."""

    LEFT = "left"  # it released what it performed
    LOST = "lost"  # it gave no sign for its lease; nobody saw its end
    CRASHED = "crashed"  # its watchdog saw the process go
    STALLED = "stalled"  # its watchdog ended it: its event loop stood still


def judge(connection: Connection, member: str, ended: Ended, named: Collection[str] = ()) -> str | None:
    """Free the runs of a member that ended, and return the run that gets a strike for it, if one does.

    A watchdog may come after another server has judged the end as LOST: then the run that it names gets the strike.
    """
    mine = MEMBERS.c.id == member
    row = connection.execute(select(MEMBERS.c.ended).where(mine).with_for_update()).one_or_none()
    if row is None:
        return None
    before = str(row.ended or "").split()  # how it ended, and whom that was blamed on
    if before:
        return _late(connection, member, ended, before, named)
    in_flight = _runs(connection, SERVED.c.owner == member)
    accused = [run for run in in_flight if run.run in named] or in_flight
    certain = accused is not in_flight or ended is Ended.STALLED
    tried = [run for run in accused if run.ends >= SUSPECT]
    alone = tried if tried else accused if certain else []
    struck = alone[0].run if len(alone) == 1 else None
    for run in in_flight:
        counted = run in accused and struck in (None, run.run)
        ends = max(run.ends + counted, SUSPECT if counted and certain else 0)
        _blame(connection, run, member, ends, struck=run.run == struck)
    told = str(ended) if struck is None else f"{ended} {struck}"
    connection.execute(update(MEMBERS).where(mine).values(state=_DEAD, ended=told))
    return struck


def judge_lost(connection: Connection) -> None:
    """Judge the ends that nobody judged: of members that were marked dead, and did not leave."""
    unjudged = select(MEMBERS.c.id).where(MEMBERS.c.state == _DEAD, MEMBERS.c.ended.is_(None))
    for member in connection.execute(unjudged.order_by(MEMBERS.c.id).with_for_update(skip_locked=True)).scalars().all():
        judge(connection, member, Ended.LOST)


def clear(connection: Connection, me: str, run: str) -> None:
    """Note that a run of `me`'s survived its trial."""
    connection.execute(update(SERVED).where(SERVED.c.run == run, SERVED.c.owner == me).values(ends=0))


def any_unannounced(connection: Connection) -> bool:
    """Whether there may be a quarantined run whose quarantine is not in the journal yet."""
    mine = (SERVED.c.state == State.STOPPED, SERVED.c.status == Status.QUARANTINED, SERVED.c.owner.is_not(None))
    return connection.execute(select(SERVED.c.run).where(*mine).limit(1)).first() is not None


def unannounced(connection: Connection, me: str) -> tuple[Served, ...]:
    """Take the quarantined runs whose quarantine is not in the journal yet, so that `me` writes it there, once."""
    alive = select(MEMBERS.c.id).where(MEMBERS.c.state == _ALIVE)
    mine = (
        SERVED.c.state == State.STOPPED,
        SERVED.c.status == Status.QUARANTINED,
        SERVED.c.owner.is_not(None),
        SERVED.c.owner.not_in(alive),
    )
    held = select(SERVED).where(*mine).order_by(SERVED.c.created).with_for_update(skip_locked=True, of=SERVED)
    found = connection.execute(held).mappings().all()
    for row in found:
        connection.execute(update(SERVED).where(SERVED.c.run == row["run"]).values(owner=me))
    return tuple(Served.of(dict(row)) for row in found)


def release(connection: Connection, run: str) -> bool:
    """Let servers perform a quarantined run again, as if it had done nothing; False when it is not quarantined."""
    mine = (SERVED.c.run == run, SERVED.c.state == State.STOPPED, SERVED.c.status == Status.QUARANTINED)
    free = {"state": State.OPEN, "status": Status.RUNNING, "owner": None, "ends": 0, "strikes": 0, "stopping": False}
    return bool(connection.execute(update(SERVED).where(*mine).values(free)).rowcount)


def on_trial(connection: Connection) -> int:
    """Return how many open runs are, or wait to be, performed on trial."""
    asked = select(func.count()).where(SERVED.c.state == State.OPEN, SERVED.c.ends >= SUSPECT)
    return int(connection.execute(asked).scalar_one())


class _Run(NamedTuple):
    run: str
    ends: int
    strikes: int


def _runs(connection: Connection, where: ColumnElement[bool]) -> list[_Run]:
    asked = select(SERVED.c.run, SERVED.c.ends, SERVED.c.strikes).where(SERVED.c.state == State.OPEN, where)
    return [_Run(*row) for row in connection.execute(asked.order_by(SERVED.c.run).with_for_update())]


def _late(connection: Connection, member: str, ended: Ended, before: list[str], named: Collection[str]) -> str | None:
    """Blame the run that a watchdog names after its server's end was judged without its word, unless it was then."""
    open_ones = [run for run in _runs(connection, SERVED.c.run.in_(tuple(named))) if run.run not in before]
    if before[0] != Ended.LOST or len(open_ones) != 1 or len(before) > 1:
        return None
    (run,) = open_ones
    connection.execute(update(MEMBERS).where(MEMBERS.c.id == member).values(ended=f"{ended} {run.run}"))
    _blame(connection, run, member, max(run.ends, SUSPECT), struck=True, free=False)
    return run.run


def _blame(connection: Connection, run: _Run, member: str, ends: int, *, struck: bool, free: bool = True) -> None:
    strikes = run.strikes + struck
    values: dict[str, object] = {"ends": ends, "strikes": strikes}
    if strikes >= STRIKES:  # the member stays its owner until the journal has it (`unannounced`)
        values |= {"state": State.STOPPED, "status": Status.QUARANTINED, "owner": member}
    elif free:
        values["owner"] = None
    connection.execute(update(SERVED).where(SERVED.c.run == run.run).values(values))
