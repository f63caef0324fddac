"""Budgets of keys across servers: what was spent, what each server is granted, and what its runs hold of that.

A server (member) is granted part of a key's budget, uses it up locally, and asks for more. Invariant: what was spent
and what is granted but unused add up to no more than any cap of the key, per day and in total, whatever servers do at
the same time and whenever one dies. Three rules keep it: grants of a key happen one after another (its row is locked,
and grants are read before spending, so usage in flight counts twice rather than never); usage moves from a grant to
`spend` in the transaction of the events that report it; a dead server's grant stays until no run is open that it may
have been performing. All writes state values, not differences, so repeating one is harmless.

Calls count on the day on which they start. A clock that goes back by up to a day keeps counting on the later day; a
larger step blocks the key until that day comes or an operator corrects it (`mend_clock`).
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache, partial
from typing import NamedTuple, cast

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, or_, select, update

from shikisha.core.budget import Amount, format_dollars
from shikisha.core.events import RecordsChanged
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.journal.chain import RowStatement, execute_rows, first_row
from shikisha.journal.records import note_event, note_rows, recorded, records_event
from shikisha.journal.schema import MEMBERS, SERVED, add_rows
from shikisha.server.keys.key import MAX_COUNT, KeyCaps, dollars_of, nanodollars
from shikisha.server.keys.key_tables import ALL_DAYS, GRANTS, KEYS, SPEND, KeyDatabase, delete_recorded
from shikisha.server.store.members import MemberState
from shikisha.server.store.served_rows import ServedState


class BudgetUnit(StrEnum):
    """What is counted."""

    DOLLARS = "dollars"  # in nanodollars
    TOKENS = "tokens"
    REQUESTS = "requests"


class BudgetAmount(NamedTuple):
    """So much of each; `dollars` are nanodollars."""

    dollars: int = 0
    tokens: int = 0
    requests: int = 0

    def plus(self, other: "BudgetAmount") -> "BudgetAmount":
        """Add, each on its own."""
        return BudgetAmount(self.dollars + other.dollars, self.tokens + other.tokens, self.requests + other.requests)

    def minus(self, other: "BudgetAmount") -> "BudgetAmount":
        """Take away, each on its own."""
        return BudgetAmount(self.dollars - other.dollars, self.tokens - other.tokens, self.requests - other.requests)

    def positive(self) -> "BudgetAmount":
        """Return it without what is less than nothing."""
        return BudgetAmount(max(0, self.dollars), max(0, self.tokens), max(0, self.requests))

    def kinds(self) -> Iterator[tuple[BudgetUnit, int]]:
        """Yield how much there is of each kind."""
        yield from zip(BudgetUnit, self, strict=True)

    @classmethod
    def of(cls, amount: Amount) -> "BudgetAmount":
        """Return an amount in whole numbers, money rounded up; unknown costs count as zero."""
        return cls(nanodollars(amount.dollars or 0.0), min(amount.tokens, MAX_COUNT))


NO_AMOUNT = BudgetAmount()
ONE_REQUEST = BudgetAmount(requests=1)


_EMPTY_GRANT: Mapping[str, object] = {f"{kind}{name}": 0 for kind in ("", "used_") for name in BudgetUnit}
_OWN_GRANT = "WHERE key = ? AND day = ? AND member = ?"
_SELECT_USED = f"SELECT {', '.join(f'used_{name}' for name in BudgetUnit)} FROM grants {_OWN_GRANT}"  # noqa: S608
_UPDATE_USED = f"UPDATE grants SET {', '.join(f'used_{name} = ?' for name in BudgetUnit)} {_OWN_GRANT}"  # noqa: S608
_ADD_SPEND = (
    f"UPDATE spend SET {', '.join(f'{name} = {name} + ?' for name in BudgetUnit)} "  # noqa: S608 - our own names
    f"WHERE key = ? AND (day = '{ALL_DAYS}' OR day = ?)"
)
# A grant is what is needed, and the eighth part of what is left then, where that is enough for another call like it:
# what is left of a small budget must not lie unused at one server while another one needs it.
_EXTRA_SHARE = 8


class RefusalReason(StrEnum):
    """Why nothing is granted, besides a cap."""

    CAP = "cap"  # there is not enough left
    CLOCK = "clock"  # the key was used on a later day than this one: no day's cap can be trusted
    GONE = "gone"  # there is no such key


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """What a member needs of a key's budget on a day: what it used so far that day, what it holds, and what more."""

    key: str
    day: str
    member: str
    used: BudgetAmount
    held: BudgetAmount
    need: BudgetAmount


@dataclass(frozen=True, slots=True)
class BudgetRefusal:
    """Nothing is granted: of which kind there is too little, on the day or in all, and how much there is.

    `latest` is the last day on which the key was used.
    """

    why: RefusalReason
    kind: BudgetUnit = BudgetUnit.DOLLARS
    daily: bool = False
    cap: int = 0
    left: int = 0
    latest: str = ALL_DAYS

    def __str__(self) -> str:
        if self.why is RefusalReason.CLOCK:
            return (
                f"this machine's clock is more than a day behind {self.latest}, the last day on which the key was "
                "used; where that day is what is wrong: shikisha keys budget --mend-clock"
            )
        if self.why is RefusalReason.GONE:
            return "there is no such key any more"
        what = (
            format_dollars(dollars_of(self.cap), 6) if self.kind is BudgetUnit.DOLLARS else f"{self.cap:,} {self.kind}"
        )
        left = format_dollars(dollars_of(self.left), 6) if self.kind is BudgetUnit.DOLLARS else f"{self.left:,}"
        return f"{left} of the key's {what}{' a day' if self.daily else ''} are not used or reserved"


@dataclass(frozen=True, slots=True)
class _GrantRow:
    """A row of the table."""

    granted: BudgetAmount
    used: BudgetAmount

    @classmethod
    def of(cls, row: Row[tuple[object, ...]]) -> "_GrantRow":
        found = row._mapping
        granted, used = (BudgetAmount(*(found[f"{kind}{name}"] for name in BudgetUnit)) for kind in ("", "used_"))
        return cls(granted, used)

    @property
    def open(self) -> bool:
        """Whether something is granted that is not counted as used."""
        return self.granted != self.used


def latest_day(connection: Connection, key: str) -> str:
    """Return the last day on which a key was used, or was granted what it may still use; empty: never."""
    days = [day for (day,) in connection.execute(select(SPEND.c.day).where(SPEND.c.key == key))]
    held = connection.execute(select(GRANTS).where(GRANTS.c.key == key)).all()
    return max((*days, *(row.day for row in held if _GrantRow.of(row).open)), default=ALL_DAYS)


@dataclass(frozen=True, slots=True)
class MendedUsage:
    """What a key used on a day that had not come yet; it counts as used today now."""

    key: str
    day: str
    used: BudgetAmount


def mend_clock(connection: Connection, key: str | None, today: str) -> list[MendedUsage]:
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
            used = BudgetAmount(row.dollars, row.tokens, row.requests)
            add_rows(connection, SPEND, [{"key": name, "day": today, **NO_AMOUNT._asdict()}], missing=True)
            more = {kind.value: SPEND.c[kind] + used[place] for place, kind in enumerate(BudgetUnit)}
            connection.execute(update(SPEND).where(SPEND.c.key == name, SPEND.c.day == today).values(more))
            mended.append(MendedUsage(name, row.day, used))
        connection.execute(delete(SPEND).where(ahead))
        days = {row.day: row for row in connection.execute(select(SPEND).where(SPEND.c.key == name))}
        changed = {each: days.get(each) for each in (today, *(each.day for each in mended if each.key == name))}
        spend = {json.dumps([name, day]): [*row[2:]] if row else [] for day, row in changed.items()}
        note_event(connection, records_event(spend=spend) if len(spend) > 1 else None)
        granted = and_(GRANTS.c.key == name, GRANTS.c.day > today)
        alive = select(MEMBERS.c.id).where(MEMBERS.c.state == MemberState.ALIVE)
        delete_recorded(connection, GRANTS, granted, GRANTS.c.member.not_in(alive))
        _close_grants(connection, granted)
    return mended


def _close_grants(connection: Connection, where: ColumnElement[bool]) -> None:
    closed = {kind.value: GRANTS.c[f"used_{kind}"] for kind in BudgetUnit}
    changed = update(GRANTS).where(where).values(closed).returning(*GRANTS.primary_key.columns)
    note_rows(connection, "grants", map(tuple, connection.execute(changed).all()))


@recorded
def grant_budget(connection: Connection, requested: GrantRequest) -> BudgetAmount | BudgetRefusal:
    """Return the member's total grant of this day including the request, or the refusal."""
    key = connection.execute(select(KEYS).where(KEYS.c.id == requested.key).with_for_update()).mappings().one_or_none()
    if key is None:
        return BudgetRefusal(RefusalReason.GONE)
    rows = _live_grants(connection, requested)
    mine = rows.pop((requested.day, requested.member), _GrantRow(NO_AMOUNT, NO_AMOUNT))
    out = {
        ALL_DAYS: _unused_total(rows.values()),
        requested.day: _unused_total(row for (day, _), row in rows.items() if day == requested.day),
    }
    spent = _spent_by_day(connection, requested)
    latest = max((*spent, *(day for (day, _), row in rows.items() if row.open)), default=ALL_DAYS)
    if latest > requested.day:
        return BudgetRefusal(RefusalReason.CLOCK, latest=latest)
    least = requested.used.minus(mine.used).plus(requested.held).plus(requested.need)
    granted = []
    for place, (kind, needed) in enumerate(least.kinds()):
        caps = ((ALL_DAYS, key[kind]), (requested.day, key[f"{kind}_per_day"]))
        rooms = [
            (cap - spent.get(day, NO_AMOUNT)[place] - out[day][place], day != ALL_DAYS, cap)
            for day, cap in caps
            if cap is not None
        ]
        room, daily, cap = min(rooms, default=(needed, False, 0))
        if needed > room and requested.need[place]:
            return BudgetRefusal(RefusalReason.CAP, kind, daily, cap, max(0, room - needed + requested.need[place]))
        extra = max(0, room - max(needed, 0)) // _EXTRA_SHARE
        counts = kind is BudgetUnit.REQUESTS or not requested.need.requests  # a run that begins needs next to nothing
        granted.append(mine.used[place] + max(needed, 0) + (extra if counts and extra >= requested.need[place] else 0))
    return _store_grant(connection, requested, BudgetAmount(*granted))


def _store_grant(connection: Connection, requested: GrantRequest, granted: BudgetAmount) -> BudgetAmount:
    mine = _own_grant(requested.key, requested.day, requested.member)
    if not connection.execute(update(GRANTS).where(mine).values(granted._asdict())).rowcount:
        _open_account(connection, requested.key, requested.day, requested.member)
        connection.execute(update(GRANTS).where(mine).values(granted._asdict()))
    note_rows(connection, "grants", [(requested.key, requested.day, requested.member)])
    return granted


def count_usage(connection: Connection, member: str, used: Mapping[tuple[str, str], BudgetAmount]) -> None:
    """Count what a member used so far of each key on each day, from the beginning of its grant on."""
    for (key, day), portion in sorted(used.items()):
        row = first_row(connection, _SELECT_USED, key, day, member)
        if row is None:
            _open_account(connection, key, day, member)
        before = NO_AMOUNT if row is None else BudgetAmount(*cast("tuple[int, int, int]", row))
        if portion != before:
            execute_rows(connection, _UPDATE_USED, [(*portion, key, day, member)])
            # Add to what was used on a day, and in all.
            more = portion.minus(before)
            execute_rows(connection, _ADD_SPEND, [(*more, key, day)])


_OPEN_GRANTS = (
    "INSERT INTO grants SELECT key, day, member, 0, 0, 0, 0, 0, 0 "
    "FROM jsonb_populate_recordset(NULL::grants, $1) ON CONFLICT DO NOTHING"
)
_EACH_DAY = f"unnest(CASE day WHEN '{ALL_DAYS}' THEN ARRAY[day] ELSE ARRAY['{ALL_DAYS}', day] END) AS counted"
_OPEN_SPEND = (
    "INSERT INTO spend SELECT DISTINCT key, counted, 0, 0, 0 "  # noqa: S608 - the days are our own
    f"FROM jsonb_populate_recordset(NULL::grants, $1), {_EACH_DAY} ORDER BY 1, 2 ON CONFLICT DO NOTHING"
)
_COUNT_USED = f"""
WITH said AS (SELECT * FROM jsonb_populate_recordset(NULL::grants, $1)),
more AS (
  SELECT key, counted, {", ".join(f"sum(said.used_{name} - grants.used_{name}) AS {name}" for name in BudgetUnit)}
  FROM grants JOIN said USING (key, day, member), {_EACH_DAY} GROUP BY key, counted
),
counted_here AS (
  UPDATE grants SET {", ".join(f"used_{name} = said.used_{name}" for name in BudgetUnit)} FROM said
  WHERE grants.key = said.key AND grants.day = said.day AND grants.member = said.member
)
UPDATE spend SET {", ".join(f"{name} = spend.{name} + more.{name}" for name in BudgetUnit)} FROM more
WHERE spend.key = more.key AND spend.day = more.counted
"""  # noqa: S608 - the names are our own columns'


@dataclass(frozen=True, slots=True)
class UsageCount:
    """`count_usage` as a work of the journal, and as PostgreSQL's statements that do the same."""

    member: str
    used: Mapping[tuple[str, str], BudgetAmount]

    def __call__(self, connection: Connection) -> None:
        """Count it."""
        count_usage(connection, self.member, self.used)

    def statements(self) -> tuple[RowStatement, ...]:
        """Return the statements: the rows it is counted in, where they are not there, and the counting."""
        rows = [
            {
                "key": key,
                "day": day,
                "member": self.member,
                **{f"used_{name}": value for name, value in portion.kinds()},
            }
            for (key, day), portion in sorted(self.used.items())
        ]
        return tuple(RowStatement(sql, rows) for sql in (_OPEN_GRANTS, _OPEN_SPEND, _COUNT_USED))

    def records(self) -> RecordsChanged | None:
        """Return what it makes of what the member has used."""
        used = {json.dumps(place): list(portion) for place, portion in sorted(self.used.items())}
        return records_event(member=self.member, used=used) if used else None


@recorded
def return_unused(connection: Connection, key: str, member: str, granted: Mapping[str, BudgetAmount]) -> None:
    """Be granted no more than this of a key, by day."""
    for day, portion in sorted(granted.items()):
        mine = _own_grant(key, day, member)
        if connection.execute(update(GRANTS).where(mine).values(portion._asdict())).rowcount:
            note_rows(connection, "grants", [(key, day, member)])


def return_all_unused(connection: Connection, member: str) -> None:
    """Return all unused grants of a member that performs nothing anymore."""
    _close_grants(connection, GRANTS.c.member == member)


@dataclass(frozen=True, slots=True)
class DailySpend:
    """What a key used on a day; the day is "" for all days together."""

    key: str
    day: str
    used: BudgetAmount


def read_spend(connection: Connection, key: str | None = None, since: str = "") -> list[DailySpend]:
    """Return what was used, of one key or of all, on all days together and on each from a day on."""
    where = [or_(SPEND.c.day == ALL_DAYS, SPEND.c.day >= since)]
    if key is not None:
        where.append(SPEND.c.key == key)
    rows = connection.execute(select(SPEND).where(*where).order_by(SPEND.c.key, SPEND.c.day))
    return [DailySpend(row.key, row.day, BudgetAmount(row.dollars, row.tokens, row.requests)) for row in rows]


def _live_grants(connection: Connection, requested: GrantRequest) -> dict[tuple[str, str], _GrantRow]:
    """Return what is granted of a key, by day and member, without what dead members need no more."""
    joined = GRANTS.outerjoin(MEMBERS, MEMBERS.c.id == GRANTS.c.member)
    columns = select(GRANTS, MEMBERS.c.state.label("life"), MEMBERS.c.alive_until).select_from(joined)
    found = {}
    for row in connection.execute(columns.where(GRANTS.c.key == requested.key)).all():
        if (
            requested.member == row.member
            or row.life == MemberState.ALIVE
            or _may_still_be_used(connection, requested.key, row.alive_until)
        ):
            found[row.day, row.member] = _GrantRow.of(row)
        else:
            delete_recorded(connection, GRANTS, _own_grant(requested.key, row.day, row.member))
    return found


def _may_still_be_used(connection: Connection, key: str, died: float | None) -> bool:
    """Whether a run is open that a member may have been performing when it died: what it held may have been used."""
    older = [] if died is None else [SERVED.c.created <= died]
    open_one = select(SERVED.c.run).where(SERVED.c.key == key, SERVED.c.state == ServedState.OPEN, *older)
    return connection.execute(open_one.limit(1)).first() is not None


def _spent_by_day(connection: Connection, requested: GrantRequest) -> dict[str, BudgetAmount]:
    """Return what was used in all, that day, and on a later day if there is one."""
    where = or_(SPEND.c.day == ALL_DAYS, SPEND.c.day >= requested.day)
    rows = connection.execute(select(SPEND).where(SPEND.c.key == requested.key, where))
    return {row.day: BudgetAmount(row.dollars, row.tokens, row.requests) for row in rows}


def _open_account(connection: Connection, key: str, day: str, member: str) -> None:
    """Make the rows that a member's spending of a key on a day is counted in, where they are not there."""
    add_rows(connection, GRANTS, [{**_EMPTY_GRANT, "key": key, "day": day, "member": member}], missing=True)
    for each in (ALL_DAYS, day):
        add_rows(connection, SPEND, [{"key": key, "day": each, **NO_AMOUNT._asdict()}], missing=True)


def _own_grant(key: str, day: str, member: str) -> ColumnElement[bool]:
    return and_(GRANTS.c.key == key, GRANTS.c.day == day, GRANTS.c.member == member)


def _unused_total(grants: Iterable[_GrantRow]) -> BudgetAmount:
    total = NO_AMOUNT
    for each in grants:
        total = total.plus(each.granted.minus(each.used).positive())
    return total


_DAY_SECONDS = 86400.0
_GRANT_TRIES = 3


@dataclass(slots=True)
class BudgetGrant:
    """What is granted of a key for a day since this server began, and what of that is used and held."""

    granted: BudgetAmount = NO_AMOUNT
    used: BudgetAmount = NO_AMOUNT
    held: BudgetAmount = NO_AMOUNT
    tight: bool = False  # nothing but what was needed is granted, since so little is left

    def room(self, need: BudgetAmount, capped: frozenset[BudgetUnit]) -> bool:
        """Whether that much more may be held."""
        if not capped:
            return True
        left = self.granted.minus(self.used).minus(self.held).minus(need)
        return all(value >= 0 for kind, value in left.kinds() if kind in capped and need[_UNIT_PLACES[kind]])

    @property
    def spare(self) -> bool:
        """Whether something is granted that is neither used nor held."""
        return any(value > 0 for value in self.granted.minus(self.used).minus(self.held))

    def close(self) -> None:
        """Allow no further reservations until more is granted."""
        self.granted = self.used.plus(self.held)


_UNIT_PLACES = {kind: place for place, kind in enumerate(BudgetUnit)}


@dataclass(slots=True)
class KeyAccount:
    """A key's account at this server, under one member's name."""

    key: str
    member: str
    database: KeyDatabase
    now: Callable[[], float]
    changed: Callable[["KeyAccount"], None]  # called when more was used
    grants: dict[str, BudgetGrant] = field(default_factory=dict)
    latest: str = ""
    runs: int = 0
    _unreported: set[str] = field(default_factory=set)  # days on which more was used than the database was told
    _caps: KeyCaps | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def hold(self, need: BudgetAmount, caps: KeyCaps) -> str | BudgetRefusal:
        """Reserve an amount; return the day on which it counts, or the refusal. JournalUnavailable: unknown."""
        capped = _capped_units(caps)
        for _ in range(_GRANT_TRIES):
            day = self._day() or await self._day_again()
            if day is None:
                return BudgetRefusal(RefusalReason.CLOCK, latest=self.latest)
            grant = self.grants.setdefault(day, BudgetGrant())
            if (caps == self._caps or not capped) and grant.room(need, capped):
                grant.held = grant.held.plus(need)
                return day
            refusal = await self._more(day, need, caps)
            if refusal is not None and not (refusal.why is RefusalReason.CLOCK and refusal.latest > self.latest):
                return refusal
            self.latest = max(self.latest, refusal.latest if refusal else day)
        return BudgetRefusal(RefusalReason.CLOCK, latest=self.latest)

    def settle(self, day: str | None, held: BudgetAmount, used: BudgetAmount) -> None:
        """Release what was held on a day (None: nothing was, count it today), and count what was used."""
        day = day or self._day() or self.latest
        grant = self.grants.setdefault(day, BudgetGrant())
        grant.held = grant.held.minus(held)
        if any(used):
            grant.used = grant.used.plus(used)
            self._unreported.add(day)
            self.changed(self)

    def take_unreported(self) -> dict[tuple[str, str], BudgetAmount]:
        """Return what was used, by key and day, on the days on which it is more than was returned before."""
        days, self._unreported = self._unreported, set()
        return {(self.key, day): self.grants[day].used for day in days}

    async def return_unused(self) -> None:
        """Return what is neither reserved nor used here, and forget past days."""
        async with self._turn:
            today = self._day() or self.latest
            spare = {day: each for day, each in self.grants.items() if each.spare}
            for each in spare.values():
                each.close()
            granted = {day: each.granted for day, each in spare.items()}
            if granted:
                await self.database.write(partial(return_unused, key=self.key, member=self.member, granted=granted))
            for day, each in tuple(self.grants.items()):
                if day < today and not any(each.held) and day not in self._unreported:
                    del self.grants[day]

    async def _more(self, day: str, need: BudgetAmount, caps: KeyCaps) -> BudgetRefusal | None:
        """Get a larger grant, unless another task just did."""
        async with self._turn:
            grant = self.grants.setdefault(day, BudgetGrant())
            if caps == self._caps and grant.room(need, _capped_units(caps)):
                return None
            grant.close()
            requested = GrantRequest(self.key, day, self.member, grant.used, grant.held, need)
            answer = await self.database.write(partial(grant_budget, requested=requested))
            if isinstance(answer, BudgetRefusal):
                return answer
            grant.tight = answer == grant.used.plus(grant.held).plus(need)
            grant.granted, self._caps = answer, caps
            return None

    def _day(self) -> str | None:
        """Return the UTC day, or the last one seen where the clock is up to a day behind it; None where it is more."""
        now = self.now()
        day = day_of(now)
        if day < self.latest:
            day = self.latest if day_of(now + _DAY_SECONDS) >= self.latest else ""
        self.latest = max(self.latest, day)
        return day or None

    async def _day_again(self) -> str | None:
        """Return the day after reading the last day of use again: an operator may have corrected it."""
        self.latest = await self.database.query(partial(latest_day, key=self.key))
        return self._day()


def day_of(at: float) -> str:
    """Return the UTC day of a Unix time, as in 2026-11-24."""
    return _day_name(int(at // _DAY_SECONDS))


@lru_cache(16)
def _day_name(day: int) -> str:
    return datetime.fromtimestamp(day * _DAY_SECONDS, UTC).strftime("%Y-%m-%d")


@lru_cache(1024)
def _capped_units(caps: KeyCaps) -> frozenset[BudgetUnit]:
    return frozenset(
        kind for kind in BudgetUnit if not (getattr(caps, kind) is None is getattr(caps, f"{kind}_per_day"))
    )
