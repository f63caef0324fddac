"""For whoever runs the server: `/metrics` for Prometheus, `/healthz` and `/readyz` for what restarts and balances it.

Invariants: `/healthz` and `/readyz` need no key and tell nothing but whether; `/metrics` needs a key that may read (of
keys it shows those of the key's own tenant; to an admin all), or an address that the configuration names. Whether the
journal takes anything is found out by writing, once a second at most, however often anyone asks. Deliberately absent:
what single runs did (their pages, and `telemetry`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError
from functools import partial
from ipaddress import ip_address, ip_network
from time import monotonic

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import Connection, select
from starlette.responses import JSONResponse, PlainTextResponse, Response

from shikisha.config.serving_telemetry import watch as watching
from shikisha.errors import JournalError
from shikisha.events import Event, RunStarted, Status
from shikisha.journal.tables import MEMBERS
from shikisha.server import logs
from shikisha.server.access import TRACEPARENT
from shikisha.server.doors import allowed, key_of
from shikisha.server.house import House, root_of
from shikisha.server.principal import Principal, Scope
from shikisha.server.refusals import refusals
from shikisha.server.store import Filter, State
from shikisha.server.store.members import clock
from shikisha.server.tallies import Tallies
from shikisha.telemetry import names
from shikisha.telemetry.watcher import Observer

_PATIENCE = 2.0  # seconds that the journal gets to take a sign of life
_FRESH = 1.0  # seconds that an answer about readiness, or a figure for export, holds
_EXPORTED = {
    "shikisha_runs_active": names.RUNS_ACTIVE,
    "shikisha_journal_lag_events": names.JOURNAL_LAG,
    "shikisha_runs_waiting": names.RUNS_WAITING,
    "shikisha_lease_seconds_left": names.LEASE_LEFT,
}

router = APIRouter()


def install(app: FastAPI, house: House) -> None:
    """Watch a house: count its runs and log them. (`Access` counts requests; it goes around everything else.)"""
    watch = Watch(house)
    app.state.watch = watch
    house.watchers += [watch.tallies.observe, logs.tell]
    observer = watching(house.composition, house.composition.settings.telemetry, watch.now)
    if observer is not None:
        house.watchers.append(partial(_adopting, observer))
        house.recallers.append(observer.recall)
        house.endings.append(observer.shutdown)


def _adopting(observer: Observer, event: Event) -> None:
    """Let a run that a request begins be part of the trace that its client is in."""
    if isinstance(event, RunStarted) and event.parent is None:
        observer.adopt(event.run, TRACEPARENT.get())
    observer.observe(event)


class Watch:
    """What is counted at one server, and whether it is ready."""

    def __init__(self, house: House) -> None:
        self._house = house
        kinds = {name: table.kind for name, table in house.composition.workers.items()}
        self.tallies = Tallies(self._key_of, [name for name, kind in kinds.items() if kind == "conductor"])
        self._process = ProcessCollector(registry=None)
        self._asked = asyncio.Lock()
        self._known: tuple[float, str] | None = None
        self._figured: tuple[float, dict[str, float]] = (-_FRESH, {})
        self._loop = _running_loop()

    def _key_of(self, run: str) -> str:
        running = self._house.running.get(root_of(run))
        return running.purse.account.key if running is not None else ""

    def now(self) -> dict[str, float]:
        """Return this moment's figures for OpenTelemetry, whose thread asks; what cannot be had is left out."""
        if self._loop is None or self._loop.is_closed():
            return {}
        if monotonic() - self._figured[0] > _FRESH:  # each figure is asked for by itself
            asked = asyncio.run_coroutine_threadsafe(self.figures(), self._loop)
            try:
                found = asked.result(2 * _PATIENCE)
            except (TimeoutError, CancelledError):
                found = {}
            told = {ours: found[name][1] for name, ours in _EXPORTED.items() if name in found}
            self._figured = monotonic(), told
        return self._figured[1]

    async def trouble(self) -> str:
        """Return why this server is not ready, in a word; empty when it is."""
        async with self._asked:  # however many ask: one looks
            if self._known is None or monotonic() - self._known[0] > _FRESH:
                self._known = monotonic(), await self._look()
            return self._known[1]

    async def _look(self) -> str:
        house = self._house
        if house.closing:
            return "server_stopping"
        if house.store.expelled:
            return "server_expelled"
        try:
            async with asyncio.timeout(_PATIENCE):
                await house.journal.write(house.store.member.fence)
        except (JournalError, TimeoutError):
            return "journal_unavailable"
        return ""

    async def figures(self) -> dict[str, tuple[str, float]]:
        """Return figures of this moment, by name, with what they are; what the journal cannot tell is left out."""
        house = self._house
        said = {
            "shikisha_runs_active": ("Runs that are being performed here", float(len(house.running))),
            "shikisha_journal_lag_events": ("Events and works that are not durable yet", float(house.journal.left)),
        }
        try:
            async with asyncio.timeout(_PATIENCE):
                counts = await house.store.count(Filter())
                quarantined = sum((await house.store.count(Filter(statuses=(Status.QUARANTINED,)))).values())
                left = await house.journal.query(partial(_lease_left, member=house.store.member.id))
        except (JournalError, TimeoutError):
            return said
        said["shikisha_runs_waiting"] = ("Runs that wait for someone, everywhere", float(counts.get(State.WAITING, 0)))
        said["shikisha_runs_open"] = ("Runs that are open, everywhere", float(counts.get(State.OPEN, 0)))
        said["shikisha_runs_quarantined"] = ("Runs that took servers down, everywhere", float(quarantined))
        if left is not None:
            said["shikisha_lease_seconds_left"] = ("Seconds until others may take over this server's runs", left)
        return said

    async def text(self, principal: Principal | None) -> bytes:
        """Return everything as Prometheus reads it; principal None: for a machine that may see all."""
        shown = {key for key in self.tallies.keys if await self._may_see(principal, key)}
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Moment(self.tallies, self._process, shown, await self.figures()))
        return generate_latest(registry)

    async def _may_see(self, principal: Principal | None, key: str) -> bool:
        if principal is None or principal.may(Scope.ADMIN):
            return True
        found = await self._house.keys.get(key)
        return found is not None and principal.owns(found.tenant)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _Moment:
    """What is scraped at one moment (a collector of Prometheus's)."""

    def __init__(
        self, tallies: Tallies, process: ProcessCollector, shown: set[str], gauges: Mapping[str, tuple[str, float]]
    ) -> None:
        self._parts = tallies, process, shown, gauges

    def collect(self) -> Iterable[Metric]:
        tallies, process, shown, gauges = self._parts
        yield from tallies.families(shown.__contains__, gauges)
        yield from process.collect()


def _lease_left(connection: Connection, member: str) -> float | None:
    asked = select(MEMBERS.c.alive_until - clock(connection)).where(MEMBERS.c.id == member)
    left = connection.execute(asked).scalar_one_or_none()
    return None if left is None else float(left)


@router.get("/healthz", include_in_schema=True)
async def healthz() -> JSONResponse:
    """Say that the process lives."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """Say whether runs can be begun here; 503 with a code when not."""
    trouble = await request.app.state.watch.trouble()
    if trouble:
        return JSONResponse({"status": "unready", "code": trouble}, 503, {"Retry-After": "1"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=PlainTextResponse, responses=refusals())
async def metrics(request: Request) -> Response:
    """Return this server's metrics in Prometheus's text format."""
    principal = None if _may_scrape(request) else allowed((await key_of(request)).principal(), Scope.READ)
    text = await request.app.state.watch.text(principal)
    return Response(text, media_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"})


def _may_scrape(request: Request) -> bool:
    """Return whether the configuration names the address that asks (the connection's own, whatever headers say)."""
    networks = request.app.state.house.composition.settings.telemetry.scrape
    if not networks or request.client is None:
        return False
    try:
        asking = ip_address(request.client.host)
    except ValueError:
        return False
    mapped = getattr(asking, "ipv4_mapped", None)
    return any((mapped or asking) in ip_network(network) for network in networks)
