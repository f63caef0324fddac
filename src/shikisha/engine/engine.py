"""The engine: takes a task, conducts it to its end, and leaves a journaled run.

One loop (`rounds`) serves whole plans, step-by-step conducting and recursion. Invariants: a run is acknowledged (its
start is durable) before anybody is called for it, in one commit with that call's start where the plan is made without
one, and its end is durable before it is returned (4); every way out of the
loop is a RunFinished that says why, or a RunPaused that can be resumed; depth and seconds are held here, the other caps
in `ledger` (3). Resuming is the same loop over the same code: what the journal already has is taken from there, and
what was used before, child runs included, is counted before anyone is called. A run is performed once at a time in a
process. Deliberately absent: opinions (who conducts is a Conductor, who performs is a Worker, and the engine knows
neither) and any lock against another process.

What a run used before this process took over.

Invariant 3 across a resume: everything that the journal tells is counted before anything new is reserved, child runs
and their child runs included, each call once: where an attempt's own charge states what its child runs used, their
calls are not counted again. Deliberately absent: seconds (`Run.active_seconds`).
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from time import gmtime, strftime, time
from typing import ParamSpec, TypeAlias

from shikisha.core.budget import Amount, Caps, Usage
from shikisha.core.errors import (
    PROCESS_STOPS,
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
from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    CallRole,
    EndReached,
    Event,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
)
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.run import Attempt, Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.core.visibility import NO_LABELS, Labels
from shikisha.engine.approvals import Approver, NoApprover
from shikisha.engine.autonomy import AutonomyPolicy
from shikisha.engine.budget_ledger import BudgetLedger, SharedBudget, UnlimitedBudget
from shikisha.engine.compensation import RollbackOrder, roll_back
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Pool
from shikisha.engine.rate_limits import ConcurrencyLimits
from shikisha.engine.recorder import Recorder, read_journaled
from shikisha.engine.rounds import ConductedRun, RunEnding, finalize_run, run_rounds
from shikisha.engine.run_context import AttemptHandle, RetryPolicy, RunContext, child_run_id
from shikisha.engine.scheduler import TextCallback
from shikisha.engine.worker import ChildRunLauncher, ChildRunResult

RunReader: TypeAlias = Callable[[str], Awaitable[Sequence[Event]]]


async def recount_usage(read: RunReader, past: Run, ledger: BudgetLedger) -> None:
    """Count in the ledger what the run used; `read` returns a run's events, none where there is no such run."""
    for turn in past.rounds:
        for planning in turn.planning.attempts:
            ledger.settle(Amount(), planning.counted)
        for step in turn.steps.values():
            if step.attempts:
                ledger.charge(attempt.counted for attempt in step.attempts)
    for key, attempts in _attempts_by_key(past).items():
        stated = any(_states_children(attempt) for attempt in attempts)
        number = 0
        while events := await read(child_run_id(key, number)):
            below = BudgetLedger(Caps())
            await recount_usage(read, Run.fold(events), below)
            ledger.steps += below.steps
            if not stated:
                ledger.settle(Amount(), below.used)
            number += 1


def _attempts_by_key(past: Run) -> dict[str, list[Attempt]]:
    """Return the steps' own attempts by idempotency key: those of one key have their child runs in common."""
    calls: dict[str, list[Attempt]] = {}
    for attempt in past.attempts:
        if attempt.started.role is CallRole.STEP:
            calls.setdefault(attempt.started.key, []).append(attempt)
    return calls


def _states_children(attempt: Attempt) -> bool:
    """Whether this attempt's own charge says what its child runs used."""
    match attempt.outcome:
        case AttemptFinished():
            return True
        case AttemptFailed(fault=fault):
            return fault is FaultKind.NO_ANSWER
        case _:
            return False


P = ParamSpec("P")
_UNLIMITED: SharedBudget = UnlimitedBudget()
_LOG = logging.getLogger(__name__)
_ALPHABET, _SIGNS = "0123456789abcdefghjkmnpqrstvwxyz", 8


class NewRunId(str):
    """A run id that was just made by chance: nobody has to look whether there is such a run already."""

    __slots__ = ()


def new_run_id() -> NewRunId:
    """Return a fresh run id that sorts by time: `261120-114437-` and eight characters of chance."""
    chance = secrets.randbits(5 * _SIGNS)
    signs = "".join(_ALPHABET[chance >> 5 * place & 31] for place in range(_SIGNS))
    return NewRunId(f"{strftime('%y%m%d-%H%M%S', gmtime())}-{signs}")


def _guard_callback(watch: Callable[P, None]) -> Callable[P, None]:
    """Return the callback as one that cannot break what it watches."""

    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            watch(*args, **kwargs)
        except PROCESS_STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever nobody foresaw is what is looked for
            _LOG.warning("a callback of the engine raised %s", type(error).__name__)

    return guarded


class _ObservedRecorder:
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
        desk: Approver | None = None,
        vault: SecretStore | None = None,
        observe: Callable[[Event], None] | None = None,
        on_text: TextCallback | None = None,
        retry: RetryPolicy | None = None,
        guarded: Labels = NO_LABELS,
    ) -> None:
        self._recorder = recorder
        self._desk = desk or NoApprover()
        self._vault = vault or SecretStore({})
        self._observe = _guard_callback(observe) if observe else None
        self._on_text = _guard_callback(on_text) if on_text else None
        self._retry = retry or RetryPolicy()
        self._guarded, self._purse, self._oversight = guarded, _UNLIMITED, AutonomyPolicy()
        self._gates, self._performing = ConcurrencyLimits(), set[str]()
        self._kept: Callable[[], bool] = lambda: False

    def apart(self, recorder: Recorder) -> "Engine":
        """Return an engine that writes elsewhere and shares all else: a worker's limits hold for the calls of both."""
        other = copy(self)
        other._recorder, other._performing = recorder, set()
        return other

    def lent(
        self,
        observe: Callable[[Event], None] | None = None,
        on_text: TextCallback | None = None,
        purse: SharedBudget | None = None,
        kept: Callable[[], bool] = lambda: False,
    ) -> "Engine":
        """Return this engine for somebody's runs: with observers of their own, and the budget that they share.

        `kept` says whether somebody else saw to it that a run's start is durable: then it is not refused any more.
        """
        other = copy(self)
        other._observe = _guard_callback(observe) if observe else None
        other._on_text = _guard_callback(on_text) if on_text else None
        other._purse, other._kept = purse or _UNLIMITED, kept
        return other

    def overseen(self, oversight: AutonomyPolicy) -> "Engine":
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
            if run_id is not None and not isinstance(run_id, NewRunId) and await read_journaled(self._recorder, run_id):
                raise ConfigError(f"run {run_id} exists: resume it, or choose another id")
            return await self._start(task, pool, conductor, BudgetLedger(caps or Caps()), own_id, config=config)

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

    async def undo(self, run_id: str, pool: Pool, wish: RollbackOrder, caps: Caps | None = None) -> Run:
        """Roll a run back (`undo`), within these caps or as many as it had itself; a run that waits ends with that.

        ConfigError for a child run, another pool, and a run that is not over: its calls are still being made.
        """
        with self._once(run_id):
            events = await self._recorder.read(run_id)
            past = Run.fold(events)
            _check_over(past, pool)
            tee = _ObservedRecorder(self._recorder, self._observe, events)
            if past.finished is None:
                tee.add(_run_given_up(run_id, self._vault.scrub(wish.actor)))
            scope = self._scope(run_id, pool, BudgetLedger(caps or past.started.caps), tee, None)
            await roll_back(scope, Run.fold(tee.events), wish)
            await tee.flush()
            return Run.fold(tee.events)

    async def _start(
        self,
        task: Task,
        pool: Pool,
        conductor: Conductor,
        ledger: BudgetLedger,
        run_id: str,
        *,
        config: str = "{}",
        above: RunContext | None = None,
    ) -> Run:
        task = task if self._vault.empty else task.scrubbed(self._vault.scrub)
        _check_schema(task)  # without waiting: who begins a run is owed its first event at once
        tee = _ObservedRecorder(self._recorder, self._observe, ())
        scope = self._scope(run_id, pool, ledger, tee, None)
        tee.add(_run_started(scope, conductor, task, config, above))
        try:
            return await _run_to_end(self._conducted(scope, conductor, task, above), tee)
        except JournalUnavailable as error:
            if above is None and not (tee.kept or self._kept()):  # a child run goes on with its parent
                with suppress(JournalUnavailable):  # stored once there is room, so that nobody resumes a refused run
                    tee.add(_run_refused(run_id, error))
            raise

    async def _continue(
        self, past: Run, events: Sequence[Event], pool: Pool, conductor: Conductor, above: RunContext | None = None
    ) -> Run:
        ledger = BudgetLedger(past.started.caps, depth=past.started.depth)
        await recount_usage(partial(read_journaled, self._recorder), past, ledger)
        ledger.parent = above.ledger if above else None  # from here on: what was used before is counted there already
        tee = _ObservedRecorder(self._recorder, self._observe, events)
        tee.add(RunResumed(run=past.id, at=time()))
        await tee.flush()
        scope = self._scope(past.id, pool, ledger, tee, past)
        return await _run_to_end(self._conducted(scope, conductor, past.task, above), tee)

    def _scope(
        self, run_id: str, pool: Pool, ledger: BudgetLedger, tee: _ObservedRecorder, past: Run | None
    ) -> RunContext:
        seconds = ledger.caps.seconds
        used = past.active_seconds if past else 0.0
        deadline = None if seconds is None else asyncio.get_running_loop().time() + max(0.0, seconds - used)
        scope = RunContext(run_id, pool, ledger, tee, self._gates, self._desk, self._vault, self._retry, past, deadline)
        scope.spawner, scope.guarded, scope.purse = self._spawner, self._guarded, self._purse
        scope.task = asyncio.current_task()
        scope.cancels = scope.task.cancelling() if scope.task else 0
        return scope

    def _conducted(self, scope: RunContext, conductor: Conductor, task: Task, above: RunContext | None) -> ConductedRun:
        scope.autonomy = above.autonomy if above else self._oversight.of(task, conductor.name)
        on_text = None if above else self._on_text  # a child's steps are not its parent's
        return ConductedRun(scope, conductor, task, on_text)

    def _spawner(self, scope: RunContext, line: AttemptHandle) -> ChildRunLauncher:
        async def spawn(task: Task, conductor: Conductor, names: Sequence[str], caps: Caps) -> ChildRunResult:
            return await self._spawn(scope, line.child(), _ChildRun(task, conductor, tuple(names), caps))

        return spawn

    async def _spawn(self, scope: RunContext, run_id: str, child: "_ChildRun") -> ChildRunResult:
        """Perform a child run, or go on with it: deeper by one, with workers of this pool, on this budget's rest."""
        try:
            pool = scope.pool.subset(child.names)
            ledger = scope.ledger.child(child.caps)
        except UnknownName as error:
            raise WorkerError(FaultKind.BAD_REQUEST, f"a child run's pool: {error}") from None
        except CapReached as refusal:
            raise WorkerError(FaultKind.CAP, str(refusal)) from None
        with self._once(run_id):
            events = await read_journaled(self._recorder, run_id)
            if events:
                past = Run.fold(events)
                run = past
                if past.finished is None:
                    run = await self._continue(past, events, pool, child.conductor, scope)
            else:
                run = await self._start(child.task, pool, child.conductor, ledger, run_id, above=scope)
        if run.status is RunStatus.SUSPENDED:
            raise WorkerError(FaultKind.WAITING, f"child run {run.id} waits for a person")
        return _child_result(run)


@dataclass(frozen=True, slots=True)
class _ChildRun:
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


async def _run_to_end(conducted: ConductedRun, tee: _ObservedRecorder) -> Run:
    """Conduct a run, or go on with it, to its last event."""
    scope = conducted.scope
    try:
        end = scope.past.reached if scope.past else None
        if end is None:
            ending = await _rounds_until_deadline(conducted)
            end = None if ending.status is RunStatus.SUSPENDED else _end_reached(conducted, ending)
        tee.add(
            _run_paused(scope, ending) if end is None else await finalize_run(scope, end, lambda: Run.fold(tee.events))
        )
    except asyncio.CancelledError:
        with suppress(JournalError):  # without it the run is resumable all the same
            tee.add(RunPaused(run=scope.run, at=time(), status=RunStatus.INTERRUPTED, why="stopped from outside"))
            await asyncio.shield(tee.flush())
        raise
    await tee.flush()
    return Run.fold(tee.events)


async def _rounds_until_deadline(conducted: ConductedRun) -> RunEnding:
    scope = conducted.scope
    try:
        async with asyncio.timeout_at(scope.deadline) as limit:
            return await run_rounds(conducted)
    except TimeoutError:
        if not limit.expired():
            raise
        return RunEnding(RunStatus.CAPPED, f"seconds cap reached: {scope.ledger.caps.seconds:g} s are over", "seconds")


def _run_started(
    scope: RunContext, conductor: Conductor, task: Task, config: str, above: RunContext | None
) -> RunStarted:
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
        tool_choice=task.tool_choice,
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
    if past.finished is None and past.status is RunStatus.RUNNING:
        raise ConfigError(f"run {past.id} is not over: stop it first, or go on with it if its process died")
    _check_pool(past, pool)


def _run_given_up(run_id: str, actor: str) -> RunFinished:
    why = f"given up and rolled back by {actor}"
    return RunFinished(run=run_id, at=time(), status=RunStatus.FAILED, why=why, fault=FaultKind.CANCELLED)


def _check_same(past: Run, pool: Pool, conductor: Conductor) -> None:
    begun = past.started
    _check_pool(past, pool)
    if begun.conductor != conductor.name:
        raise ConfigError(f"run {past.id} is conducted by {begun.conductor}; {conductor.name} cannot take over")


def _run_refused(run_id: str, error: JournalUnavailable) -> Event:
    why = f"refused: the journal could not take it ({error})"
    return RunFinished(run=run_id, at=time(), status=RunStatus.FAILED, why=why)


def _child_result(run: Run) -> ChildRunResult:
    charged = run.charged
    why = run.finished.why if run.finished else str(run.status)
    return ChildRunResult(run.id, run.answer, why, Usage(charged.tokens), charged.dollars, run.uncertain)


def _run_paused(scope: RunContext, ending: RunEnding) -> RunPaused:
    return RunPaused(run=scope.run, at=time(), status=RunStatus.SUSPENDED, why=scope.clean(ending.why))


def _end_reached(conducted: ConductedRun, ending: RunEnding) -> EndReached:
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
