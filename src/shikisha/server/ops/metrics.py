"""`/metrics` for Prometheus, `/healthz` and `/readyz` for supervisors and load balancers.

Invariants: counting is adding to a dictionary on the event loop; labels have few values (a route's template, a
worker's name, a key's id). A child run's calls count where they are made, not again with its parent. `/healthz` and
`/readyz` need no key and say nothing else; `/metrics` needs a key with the scope `read`, which sees keys of its own
tenant only, or an address that the configuration lists. Readiness is tested by writing to the journal, at most once a
second.
"""

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import CancelledError
from functools import partial
from ipaddress import ip_network
from time import monotonic

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import Connection, select
from starlette.responses import JSONResponse, Response

from shikisha.config.container import build_observer as watching
from shikisha.core.errors import JournalError
from shikisha.core.events import AttemptFailed, AttemptFinished, Event, RunFinished, RunPaused, RunStarted, RunStatus
from shikisha.journal.schema import MEMBERS
from shikisha.server.http.api_errors import error_responses
from shikisha.server.http.auth import authenticate, check_scope, client_address
from shikisha.server.http.middleware import TRACEPARENT
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.server.ops import logs
from shikisha.server.store import RunFilter, ServedState
from shikisha.server.store.members import store_time
from shikisha.telemetry import conventions
from shikisha.telemetry.observer import TelemetryObserver

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LabelValues = tuple[str, ...]
KeyOf = Callable[[str], str]


class MetricCounters:
    """Counts since the process began. `key_of` says whose run it is; `parents` are workers that are child runs."""

    def __init__(self, key_of: KeyOf, parents: Collection[str] = ()) -> None:
        self._key_of = key_of
        self._parents = frozenset(parents)
        self._requests: defaultdict[LabelValues, int] = defaultdict(int)
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}
        self._refused: defaultdict[LabelValues, int] = defaultdict(int)
        self._begun = 0
        self._runs: defaultdict[LabelValues, int] = defaultdict(int)
        self._caps: defaultdict[LabelValues, int] = defaultdict(int)
        self._calls: defaultdict[LabelValues, int] = defaultdict(int)
        self._tokens: defaultdict[LabelValues, int] = defaultdict(int)
        self._dollars: defaultdict[LabelValues, float] = defaultdict(float)
        self._uncertain: defaultdict[LabelValues, float] = defaultdict(float)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[method, route, str(status)] += 1
        counts, total = self._seconds.setdefault(route, ([0] * (len(LATENCY_BUCKETS) + 1), [0.0]))
        counts[bisect_left(LATENCY_BUCKETS, seconds)] += 1
        total[0] += seconds

    def refuse(self, reason: str) -> None:
        """Count a refused request by its error code."""
        self._refused[reason,] += 1

    def observe(self, event: Event) -> None:
        """Count what happens in a run."""
        match event:
            case AttemptFinished():
                self._called(event, "ok", event.dollars, event.usage.total)
            case AttemptFailed():
                self._called(event, event.fault.value, event.charged.dollars, event.charged.tokens)
            case RunStarted(parent=None):
                self._begun += 1
            case RunFinished() | RunPaused():
                self._runs[event.status.value,] += 1
                if isinstance(event, RunFinished) and event.cap is not None:
                    self._caps[event.cap,] += 1
            case _:
                pass

    def _called(self, event: AttemptFinished | AttemptFailed, outcome: str, dollars: float | None, tokens: int) -> None:
        self._calls[event.worker, outcome] += 1
        if event.worker in self._parents:
            return
        place = (event.worker, self._key_of(event.run))
        self._tokens[place] += tokens
        if dollars:
            self._dollars[place] += dollars
        if event.uncertain.dollars:
            self._uncertain[place] += event.uncertain.dollars

    @property
    def keys(self) -> set[str]:
        """The ids of the keys that anything was counted for."""
        return {key for _, key in (*self._tokens, *self._dollars, *self._uncertain)}

    def families(self, shown: Callable[[str], bool], gauges: Mapping[str, tuple[str, float]]) -> Iterable[Metric]:
        """Yield the metrics; of keys those that may be shown. `gauges` are figures of this moment, with their help."""
        yield _counter("shikisha_requests", "Requests answered", ("method", "route", "status"), self._requests)
        yield self._durations()
        yield _counter("shikisha_refusals", "Requests refused, by the code that was told", ("reason",), self._refused)
        yield _counter("shikisha_runs_begun", "Runs begun, child runs left out", (), {(): self._begun})
        yield _counter("shikisha_runs", "Runs that ended or stopped, child runs included", ("status",), self._runs)
        yield _counter("shikisha_runs_capped", "Runs that a cap ended", ("cap",), self._caps)
        yield _counter("shikisha_calls", "Calls of workers, by outcome", ("worker", "outcome"), self._calls)
        for name, words, counts in (
            ("shikisha_tokens", "Tokens charged", self._tokens),
            ("shikisha_dollars", "Dollars charged, where known", self._dollars),
            ("shikisha_uncertain_dollars", "Dollars that calls without a known outcome may have cost", self._uncertain),
        ):
            yield _counter(name, words, ("worker", "key"), {at: n for at, n in counts.items() if shown(at[1])})
        for name, (words, value) in gauges.items():
            yield GaugeMetricFamily(name, words, value=value)

    def _durations(self) -> Metric:
        family = HistogramMetricFamily("shikisha_request_seconds", "Seconds to the end of an answer", labels=("route",))
        for route, (counts, total) in self._seconds.items():
            grown, buckets = 0, []
            for bound, count in zip((*map(str, LATENCY_BUCKETS), "+Inf"), counts, strict=True):
                grown += count
                buckets.append((bound, float(grown)))
            family.add_metric((route,), buckets, sum_value=total[0])
        return family


def _counter(name: str, words: str, labels: LabelValues, counts: Mapping[LabelValues, float]) -> Metric:
    family = CounterMetricFamily(name, words, labels=labels)
    for at, count in counts.items():
        family.add_metric(at, count)
    return family


_JOURNAL_SECONDS = 2.0  # seconds that the journal gets to take a sign of life
_CACHE_SECONDS = 1.0  # seconds that an answer about readiness, or a figure for export, holds
_EXPORTED_GAUGES = {
    "shikisha_runs_active": conventions.RUNS_ACTIVE,
    "shikisha_journal_lag_events": conventions.JOURNAL_LAG,
    "shikisha_runs_waiting": conventions.RUNS_WAITING,
    "shikisha_lease_seconds_left": conventions.LEASE_LEFT,
}

router = APIRouter()


def install_metrics(app: FastAPI, service: RunService) -> None:
    """Watch a service: count its runs and log them. (`Access` counts requests; it goes around everything else.)"""
    watch = ServerMetrics(service)
    app.state.watch = watch
    service.observers += [watch.counters.observe, logs.log_event]
    observer = watching(service.container, service.container.settings.telemetry, watch.now)
    if observer is not None:
        service.observers.append(partial(_observe_with_trace, observer))
        service.history_observers.append(observer.recall)
        service.shutdown_callbacks.append(observer.shutdown)


def _observe_with_trace(observer: TelemetryObserver, event: Event) -> None:
    """Make a run part of the trace of the request that starts it."""
    if isinstance(event, RunStarted) and event.parent is None:
        observer.adopt(event.run, TRACEPARENT.get())
    observer.observe(event)


class ServerMetrics:
    """What is counted at one server, and whether it is ready."""

    def __init__(self, service: RunService) -> None:
        self._house = service
        kinds = {name: table.kind for name, table in service.container.workers.items()}
        self.counters = MetricCounters(self._key_of, [name for name, kind in kinds.items() if kind == "conductor"])
        self._process = ProcessCollector(registry=None)
        self._asked = asyncio.Lock()
        self._known: tuple[float, str] | None = None
        self._figured: tuple[float, dict[str, float]] = (-_CACHE_SECONDS, {})
        self._loop = _running_loop()

    def _key_of(self, run: str) -> str:
        running = self._house.running.get(root_run_id(run))
        return running.budget.account.key if running is not None else ""

    def now(self) -> dict[str, float]:
        """Return this moment's figures for OpenTelemetry, whose thread asks; what cannot be had is left out."""
        if self._loop is None or self._loop.is_closed():
            return {}
        if monotonic() - self._figured[0] > _CACHE_SECONDS:  # each figure is asked for by itself
            asked = asyncio.run_coroutine_threadsafe(self.figures(), self._loop)
            try:
                found = asked.result(2 * _JOURNAL_SECONDS)
            except (TimeoutError, CancelledError):
                found = {}
            told = {ours: found[name][1] for name, ours in _EXPORTED_GAUGES.items() if name in found}
            self._figured = monotonic(), told
        return self._figured[1]

    async def trouble(self) -> str:
        """Return why this server is not ready, in a word; empty when it is."""
        async with self._asked:  # however many ask: one looks
            if self._known is None or monotonic() - self._known[0] > _CACHE_SECONDS:
                self._known = monotonic(), await self._look()
            return self._known[1]

    async def _look(self) -> str:
        service = self._house
        if service.closing:
            return "server_stopping"
        if service.store.expelled:
            return "server_expelled"
        try:
            async with asyncio.timeout(_JOURNAL_SECONDS):
                await service.journal.write(service.store.member.fence)
        except (JournalError, TimeoutError):
            return "journal_unavailable"
        return ""

    async def figures(self) -> dict[str, tuple[str, float]]:
        """Return the current gauges by name, with their help texts, without those that the journal cannot give."""
        service = self._house
        said = {
            "shikisha_runs_active": ("Runs that are being performed here", float(len(service.running))),
            "shikisha_journal_lag_events": ("Events and works that are not durable yet", float(service.journal.left)),
        }
        try:
            async with asyncio.timeout(_JOURNAL_SECONDS):
                counts = await service.store.count(RunFilter())
                quarantined = sum((await service.store.count(RunFilter(statuses=(RunStatus.QUARANTINED,)))).values())
                left = await service.journal.query(partial(_lease_left, member=service.store.member.id))
        except (JournalError, TimeoutError):
            return said
        said["shikisha_runs_waiting"] = (
            "Runs that wait for someone, everywhere",
            float(counts.get(ServedState.WAITING, 0)),
        )
        said["shikisha_runs_open"] = ("Runs that are open, everywhere", float(counts.get(ServedState.OPEN, 0)))
        said["shikisha_runs_quarantined"] = ("Runs that took servers down, everywhere", float(quarantined))
        if left is not None:
            said["shikisha_lease_seconds_left"] = ("Seconds until others may take over this server's runs", left)
        return said

    async def text(self, principal: Principal | None) -> bytes:
        """Return everything as Prometheus reads it; principal None: for a machine that may see all."""
        shown = {key for key in self.counters.keys if await self._may_see(principal, key)}
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_ScrapeCollector(self.counters, self._process, shown, await self.figures()))
        return generate_latest(registry)

    async def _may_see(self, principal: Principal | None, key: str) -> bool:
        if principal is None or principal.may(KeyScope.ADMIN):
            return True
        found = await self._house.keys.get(key)
        return found is not None and principal.owns(found.tenant)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _ScrapeCollector:
    """What is scraped at one moment (a collector of Prometheus's)."""

    def __init__(
        self,
        counters: MetricCounters,
        process: ProcessCollector,
        shown: set[str],
        gauges: Mapping[str, tuple[str, float]],
    ) -> None:
        self._parts = counters, process, shown, gauges

    def collect(self) -> Iterable[Metric]:
        counters, process, shown, gauges = self._parts
        yield from counters.families(shown.__contains__, gauges)
        yield from process.collect()


def _lease_left(connection: Connection, member: str) -> float | None:
    asked = select(MEMBERS.c.alive_until - store_time(connection)).where(MEMBERS.c.id == member)
    left = connection.execute(asked).scalar_one_or_none()
    return None if left is None else float(left)


@router.get("/healthz", include_in_schema=True)
async def healthz() -> JSONResponse:
    """Report that the process is alive."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """Report whether this server can start runs; otherwise 503 with a code."""
    trouble = await request.app.state.watch.trouble()
    if trouble:
        return JSONResponse({"status": "unready", "code": trouble}, 503, {"Retry-After": "1"})
    return JSONResponse({"status": "ready"})


@router.get(
    "/metrics",
    response_class=Response,
    responses={**error_responses(), 200: {"description": "The metrics", "content": {"text/plain": {}}}},
)
async def metrics(request: Request) -> Response:
    """Return this server's metrics in Prometheus's text format."""
    # Whether the configuration names the address that asks, which is not that of a proxy in between.
    networks = request.app.state.service.container.settings.telemetry.scrape
    asking = client_address(request) if networks else None
    may_scrape = asking is not None and any(asking in ip_network(network) for network in networks)
    principal = None if (may_scrape) else check_scope((await authenticate(request)).principal(), KeyScope.READ)
    text = await request.app.state.watch.text(principal)
    return Response(text, media_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"})
