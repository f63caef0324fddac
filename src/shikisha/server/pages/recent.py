"""What the newest part of the journal says of calls and runs: read in bounded time, and kept for some seconds.

Invariants: at most `MOST` events are looked at, however long the journal is; whoever asks sees calls of the runs of his
own tenant only. Texts are not read: what is counted stands in the events' own data. Deliberately absent: a second
truth; a run's figures are its events'.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection, select

from shikisha.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CheckDecided,
    CheckStatus,
    PlanProposed,
    Reason,
    Role,
    RunStarted,
)
from shikisha.journal.tables import EVENTS, HEAD, SERVED
from shikisha.server.house import root_of

T = TypeVar("T")
MOST = 20_000  # events
_PAGE = 1_000
KEPT = 5.0  # seconds
_KINDS = (RunStarted, PlanProposed, AttemptStarted, AttemptFinished, AttemptFailed, CheckDecided, AnswerGraded)
_WANTED = tuple(kind.kind for kind in _KINDS)
_ENDS = (AttemptFinished.kind, AttemptFailed.kind)
_NOBODYS = ("cancelled", "waiting", "cap", "denied", "not_cleared", "blocked")  # faults that say nothing of a worker


class Asks(Protocol):
    """What reads the journal."""

    async def query(self, work: Callable[[Connection], T]) -> T:
        """Run a function that only reads."""
        ...


@dataclass(frozen=True, slots=True)
class Tried:
    """A call that has ended. `ok`: it gave an answer that no check refused; `dollars` None: nobody can say."""

    run: str
    worker: str
    domain: str
    at: float
    ok: bool
    seconds: float
    tokens: int
    dollars: float | None


@dataclass(frozen=True, slots=True)
class Recent:
    """The calls that ended lately, oldest first, the score of each run that was graded, and since when that is all."""

    tried: tuple[Tried, ...]
    scores: Mapping[str, float]
    since: float | None


class Reader:
    """Reads what is recent, for each tenant at most once in some seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: dict[str | None, tuple[float, Recent]] = {}
        self._turn = asyncio.Lock()

    async def read(self, journal: Asks, tenant: str | None) -> Recent:
        """Return what is recent of a tenant's runs; of all runs for None."""
        async with self._turn:
            self._kept = {name: pair for name, pair in self._kept.items() if self._clock() - pair[0] < KEPT}
            if tenant not in self._kept:
                self._kept[tenant] = (self._clock(), await recent(journal, tenant))
            return self._kept[tenant][1]


async def recent(journal: Asks, tenant: str | None, most: int = MOST) -> Recent:
    """Read the newest events, a page at a time, and count them beside the event loop: it has others to serve."""
    last: int = await journal.query(lambda connection: connection.execute(select(HEAD.c.count)).scalar_one())
    rows: list[_Row] = []
    for begin in range(max(0, last - most), last, _PAGE):
        rows += await journal.query(partial(_page, begin=begin))
    runs = {root_of(row.run) for row in rows}
    domains = await journal.query(partial(_domains, runs=runs, tenant=tenant))
    return await asyncio.to_thread(_counted, rows, domains, tenant is None)


class _Row(NamedTuple):
    run: str
    kind: str
    at: float
    data: str


def _page(connection: Connection, begin: int) -> list[_Row]:
    columns = (EVENTS.c.run, EVENTS.c.kind, EVENTS.c.at, EVENTS.c.data)
    where = (EVENTS.c.seq >= begin, EVENTS.c.seq < begin + _PAGE, EVENTS.c.kind.in_(_WANTED))
    return [_Row(*row) for row in connection.execute(select(*columns).where(*where).order_by(EVENTS.c.seq))]


def _domains(connection: Connection, runs: set[str], tenant: str | None) -> dict[str, str]:
    """Return the kinds of task of the runs that this tenant may see."""
    if not runs:
        return {}
    where = [SERVED.c.run >= min(runs), SERVED.c.run <= max(runs)]  # ids sort by time
    if tenant is not None:
        where.append(SERVED.c.tenant == tenant)
    return {row.run: row.domain for row in connection.execute(select(SERVED.c.run, SERVED.c.domain).where(*where))}


def _counted(rows: Sequence[_Row], domains: Mapping[str, str], everybody: bool) -> Recent:
    gathered = _Gathered(domains, everybody=everybody)
    for row in rows:
        gathered.take(row.run, row.kind, row.at, json.loads(row.data))
    return Recent(gathered.ended(), gathered.scores, rows[0].at if rows else None)


_Place = tuple[str, int, int, int]


class _Gathered:
    def __init__(self, domains: Mapping[str, str], *, everybody: bool) -> None:
        self._domains = dict(domains)
        self._everybody = everybody
        self._plain: set[_Place] = set()  # attempts that are not a step's own (a check's, a conductor's)
        self._tried: dict[_Place, Tried] = {}
        self.scores: dict[str, float] = {}

    def take(self, run: str, kind: str, at: float, data: Mapping[str, object]) -> None:
        root = root_of(run)
        if root not in self._domains and not self._everybody:
            return
        if kind == RunStarted.kind and data.get("domain"):
            self._domains.setdefault(root, str(data["domain"]))
        elif kind == AnswerGraded.kind and isinstance(score := data.get("score"), int | float):
            self.scores[run] = float(score)
        elif data.get("step") is not None and "attempt" in data:
            place = (run, _whole(data["round"]), _whole(data["step"]), _whole(data["attempt"]))
            self._call(place, kind, at, data)

    def _call(self, place: _Place, kind: str, at: float, data: Mapping[str, object]) -> None:
        if kind == AttemptStarted.kind:
            if data.get("role", Role.STEP) != Role.STEP or data.get("reason") == Reason.AGREED:
                self._plain.add(place)
        elif kind == CheckDecided.kind and place in self._tried and data["status"] != CheckStatus.PASS:
            old = self._tried[place]
            self._tried[place] = Tried(
                old.run, old.worker, old.domain, old.at, False, old.seconds, old.tokens, old.dollars
            )
        elif kind in _ENDS and place not in self._plain and str(data.get("fault", "")) not in _NOBODYS:
            self._tried[place] = _tried(place[0], self._domains.get(root_of(place[0]), ""), at, data)

    def ended(self) -> tuple[Tried, ...]:
        return tuple(self._tried.values())


def _tried(run: str, domain: str, at: float, data: Mapping[str, object]) -> Tried:
    used = data.get("usage") or data.get("charged") or {}
    told: Mapping[str, object] = used if isinstance(used, dict) else {}
    tokens = sum(_whole(told.get(name, 0)) for name in ("input_tokens", "output_tokens", "tokens"))
    ok = "fault" not in data
    dollars = data.get("dollars", 0.0) if ok else told.get("dollars", 0.0)
    return Tried(
        run=run,
        worker=str(data["worker"]),
        domain=domain,
        at=at,
        ok=ok,
        seconds=_number(data.get("seconds", 0.0)) or 0.0,
        tokens=tokens,
        dollars=_number(dollars),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
