"""`/ui/workers`: results of recent calls by worker, kind of task and time.

Invariants: at most `MAX_RECENT_EVENTS` events are read, however long the journal is, and cached for some seconds; a
login sees calls of its own tenant's runs only. Every share and time stands next to the number of calls behind it.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from time import monotonic, time
from typing import NamedTuple, Protocol, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy import Connection, select

from shikisha.core.call import Card
from shikisha.core.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptReason,
    AttemptStarted,
    CallRole,
    CheckDecided,
    CheckStatus,
    PlanProposed,
    RunStarted,
)
from shikisha.journal.run_index import NEUTRAL_FAULTS
from shikisha.journal.schema import EVENTS, HEAD, RUNS, SERVED
from shikisha.plots.svg import Sparkline, sparkline
from shikisha.server.lifecycle.service import root_run_id
from shikisha.server.pages.login import PageRoute, PageSession, ReaderLogin, Service
from shikisha.server.pages.templates import UI_ROOT, render_page

T = TypeVar("T")
MAX_RECENT_EVENTS = 20_000  # events
_EVENTS_PER_QUERY = 1_000
RECENT_SECONDS = 5.0  # seconds
_COUNTED_EVENTS = (RunStarted, PlanProposed, AttemptStarted, AttemptFinished, AttemptFailed, CheckDecided, AnswerGraded)
_COUNTED_KINDS = tuple(kind.kind for kind in _COUNTED_EVENTS)
_CALL_ENDS = (AttemptFinished.kind, AttemptFailed.kind)


class JournalQueries(Protocol):
    """What reads the journal."""

    async def query(self, work: Callable[[Connection], T]) -> T:
        """Run a function that only reads."""
        ...


@dataclass(frozen=True, slots=True)
class RecentCall:
    """A call that has ended. `ok`: it gave an answer that no check refused; `dollars` None: it is unknown."""

    run: str
    worker: str
    domain: str
    at: float
    ok: bool
    seconds: float
    tokens: int
    dollars: float | None


@dataclass(frozen=True, slots=True)
class RecentActivity:
    """The calls that ended lately, oldest first, the score of each run that was graded, and since when that is all."""

    tried: tuple[RecentCall, ...]
    scores: Mapping[str, float]
    since: float | None


class RecentActivityReader:
    """Reads what is recent, for each tenant at most once in some seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: dict[str | None, tuple[float, RecentActivity]] = {}
        self._turn = asyncio.Lock()

    async def read(self, journal: JournalQueries, tenant: str | None) -> RecentActivity:
        """Return what is recent of a tenant's runs; of all runs for None."""
        async with self._turn:
            self._kept = {name: pair for name, pair in self._kept.items() if self._clock() - pair[0] < RECENT_SECONDS}
            if tenant not in self._kept:
                self._kept[tenant] = (self._clock(), await read_recent_activity(journal, tenant))
            return self._kept[tenant][1]


async def read_recent_activity(
    journal: JournalQueries, tenant: str | None, most: int = MAX_RECENT_EVENTS
) -> RecentActivity:
    """Read the newest events, a page at a time, and count them next to the event loop: it has others to serve."""
    last: int = await journal.query(lambda connection: connection.execute(select(HEAD.c.count)).scalar_one())
    rows: list[_EventRow] = []
    for begin in range(max(0, last - most), last, _EVENTS_PER_QUERY):
        rows += await journal.query(partial(_read_events, begin=begin))
    runs = {root_run_id(row.run) for row in rows}
    domains = await journal.query(partial(_domains_of_runs, runs=runs, tenant=tenant))
    return await asyncio.to_thread(_count_activity, rows, domains, tenant is None)


class _EventRow(NamedTuple):
    run: str
    kind: str
    at: float
    data: str


def _read_events(connection: Connection, begin: int) -> list[_EventRow]:
    columns = (EVENTS.c.run, EVENTS.c.kind, EVENTS.c.at, EVENTS.c.data)
    where = (EVENTS.c.seq >= begin, EVENTS.c.seq < begin + _EVENTS_PER_QUERY, EVENTS.c.kind.in_(_COUNTED_KINDS))
    return [_EventRow(*row) for row in connection.execute(select(*columns).where(*where).order_by(EVENTS.c.seq))]


def _domains_of_runs(connection: Connection, runs: set[str], tenant: str | None) -> dict[str, str]:
    """Return the kinds of task of the runs that this tenant may see."""
    if not runs:
        return {}
    table = RUNS if tenant is None else SERVED  # the one has those of the command line, the other those of just now
    where = [table.c.run >= min(runs), table.c.run <= max(runs)]  # ids sort by time
    if tenant is not None:
        where.append(SERVED.c.tenant == tenant)
    return {row.run: row.domain for row in connection.execute(select(table.c.run, table.c.domain).where(*where))}


def _count_activity(rows: Sequence[_EventRow], domains: Mapping[str, str], everybody: bool) -> RecentActivity:
    gathered = _ActivityCounter(domains, everybody=everybody)
    for row in rows:
        gathered.take(row.run, row.kind, row.at, json.loads(row.data))
    return RecentActivity(gathered.ended(), gathered.scores, rows[0].at if rows else None)


_CallPlace = tuple[str, int, int, int]


class _ActivityCounter:
    def __init__(self, domains: Mapping[str, str], *, everybody: bool) -> None:
        self._domains = dict(domains)
        self._everybody = everybody
        self._plain: set[_CallPlace] = set()  # attempts that are not a step's own (a check's, a conductor's)
        self._tried: dict[_CallPlace, RecentCall] = {}
        self.scores: dict[str, float] = {}

    def take(self, run: str, kind: str, at: float, data: Mapping[str, object]) -> None:
        root = root_run_id(run)
        if root not in self._domains and not self._everybody:
            return
        if kind == AnswerGraded.kind and isinstance(score := data.get("score"), int | float):
            self.scores[run] = float(score)
        elif data.get("step") is not None and "attempt" in data:
            place = (run, _int_or_zero(data["round"]), _int_or_zero(data["step"]), _int_or_zero(data["attempt"]))
            self._call(place, kind, at, data)

    def _call(self, place: _CallPlace, kind: str, at: float, data: Mapping[str, object]) -> None:
        if kind == AttemptStarted.kind:
            if data.get("role", CallRole.STEP) != CallRole.STEP or data.get("reason") == AttemptReason.AGREED:
                self._plain.add(place)
        elif kind == CheckDecided.kind and place in self._tried and data["status"] != CheckStatus.PASS:
            old = self._tried[place]
            self._tried[place] = RecentCall(
                old.run, old.worker, old.domain, old.at, False, old.seconds, old.tokens, old.dollars
            )
        elif kind in _CALL_ENDS and place not in self._plain and str(data.get("fault", "")) not in NEUTRAL_FAULTS:
            run = place[0]
            domain = self._domains.get(root_run_id(place[0]), "")
            used = data.get("usage") or data.get("charged") or {}
            told: Mapping[str, object] = used if isinstance(used, dict) else {}
            tokens = sum(_int_or_zero(told.get(name, 0)) for name in ("input_tokens", "output_tokens", "tokens"))
            ok = "fault" not in data
            dollars = data.get("dollars", 0.0) if ok else told.get("dollars", 0.0)
            self._tried[place] = RecentCall(
                run=run,
                worker=str(data["worker"]),
                domain=domain,
                at=at,
                ok=ok,
                seconds=_float_or_none(data.get("seconds", 0.0)) or 0.0,
                tokens=tokens,
                dollars=_float_or_none(dollars),
            )

    def ended(self) -> tuple[RecentCall, ...]:
        return tuple(self._tried.values())


def _float_or_none(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _int_or_zero(value: object) -> int:
    return value if isinstance(value, int) else 0


TIME_PERIODS = 24
_SPARKLINE_WIDTH = 92.0  # pixels of a line


@dataclass(frozen=True, slots=True)
class CallFigures:
    """What came of some calls. Times are seconds of those that gave an answer; `dollars` None: not all are known."""

    calls: int
    ok: int
    p50: float | None
    p95: float | None
    tokens: int
    dollars: float | None

    @property
    def share(self) -> float | None:
        """The share that gave an answer which no check refused."""
        return self.ok / self.calls if self.calls else None

    @property
    def dollars_a_call(self) -> float | None:
        """The mean cost."""
        return None if self.dollars is None or not self.calls else self.dollars / self.calls


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker: all its calls, those of each kind of task, and three lines over time."""

    name: str
    kind: str
    description: str
    configured: bool
    all: CallFigures
    by_domain: tuple[tuple[str, CallFigures], ...]
    shares: Sparkline
    times: Sparkline
    costs: Sparkline


@dataclass(frozen=True, slots=True)
class WorkersView:
    """All workers; `since` is when what is counted begins (Unix time)."""

    workers: tuple[WorkerView, ...]
    since: float | None
    until: float
    calls: int


def workers_view(recent: RecentActivity, cards: Sequence[Card], now: float) -> WorkersView:
    """Return the workers that are configured, in their order, and then those that were called and are no more."""
    by_worker: dict[str, list[RecentCall]] = defaultdict(list)
    for tried in recent.tried:
        by_worker[tried.worker].append(tried)
    known = {card.name: card for card in cards}
    since = recent.tried[0].at if recent.tried else now
    names = [*known, *sorted(set(by_worker) - set(known))]
    found = tuple(_worker_view(name, known.get(name), by_worker[name], (since, now)) for name in names)
    return WorkersView(found, recent.since, now, len(recent.tried))


def call_figures(tried: Sequence[RecentCall]) -> CallFigures:
    """Count calls."""
    times = sorted(each.seconds for each in tried if each.ok)
    costs = [each.dollars for each in tried]
    dollars = None if None in costs else sum(cost for cost in costs if cost is not None)
    return CallFigures(
        len(tried),
        sum(each.ok for each in tried),
        quantile(times, 0.5),
        quantile(times, 0.95),
        sum(each.tokens for each in tried),
        dollars,
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which this share lies (nearest rank); None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, ceil(share * len(ordered) - 1e-9) - 1)]


def _worker_view(name: str, card: Card | None, tried: Sequence[RecentCall], span: tuple[float, float]) -> WorkerView:
    by_domain: dict[str, list[RecentCall]] = defaultdict(list)
    for each in tried:
        by_domain[each.domain].append(each)
    parts = [call_figures(part) for part in _split_by_period(tried, *span)]
    return WorkerView(
        name=name,
        kind=card.kind if card else "",
        description=card.description if card else "",
        configured=card is not None,
        all=call_figures(tried),
        by_domain=tuple((domain, call_figures(by_domain[domain])) for domain in sorted(by_domain)),
        shares=sparkline([part.share for part in parts], width=_SPARKLINE_WIDTH, top=1.0),
        times=sparkline([part.p50 for part in parts], width=_SPARKLINE_WIDTH),
        costs=sparkline([part.dollars if part.calls else None for part in parts], width=_SPARKLINE_WIDTH),
    )


def _split_by_period(tried: Iterable[RecentCall], since: float, until: float) -> list[list[RecentCall]]:
    periods: list[list[RecentCall]] = [[] for _ in range(TIME_PERIODS)]
    length = max(until - since, 1e-9)
    for each in tried:
        periods[min(TIME_PERIODS - 1, max(0, int((each.at - since) / length * TIME_PERIODS)))].append(each)
    return periods


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/workers")
async def show_workers(request: Request, session: ReaderLogin, service: Service) -> Response:
    """Show what came of the calls to each worker lately."""
    found = await recent_activity(request, service, session)
    view = workers_view(found, visible_cards(service, session), time())
    return render_page(request, "workers.html.jinja", {"view": view})


def visible_cards(service: Service, session: PageSession) -> Sequence[Card]:
    """Return the workers that this login's key may use."""
    cards, own = service.container.cards(), session.by.workers
    return cards if own is None else tuple(card for card in cards if card.name in own)


async def recent_activity(request: Request, service: Service, session: PageSession) -> RecentActivity:
    """Return what is recent of the runs that this login may see."""
    state = request.app.state
    if not hasattr(state, "recent"):
        state.recent = RecentActivityReader()
    reader: RecentActivityReader = state.recent
    return await reader.read(service.journal, session.tenant)
