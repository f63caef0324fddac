"""What the calls of one run share, and where the calls of one step stand.

Invariant: StepCalls numbers a step's calls in the order in which they are made, and a resumed run steps over those
that are journaled in the same order, so attempt n is the same call in every process that performs the run. Calls that
are requested concurrently are made one after another. What a worker holds of its run (an AttemptHandle) is closed when
its attempt is over. Deliberately absent: making calls (`attempt`) and asking people (`questions`).
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from time import time
from typing import TypeAlias

from shikisha.core.budget import ZERO, Amount
from shikisha.core.call import Card, ChildRunLauncher
from shikisha.core.errors import CapReached, Fault, FaultKind, WorkerError
from shikisha.core.events import GuardMoment, StepFinished
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import ToolExchange
from shikisha.core.run import Attempt, Result, Run, StepRecord, child_run_id
from shikisha.core.secrets import SecretStore
from shikisha.core.visibility import NO_LABELS, Labels, ShownTurns
from shikisha.engine.approvals import Approver, Decision
from shikisha.engine.autonomy import FULL_AUTONOMY, AutonomyClass
from shikisha.engine.budget_ledger import BudgetLedger, SharedBudget, UnlimitedBudget
from shikisha.engine.conductor import TurnRouter
from shikisha.engine.pool import Pool
from shikisha.engine.rate_limits import ConcurrencyLimits
from shikisha.engine.recorder import RunRecorder


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter, in seconds; `longest_retry_after` bounds what a worker may ask for."""

    first: float = 0.5
    longest: float = 20.0
    longest_retry_after: float = 60.0
    jitter: Callable[[], float] = random.random

    def pause(self, retry: int, retry_after: float | None) -> float | None:
        """Return the seconds to wait before retry number `retry` (from 0); None: not worth the wait."""
        if retry_after is not None and retry_after > self.longest_retry_after:
            return None
        if retry_after is not None and retry_after > 0:  # it knows better than any backoff; NaN compares to nothing
            return retry_after
        # 2 ** 60 is far above any longest pause; without the bound, retry 1,100 would overflow a float.
        backoff: float = min(self.longest, self.first * 2 ** min(retry, 60)) * (0.5 + self.jitter() / 2)
        return backoff


@dataclass(slots=True)
class AttemptHandle:
    """What a worker has of its run during one attempt: it may stream text and start child runs until the attempt ends.

    The first child run has the attempt's key for its id; a repeat under the same key finds its child runs again.
    """

    key: str
    on_text: Callable[[str], None] | None = None
    said: list[str] = field(default_factory=list)
    children: int = 0
    closed: bool = False
    bound: Amount | None = None  # the most that it can have used, where a worker that is cancelled says so

    def emit(self, piece: str) -> None:
        """Pass a piece of the answer on."""
        if self.on_text is not None and not self.closed:
            self.said.append(piece)
            self.on_text(piece)

    def heard(self, fault: Fault, clean: Callable[[str], str]) -> Fault:
        """Return the fault with what was passed on of an answer, where its worker does not say it."""
        return replace(fault, partial=clean("".join(self.said))) if fault.partial is None and self.said else fault

    def narrow(self, bound: Amount) -> None:
        """Take the most that the attempt can have used, from a worker that is being cancelled."""
        self.bound = bound

    def child(self) -> str:
        """Return the id of the next child run; WorkerError when the attempt is over."""
        if self.closed:
            raise WorkerError(FaultKind.INTERNAL, "the attempt is over: it can start no child run")
        self.children += 1
        return child_run_id(self.key, self.children - 1)


_NO_LIMIT: AbstractAsyncContextManager[None] = nullcontext()
LauncherFactory: TypeAlias = Callable[["RunContext", AttemptHandle], ChildRunLauncher]


@dataclass(slots=True)
class RunContext:
    """What every call of one run shares. It does not refer to itself, so that a run is freed when it ends."""

    run: str
    pool: Pool
    ledger: BudgetLedger
    recorder: RunRecorder
    limits: ConcurrencyLimits
    approver: Approver
    secret_store: SecretStore
    retry: RetryPolicy = RetryPolicy()
    past: Run | None = None
    deadline: float | None = None  # on the event loop's clock
    limit: asyncio.Timeout | None = None  # what ends the run at its deadline
    launch_child: LauncherFactory | None = None
    task: "asyncio.Task[object] | None" = None  # the one that conducts
    cancels: int = 0  # cancellations that this task had received, and survived, before the run began
    shared_budget: SharedBudget = UnlimitedBudget()
    guarded_labels: Labels = NO_LABELS
    autonomy: AutonomyClass = FULL_AUTONOMY
    turn_router: TurnRouter | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)  # people's, in this process, by question
    _queued: int = 0  # calls that wait for our own limits
    _queued_at: float = 0.0

    def seconds_left(self) -> float | None:
        """Seconds until the run's deadline; None without one. The clock stands while a call waits for our limits."""
        now = self._queued_at if self._queued else asyncio.get_running_loop().time()
        return None if self.deadline is None else self.deadline - now

    def turn(self, card: Card) -> AbstractAsyncContextManager[None]:
        """Wait for a place among a worker's calls: our own queue takes none of the run's seconds."""
        if not card.limited:
            return _NO_LIMIT
        place = self.limits.hold(card)
        return place if self.deadline is None else self._turn(place)

    @asynccontextmanager
    async def _turn(self, place: AbstractAsyncContextManager[None]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self._queue(1)
            try:
                await stack.enter_async_context(place)
            finally:
                self._queue(-1)
            yield

    def _queue(self, change: int) -> None:
        """Count calls that wait; the deadline moves by the time in which any did."""
        now, waited = asyncio.get_running_loop().time(), self._queued > 0
        self._queued += change
        if waited == (self._queued > 0) or self.deadline is None:
            return
        if waited:
            self.deadline += now - self._queued_at
        self._queued_at = now
        if self.limit is not None:
            with suppress(RuntimeError):  # it is over already
                self.limit.reschedule(self.deadline if waited else None)

    async def reserve(self, need: Amount, worker: str) -> None:
        """Hold what a call may use at most; CapReached when a cap refuses it or the run's seconds are over."""
        left = self.seconds_left()
        if left is not None and left <= 0:
            self.ledger.refuse("seconds", f"{worker} is not called any more: {self.ledger.caps.seconds:g} s are over")
        self.ledger.reserve(need, worker)
        try:
            await self.shared_budget.hold(need, worker)
        except BaseException as error:
            self.ledger.settle(need, Amount())
            if isinstance(error, CapReached):
                self.ledger.reached = error
            raise

    def settle(self, held: Amount, used: Amount, uncertain: Amount = ZERO) -> None:
        """Release what was held for a call, and count what it used and what it may have used."""
        self.ledger.settle(held, used + uncertain)
        self.shared_budget.settle(held, used, uncertain)

    def cancelled(self) -> bool:
        """Whether this task has been cancelled, even if a worker or a conductor swallowed the CancelledError."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > (self.cancels if task is self.task else 0)

    def clean(self, text: str) -> str:
        """Return the text without secrets, and with what no journal can store escaped, so that evidence can be kept."""
        text = self.secret_store.scrub(text)
        if not text.isascii():
            text = text.encode("utf-8", "backslashreplace").decode()
        return text.replace("\x00", "\\x00")


@dataclass(slots=True)
class StepCalls:
    """The calls of one step (or of a round's planning, step None), in order; `record` has those already journaled.

    An agent's calls of tools may be made at once: each has a branch with an order and keys of its own (`call` is its
    place in the step), and all of a step draw their numbers from one source. `labels` are those of what tools have
    returned, `replies` counts what an agent has said.
    """

    context: RunContext
    round: int
    step: int | None
    record: StepRecord | None = None
    count: int = 0
    waiting: Fault | None = None  # why the step waits for a person
    over: bool = False
    exchanges: tuple[ToolExchange, ...] = ()  # with the client's tools
    tool_choice: str = ""  # the client's, as it came with the last of them
    labels: Labels = NO_LABELS
    replies: int = 0
    call: str = ""
    tool: str = ""
    arguments: str = ""
    repeatable: bool = True  # whether a call whose outcome nobody knows may be made again
    last: int = -1  # the number of the latest attempt
    numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)
    decided: Counter[GuardMoment] = field(default_factory=Counter)  # how many decisions of guards there were so far
    fixed_key: str = ""  # one idempotency key for all attempts, where at most one effect may come of them
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    shown: ShownTurns = field(default_factory=ShownTurns, repr=False)
    _key: str = field(default="", repr=False)
    _past: list[Attempt] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.record is not None:
            self._past = [attempt for attempt in self.record.attempts if attempt.started.call == self.call]
            if not self.call:
                self.numbers = itertools.count(len(self.record.attempts))

    def branch(self, call: str, tool: str, arguments: str, *, repeatable: bool = True) -> "StepCalls":
        """Return the calls of one tool that an agent wants, at this place of the step."""
        made = StepCalls(self.context, self.round, self.step, self.record, call=call, tool=tool, arguments=arguments)
        made.repeatable, made.numbers = repeatable, self.numbers
        return made

    def note_waiting(self, error: WorkerError) -> None:
        """Remember why the step waits for a person, if that is the error."""
        if error.fault.kind is FaultKind.WAITING:
            self.waiting = error.fault

    def journaled(self) -> Attempt | None:
        """Return the attempt that comes next if the journal has it."""
        return self._past[self.count] if self.count < len(self._past) else None

    def key(self, *, same: bool) -> str:
        """Return the next attempt's idempotency key: the `same` as the last one's where that may have had an effect."""
        if self.fixed_key:
            return self.fixed_key
        if not same or not self._key:
            step = "plan" if self.step is None else self.step
            place = f"{self.call}-{self.count}" if self.call else str(self.count)
            self._key = f"{self.context.run}-{self.round}-{step}-{place}"
        return self._key

    def adopt(self, attempt: Attempt) -> None:
        """Step over a journaled attempt; a repetition of it has its key."""
        self.count += 1
        self.last = attempt.started.attempt
        self._key = attempt.started.key

    def finished(self, result: Result, attempt: int | None = None) -> StepFinished:
        """Return the event that records the step's result."""
        return StepFinished(
            run=self.context.run,
            at=time(),
            round=self.round,
            step=self.step or 0,
            worker=result.worker,
            attempt=attempt,
            fault=result.fault.kind if result.fault else None,
            message=result.fault.message if result.fault else "",
            labels=tuple(sorted(result.labels)),
        )

    async def end(self) -> None:
        """Make no further call, and wait for the one that is being made."""
        self.over = True
        if self.lock.locked():
            async with self.lock:
                pass
