"""Governance records in the hash chain: who changed what, keys, logins, grants, spending, and whose each run is.

The tables hold what is so now; an event of the pseudo run `RECORDS` holds what each change made of a row, as a hash.
Invariants: a row changes only in the transaction that chains the change (`recorded`, or a batch of the journal), so a
table that differs from the fold of these events was edited, cut, or put back by somebody else (`check_records`).
Spending is chained as sums per server and folded, because its rows change with nearly every commit. Rows from before
the chain had records are chained as they were found (`chain_present`). Deliberately absent: what only lists show
(status, cost and labels of `served`, the index of runs), and open challenges of passkeys, which open nothing.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from hashlib import sha256
from typing import Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from sqlalchemy import ColumnClause, Connection, Select, column, func, literal_column, select, table, tuple_

from shikisha.core.events import RECORDS, RecordsChanged
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.journal.chain import EventBatch, lock_head
from shikisha.journal.codec import encode_event
from shikisha.journal.run_index import scope_word
from shikisha.journal.schema import EVENTS, RUN_TEXTS, RUNS, SERVED

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Amounts: TypeAlias = tuple[int, int, int]
_PAGE = 500
_PENDING = "shikisha_records"


class _RecordTable(NamedTuple):
    """A table whose rows are chained: its key, the columns that count (all without any), and which rows do."""

    key: tuple[str, ...]
    columns: tuple[str, ...] = ()
    only: Mapping[str, str] = {}


_GRANTED, _USED = ("dollars", "tokens", "requests"), ("used_dollars", "used_tokens", "used_requests")
_TABLES: Mapping[str, _RecordTable] = {
    "audit": _RecordTable(("number",), ("number", "at", "actor", "action", "target", "details")),
    "keys": _RecordTable(("id",)),
    "sessions": _RecordTable(("hash",)),
    "passkeys": _RecordTable(("id",)),
    "codes": _RecordTable(("hash",), only={"purpose": "link"}),
    "push_subscriptions": _RecordTable(("hash",)),
    "grants": _RecordTable(("key", "day", "member"), ("key", "day", "member", *_GRANTED)),
    "served": _RecordTable(("run",), ("run", "tenant", "key", "api", "model", "conductor", "created")),
}
_WRITTEN_ONCE = ("audit", "served")  # they grow without end, so that they are compared a page at a time


def records_event(**changed: object) -> RecordsChanged:
    """Return the event of a change that is made now."""
    return RecordsChanged(run=RECORDS, at=time.time(), **changed)  # type: ignore[arg-type]  # fields of that event


@dataclass(slots=True)
class _Pending:
    """What was noted in a transaction that is under way."""

    rows: dict[str, dict[str, None]] = field(default_factory=dict)
    events: list[RecordsChanged] = field(default_factory=list)


def recorded(work: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Connection, P], T]:
    """Chain what a transaction's work notes (`note_rows`, `note_event`) as its last act, under the chain's lock."""

    @wraps(work)
    def run(connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
        lock_head(connection)  # first of all, as every writer does, so that none waits for another in a circle
        pending = connection.info[_PENDING] = _Pending()
        try:
            result = work(connection, *args, **kwargs)
            rows = {name: _hash_rows(connection, name, list(keys)) for name, keys in pending.rows.items()}
            events = [*pending.events, *([records_event(rows=rows)] if rows else [])]
        finally:
            del connection.info[_PENDING]
        if events:
            EventBatch([encode_event(event) for event in events]).append(connection)
        return result

    return run


def note_rows(connection: Connection, name: str, keys: Iterable[Sequence[object]]) -> None:
    """Note rows, by their keys, that were added, changed or deleted; KeyError in a work that is not `recorded`."""
    noted = connection.info[_PENDING].rows
    for key in keys:
        noted.setdefault(name, {})[_key_text(key)] = None


def note_event(connection: Connection, event: RecordsChanged | None) -> None:
    """Note a change that says by itself what it made of records; KeyError in a work that is not `recorded`."""
    if event is not None:
        connection.info[_PENDING].events.append(event)


def row_hash(name: str, row: Mapping[str, object]) -> str:
    """Return the hash of what counts of a row; a column that is empty does not count, so that tables can get more."""
    columns = _TABLES[name].columns or tuple(row)
    kept = {each: _canonical(row[each]) for each in columns if row[each] is not None}
    return sha256(_encode([name, kept]).encode()).hexdigest()[:32]


_encode = json.JSONEncoder(sort_keys=True).encode


def _canonical(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _key_text(key: Sequence[object]) -> str:
    return json.dumps([str(each) for each in key]) if len(key) > 1 else str(key[0])


def _read_rows(connection: Connection, name: str, keys: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield key and hash of rows that are there, of all or of these."""
    spec = _TABLES[name]
    named: list[ColumnClause[object]] = [column(each) for each in spec.key]
    asked: Select[*tuple[object, ...]] = (
        select(literal_column("*"))
        .select_from(table(name))
        .where(*[column(each) == value for each, value in spec.only.items()])
    )
    parts = [None] if keys is None else [keys[start : start + _PAGE] for start in range(0, len(keys), _PAGE)]
    for part in parts:
        of_part = asked
        if part is not None and len(named) > 1:
            of_part = asked.where(tuple_(*named).in_([json.loads(each) for each in part]))
        elif part is not None:
            of_part = asked.where(named[0].in_([int(each) for each in part] if name == "audit" else part))
        for row in connection.execute(of_part).mappings():
            yield _key_text([row[each] for each in spec.key]), row_hash(name, dict(row))


def _hash_rows(connection: Connection, name: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the hash of each of these rows; empty: it is not there."""
    return {**dict.fromkeys(keys, ""), **dict(_read_rows(connection, name, keys))}


def chain_present(connection: Connection) -> None:
    """Chain every row as it is found: what was done to it before cannot be known."""
    events = []
    for name in _TABLES:
        found = list(_read_rows(connection, name))
        events += [records_event(rows={name: dict(found[at : at + _PAGE])}) for at in range(0, len(found), _PAGE)]
    for (key, day, member), used in _read_amounts(connection, "grants", _USED).items():
        events.append(records_event(member=member, used={_key_text((key, day)): used}))
    spend = {_key_text(place): used for place, used in _read_amounts(connection, "spend", _GRANTED).items()}
    if events or spend:
        batch = EventBatch([encode_event(event) for event in (*events, records_event(spend=spend))])
        batch.append(connection)


def _read_amounts(connection: Connection, name: str, columns: Sequence[str]) -> dict[tuple[str, ...], Amounts]:
    keys = ("key", "day", *(["member"] if name == "grants" else []))
    names: list[ColumnClause[object]] = [column(each) for each in (*keys, *columns)]
    rows = connection.execute(select(*names).select_from(table(name))).all()
    return {tuple(map(str, row[: len(keys)])): cast("Amounts", tuple(row[len(keys) :])) for row in rows}


@dataclass(frozen=True, slots=True)
class RecordFindings:
    """How many changes of records were chained, from which event on, and what the tables have that is not so."""

    changes: int = 0
    since: int | None = None
    problems: tuple[str, ...] = ()


NO_RECORDS = RecordFindings()


@dataclass(slots=True)
class _Fold:
    """What the tables should hold: rows by table and key, and spending by key and day."""

    connection: Connection
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    once: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WRITTEN_ONCE, 0))
    used: dict[tuple[str, ...], Amounts] = field(default_factory=dict)
    spend: dict[tuple[str, ...], Amounts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def take(self, changed: Mapping[str, Mapping[str, object]], member: str) -> None:
        for name, rows in changed.get("rows", {}).items():
            told = {str(key): str(hashed) for key, hashed in dict(rows).items()}  # type: ignore[call-overload]
            if name in _WRITTEN_ONCE:
                self._compare_once(name, told)
                continue
            known = self.rows.setdefault(name, {})
            opened = [place for place, hashed in told.items() if name == "grants" and hashed and not known.get(place)]
            for key, day, _ in map(json.loads, opened):  # with its first grant a day gets its row of spending
                for each in ("", day):
                    self.spend.setdefault((key, each), (0, 0, 0))
            known.update(told)
        for place, amounts in changed.get("used", {}).items():
            key, day = json.loads(place)
            now, before = _amounts(amounts), self.used.get((key, day, member), (0, 0, 0))
            self.used[key, day, member] = now
            row, granted = {"key": key, "day": day, "member": member}, self.rows.setdefault("grants", {})
            place = _key_text((key, day, member))
            granted[place] = granted.get(place) or row_hash("grants", row | dict.fromkeys(_GRANTED, 0))
            for each in {"", day}:
                had = self.spend.get((key, each), (0, 0, 0))
                self.spend[key, each] = _amounts(a + b - c for a, b, c in zip(had, now, before, strict=True))
        for place, amounts in changed.get("spend", {}).items():
            key, day = json.loads(place)
            self.spend.pop((key, day), None)
            if amounts:
                self.spend[key, day] = _amounts(amounts)

    def _compare_once(self, name: str, told: Mapping[str, str]) -> None:
        """Compare rows that never change; a served one that is gone was never acknowledged if its run has no event."""
        found = _hash_rows(self.connection, name, list(told))
        self.once[name] += sum(1 for hashed in found.values() if hashed)
        for key in (key for key, hashed in told.items() if found[key] != hashed):
            begun = select(EVENTS.c.seq).where(EVENTS.c.run == key).limit(1)
            if name == "audit" or found[key] or self.connection.execute(begun).first() is not None:
                self._report(name, key, "not what was written" if found[key] else "missing")

    def finish(self) -> None:
        """Compare what is left: rows that may change, spending, and how many rows there are of those that do not."""
        for name in (each for each in _TABLES if each not in _WRITTEN_ONCE):
            due = {key: hashed for key, hashed in self.rows.get(name, {}).items() if hashed}
            there = dict(_read_rows(self.connection, name))
            self._compare(name, due, there)
        grants = _read_amounts(self.connection, "grants", _USED)
        self._compare("grants", {each: self.used.get(each, (0, 0, 0)) for each in grants}, grants)
        self._compare("spend", self.spend, _read_amounts(self.connection, "spend", _GRANTED))
        for name, known in self.once.items():
            more = self.connection.execute(select(func.count()).select_from(table(name))).scalar_one() - known
            if more > 0:
                self.problems.append(f"{name}: {more} rows were added by somebody else")
        foreign = select(RUNS.c.run).join(SERVED, SERVED.c.run == RUNS.c.root)
        foreign = foreign.where((RUNS.c.tenant != SERVED.c.tenant) | (RUNS.c.key != SERVED.c.key)).limit(_PAGE)
        for run in self.connection.execute(foreign).scalars():
            self._report("runs", run, "indexed as somebody else's")
        scopes = select(RUN_TEXTS.c.scope, SERVED.c.tenant).join(SERVED, SERVED.c.run == RUN_TEXTS.c.root).distinct()
        for scope, tenant in self.connection.execute(scopes):
            if scope != scope_word(tenant):
                self._report("run_texts", scope, f"found by others than {tenant!r}, whose runs it is of")

    def _compare(self, name: str, due: Mapping[K, V], there: Mapping[K, V]) -> None:
        for key in due.keys() | there.keys():
            if due.get(key) != there.get(key):
                fate = "missing" if key not in there else "not what was written" if key in due else "somebody else's"
                self._report(name, "/".join(key) if isinstance(key, tuple) else str(key), fate)

    def _report(self, name: str, key: str, fate: str) -> None:
        self.problems.append(f"{name}: row {key} is {fate}")


def _amounts(values: object) -> Amounts:
    dollars, tokens, requests = map(int, cast("Iterable[int]", values))  # ValueError, TypeError for anything else
    return dollars, tokens, requests


def check_records(connection: Connection) -> RecordFindings:
    """Compare the tables with what was chained of them; the connection sees one moment of the store."""
    fold, changes, since, last = _Fold(connection), 0, None, -1
    asked = select(EVENTS.c.seq, EVENTS.c.data).where(EVENTS.c.run == RECORDS).order_by(EVENTS.c.seq).limit(_PAGE)
    while page := connection.execute(asked.where(EVENTS.c.seq > last)).all():
        since, last, changes = page[0].seq if since is None else since, page[-1].seq, changes + len(page)
        for row in page:
            try:
                data = json.loads(row.data)
                fold.take(data, str(data.get("member", "")))
            except (AttributeError, TypeError, ValueError):  # a changed row: the chain names it too
                fold.problems.append(f"records: event {row.seq} makes no record")
    fold.finish()
    return RecordFindings(changes, since, tuple(fold.problems))
