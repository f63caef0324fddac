"""Executes runs in this process: each run is a task of one group, observed, charged, and released in order.

Invariants: nothing that happens to one run reaches another one; every listener of a run comes to an end. A run's end
or wait and the change of its row are one commit (`ServedRunRecorder`), so a list never shows a run as open that has
ended, and nobody takes over what is finished. A run that the journal could not store is remembered (`stuck`) and
resumed when the journal is back.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from shikisha.core.budget import ZERO, Amount
from shikisha.core.errors import JournalError, JournalUnavailable, ShikishaError
from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStatus,
)
from shikisha.core.fair_work import WORK_OWNER, WorkOwner
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.run import Run, root_run_id
from shikisha.engine.engine import Engine
from shikisha.journal import Journal
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.budgets import KeyBudgets, RunKeyBudget
from shikisha.server.lifecycle.broadcast import LiveRun
from shikisha.server.lifecycle.deadlines import ApprovalTimeouts
from shikisha.server.ops.watchdog import run_context
from shikisha.server.store import RunStore, ServedState


class Booking(Protocol):
    """A request that an admission let in, with the conductor that is to be used, until it is known what it cost."""

    @property
    def conductor(self) -> str:
        """The specification of the conductor."""

    def settle(self, used: Amount, *, paid: bool) -> None:
        """Charge what the request used; `paid`: it has an answer."""


class LostConnection(Protocol):
    """A client's connection, which tells when it is lost."""

    def when_lost(self, lost: Callable[[], None] | None) -> None:
        """Have this called when the connection is lost; None: it matters no more."""


@dataclass(slots=True)
class ActiveRun:
    """A run in progress. `used` and `uncertain` include the calls of its child runs (dollars None: unknown)."""

    live: LiveRun
    budget: RunKeyBudget
    used: Amount = ZERO
    uncertain: Amount = ZERO
    stopped: bool = False  # canceled for good; any other interrupted run is resumed
    acknowledged: bool = False  # its start is durable
    expelled: bool = False  # another server performs it now
    answered: bool = False  # an answer that it waits for came while it was still being performed
    known: set[str] = field(default_factory=set)  # the questions whose answers it was performed with
    task: "asyncio.Task[Run | None] | None" = field(default=None, repr=False)
    failure: BaseException | None = None
    booked: Booking | None = None  # in the account of its rate plan
    rows: int = 0  # of the journal that were added here

    @property
    def called(self) -> bool:
        """Whether a call has been made, so that the start is durable, whoever stored it."""
        return any(isinstance(event, AttemptFinished | AttemptFailed) for event in self.live.events)

    def cancel(self) -> None:
        """Stop it for good."""
        self.stopped = True
        if self.task is not None:
            self.task.cancel()

    async def hold(self, need: Amount, worker: str) -> None:
        """Reserve what a call may use in the key's budget (the engine's port)."""
        await self.budget.hold(need, worker)

    def settle(self, held: Amount, used: Amount, uncertain: Amount = ZERO) -> None:
        """Release a reservation, and count what was used or may have been, for the budget and for the run."""
        self.budget.settle(held, used, uncertain)
        self.used += used
        self.uncertain += uncertain


_LOG = logging.getLogger(__name__)


class RunExecutor(ABC):
    """The runs that this process performs, by id.

    `observers` get every event, `history_observers` the earlier events of a run that is resumed here.
    `shutdown_callbacks` are called, each in a thread, once nothing is performed anymore.
    """

    engine: Engine

    def __init__(self, journal: Journal, key_budgets: KeyBudgets, drain: float) -> None:
        self.journal = journal
        self.key_budgets = key_budgets
        self.running: dict[str, ActiveRun] = {}
        self.observers: list[Callable[[Event], None]] = []
        self.history_observers: list[Callable[[Sequence[Event]], None]] = []
        self.shutdown_callbacks: list[Callable[[], None]] = []
        self.approval_timeouts = ApprovalTimeouts(root_run_id)
        self.stuck: set[str] = set()
        self.expulsions = 0
        self.closing = False
        self._drain = drain
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[Run | None]] = set()

    def enter(self, group: asyncio.TaskGroup) -> None:
        """Perform runs in this group."""
        self._group = group

    async def close(self) -> None:
        """Start nothing more, give runs time to end, and interrupt the rest."""
        self.closing = True
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=self._drain)
        while self._tasks:  # also a run that was resumed meanwhile, because it got its answer
            self._interrupt()
            await asyncio.wait(tuple(self._tasks))

    def stop_now(self) -> None:
        """Start nothing more, and interrupt all runs at once."""
        self.closing, self._drain = True, 0.0
        self._interrupt()

    @property
    def idle(self) -> bool:
        """Whether no run is in progress here."""
        return not self._tasks

    def _interrupt(self) -> None:
        for task in self._tasks:
            task.cancel()

    def expelled(self) -> None:
        """Let go of every run, since other servers own them now: this one was silent for longer than its lease."""
        for running in self.running.values():
            running.expelled = True
            if running.task is not None:
                running.task.cancel()
        self.stuck.clear()
        self.key_budgets.forget()
        self.expulsions += 1

    def perform(self, name: str, running: ActiveRun, performing: Coroutine[object, object, Run]) -> None:
        """Perform a run in a task of its own."""
        if self._group is None:
            raise RuntimeError("the service is not open")
        performed = self._run_to_end(name, running, performing)
        task = self._group.create_task(
            performed, name=f"run {name}", context=run_context(name, running.budget.account.key)
        )
        running.task, self.running[name] = task, running
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, name, running, performing))

    async def perform_here(
        self, name: str, running: ActiveRun, performing: Coroutine[object, object, Run], lost: LostConnection
    ) -> None:
        """Perform a run in the present task, which answers its client; ApiError where the journal cannot record it."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("runs are performed in tasks")
        running.task, self.running[name] = task, running
        self._tasks.add(task)
        WORK_OWNER.set(WorkOwner(running.budget.account.key))  # what is done from here on was accepted
        running.budget.count_request()  # stored with the first event, in one commit
        lost.when_lost(running.cancel)
        try:
            await self._run_to_end(name, running, performing)
        finally:
            lost.when_lost(None)
            self._tasks.discard(task)
            running.acknowledged, running.task = running.called, None
        while task.cancelling():  # what ended the run is not to end its answer
            task.uncancel()
        if running.failure is not None:
            if not running.acknowledged:
                running.budget.uncount_request()
            raise running.failure

    def _done(
        self,
        name: str,
        running: ActiveRun,
        performing: Coroutine[object, object, Run],
        task: "asyncio.Task[Run | None]",
    ) -> None:
        """Let go of a run whose task has ended, even if it was canceled before it started."""
        self._tasks.discard(task)
        performing.close()
        self._let_go(name, running)

    def _let_go(self, name: str, running: ActiveRun) -> None:
        if self.running.get(name) is running:
            del self.running[name]
        running.budget.release()
        if running.booked is not None:
            last = next((event for event in reversed(running.live.events) if isinstance(event, RunFinished)), None)
            paid = last is not None and last.answer is not None
            running.booked.settle(running.used + running.uncertain, paid=paid)
        running.live.end()

    async def _run_to_end(
        self, name: str, running: ActiveRun, performing: Coroutine[object, object, Run]
    ) -> Run | None:
        """Perform a run until it ends or waits, and keep its failures from other runs."""
        run: Run | None = None
        try:
            run = running.live.result = await performing
            if run.finished is not None and not running.live.past:
                self.journal.note_ended(run, running.rows)
        except asyncio.CancelledError:
            if not (running.stopped or running.expelled or self.closing):
                raise
        except JournalUnavailable as error:
            running.failure = journal_unavailable()
            if (running.acknowledged or running.called) and not running.expelled:
                self.stuck.add(name)
            _LOG.warning("run %s cannot be recorded: %s", name, type(error).__name__)
        except ShikishaError as error:
            running.failure = error
            self._give_up(name, running)
        except BaseException as error:  # an unexpected failure of one run must not end the others
            if asyncio.current_task() is not running.task:  # the coroutine is being closed, not performed
                raise
            running.failure = ApiError(500, f"run {name} ended unexpectedly", "internal_error")
            _LOG.exception("run %s: %s", name, type(error).__name__)
            self._give_up(name, running)
        finally:
            self._let_go(name, running)
        if run is not None and run.status is RunStatus.SUSPENDED:
            try:
                await self.on_waiting(name, running)
            except JournalUnavailable:
                if not running.expelled:
                    self.stuck.add(name)
            except Exception as error:  # noqa: BLE001 - the run keeps waiting, and maintenance looks at it again
                _LOG.error("run %s waits, and cannot be read: %s", name, type(error).__name__)
        return run

    def _give_up(self, name: str, running: ActiveRun) -> None:
        with suppress(JournalUnavailable):  # this server was declared dead: another one owns the run
            self.mark_given_up(name, running)

    @abstractmethod
    def mark_given_up(self, name: str, running: ActiveRun) -> None:
        """Stop a run that cannot be performed any further, so that no server resumes it by itself."""

    @abstractmethod
    async def on_waiting(self, name: str, running: ActiveRun) -> None:
        """Resume a run that waits, if its answer has arrived meanwhile."""

    async def acknowledged(self, running: ActiveRun) -> None:
        """Return when the run's start is durable; ApiError when the journal did not store it."""
        await asyncio.sleep(0)  # the run's own task adds its first event
        if not running.live.events and running.task is not None:  # it waits for a grant of its key's budget
            begun = asyncio.ensure_future(running.live.begun.wait())
            try:
                await asyncio.wait([begun, running.task], return_when=asyncio.FIRST_COMPLETED)
            finally:
                begun.cancel()
        if running.failure is not None and not running.live.events:
            raise running.failure  # the engine refused it, and nothing is charged
        running.budget.count_request()  # stored with the first event, in one commit
        try:
            await self.journal.flush()
        except JournalError as error:
            running.budget.uncount_request()
            raise journal_unavailable() from error
        running.acknowledged = True

    def drop(self, running: ActiveRun) -> None:
        """Let go of a run that could not start, or whose client left meanwhile."""
        running.cancel()

    def engine_for(self, running: ActiveRun) -> Engine:
        """Return the engine with the observers, the text callback and the budget of one run."""
        observers = [running.live.observe, *self.observers]

        def observe(event: Event) -> None:
            if isinstance(event, QuestionAnswered):
                running.known.add(event.question)
            elif isinstance(event, QuestionAsked):
                self.approval_timeouts.note(event)
            for observer in observers:
                observer(event)

        return self.engine.with_observers(observe, running.live.say, running, lambda: running.acknowledged)


def journal_unavailable() -> ApiError:
    """Return the error for requests that the journal cannot record."""
    said = "the journal cannot be written now, and nothing is done that cannot be recorded"
    return ApiError(503, said, "journal_unavailable", wait=2)


class ServedRunRecorder:
    """A recorder in front of the journal that also updates the rows of runs; `running` are this process's runs."""

    def __init__(self, journal: Journal, store: RunStore, running: Mapping[str, ActiveRun]) -> None:
        self._journal = journal
        self._store = store
        self._running = running

    def add(self, event: Event) -> None:
        """Append an event, and update the run's row in the same commit."""
        self.add_bundle((event,))

    def add_bundle(self, events: Sequence[Event]) -> int:
        """Append events of one run as one row, and update the run's row in the same commit."""
        rows = self._journal.add_bundle(events)
        running = self._running.get(events[0].run)
        if running is None:
            return rows
        running.rows += rows
        for event in events:
            match event:
                case RunFinished():
                    state, status = ServedState.ENDED, event.status
                case RunPaused(status=RunStatus.SUSPENDED):
                    state, status = ServedState.WAITING, event.status
                case RunPaused():
                    state, status = ServedState.STOPPED if running.stopped else ServedState.OPEN, event.status
                case RunResumed():
                    state, status = ServedState.OPEN, RunStatus.RUNNING
                case _:
                    continue
            self._store.mark(event.run, state, status=status, used=running.used, uncertain=running.uncertain)
        return rows

    async def flush(self) -> None:
        """Wait until every event added so far is durable."""
        await self._journal.flush()

    async def read(self, run: str) -> tuple[Event, ...]:
        """Return a run's events in the order written."""
        return await self._journal.read(run)
