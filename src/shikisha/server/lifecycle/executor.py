"""The runs under way in this process: each a task of one group, watched, charged, and let go of in order.

Invariants: nothing that happens to one run reaches another; whatever a run ends in, those who listen come to an end;
a run that the journal could not take any further is kept in mind (`stuck`), to go on once it can. Deliberately absent:
which runs those are (`house`).

A run that this process performs: who listens to it, what it has used, and whether somebody wants it to stop.

Deliberately absent: performing it (`house`).

The recorder of served runs: events go to the journal, and what a run's row says goes along in the same commit.

Invariant: a run's end and its row's end, and a run's wait and its row's wait, are durable together or not at all, so
a list never shows a run as open that has ended, and nobody takes over what is over. Deliberately absent: deciding
anything; and the rows of runs that were not begun here (the command line's).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from shikisha.core.budget import ZERO, Amount
from shikisha.core.errors import JournalError, JournalUnavailable, ShikishaError
from shikisha.core.events import Event, QuestionAnswered, RunFinished, RunPaused, RunResumed, RunStatus
from shikisha.core.run import Run
from shikisha.engine.engine import Engine
from shikisha.journal import Journal
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.budgets import KeyBudgets, RunKeyBudget
from shikisha.server.lifecycle.broadcast import LiveRun
from shikisha.server.ops.watchdog import run_context
from shikisha.server.store import RunStore, ServedState


@dataclass(slots=True)
class ActiveRun:
    """A run under way. `used` counts its child runs' calls too (dollars None: nobody can say), as does `uncertain`."""

    live: LiveRun
    purse: RunKeyBudget
    used: Amount = ZERO
    uncertain: Amount = ZERO
    stopped: bool = False  # cancelled for good; otherwise an interrupted run is taken up again
    acknowledged: bool = False  # its start is durable
    expelled: bool = False  # another server performs it now
    answered: bool = False  # something that it waits for came while it was still being performed
    known: set[str] = field(default_factory=set)  # the questions whose answers it was performed with
    task: "asyncio.Task[Run | None] | None" = field(default=None, repr=False)
    failure: BaseException | None = None

    async def hold(self, need: Amount, worker: str) -> None:
        """Hold what a call may use in the budget that the run shares (the engine's Purse)."""
        await self.purse.hold(need, worker)

    def settle(self, held: Amount, used: Amount, uncertain: Amount = ZERO) -> None:
        """Release what was held, and count what was used or may have been, for the budget and for the run."""
        self.purse.settle(held, used, uncertain)
        self.used += used
        self.uncertain += uncertain


_LOG = logging.getLogger(__name__)


class RunExecutor(ABC):
    """What is performed here, by name; `watchers` hear every event, `recallers` what a run had before it goes on here.

    `endings` are called, each in a thread, when nothing is performed any more.
    """

    def __init__(self, journal: Journal, purses: KeyBudgets, drain: float) -> None:
        self.journal = journal
        self.purses = purses
        self.running: dict[str, ActiveRun] = {}
        self.watchers: list[Callable[[Event], None]] = []
        self.recallers: list[Callable[[Sequence[Event]], None]] = []
        self.endings: list[Callable[[], None]] = []
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
        """Begin nothing more, give runs time to end, and interrupt what has not ended."""
        self.closing = True
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=self._drain)
        while self._tasks:  # also what was gone on with meanwhile: a run that got its answer
            self._interrupt()
            await asyncio.wait(tuple(self._tasks))

    def hasten(self) -> None:
        """Begin nothing more, and interrupt what is performed now: whoever stops this server wants no waiting."""
        self.closing, self._drain = True, 0.0
        self._interrupt()

    @property
    def idle(self) -> bool:
        """Whether nothing of any run goes on here."""
        return not self._tasks

    def _interrupt(self) -> None:
        for task in self._tasks:
            task.cancel()

    def expelled(self) -> None:
        """Let go of every run: another server holds them now (this one was silent for longer than its lease)."""
        for running in self.running.values():
            running.expelled = True
            if running.task is not None:
                running.task.cancel()
        self.stuck.clear()
        self.purses.forget()
        self.expulsions += 1

    def perform(self, name: str, running: ActiveRun, performing: Coroutine[object, object, Run]) -> None:
        """Perform a run in a task of its own."""
        if self._group is None:
            raise RuntimeError("the house is not open")
        performed = self._performed(name, running, performing)
        task = self._group.create_task(performed, name=f"run {name}", context=run_context(name))
        running.task, self.running[name] = task, running
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, name, running, performing))

    def _done(
        self,
        name: str,
        running: ActiveRun,
        performing: Coroutine[object, object, Run],
        task: "asyncio.Task[Run | None]",
    ) -> None:
        """Let go of a run whose task has ended, even if that was cancelled before it began."""
        self._tasks.discard(task)
        performing.close()
        self._let_go(name, running)

    def _let_go(self, name: str, running: ActiveRun) -> None:
        if self.running.get(name) is running:
            del self.running[name]
        running.purse.over()
        running.live.end()

    async def _performed(self, name: str, running: ActiveRun, performing: Coroutine[object, object, Run]) -> Run | None:
        """Perform a run to its end, or to where it waits; nothing that happens to it reaches other runs."""
        run: Run | None = None
        try:
            run = await performing
        except asyncio.CancelledError:
            if not (running.stopped or running.expelled or self.closing):
                raise
        except JournalUnavailable as error:
            running.failure = journal_unavailable()
            if running.acknowledged and not running.expelled:
                self.stuck.add(name)
            _LOG.warning("run %s cannot be written down: %s", name, type(error).__name__)
        except ShikishaError as error:
            running.failure = error
            self._give_up(name, running)
        except BaseException as error:  # one run's surprise must not end all the others
            if asyncio.current_task() is not running.task:  # it is not performed, but closed
                raise
            running.failure = ApiError(500, f"run {name} ended unexpectedly", "internal_error")
            _LOG.exception("run %s: %s", name, type(error).__name__)
            self._give_up(name, running)
        finally:
            self._let_go(name, running)
        if run is not None and run.status is RunStatus.SUSPENDED:
            await self._waited(name, running)
        return run

    def _give_up(self, name: str, running: ActiveRun) -> None:
        with suppress(JournalUnavailable):  # this server was taken for dead: the run is another's
            self.given_up(name, running)

    async def _waited(self, name: str, running: ActiveRun) -> None:
        try:
            await self.waited(name, running)
        except JournalUnavailable:
            if not running.expelled:
                self.stuck.add(name)
        except Exception as error:  # noqa: BLE001 - other people's code, and the table says what it raised
            _LOG.error("run %s waits, and cannot be looked at: %s", name, type(error).__name__)

    @abstractmethod
    def given_up(self, name: str, running: ActiveRun) -> None:
        """Note that a run cannot be performed any further: nobody is to take it up by itself."""

    @abstractmethod
    async def waited(self, name: str, running: ActiveRun) -> None:
        """Go on with a run that waits, if it has got what it waits for meanwhile."""

    async def acknowledged(self, running: ActiveRun) -> None:
        """Return when the run's start is durable; Problem when the journal did not take it."""
        await asyncio.sleep(0)  # the run's own task adds its first event
        if running.failure is not None and not running.live.events:
            raise running.failure  # it was refused, and is charged nothing
        running.purse.begun()  # counted with that event, in one commit
        try:
            await self.journal.flush()
        except JournalError as error:
            running.purse.unbegun()
            raise journal_unavailable() from error
        running.acknowledged = True

    def drop(self, running: ActiveRun) -> None:
        """Let go of a run that could not be begun, or whose client went away meanwhile."""
        running.stopped = True
        if running.task is not None:
            running.task.cancel()

    def lent(self, engine: Engine, running: ActiveRun) -> Engine:
        """Return the engine for one run."""
        watchers = [running.live.observe, *self.watchers]

        def observe(event: Event) -> None:
            if isinstance(event, QuestionAnswered):
                running.known.add(event.question)
            for watcher in watchers:
                watcher(event)

        return engine.lent(observe, running.live.say, running, lambda: running.acknowledged)


def journal_unavailable() -> ApiError:
    """Return what is said while nothing can be recorded."""
    return ApiError(
        503,
        "the journal cannot be written now, and nothing is done that cannot be recorded",
        "journal_unavailable",
        wait=2,
    )


class ServedRunRecorder:
    """A Recorder in front of the journal; `running` are the runs that this process performs."""

    def __init__(self, journal: Journal, store: RunStore, running: Mapping[str, ActiveRun]) -> None:
        self._journal = journal
        self._store = store
        self._running = running

    def add(self, event: Event) -> None:
        """Append an event, and say in the run's row what it means for the run."""
        self._journal.add(event)
        running = self._running.get(event.run)
        if running is None:
            return
        match event:
            case RunFinished():
                self._mark(event, ServedState.ENDED, event.status, running)
            case RunPaused(status=RunStatus.SUSPENDED):
                self._mark(event, ServedState.WAITING, event.status, running)
            case RunPaused():
                self._mark(event, ServedState.STOPPED if running.stopped else ServedState.OPEN, event.status, running)
            case RunResumed():
                self._mark(event, ServedState.OPEN, RunStatus.RUNNING, running)
            case _:
                pass

    async def flush(self) -> None:
        """Return when every event added so far is durable."""
        await self._journal.flush()

    async def read(self, run: str) -> tuple[Event, ...]:
        """Return a run's events in the order written."""
        return await self._journal.read(run)

    def _mark(self, event: Event, state: ServedState, status: RunStatus, running: ActiveRun) -> None:
        self._store.mark(event.run, state, status=status, used=running.used, uncertain=running.uncertain)
