"""Lists of served runs: what they are searched by, and in which order they come.

Invariant: newest first, and a cursor goes on exactly where the last page ended, whatever began meanwhile. What a person
types is looked for as it stands: no sign in it means anything else. Deliberately absent: sums.
"""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from shikisha.events import Status
from shikisha.journal.tables import SERVED
from shikisha.server.store.rows import Served, State, storable


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs: those for which all of it holds; None and () say nothing. `text` is looked for in excerpts.

    `since` and `until` are Unix times of the beginning, the first inclusive. `after` is the cursor of a page's end.
    """

    tenant: str | None = None
    states: tuple[State, ...] = ()
    statuses: tuple[Status, ...] = ()
    key: str | None = None
    model: str | None = None
    api: str | None = None
    text: str = ""
    since: float | None = None
    until: float | None = None
    after: tuple[float, str] | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Page:
    """A page of runs, newest first, and the cursor of the next page; None when this is the last."""

    runs: tuple[Served, ...]
    after: tuple[float, str] | None = None


def page(connection: Connection, asked: Filter) -> Page:
    """Return the runs that are asked for."""
    limit = max(asked.limit, 1)
    where = conditions(asked)
    if asked.after is not None:
        created, run = asked.after
        where.append(or_(SERVED.c.created < created, and_(SERVED.c.created == created, SERVED.c.run < run)))
    order = (SERVED.c.created.desc(), SERVED.c.run.desc())
    found = connection.execute(select(SERVED).where(*where).order_by(*order).limit(limit + 1)).mappings().all()
    runs = tuple(Served.of(dict(row)) for row in found[:limit])
    return Page(runs, (runs[-1].created, runs[-1].run) if len(found) > limit else None)


def counted(connection: Connection, asked: Filter) -> dict[State, int]:
    """Return how many runs there are of each state, wherever the cursor stands."""
    statement = select(SERVED.c.state, func.count()).where(*conditions(asked)).group_by(SERVED.c.state)
    return {State(state): number for state, number in connection.execute(statement)}


def conditions(asked: Filter) -> list[ColumnElement[bool]]:
    """Return what must hold, all of it, of a run that is asked for."""
    same = {"tenant": asked.tenant, "key": asked.key, "model": asked.model, "api": asked.api}
    where = [SERVED.c[name] == storable(value) for name, value in same.items() if value is not None]
    if asked.states:
        where.append(SERVED.c.state.in_(asked.states))
    if asked.statuses:
        where.append(SERVED.c.status.in_(asked.statuses))
    if asked.text:
        where.append(SERVED.c.excerpt.icontains(str(storable(asked.text)), autoescape=True))
    if asked.since is not None:
        where.append(SERVED.c.created >= asked.since)
    if asked.until is not None:
        where.append(SERVED.c.created < asked.until)
    return where
