"""The engine: takes a task, has it planned and performed, and leaves a journaled run.

One loop (`rounds`) serves whole plans, step-by-step conducting and child runs. Invariants: a run's start is durable
before any worker or conductor model is called for it, and its end is durable before it is returned (4); a run leaves
the loop as a RunFinished that says why, or as a RunPaused that can be resumed. Resuming is the same loop over the same
code: what the journal already has is taken from there, and what was used before is counted before any call is made. One
process performs a run once at a time. Deliberately absent: opinions (a Conductor plans, a Worker performs, and the
engine knows neither) and any lock against another process.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from time import time
from typing import ParamSpec

from shikisha.core.budget import Caps, Usage
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
from shikisha.core.events import EndReached, Event, RunFinished, RunPaused, RunResumed, RunStarted, RunStatus
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.run import NewRunId, Run, new_run_id
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.core.visibility import NO_LABELS, Labels
from shikisha.engine.approvals import Approver, NoApprover
from shikisha.engine.autonomy import AutonomyPolicy
from shikisha.engine.budget_ledger import BudgetLedger, SharedBudget, UnlimitedBudget, recount_usage
from shikisha.engine.compensation import RollbackOrder, roll_back
from shikisha.engine.conductor import Conductor, TurnRouter
from shikisha.engine.gatherer import AnswerStep, ContextSource, change_answer
from shikisha.engine.pool import Pool
from shikisha.engine.rate_limits import ConcurrencyLimits
from shikisha.engine.recorder import Recorder, RunRecorder, read_journaled
from shikisha.engine.rounds import ConductedRun, ending_event, finalize_run, run_rounds
from shikisha.engine.run_context import AttemptHandle, RetryPolicy, RunContext
from shikisha.engine.scheduler import TextCallback
from shikisha.engine.single_step import perform_single_step, single_step
from shikisha.engine.worker import ChildRunLauncher, ChildRunResult

P = ParamSpec("P")
_UNLIMITED: SharedBudget = UnlimitedBudget()
_LOG = logging.getLogger(__name__)


def _guard_callback(callback: Callable[P, None]) -> Callable[P, None]:
    """Return the callback as one that cannot break what it observes."""

    def guarded(*args: "P.args", **kwargs: "P.kwargs") -> None:  # in quotes, since one is made for each run
        try:
            callback(*args, **kwargs)
        except PROCESS_STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - a callback is anyone's code: a run does not end because of it
            _LOG.warning("a callback of the engine raised %s", type(error).__name__)

    return guarded


class Engine:
    """Performs tasks: holds what runs share (the journal, the workers' limits, the approver, the secrets).

    `observe` is called with every event as it is decided; `on_text(round, step, piece)` with answers as they grow.
    `guarded_labels` go only to workers that are cleared for them. `context_source` is asked before a run's start for
    what its workers see besides the task; `answer_steps` change the answer of a run that is no child before it ships.
    One engine serves any number of runs at once on one event loop.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        approver: Approver | None = None,
        secret_store: SecretStore | None = None,
        observe: Callable[[Event], None] | None = None,
        on_text: TextCallback | None = None,
        retry: RetryPolicy | None = None,
        guarded_labels: Labels = NO_LABELS,
        context_source: ContextSource | None = None,
        answer_steps: Sequence[AnswerStep] = (),
        turn_router: TurnRouter | None = None,
    ) -> None:
        self._recorder = recorder
        self._approver = approver or NoApprover()
        self._secret_store = secret_store or SecretStore({})
        self._observe = _guard_callback(observe) if observe else None
        self._on_text = _guard_callback(on_text) if on_text else None
        self._retry = retry or RetryPolicy()
        self._guarded_labels = guarded_labels
        self._context_source, self._answer_steps = context_source, tuple(answer_steps)
        self._turn_router = turn_router
        self._shared_budget, self._autonomy_policy = _UNLIMITED, AutonomyPolicy()
        self._limits, self._performing = ConcurrencyLimits(), set[str]()
        self._start_is_durable: Callable[[], bool] = lambda: False

    def with_recorder(self, recorder: Recorder) -> "Engine":
        """Return an engine that writes elsewhere and shares all else: a worker's limits hold for the calls of both."""
        return self._but(_recorder=recorder, _performing=set())

    def with_observers(
        self,
        observe: Callable[[Event], None] | None = None,
        on_text: TextCallback | None = None,
        shared_budget: SharedBudget | None = None,
        start_is_durable: Callable[[], bool] = lambda: False,
    ) -> "Engine":
        """Return this engine with other observers, and a budget that its runs share with others.

        `start_is_durable` says whether the caller has itself stored a run's start: then the run is not refused any more
        when the journal fails.
        """
        return self._but(
            _observe=observe and _guard_callback(observe),
            _on_text=on_text and _guard_callback(on_text),
            _shared_budget=shared_budget or _UNLIMITED,
            _start_is_durable=start_is_durable,
        )

    def with_autonomy(self, autonomy_policy: AutonomyPolicy) -> "Engine":
        """Return this engine with classes of autonomy."""
        return self._but(_autonomy_policy=autonomy_policy)

    def _but(self, **changes: object) -> "Engine":
        """Return this engine but for these attributes; `copy` takes ten times as long, and each served run has one."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)
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
        """Perform a task to its end and return the run.

        ConfigError for an empty pool and for a run id that is taken; TaskError for a schema that cannot be checked;
        JournalUnavailable, before anything is done, if the run cannot be stored. A run that waits for a person is
        returned with status SUSPENDED. Cancelling leaves a resumable run.
        """
        if not len(pool):
            raise ConfigError("the pool is empty: a run needs at least one worker")
        own_id = run_id or new_run_id()
        with self._once(own_id):
            if run_id is not None and not isinstance(run_id, NewRunId) and await read_journaled(self._recorder, run_id):
                raise ConfigError(f"run {run_id} exists: resume it, or choose another id")
            gathered = None
            if self._context_source is not None:
                gathered = await self._context_source.gather_context(task, own_id)
                task = gathered.add_to(task)
            ledger = BudgetLedger(caps or Caps())
            started = self._start(task, pool, conductor, ledger, own_id, config=config)
            if gathered is not None:
                started.context.recorder.add(gathered.event(own_id))
            return await self._conduct(started)

    async def resume(self, run_id: str, pool: Pool, conductor: Conductor) -> Run:
        """Continue a run from its last journaled step; a run that has ended is returned as it is.

        ConfigError for a child run (it continues with its parent, inside its caps), and for another pool or conductor.
        """
        with self._once(run_id):
            events = await self._recorder.read(run_id)
            past = Run.fold(events)
            if past.finished is not None:
                return past
            _check_pool(past, pool)
            if past.started.conductor != conductor.name:
                planner = past.started.conductor
                raise ConfigError(f"run {run_id} is conducted by {planner}; {conductor.name} cannot take over")
            return await self._conduct(await self._continue(past, events, pool, conductor))

    async def undo(self, run_id: str, pool: Pool, order: RollbackOrder, caps: Caps | None = None) -> Run:
        """Roll a run back, within these caps or as many as it had itself; a run that waits for a person ends first.

        ConfigError for a child run, another pool, and a run that is not over: its calls are still being made.
        """
        with self._once(run_id):
            events = await self._recorder.read(run_id)
            past = Run.fold(events)
            if past.finished is None and past.status is RunStatus.RUNNING:
                raise ConfigError(f"run {run_id} is not over: stop it first, or go on with it if its process died")
            _check_pool(past, pool)
            recorder = RunRecorder(self._recorder, self._observe, events)
            if past.finished is None:
                why = f"given up and rolled back by {self._secret_store.scrub(order.actor)}"
                failed, cancelled = RunStatus.FAILED, FaultKind.CANCELLED
                recorder.add(RunFinished(run=run_id, at=time(), status=failed, why=why, fault=cancelled))
            context = self._context(run_id, pool, BudgetLedger(caps or past.started.caps), recorder, None)
            await roll_back(context, recorder.fold(), order)
            await recorder.flush()
            return recorder.fold()

    @contextmanager
    def _once(self, run_id: str) -> Iterator[None]:
        """Refuse a second performance of this run in this process; ConfigError."""
        if run_id in self._performing:
            raise ConfigError(f"run {run_id} is being performed already")
        self._performing.add(run_id)
        try:
            yield
        finally:
            self._performing.discard(run_id)

    def _start(
        self,
        task: Task,
        pool: Pool,
        conductor: Conductor,
        ledger: BudgetLedger,
        run_id: str,
        *,
        config: str = "{}",
        parent: RunContext | None = None,
    ) -> ConductedRun:
        """Begin a run: nothing here waits, since whoever starts a run expects its first event at once."""
        task = task if self._secret_store.empty else task.scrubbed(self._secret_store.scrub)
        if task.answer_schema is not None:
            try:
                SchemaCheck(task.answer_schema, "answer_schema")
            except ConfigError as error:
                raise TaskError(str(error)) from None
        recorder = RunRecorder(self._recorder, self._observe)
        context = self._context(run_id, pool, ledger, recorder, None)
        conducted = self._conducted(context, conductor, task, parent)
        if self._context_source is None and not self._answer_steps:
            conducted.single = single_step(conducted)
        if conducted.single is not None:
            recorder.bundle()
        recorder.add(_run_started(context, conductor, task, config, parent))
        return conducted

    async def _continue(
        self, past: Run, events: Sequence[Event], pool: Pool, conductor: Conductor, parent: RunContext | None = None
    ) -> ConductedRun:
        ledger = BudgetLedger(past.started.caps, depth=past.started.depth)
        await recount_usage(partial(read_journaled, self._recorder), past, ledger)
        # Only now: the parent's ledger has counted its children's past usage from the parent's own journal.
        ledger.parent = parent.ledger if parent else None
        recorder = RunRecorder(self._recorder, self._observe, events)
        recorder.add(RunResumed(run=past.id, at=time()))
        await recorder.flush()
        context = self._context(past.id, pool, ledger, recorder, past)
        return self._conducted(context, conductor, past.task, parent)

    def _context(
        self, run_id: str, pool: Pool, ledger: BudgetLedger, recorder: RunRecorder, past: Run | None
    ) -> RunContext:
        seconds, used = ledger.caps.seconds, past.active_seconds if past else 0.0
        task = asyncio.current_task()
        return RunContext(
            run_id,
            pool,
            ledger,
            recorder,
            self._limits,
            self._approver,
            self._secret_store,
            self._retry,
            past,
            deadline=None if seconds is None else asyncio.get_running_loop().time() + max(0.0, seconds - used),
            launch_child=self._child_launcher,
            task=task,
            cancels=task.cancelling() if task else 0,
            shared_budget=self._shared_budget,
            guarded_labels=self._guarded_labels,
            turn_router=self._turn_router,
        )

    def _conducted(
        self, context: RunContext, conductor: Conductor, task: Task, parent: RunContext | None
    ) -> ConductedRun:
        context.autonomy = parent.autonomy if parent else self._autonomy_policy.of(task, conductor.name)
        # A child's steps have numbers of their own: a listener would take them for its parent's.
        # Nor is an answer told as it grows where it ships as another one.
        silent = parent is not None or bool(self._answer_steps)
        return ConductedRun(context, conductor, task, None if silent else self._on_text)

    async def _conduct(self, conducted: ConductedRun) -> Run:
        """Conduct a run, or continue it, to its last event, and return it."""
        context, recorder = conducted.context, conducted.context.recorder
        try:
            try:
                end: EndReached | RunPaused | None = context.past.reached if context.past else None
                if conducted.single is not None:
                    end = await perform_single_step(conducted, conducted.single)
                if end is None:
                    end = self._ship(conducted, ending_event(conducted, await run_rounds(conducted)))
                recorder.add(end if isinstance(end, RunPaused) else await finalize_run(context, end))
            except asyncio.CancelledError:
                with suppress(JournalError):  # without this event the run is resumable all the same
                    why = "stopped from outside"
                    recorder.add(RunPaused(run=context.run, at=time(), status=RunStatus.INTERRUPTED, why=why))
                    await asyncio.shield(recorder.flush())
                raise
            await recorder.flush()
        except JournalUnavailable as error:
            # A resumed run and a child run (which continues with its parent) are in the journal, and stay resumable.
            fresh = context.past is None and context.ledger.parent is None
            if fresh and recorder.begun and not (recorder.durable or self._start_is_durable()):
                with suppress(JournalUnavailable):  # stored once there is room, so that a refused run is not resumed
                    why = f"refused: the journal could not take it ({error})"
                    recorder.add(RunFinished(run=context.run, at=time(), status=RunStatus.FAILED, why=why))
            raise
        return recorder.fold()

    def _ship(self, conducted: ConductedRun, end: EndReached | RunPaused) -> EndReached | RunPaused:
        """Return the end with its answer as it ships, and record each change."""
        context, fixed_form = conducted.context, conducted.task.answer_schema is not None
        if isinstance(end, RunPaused) or end.answer is None or context.ledger.parent is not None or fixed_form:
            return end
        answer, events = change_answer(end.run, end.answer, self._answer_steps)
        known = [(past.by, past.before) for past in context.past.changes] if context.past else []
        for event in events:
            if (event.by, event.before) not in known:
                context.recorder.add(event)
        return replace(end, answer=answer)

    def _child_launcher(self, context: RunContext, handle: AttemptHandle) -> ChildRunLauncher:
        async def launch(task: Task, conductor: Conductor, names: Sequence[str], caps: Caps) -> ChildRunResult:
            """Perform a child run, or continue it: one deeper, with workers of this pool, on what is left of its caps.

            WorkerError: BAD_REQUEST for an unknown worker, CAP when a cap refuses the run, WAITING when it waits.
            """
            run_id = handle.child()
            try:
                child_pool = context.pool.subset(names)
                ledger = context.ledger.child(caps)
            except UnknownName as error:
                raise WorkerError(FaultKind.BAD_REQUEST, f"a child run's pool: {error}") from None
            except CapReached as refusal:
                raise WorkerError(FaultKind.CAP, str(refusal)) from None
            with self._once(run_id):
                events = await read_journaled(self._recorder, run_id)
                run = Run.fold(events) if events else None
                if run is None:
                    started = self._start(task, child_pool, conductor, ledger, run_id, parent=context)
                    run = await self._conduct(started)
                elif run.finished is None:
                    run = await self._conduct(await self._continue(run, events, child_pool, conductor, context))
            if run.status is RunStatus.SUSPENDED:
                raise WorkerError(FaultKind.WAITING, f"child run {run_id} waits for a person")
            charged, why = run.charged, run.finished.why if run.finished else str(run.status)
            return ChildRunResult(run_id, run.answer, why, Usage(charged.tokens), charged.dollars, run.uncertain)

        return launch


def _run_started(
    context: RunContext, conductor: Conductor, task: Task, config: str, parent: RunContext | None
) -> RunStarted:
    return RunStarted(
        run=context.run,
        at=time(),
        conductor=conductor.name,
        pool=context.pool.names,
        caps=context.ledger.caps,
        prompt=task.prompt,
        context=task.context,
        task_id=task.id,
        domain=task.domain,
        labels=task.labels,
        parent=parent.run if parent else None,
        depth=context.ledger.depth,
        config=context.secret_store.scrub(config),
        parallel_tool_calls=task.parallel_tool_calls,
        tool_choice=task.tool_choice,
        tenant=task.tenant,
        **task.bodies(),
    )


def _check_pool(past: Run, pool: Pool) -> None:
    """Refuse to go on with an erased run (RunErased), a child run, or with another pool (ConfigError)."""
    begun = past.started
    if past.erased is not None:
        raise RunErased(f"run {past.id} was erased by {past.erased.actor}: it cannot be resumed")
    if begun.parent is not None:
        raise ConfigError(f"run {past.id} is a child run of {begun.parent}: resume that run, and it goes on with it")
    if begun.pool != pool.names:
        there, here = ", ".join(begun.pool), ", ".join(pool.names)
        raise ConfigError(f"run {past.id} began with the pool {there}; it cannot go on with {here}")
