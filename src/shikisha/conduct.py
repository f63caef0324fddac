"""The engine: takes a task, conducts it to its end, and leaves a journaled run.

One loop (`rounds`) serves whole plans, step-by-step conducting and recursion. Invariants: a run is acknowledged (its
start is durable) before anybody is called for it, in one commit with that call's start where the plan is made without
one, and its end is durable before it is returned (4); every way out of the
loop is a RunFinished that says why, or a RunPaused that can be resumed; depth and seconds are held here, the other caps
in `ledger` (3). Resuming is the same loop over the same code: what the journal already has is taken from there, and
what was used before, child runs included, is counted before anyone is called. A run is performed once at a time in a
process. Deliberately absent: opinions (who conducts is a Conductor, who performs is a Worker, and the engine knows
neither) and any lock against another process.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from time import gmtime, strftime, time
from typing import ParamSpec

from shikisha.approval import Desk, NobodyDesk
from shikisha.budget import Caps, Usage
from shikisha.clearance import NONE, Labels
from shikisha.closing import conclude
from shikisha.conductor import Conductor
from shikisha.errors import (
    STOPS,
    CapReached,
    ConfigError,
    FaultKind,
    JournalError,
    JournalUnavailable,
    RunErased,
    TaskError,
    UnknownName,
    WorkerError,
)
from shikisha.events import (
    EndReached,
    Event,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    Status,
)
from shikisha.ledger import Ledger
from shikisha.limits import Gates
from shikisha.oversight import Oversight
from shikisha.perform import Hearing
from shikisha.pool import Pool
from shikisha.purse import OpenPurse, Purse
from shikisha.recorder import Recorder, journaled
from shikisha.recount import recount
from shikisha.rounds import Conducted, Ending, conduct_rounds
from shikisha.run import Run
from shikisha.schema import SchemaCheck
from shikisha.scope import Line, RetryPolicy, Scope
from shikisha.secrets import Vault
from shikisha.task import Task
from shikisha.undo import Wish, roll_back
from shikisha.worker import Spawn, Spawned

P = ParamSpec("P")
_BOTTOMLESS: Purse = OpenPurse()
_LOG = logging.getLogger(__name__)
_ALPHABET, _SIGNS = "0123456789abcdefghjkmnpqrstvwxyz", 8


class FreshId(str):
    """A run id that was just made by chance: nobody has to look whether there is such a run already."""

    __slots__ = ()


def new_run_id() -> FreshId:
    """Return a fresh run id that sorts by time: `261120-114437-` and eight characters of chance."""
    chance = secrets.randbits(5 * _SIGNS)
    signs = "".join(_ALPHABET[chance >> 5 * place & 31] for place in range(_SIGNS))
    return FreshId(f"{strftime('%y%m%d-%H%M%S', gmtime())}-{signs}")


def _watching(watch: Callable[P, None]) -> Callable[P, None]:
    """Return the callback as one that cannot break what it watches."""

    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            watch(*args, **kwargs)
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - a callback is anyone's code; its text may hold a key: the type
            _LOG.warning("a callback of the engine raised %s", type(error).__name__)

    return guarded


class _Tee:
    """A recorder that shows every event to an observer, and keeps what the fold at the run's end needs."""

    def __init__(self, recorder: Recorder, observe: Callable[[Event], None] | None, events: Sequence[Event]) -> None:
        self._recorder = recorder
        self._observe = observe
        self.events = list(events)
        self.kept = False  # whether anything of it is durable

    def add(self, event: Event) -> None:
        self.events.append(event)
        self._recorder.add(event)
        if self._observe is not None:
            self._observe(event)

    async def flush(self) -> None:
        await self._recorder.flush()
        self.kept = True

    async def read(self, run: str) -> tuple[Event, ...]:
        return await self._recorder.read(run)


class Engine:
    """Performs tasks: holds what runs share (the journal, the limits of workers, the desk, the keys).

    `observe` is called with every event as it is decided; `on_text(round, step, piece)` with answers as they grow.
    One engine serves any number of runs at once on one event loop.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        desk: Desk | None = None,
        vault: Vault | None = None,
        observe: Callable[[Event], None] | None = None,
        on_text: Hearing | None = None,
        retry: RetryPolicy | None = None,
        guarded: Labels = NONE,
    ) -> None:
        self._recorder = recorder
        self._desk = desk or NobodyDesk()
        self._vault = vault or Vault({})
        self._observe = _watching(observe) if observe else None
        self._on_text = _watching(on_text) if on_text else None
        self._retry = retry or RetryPolicy()
        self._guarded, self._purse, self._oversight = guarded, _BOTTOMLESS, Oversight()
        self._gates, self._performing = Gates(), set[str]()
        self._kept: Callable[[], bool] = lambda: False

    def apart(self, recorder: Recorder) -> "Engine":
        """Return an engine that writes elsewhere and shares all else: a worker's limits hold for the calls of both."""
        other = copy(self)
        other._recorder, other._performing = recorder, set()
        return other

    def lent(
        self,
        observe: Callable[[Event], None] | None = None,
        on_text: Hearing | None = None,
        purse: Purse | None = None,
        kept: Callable[[], bool] = lambda: False,
    ) -> "Engine":
        """Return this engine for somebody's runs: with observers of their own, and the budget that they share.

        `kept` says whether somebody else saw to it that a run's start is durable: then it is not refused any more.
        """
        other = copy(self)
        other._observe = _watching(observe) if observe else None
        other._on_text = _watching(on_text) if on_text else None
        other._purse, other._kept = purse or _BOTTOMLESS, kept
        return other

    def overseen(self, oversight: Oversight) -> "Engine":
        """Return this engine with classes of autonomy."""
        other = copy(self)
        other._oversight = oversight
        return other

    async def run(
        self,
        task: Task,
        pool: Pool,
        conductor: Conductor,
        caps: Caps | None = None,
        *,
        run_id: str | None = None,
        config: str = "{}",
    ) -> Run:
        """Conduct a task to its end and return the run.

        JournalUnavailable, before anything is done, if the run cannot be kept. A run that waits for a person is
        returned with status SUSPENDED. Cancelling leaves a resumable run.
        """
        if not len(pool):
            raise ConfigError("the pool is empty: a run needs at least one worker")
        own_id = run_id or new_run_id()
        with self._once(own_id):
            if run_id is not None and not isinstance(run_id, FreshId) and await journaled(self._recorder, run_id):
                raise ConfigError(f"run {run_id} exists: resume it, or choose another id")
            return await self._start(task, pool, conductor, Ledger(caps or Caps()), own_id, config=config)

    async def resume(self, run_id: str, pool: Pool, conductor: Conductor) -> Run:
        """Go on with a run from its last journaled step; a run that has ended is returned as it is.

        ConfigError for a child run (it goes on with its parent, inside its caps), and for another pool or conductor.
        """
        with self._once(run_id):
            events = await self._recorder.read(run_id)
            past = Run.fold(events)
            if past.finished is not None:
                return past
            _check_same(past, pool, conductor)
            return await self._continue(past, events, pool, conductor)

    @contextmanager
    def _once(self, run_id: str) -> Iterator[None]:
        """Let nobody else perform this run meanwhile."""
        if run_id in self._performing:
            raise ConfigError(f"run {run_id} is being performed already")
        self._performing.add(run_id)
        try:
            yield
        finally:
            self._performing.discard(run_id)

    async def undo(self, run_id: str, pool: Pool, wish: Wish, caps: Caps | None = None) -> Run:
        """Roll a run back (`undo`), within these caps or as many as it had itself; a run that waits ends with that.

        ConfigError for a child run, another pool, and a run that is not over: its calls are still being made.
        """
        with self._once(run_id):
            events = await self._recorder.read(run_id)
            past = Run.fold(events)
            _check_over(past, pool)
            tee = _Tee(self._recorder, self._observe, events)
            if past.finished is None:
                tee.add(_given_up(run_id, self._vault.scrub(wish.actor)))
            scope = self._scope(run_id, pool, Ledger(caps or past.started.caps), tee, None)
            await roll_back(scope, Run.fold(tee.events), wish)
            await tee.flush()
            return Run.fold(tee.events)

    async def _start(
        self,
        task: Task,
        pool: Pool,
        conductor: Conductor,
        ledger: Ledger,
        run_id: str,
        *,
        config: str = "{}",
        above: Scope | None = None,
    ) -> Run:
        task = task if self._vault.empty else task.scrubbed(self._vault.scrub)
        _check_schema(task)  # without waiting: who begins a run is owed its first event at once
        tee = _Tee(self._recorder, self._observe, ())
        scope = self._scope(run_id, pool, ledger, tee, None)
        tee.add(_first_event(scope, conductor, task, config, above))
        try:
            return await _conduct(self._conducted(scope, conductor, task, above), tee)
        except JournalUnavailable as error:
            if above is None and not (tee.kept or self._kept()):  # a child run goes on with its parent
                with suppress(JournalUnavailable):  # stored once there is room, so that nobody resumes a refused run
                    tee.add(_refused(run_id, error))
            raise

    async def _continue(
        self, past: Run, events: Sequence[Event], pool: Pool, conductor: Conductor, above: Scope | None = None
    ) -> Run:
        ledger = Ledger(past.started.caps, depth=past.started.depth)
        await recount(partial(journaled, self._recorder), past, ledger)
        ledger.parent = above.ledger if above else None  # from here on: what was used before is counted there already
        tee = _Tee(self._recorder, self._observe, events)
        tee.add(RunResumed(run=past.id, at=time()))
        await tee.flush()
        scope = self._scope(past.id, pool, ledger, tee, past)
        return await _conduct(self._conducted(scope, conductor, past.task, above), tee)

    def _scope(self, run_id: str, pool: Pool, ledger: Ledger, tee: _Tee, past: Run | None) -> Scope:
        seconds = ledger.caps.seconds
        used = past.active_seconds if past else 0.0
        deadline = None if seconds is None else asyncio.get_running_loop().time() + max(0.0, seconds - used)
        scope = Scope(run_id, pool, ledger, tee, self._gates, self._desk, self._vault, self._retry, past, deadline)
        scope.spawner, scope.guarded, scope.purse = self._spawner, self._guarded, self._purse
        scope.task = asyncio.current_task()
        scope.cancels = scope.task.cancelling() if scope.task else 0
        return scope

    def _conducted(self, scope: Scope, conductor: Conductor, task: Task, above: Scope | None) -> Conducted:
        scope.autonomy = above.autonomy if above else self._oversight.of(task, conductor.name)
        on_text = None if above else self._on_text  # a child's steps are not its parent's
        return Conducted(scope, conductor, task, on_text)

    def _spawner(self, scope: Scope, line: Line) -> Spawn:
        async def spawn(task: Task, conductor: Conductor, names: Sequence[str], caps: Caps) -> Spawned:
            return await self._spawn(scope, line.child(), _Child(task, conductor, tuple(names), caps))

        return spawn

    async def _spawn(self, scope: Scope, run_id: str, child: "_Child") -> Spawned:
        """Perform a child run, or go on with it: deeper by one, with workers of this pool, on this budget's rest."""
        try:
            pool = scope.pool.subset(child.names)
            ledger = scope.ledger.child(child.caps)
        except UnknownName as error:
            raise WorkerError(FaultKind.BAD_REQUEST, f"a child run's pool: {error}") from None
        except CapReached as refusal:
            raise WorkerError(FaultKind.CAP, str(refusal)) from None
        with self._once(run_id):
            events = await journaled(self._recorder, run_id)
            if events:
                past = Run.fold(events)
                run = past
                if past.finished is None:
                    run = await self._continue(past, events, pool, child.conductor, scope)
            else:
                run = await self._start(child.task, pool, child.conductor, ledger, run_id, above=scope)
        if run.status is Status.SUSPENDED:
            raise WorkerError(FaultKind.WAITING, f"child run {run.id} waits for a person")
        return _spawned(run)


@dataclass(frozen=True, slots=True)
class _Child:
    task: Task
    conductor: Conductor
    names: tuple[str, ...]
    caps: Caps


def _check_schema(task: Task) -> None:
    if task.answer_schema is not None:
        try:
            SchemaCheck(task.answer_schema, "answer_schema")
        except ConfigError as error:
            raise TaskError(str(error)) from None


async def _conduct(conducted: Conducted, tee: _Tee) -> Run:
    """Conduct a run, or go on with it, to its last event."""
    scope = conducted.scope
    try:
        end = scope.past.reached if scope.past else None
        if end is None:
            ending = await _rounds(conducted)
            end = None if ending.status is Status.SUSPENDED else _end_of(conducted, ending)
        tee.add(_waiting(scope, ending) if end is None else await conclude(scope, end, lambda: Run.fold(tee.events)))
    except asyncio.CancelledError:
        with suppress(JournalError):  # without it the run is resumable all the same
            tee.add(RunPaused(run=scope.run, at=time(), status=Status.INTERRUPTED, why="stopped from outside"))
            await asyncio.shield(tee.flush())
        raise
    await tee.flush()
    return Run.fold(tee.events)


async def _rounds(conducted: Conducted) -> Ending:
    scope = conducted.scope
    try:
        async with asyncio.timeout_at(scope.deadline) as limit:
            return await conduct_rounds(conducted)
    except TimeoutError:
        if not limit.expired():
            raise
        return Ending(Status.CAPPED, f"seconds cap reached: {scope.ledger.caps.seconds:g} s are over", "seconds")


def _first_event(scope: Scope, conductor: Conductor, task: Task, config: str, above: Scope | None) -> RunStarted:
    return RunStarted(
        run=scope.run,
        at=time(),
        conductor=conductor.name,
        pool=scope.pool.names,
        caps=scope.ledger.caps,
        prompt=task.prompt,
        context=task.context,
        task_id=task.id,
        domain=task.domain,
        labels=task.labels,
        parent=above.run if above else None,
        depth=scope.ledger.depth,
        config=scope.vault.scrub(config),
        parallel_tool_calls=task.parallel_tool_calls,
        **task.bodies(),
    )


def _check_pool(past: Run, pool: Pool) -> None:
    begun = past.started
    if past.erased is not None:
        raise RunErased(f"run {past.id} was erased by {past.erased.actor}: nobody can go on with it")
    if begun.parent is not None:
        raise ConfigError(f"run {past.id} is a child run of {begun.parent}: resume that run, and it goes on with it")
    if begun.pool != pool.names:
        there, here = ", ".join(begun.pool), ", ".join(pool.names)
        raise ConfigError(f"run {past.id} began with the pool {there}; it cannot go on with {here}")


def _check_over(past: Run, pool: Pool) -> None:
    if past.finished is None and past.status is Status.RUNNING:
        raise ConfigError(f"run {past.id} is not over: stop it first, or go on with it if its process died")
    _check_pool(past, pool)


def _given_up(run_id: str, actor: str) -> RunFinished:
    why = f"given up and rolled back by {actor}"
    return RunFinished(run=run_id, at=time(), status=Status.FAILED, why=why, fault=FaultKind.CANCELLED)


def _check_same(past: Run, pool: Pool, conductor: Conductor) -> None:
    begun = past.started
    _check_pool(past, pool)
    if begun.conductor != conductor.name:
        raise ConfigError(f"run {past.id} is conducted by {begun.conductor}; {conductor.name} cannot take over")


def _refused(run_id: str, error: JournalUnavailable) -> Event:
    why = f"refused: the journal could not take it ({error})"
    return RunFinished(run=run_id, at=time(), status=Status.FAILED, why=why)


def _spawned(run: Run) -> Spawned:
    charged = run.charged
    why = run.finished.why if run.finished else str(run.status)
    return Spawned(run.id, run.answer, why, Usage(charged.tokens), charged.dollars, run.uncertain)


def _waiting(scope: Scope, ending: Ending) -> RunPaused:
    return RunPaused(run=scope.run, at=time(), status=Status.SUSPENDED, why=scope.clean(ending.why))


def _end_of(conducted: Conducted, ending: Ending) -> EndReached:
    scope, place = conducted.scope, conducted.answer()
    return EndReached(
        run=scope.run,
        at=time(),
        status=ending.status,
        why=scope.clean(ending.why),
        cap=ending.cap,
        fault=ending.fault.kind if ending.fault else None,
        round=place[0] if place else None,
        step=place[1] if place else None,
        answer=place[2].text if place else None,
    )
