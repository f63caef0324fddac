"""The run service: starts runs, resumes interrupted ones, records answers to their questions, and cancels them.

Invariants: a run and its row are durable before `begin` returns (4). Only the server that a run's row names resumes
it, however long reading it took, and events keep their numbers. A run that a stopping server interrupts is resumed by
this server or another one; a canceled run is not. An idempotency key stands for one run of its key's holder on all
servers of a journal (the store's unique index decides); a different request under the same key is refused, and
repeating a request charges nothing. Idempotency keys live as long as their run's row. Whoever calls the service has
authorized the run already.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Protocol, cast

from shikisha.config import adapters
from shikisha.config.container import Container
from shikisha.config.context_source import answer_steps, context_source
from shikisha.core.budget import ZERO, Amount
from shikisha.core.call import REQUEST_DEPTH
from shikisha.core.errors import (
    ConfigError,
    IdempotencyConflict,
    JournalUnavailable,
    ServerFenced,
    ShikishaError,
    UnknownRun,
)
from shikisha.core.events import Event, QuestionAnswered, RunFinished, RunPaused, RunStatus
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.run import Attempt, Run, new_run_id
from shikisha.core.run import root_run_id as root_run_id
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.journal import Journal
from shikisha.server.chat.models import ROLLING_MODEL, ModelCatalog
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.middleware import TRACEPARENT
from shikisha.server.keys import KeyManager
from shikisha.server.keys.budgets import KeyBudgets
from shikisha.server.keys.key import Principal
from shikisha.server.keys.passkeys import Passkeys
from shikisha.server.keys.push_subscriptions import PushSubscriptions
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RunAuthorizer, conductor_of_request
from shikisha.server.lifecycle.broadcast import LiveRun, RunUpdate, follow_run
from shikisha.server.lifecycle.deadlines import Retention
from shikisha.server.lifecycle.executor import ActiveRun, Booking, LostConnection, RunExecutor, ServedRunRecorder
from shikisha.server.lifecycle.tool_calls import with_envelopes
from shikisha.server.store import RunStore, ServedRun, ServedState
from shikisha.telemetry.attributes import parse_traceparent

if TYPE_CHECKING:
    from shikisha.routing.turn_router import SessionRouter

_MAX_CACHED_CASTS = 256  # clients choose workers by header, so pools could be made without end


class Admission(Protocol):
    """Whether a request may be served, and by which conductor: what keeps [plans] (the plug-in `shikisha-margin`)."""

    def admit(self, by: Principal, domain: str, conductor: str, usable: Callable[[str], bool] | None) -> Booking | None:
        """Book a request; ApiError where it is refused. `usable`: which conductors may be chosen; None: no other."""

    def rebook(self, served: ServedRun, before: Amount) -> Booking | None:
        """Book the rest of a run that is resumed here, after what it used `before`."""


def load_admission(container: Container) -> Admission | None:
    """Return what keeps the rate plans of a configuration; None where it has none."""
    plans = container.settings.plans
    if not plans:
        return None
    build = adapters.ADMISSIONS["plans"].build
    assert build is not None  # noqa: S101 - the registry takes no plug-in without
    return cast("Admission", build({name: adapters.read_plan(plans[name], container.file, name) for name in plans}))


def _turn_router(container: Container) -> "SessionRouter | None":
    mode = container.settings.turns.mode
    if mode == "off":
        return None
    from shikisha.routing.turn_router import SessionRouter  # the narrow path of a server does without

    return SessionRouter(mode)


class RunRecovery(RunExecutor):
    """Resumes runs: after a server's death, after the journal was away, or with an answer."""

    def __init__(self, container: Container, journal: Journal, store: RunStore, key_budgets: KeyBudgets) -> None:
        super().__init__(journal, key_budgets, container.settings.server.drain)
        self.container = container
        self.store = store
        self.admission = load_admission(container)
        self.recorder = ServedRunRecorder(journal, store, self.running)
        self.turn_router = _turn_router(container)
        self.engine = self._engine_of(container)
        self._casts: OrderedDict[tuple[str, tuple[str, ...]], tuple[Pool, Conductor]] = OrderedDict()
        self._late: dict[str, list[Event]] = {}  # answers that came while a run was being read

    def _engine_of(self, container: Container) -> Engine:
        engine = Engine(
            self.recorder,
            secret_store=container.secret_store,
            guarded_labels=container.guarded_labels,
            context_source=context_source(container),
            answer_steps=answer_steps(container),
            turn_router=self.turn_router,
        )
        return engine.with_autonomy(container.autonomy_policy(container.settings.server.approval_timeout))

    def class_files(self) -> tuple[Path, ...]:
        """Return the files of proposed classes, which may hold texts of runs."""
        proposed = self.container.settings.autonomy.proposed
        return () if proposed is None else (self.container.folder / proposed,)

    def cast(self, conductor: str, pool: Sequence[str]) -> tuple[Pool, Conductor]:
        """Return the pool of these workers and the conductor for it, built once; ConfigError for unknown names."""
        key = (conductor, tuple(pool))
        if key not in self._casts:
            members = self.container.pool(pool)
            self._casts[key] = (members, self.container.conductor(conductor, members, learns=True))
            if len(self._casts) > _MAX_CACHED_CASTS:
                self._casts.popitem(last=False)
        self._casts.move_to_end(key)
        return self._casts[key]

    async def continue_run(self, name: str) -> LiveRun | None:
        """Resume a run that waits or was released; None when another server already does."""
        if name in self.running:
            return self.running[name].live
        if not await self.store.take(name):
            return None
        try:
            return await self.resume(name)
        except BaseException:
            if name not in self.running:
                self.store.drop(name)  # the next claim returns it
            raise

    def mark_given_up(self, name: str, running: ActiveRun) -> None:
        """Stop a run that cannot be performed any further, so that no server resumes it by itself."""
        if running.live.events:
            amounts = {"used": running.used, "uncertain": running.uncertain}
            self.store.mark(name, ServedState.STOPPED, status=RunStatus.INTERRUPTED, **amounts)

    async def on_waiting(self, name: str, running: ActiveRun) -> None:
        """Resume a waiting run if an answer arrived that it does not know: here, elsewhere, or by hand."""
        if (
            running.answered
            or answered_questions(await self._run_and_children(await self.read_run(name))) - running.known
        ):
            await self.continue_run(name)

    async def retry_stuck(self, name: str) -> None:
        """Resume a run that the journal could not store, unless it has ended or another server owns it by now."""
        await self.journal.flush()  # stores the events that it had added, and its row with them
        served = await self.store.find(name)
        if served is None or name in self.running:
            return
        if served.state is ServedState.WAITING:
            await self.continue_run(name)  # an answer may have arrived
        elif served.state is ServedState.OPEN and served.owner == self.store.member.id:
            await self.resume(name, served)

    async def resume(self, name: str, served: ServedRun | None = None) -> LiveRun:
        """Perform one of this server's runs from where the journal ends; ServerFenced when it is not ours anymore."""
        late = self._late[name] = []
        try:
            served, events = served or await self.find_served(name), await self.journal.read(name)
            past = Run.fold(events)
            family = await self._run_and_children(past)
        finally:
            self._late.pop(name, None)
        if self.expulsions or served.owner != self.store.member.id:
            raise ServerFenced(f"run {name} is performed by another server now")
        live = LiveRun(name, [*events, *[event for event in late if event not in events]])
        return self._resume_or_finish(served, past, family, live)

    def _resume_or_finish(self, served: ServedRun, past: Run, family: Iterable[Run], live: LiveRun) -> LiveRun:
        """Perform a run that was read, unless it has ended, is to be stopped, or cannot be performed anymore."""
        name, calls = served.run, self._calls(family)
        used = sum((call.charged for call in calls), Amount())
        amounts = (used, sum((call.uncertain for call in calls), Amount()))
        if past.finished is not None:
            return self._finish_unperformed(live, ServedState.ENDED, past.status, amounts)
        if served.stopping:
            return self._finish_unperformed(
                live, ServedState.STOPPED, RunStatus.INTERRUPTED, amounts, cancelled_event(name)
            )
        for recall in self.history_observers:
            recall(live.events)
        try:
            pool, conductor = self.cast(served.conductor, past.started.pool)
            conductor = conductor_of_request(conductor, served.api, served.wire, len(pool))
        except ShikishaError as error:  # the configuration has changed: the run ends with the reason
            why = self.container.secret_store.scrub(f"cannot go on: {error}")
            end = RunFinished(run=name, at=time(), status=RunStatus.FAILED, why=why)
            return self._finish_unperformed(live, ServedState.ENDED, RunStatus.FAILED, amounts, end)
        # The engine counts a call in flight with the event that ends it, once the run is resumed.
        ended = [call for call in calls if not call.in_flight]
        amounts = (used, sum((call.uncertain for call in ended), Amount()))
        running = ActiveRun(
            live,
            self.key_budgets.budget_of_key(served.key),
            *amounts,
            acknowledged=True,
            known=answered_questions(family),
            booked=self.admission.rebook(served, used + amounts[1]) if self.admission is not None else None,
        )
        self.perform(name, running, self.engine_for(running).resume(name, pool, conductor))
        return live

    def _finish_unperformed(
        self,
        live: LiveRun,
        state: ServedState,
        status: RunStatus,
        amounts: tuple[Amount, Amount],
        event: Event | None = None,
    ) -> LiveRun:
        """Record that a run has ended or is stopped, without performing it."""
        if event is not None:
            self.recorder.add(event)
            for told in (live.observe, *self.observers):
                told(event)
        self.store.mark(live.run, state, status=status, used=amounts[0], uncertain=amounts[1])
        live.end()
        return live

    async def _run_and_children(self, past: Run) -> tuple[Run, ...]:
        """Return a run and its child runs."""
        parents = self._parents(past.started.pool)
        alone = not any(call.started.worker in parents for call in past.attempts)
        return (past,) if alone else tuple((await self.read_family(past.id)).values())

    def _calls(self, family: Iterable[Run]) -> list[Attempt]:
        """Return the calls of runs, each once: a call that starts a child run is counted in that run."""
        of = [(run, self._parents(run.started.pool)) for run in family]
        return [call for run, parents in of for call in run.attempts if call.started.worker not in parents]

    def _parents(self, pool: Sequence[str]) -> frozenset[str]:
        """Return the workers of a pool that start child runs."""
        known = set(pool) <= set(self.container.names)
        cards = self.container.cards(pool) if known else ()
        return frozenset(card.name for card in cards if card.kind == "conductor")

    async def find_served(self, name: str) -> ServedRun:
        """Return the row of a served run; UnknownRun when there is none."""
        served = await self.store.find(name)
        if served is None:
            raise UnknownRun(f"there is no run {name}")
        return served

    async def read_run(self, name: str) -> Run:
        """Return a run as the journal has it; UnknownRun when there is none."""
        return Run.fold(await self.journal.read(name))

    async def read_family(self, name: str) -> dict[str, Run]:
        """Return a run and its child runs, by id, the run itself first."""
        found = {name: await self.read_run(name)}
        for child in await self.journal.children(name):
            with suppress(UnknownRun):
                found |= await self.read_family(child.id)
        return found


def answered_questions(family: Iterable[Run]) -> set[str]:
    """Return the questions that are answered."""
    return {question for run in family for question in run.answers}


def cancelled_event(name: str) -> RunPaused:
    """Return the event that cancels a run which no server performs."""
    return RunPaused(run=name, at=time(), status=RunStatus.INTERRUPTED, why="cancelled")


_LOG = logging.getLogger(__name__)
_MAX_EXCERPT = 200
# A run that is about to change state (to wait, or to be resumed) is looked at again this often, after so many seconds.
_CANCEL_TRIES, _CANCEL_PAUSE = 20, 0.05


class RunService(RunRecovery):
    """Starts, resumes, answers and cancels runs. Made by `process.open_service`."""

    def __init__(
        self, container: Container, journal: Journal, store: RunStore, keys: KeyManager, key_budgets: KeyBudgets
    ) -> None:
        super().__init__(container, journal, store, key_budgets)
        self.settings = container.settings.server
        self.keys = keys
        self.passkeys = Passkeys(keys)
        self.subscriptions = PushSubscriptions(keys)
        self.authorizer = RunAuthorizer(container, ModelCatalog(container))
        self.retention = Retention()
        self.first_key: str | None = None
        self.first_link: str | None = None
        self._resolved = container.resolved()

    def use(self, container: Container) -> None:
        """Perform further runs by another configuration; ConfigError, and no change, where it cannot be used.

        What belongs to the process stays, and so do all keys that are known, so that nothing shows an earlier one.
        """
        kept = self.container.settings
        process = {name: getattr(kept, name) for name in ("journal", "server", "telemetry", "turns", "webhooks")}
        container.settings = container.settings.model_copy(update=process)
        container.share_secrets(self.container.secret_store)
        self.authorizer = RunAuthorizer(container, ModelCatalog(container))
        self.container, self.engine = container, self._engine_of(container)
        if container.settings.plans != kept.plans:  # else what is saved, and what is known of costs, is kept
            self.admission = load_admission(container)
        self._resolved = container.resolved()
        self._casts.clear()

    @property
    def catalogue(self) -> ModelCatalog:
        """The model names."""
        return self.authorizer.catalogue

    async def begin(self, order: AuthorizedRun) -> LiveRun:
        """Start a run, and return it once it is durable; ApiError when it cannot start: nothing is charged then."""
        name, running, performing = await self._prepare(order)
        try:
            self.perform(name, running, performing)
            await self.acknowledged(running)
        except BaseException:
            self._refuse(name, running, order)
            raise
        return running.live

    async def complete(self, order: AuthorizedRun, lost: LostConnection) -> LiveRun:
        """Start a run, and perform it in the caller's task until it ends or stops, or until the client is `lost`."""
        name, running, performing = await self._prepare(order)
        try:
            await self.perform_here(name, running, performing, lost)
        except BaseException:
            if not running.acknowledged:
                self._refuse(name, running, order)
            raise
        return running.live

    async def _prepare(self, order: AuthorizedRun) -> tuple[str, ActiveRun, Coroutine[object, object, Run]]:
        self._check_open()
        if len(self.running) >= self.settings.max_runs:
            said = f"{len(self.running)} runs are in progress, which is the limit of this server"
            raise ApiError(429, said, "too_many_runs", wait=1)
        REQUEST_DEPTH.set(order.depth)
        task = order.task
        if task.history or task.exchanges:
            task = await with_envelopes(self.store, self.journal, order.by, task)
        if self.turn_router is not None and task.tools:
            order = replace(order, metadata=self.turn_router.named(order.metadata, task))
        order = (order if task is order.task else replace(order, task=task)).scrubbed(self.container.secret_store.scrub)
        pool, conductor = self.cast(order.conductor, order.pool)
        budget = await self.key_budgets.admit(order.by)
        name = new_run_id()
        running = ActiveRun(LiveRun(name), budget)
        try:
            running.booked = self._book(order)
            if running.booked is not None:
                order = replace(order, conductor=running.booked.conductor)
                pool, conductor = self.cast(order.conductor, order.pool)
            await self.store.add_run(_new_served_run(name, order))
            self._check_open()
        except BaseException:
            self._refuse(name, running, order)
            raise
        engine = self.engine_for(running)
        conductor = conductor_of_request(conductor, order.api, order.wire, len(pool))
        performing = engine.run(order.task, pool, conductor, order.caps, run_id=name, config=self._resolved)
        return name, running, performing

    def _refuse(self, name: str, running: ActiveRun, order: AuthorizedRun) -> None:
        """Let go of a run that could not start."""
        running.budget.release()
        if running.booked is not None:
            running.booked.settle(ZERO, paid=False)
        self.drop(running)
        if not running.live.events:
            self.store.drop(name)  # the next claim deletes its row
        if order.idempotency is not None:
            with suppress(JournalUnavailable):
                self.store.free(name)  # so that the client's next try starts a run of its own

    def _book(self, order: AuthorizedRun) -> Booking | None:
        """Book a run in its key's rate plan, which chooses the conductor where the client leaves that to the server."""

        if self.admission is None:
            return None

        def usable(spec: str) -> bool:
            if order.by.conductors is not None and spec not in order.by.conductors:
                return False
            try:
                self.cast(spec, order.pool)
            except ConfigError:
                return False
            return True

        chooses = order.model == ROLLING_MODEL and order.api not in (Api.PAGE, Api.EMBEDDINGS)
        return self.admission.admit(order.by, order.task.domain, order.conductor, usable if chooses else None)

    def _check_open(self) -> None:
        if self.closing:
            raise ApiError(503, "this server is being stopped", "server_stopping", wait=self.settings.drain)

    async def answer(self, answered: QuestionAnswered) -> LiveRun | None:
        """Record an answer, and resume the run that waits for it."""
        root = root_run_id(answered.run)
        answered = replace(answered, text=self.container.secret_store.scrub(answered.text))
        self.recorder.add(answered)
        running = self.running.get(root)
        if running is not None:
            running.live.observe(answered)
            running.answered = True
        elif answered.run in self._late:
            self._late[root].append(answered)
        try:
            await self.journal.flush()
            return running.live if running is not None else await self.continue_run(root)
        except JournalUnavailable:
            if not self.expulsions:
                self.stuck.add(root)  # resumed once the answer is stored
            raise

    async def cancel(self, name: str) -> None:
        """Stop a run for good, on whichever server; a run that has ended stays as it is."""
        for _ in range(_CANCEL_TRIES):
            running = self.running.get(name)
            if running is not None and running.task is not None:
                running.stopped = True
                running.task.cancel()
                await asyncio.wait([running.task])
                if not running.live.waits:
                    return
                await self.journal.flush()
            if await self._stop_elsewhere(await self.find_served(name)):
                return
            await asyncio.sleep(_CANCEL_PAUSE)

    async def _stop_elsewhere(self, served: ServedRun) -> bool:
        """Stop a run that is not performed here; return whether it has ended, is stopped, or will be by its server."""
        match served.state:
            case ServedState.OPEN:
                return await self.store.stop(served.run)  # its server sees the request with its next look
            case ServedState.WAITING:
                return await self._give_up_waiting(served)
            case ServedState.STOPPED if served.status is RunStatus.QUARANTINED:
                return await self._give_up_waiting(served)
        return True

    async def _give_up_waiting(self, served: ServedRun) -> bool:
        if not await self.store.take(served.run, ended=served.status is RunStatus.QUARANTINED):
            return False
        self.recorder.add(cancelled_event(served.run))
        self.store.mark(served.run, ServedState.STOPPED, status=RunStatus.INTERRUPTED)
        await self.journal.flush()
        return True

    async def quarantine(self, served: ServedRun) -> None:
        """Record in the journal that a run is quarantined; its row says so already, and makes this our task."""
        why = (
            f"quarantined: {served.strikes} servers ended uncleanly while they performed it; "
            f"to let servers try again: shikisha runs resume --on-server {served.run}"
        )
        paused = RunPaused(run=served.run, at=time(), status=RunStatus.QUARANTINED, why=why)
        self.recorder.add(paused)
        self.store.mark(
            served.run, ServedState.STOPPED, status=RunStatus.QUARANTINED, used=served.used, uncertain=served.uncertain
        )
        await self.journal.flush()
        _LOG.error("run %s is %s", served.run, why)
        for watcher in self.observers:
            watcher(paused)

    async def release(self, run: str, by: str) -> bool:
        """Let servers perform a quarantined run again; False when it is not quarantined. `by` goes to the audit log."""
        if not await self.store.free_quarantined(run):
            return False
        await self.keys.note(by, "run.released", run)
        return True

    def approval_required(self, run: str) -> ApiError:
        """Return the error for a client whose run waits for a person for too long."""
        page = f"{(self.settings.url or '').rstrip('/')}/ui/approvals"
        return ApiError(409, f"run {run} waits for a person, at {page}", "approval_required")

    def live(self, name: str) -> LiveRun | None:
        """Return a run that is being performed in this process; None for any other."""
        running = self.running.get(name)
        return running.live if running else None

    def listen(self, name: str, after: int = -1) -> AsyncGenerator[RunUpdate]:
        """Yield a run's events after a number, and everything that follows until it ends or waits."""
        return follow_run(self.journal, self.store, partial(self.live, name), name, after)


def _new_served_run(name: str, order: AuthorizedRun) -> ServedRun:
    words, given = " ".join(order.task.prompt.split()), TRACEPARENT.get()
    above = None if given is None else parse_traceparent(given)
    trace = {} if above is None else {"trace_id": f"{above.trace_id:032x}"}  # by which outcomes find the run
    return ServedRun(
        run=name,
        tenant=order.by.tenant,
        key=order.by.key,
        api=order.api,
        created=time(),
        request_hash=order.request_hash,
        model=order.model,
        conductor=order.conductor,
        wire=order.wire,
        idempotency=order.idempotency,
        metadata=trace | dict(order.metadata),
        excerpt=words if len(words) <= _MAX_EXCERPT else words[: _MAX_EXCERPT - 1] + "…",
        domain=order.task.domain,
        labels=order.task.labels,
        detached=order.detached,
    )


IDEMPOTENCY_HEADER = "Idempotency-Key"
MAX_IDEMPOTENCY_KEY = 255
# A run under the same key that is about to start on another server is looked for this often, after so many seconds.
_START_TRIES, _START_PAUSE = 20, 0.1


@dataclass(frozen=True, slots=True)
class StartedRun:
    """The run of a request; `fresh`: this request started it."""

    run: str
    fresh: bool = True


def read_idempotency_key(headers: Mapping[str, str]) -> str | None:
    """Return the hash of the client's idempotency key; None without one, 400 for an invalid one.

    Only the hash is stored, since clients may put anything into such a key.
    """
    key = headers.get(IDEMPOTENCY_HEADER.lower())
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_IDEMPOTENCY_KEY or not (key.isascii() and key.isprintable()):
        said = f"{IDEMPOTENCY_HEADER}: expected 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters"
        raise ApiError(400, said, "invalid_idempotency_key", param=IDEMPOTENCY_HEADER)
    return sha256(key.encode()).hexdigest()


async def start_once(service: RunService, order: AuthorizedRun) -> StartedRun:
    """Start an authorized run, or return the run of its idempotency key; 409 when that belongs to another request."""
    if order.idempotency is None:
        return StartedRun((await service.begin(order)).run)
    order = replace(order, request_hash=order.request_hash or hash_request(order))
    for _ in range(_START_TRIES):
        known = await service.store.recall(order.by.key, order.idempotency or "")
        try:
            if known is None:
                return StartedRun((await service.begin(order)).run)
            run, same = known.run, known.request_hash == order.request_hash
        except IdempotencyConflict as conflict:
            run, same = conflict.run, conflict.same
        if not same:
            said = f"{IDEMPOTENCY_HEADER}: another request was made under this key: run {run}"
            raise ApiError(409, said, "idempotency_mismatch", param=IDEMPOTENCY_HEADER)
        if await _is_acknowledged(service, run, order):
            return StartedRun(run, fresh=False)
        await asyncio.sleep(_START_PAUSE)
    raise ApiError(
        409, f"{IDEMPOTENCY_HEADER}: the run under this key is about to begin", "idempotency_in_progress", wait=1
    )


def hash_request(order: AuthorizedRun) -> str:
    """Return the hash of a request: the task with all that belongs to it, and the API's own fields."""
    task = order.task
    parts = [order.api, order.model, task.prompt, task.context, task.domain, sorted(task.labels), task.bodies()]
    more = [task.parallel_tool_calls, order.detached, order.wire, dict(order.metadata)]
    more += [task.tool_choice] if task.tool_choice else []
    return sha256(json.dumps([*parts, *more], sort_keys=True).encode()).hexdigest()


async def _is_acknowledged(service: RunService, run: str, order: AuthorizedRun) -> bool:
    """Whether the run of a key exists; another server may have written its row and not yet its first event.

    A run that was refused at its start has lost the key, so the request starts a new one.
    """
    try:
        await service.journal.read(run)
    except UnknownRun:
        return False
    known = await service.store.recall(order.by.key, order.idempotency or "")
    return known is not None and known.run == run
