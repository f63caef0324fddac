"""What keys used, and what servers may use of their budgets, in the database. Each function is one transaction's work.

A server (member) is granted a tranche of a key's budget, uses it up by itself, and asks for another. Invariant: what
was used (`spend`) and what is granted and not used yet add up to no more than any cap of the key, on any day and in
all, whatever servers do side by side and whenever one dies. Three things hold it: tranches of a key are granted one
after another (its row is locked, and what is granted is read before what was used, so that what is just being counted
counts twice rather than never); what is used moves from a grant to `spend` in the transaction of the events that say
so; and the tranche of a dead server stays granted until no run is open that it may have been performing. All writing
says what is, not by how much it changed, so that doing it twice is doing it once. Deliberately absent: who holds what
of a tranche (`accounts`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import cast

from sqlalchemy import ColumnElement, Connection, Insert, Row, Table, and_, bindparam, delete, or_, select, update

from shikisha.budget import format_dollars
from shikisha.journal.statements import Statement
from shikisha.journal.tables import MEMBERS, SERVED
from shikisha.server.keys.key import dollars
from shikisha.server.keys.portion import NOTHING, Kind, Portion
from shikisha.server.keys.tables import GRANTS, KEYS, SPEND, TOTAL
from shikisha.server.store.members import Life
from shikisha.server.store.rows import State

_NO_GRANT: Mapping[str, object] = {f"{kind}{name}": 0 for kind in ("", "used_") for name in Kind}
_MINE = and_(
    GRANTS.c.key == bindparam("of_key"), GRANTS.c.day == bindparam("of_day"), GRANTS.c.member == bindparam("of_member")
)
_USED = Statement.of(select(*(GRANTS.c[f"used_{name}"] for name in Kind)).where(_MINE))
_COUNT = Statement.of(update(GRANTS).where(_MINE).values({f"used_{name}": bindparam(f"now_{name}") for name in Kind}))
_SPEND = Statement.of(
    update(SPEND)
    .where(SPEND.c.key == bindparam("of_key"), or_(SPEND.c.day == TOTAL, SPEND.c.day == bindparam("of_day")))
    .values({name.value: SPEND.c[name] + bindparam(f"more_{name}") for name in Kind})
)
_SHARE = 8  # a tranche is what is needed, and the eighth part of what is left then


class Why(StrEnum):
    """Why nothing is granted, besides a cap."""

    CAP = "cap"  # there is not enough left
    CLOCK = "clock"  # the key was used on a later day than this one: no day's cap can be trusted
    GONE = "gone"  # there is no such key


@dataclass(frozen=True, slots=True)
class Wish:
    """What a member needs of a key's budget on a day: what it used so far that day, what it holds, and what more."""

    key: str
    day: str
    member: str
    used: Portion
    held: Portion
    need: Portion


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing is granted: of which kind there is too little, on the day or in all, and how much there is.

    `latest` is the last day on which the key was used.
    """

    why: Why
    kind: Kind = Kind.DOLLARS
    daily: bool = False
    cap: int = 0
    left: int = 0
    latest: str = TOTAL

    def __str__(self) -> str:
        if self.why is Why.CLOCK:
            return (
                f"this machine's clock is more than a day behind {self.latest}, the last day on which the key was "
                "used; where that day is what is wrong: shikisha keys mend-clock"
            )
        if self.why is Why.GONE:
            return "there is no such key any more"
        what = format_dollars(dollars(self.cap), 6) if self.kind is Kind.DOLLARS else f"{self.cap:,} {self.kind}"
        left = format_dollars(dollars(self.left), 6) if self.kind is Kind.DOLLARS else f"{self.left:,}"
        return f"{left} of the key's {what}{' a day' if self.daily else ''} are not used or reserved"


@dataclass(frozen=True, slots=True)
class _Grant:
    """A row of the table."""

    granted: Portion
    used: Portion

    @classmethod
    def of(cls, row: Row[tuple[object, ...]]) -> "_Grant":
        found = row._mapping
        granted, used = (Portion(*(found[f"{kind}{name}"] for name in Kind)) for kind in ("", "used_"))
        return cls(granted, used)

    @property
    def open(self) -> bool:
        """Whether something is granted that is not counted as used."""
        return self.granted != self.used


def latest_day(connection: Connection, key: str) -> str:
    """Return the last day on which a key was used, or was granted what it may still use; empty: never."""
    days = [day for (day,) in connection.execute(select(SPEND.c.day).where(SPEND.c.key == key))]
    held = connection.execute(select(GRANTS).where(GRANTS.c.key == key)).all()
    return max((*days, *(row.day for row in held if _Grant.of(row).open)), default=TOTAL)


@dataclass(frozen=True, slots=True)
class Mended:
    """What a key used on a day that had not come yet; it counts as used today now."""

    key: str
    day: str
    used: Portion


def mend_clock(connection: Connection, key: str | None, today: str) -> list[Mended]:
    """Count what was used on days that have not come yet, of one key or of all, as used today.

    What a dead server was granted for such a day is forgotten, and what a living one was is closed: nothing of it is
    held any more, as its clock is right by now.
    """
    of_key = [] if key is None else [key]
    keys = select(KEYS.c.id).where(*[KEYS.c.id == each for each in of_key]).order_by(KEYS.c.id).with_for_update()
    mended = []
    for name in connection.execute(keys).scalars().all():
        ahead = and_(SPEND.c.key == name, SPEND.c.day > today)
        for row in connection.execute(select(SPEND).where(ahead).order_by(SPEND.c.day)).all():
            used = Portion(row.dollars, row.tokens, row.requests)
            _add(connection, SPEND, {"key": name, "day": today, **NOTHING._asdict()})
            more = {kind.value: SPEND.c[kind] + used[place] for place, kind in enumerate(Kind)}
            connection.execute(update(SPEND).where(SPEND.c.key == name, SPEND.c.day == today).values(more))
            mended.append(Mended(name, row.day, used))
        connection.execute(delete(SPEND).where(ahead))
        granted = and_(GRANTS.c.key == name, GRANTS.c.day > today)
        alive = select(MEMBERS.c.id).where(MEMBERS.c.state == Life.ALIVE)
        connection.execute(delete(GRANTS).where(granted, GRANTS.c.member.not_in(alive)))
        closed = {kind.value: GRANTS.c[f"used_{kind}"] for kind in Kind}
        connection.execute(update(GRANTS).where(granted).values(closed))
    return mended


def grant(connection: Connection, wish: Wish) -> Portion | Refusal:
    """Return all that the member was granted for this day from its beginning on, the wish included, or why not."""
    key = connection.execute(select(KEYS).where(KEYS.c.id == wish.key).with_for_update()).mappings().one_or_none()
    if key is None:
        return Refusal(Why.GONE)
    rows = _grants(connection, wish)
    mine = rows.pop((wish.day, wish.member), _Grant(NOTHING, NOTHING))
    out = {TOTAL: _open(rows.values()), wish.day: _open(row for (day, _), row in rows.items() if day == wish.day)}
    spent = _spent(connection, wish)
    latest = max((*spent, *(day for (day, _), row in rows.items() if row.open)), default=TOTAL)
    if latest > wish.day:
        return Refusal(Why.CLOCK, latest=latest)
    least = wish.used.minus(mine.used).plus(wish.held).plus(wish.need)
    granted = []
    for place, (kind, needed) in enumerate(least.kinds()):
        caps = ((TOTAL, key[kind]), (wish.day, key[f"{kind}_per_day"]))
        rooms = [
            (cap - spent.get(day, NOTHING)[place] - out[day][place], day != TOTAL, cap)
            for day, cap in caps
            if cap is not None
        ]
        room, daily, cap = min(rooms, default=(needed, False, 0))
        if needed > room and wish.need[place]:
            return Refusal(Why.CAP, kind, daily, cap, max(0, room - needed + wish.need[place]))
        granted.append(mine.used[place] + max(needed, 0) + max(0, room - max(needed, 0)) // _SHARE)
    return _grant(connection, wish, Portion(*granted))


def _grant(connection: Connection, wish: Wish, granted: Portion) -> Portion:
    mine = _of(wish.key, wish.day, wish.member)
    if not connection.execute(update(GRANTS).where(mine).values(granted._asdict())).rowcount:
        _open_account(connection, wish.key, wish.day, wish.member)
        connection.execute(update(GRANTS).where(mine).values(granted._asdict()))
    return granted


def count(connection: Connection, member: str, used: Mapping[tuple[str, str], Portion]) -> None:
    """Count what a member used so far of each key on each day, from the beginning of its grant on."""
    for (key, day), portion in sorted(used.items()):
        mine = {"of_key": key, "of_day": day, "of_member": member}
        row = _USED.one(connection, mine)
        if row is None:
            _open_account(connection, key, day, member)
        before = NOTHING if row is None else Portion(*cast("tuple[int, int, int]", row))
        if portion != before:
            _COUNT.say(connection, [{**mine, **{f"now_{name}": value for name, value in portion._asdict().items()}}])
            _spend(connection, key, day, portion.minus(before))


def give_back(connection: Connection, key: str, member: str, granted: Mapping[str, Portion]) -> None:
    """Be granted no more than this of a key, by day."""
    for day, portion in sorted(granted.items()):
        mine = _of(key, day, member)
        connection.execute(update(GRANTS).where(mine).values(portion._asdict()))


def leave(connection: Connection, member: str) -> None:
    """Give back all that a member was granted and did not use: it performs nothing any more."""
    used = {kind.value: GRANTS.c[f"used_{kind}"] for kind in Kind}
    connection.execute(update(GRANTS).where(GRANTS.c.member == member).values(used))


@dataclass(frozen=True, slots=True)
class Spent:
    """What a key used on a day; the day is "" for all days together."""

    key: str
    day: str
    used: Portion


def spent(connection: Connection, key: str | None = None, since: str = "") -> list[Spent]:
    """Return what was used, of one key or of all, on all days together and on each from a day on."""
    where = [or_(SPEND.c.day == TOTAL, SPEND.c.day >= since)]
    if key is not None:
        where.append(SPEND.c.key == key)
    rows = connection.execute(select(SPEND).where(*where).order_by(SPEND.c.key, SPEND.c.day))
    return [Spent(row.key, row.day, Portion(row.dollars, row.tokens, row.requests)) for row in rows]


def _grants(connection: Connection, wish: Wish) -> dict[tuple[str, str], _Grant]:
    """Return what is granted of a key, by day and member, without what dead members need no more."""
    joined = GRANTS.outerjoin(MEMBERS, MEMBERS.c.id == GRANTS.c.member)
    columns = select(GRANTS, MEMBERS.c.state.label("life"), MEMBERS.c.alive_until).select_from(joined)
    found = {}
    for row in connection.execute(columns.where(GRANTS.c.key == wish.key)).all():
        if wish.member == row.member or row.life == Life.ALIVE or _needed(connection, wish.key, row.alive_until):
            found[row.day, row.member] = _Grant.of(row)
        else:
            connection.execute(delete(GRANTS).where(_of(wish.key, row.day, row.member)))
    return found


def _needed(connection: Connection, key: str, died: float | None) -> bool:
    """Whether a run is open that a member may have been performing when it died: what it held may have been used."""
    older = [] if died is None else [SERVED.c.created <= died]
    open_one = select(SERVED.c.run).where(SERVED.c.key == key, SERVED.c.state == State.OPEN, *older)
    return connection.execute(open_one.limit(1)).first() is not None


def _spent(connection: Connection, wish: Wish) -> dict[str, Portion]:
    """Return what was used in all, that day, and on a later day if there is one."""
    where = or_(SPEND.c.day == TOTAL, SPEND.c.day >= wish.day)
    rows = connection.execute(select(SPEND).where(SPEND.c.key == wish.key, where))
    return {row.day: Portion(row.dollars, row.tokens, row.requests) for row in rows}


def _spend(connection: Connection, key: str, day: str, more: Portion) -> None:
    """Add to what was used on a day, and in all."""
    added = {f"more_{name}": value for name, value in more._asdict().items()}
    _SPEND.say(connection, [{"of_key": key, "of_day": day, **added}])


def _open_account(connection: Connection, key: str, day: str, member: str) -> None:
    """Make the rows that a member's spending of a key on a day is counted in, where they are not there."""
    _add(connection, GRANTS, {**_NO_GRANT, "key": key, "day": day, "member": member})
    for each in (TOTAL, day):
        _add(connection, SPEND, {"key": key, "day": each, **NOTHING._asdict()})


def _of(key: str, day: str, member: str) -> ColumnElement[bool]:
    return and_(GRANTS.c.key == key, GRANTS.c.day == day, GRANTS.c.member == member)


def _open(grants: Iterable[_Grant]) -> Portion:
    total = NOTHING
    for each in grants:
        total = total.plus(each.granted.minus(each.used).positive())
    return total


def _add(connection: Connection, table: Table, row: Mapping[str, object]) -> None:
    """Add a row unless it is there."""
    connection.execute(_adding(connection.dialect.name, table), dict(row))


@cache
def _adding(dialect: str, table: Table) -> Insert:
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table).on_conflict_do_nothing()
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table).on_conflict_do_nothing()
