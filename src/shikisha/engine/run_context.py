"""What the calls of one run share, and where the calls of one step stand.

Invariant: a Track numbers a step's calls in the order in which they are made, and a resumed run steps over those that
are journaled in the same order, so attempt n is the same call in every process that performs the run; calls that are
asked for side by side are made one after another. What a worker holds of its run (a Line) is cut when its attempt is
over. Deliberately absent: making calls (`attempt`) and asking people (`people`).
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from shikisha.core.budget import ZERO, Amount
from shikisha.core.call import ChildRunLauncher
from shikisha.core.errors import CapReached, Fault, FaultKind, WorkerError
from shikisha.core.messages import ToolExchange
from shikisha.core.run import Attempt, Run, StepRecord
from shikisha.core.secrets import SecretStore
from shikisha.core.visibility import NO_LABELS, Labels
from shikisha.engine.approvals import Approver, Decision
from shikisha.engine.autonomy import FULL_AUTONOMY, AutonomyClass
from shikisha.engine.budget_ledger import BudgetLedger, SharedBudget, UnlimitedBudget
from shikisha.engine.pool import Pool
from shikisha.engine.rate_limits import ConcurrencyLimits
from shikisha.engine.recorder import Recorder


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds: the first pause, the longest one of ours, the longest wish of a worker that is granted."""

    first: float = 0.5
    longest: float = 20.0
    longest_wish: float = 60.0
    jitter: Callable[[], float] = random.random

    def pause(self, retry: int, wish: float | None) -> float | None:
        """Return the seconds to wait before retry number `retry` (from 0); None: not worth the wait."""
        if wish is not None and wish > self.longest_wish:
            return None
        ours: float = min(self.longest, self.first * 2 ** min(retry, 60)) * (0.5 + self.jitter() / 2)
        return ours if wish is None or not wish >= 0 else max(wish, ours)


@dataclass(slots=True)
class AttemptHandle:
    """What a worker has of its run during one attempt: it is heard, and may start child runs, until the attempt ends.

    The first child run has the attempt's key for its id; a repeat under the same key finds its child runs again.
    """

    key: str
    hear: Callable[[str], None] | None = None
    spawned: int = 0
    cut: bool = False

    def say(self, piece: str) -> None:
        """Pass a piece of the answer on."""
        if self.hear is not None and not self.cut:
            self.hear(piece)

    def child(self) -> str:
        """Return the id of the next child run; WorkerError when the attempt is over."""
        if self.cut:
            raise WorkerError(FaultKind.INTERNAL, "the attempt is over: it can start no child run")
        self.spawned += 1
        return child_run_id(self.key, self.spawned - 1)


def root_run_id(run: str) -> str:
    """Return the id of the run that a run or child run belongs to; the id of a child begins with it."""
    return "-".join(run.split("-")[:3])


def child_run_id(key: str, number: int) -> str:
    """Return the id of the child run that an attempt under this key starts as its number `number`, from 0."""
    return f"{key}.{number}" if number else key


LauncherFactory: TypeAlias = Callable[["RunContext", AttemptHandle], ChildRunLauncher]


@dataclass(slots=True)
class RunContext:
    """What every call of one run shares. It does not refer to itself, so that a run is freed when it ends."""

    run: str
    pool: Pool
    ledger: BudgetLedger
    recorder: Recorder
    gates: ConcurrencyLimits
    desk: Approver
    vault: SecretStore
    retry: RetryPolicy = RetryPolicy()
    past: Run | None = None
    deadline: float | None = None  # on the event loop's clock
    spawner: LauncherFactory | None = None
    task: "asyncio.Task[object] | None" = None  # the one that conducts
    cancels: int = 0  # what that task had been told, and had survived, before the run began
    purse: SharedBudget = UnlimitedBudget()
    guarded: Labels = NO_LABELS
    autonomy: AutonomyClass = FULL_AUTONOMY
    decided: dict[str, Decision] = field(default_factory=dict)  # by people, in this process

    def seconds_left(self) -> float | None:
        """Seconds until the run's deadline; None without one."""
        return None if self.deadline is None else self.deadline - asyncio.get_running_loop().time()

    async def reserve(self, need: Amount, worker: str) -> None:
        """Hold what a call may use at most; CapReached when a cap refuses it or the run's seconds are over."""
        left = self.seconds_left()
        if left is not None and left <= 0:
            self.ledger.refuse("seconds", f"{worker} is not called any more: {self.ledger.caps.seconds:g} s are over")
        self.ledger.reserve(need, worker)
        try:
            await self.purse.hold(need, worker)
        except BaseException as error:
            self.ledger.settle(need, Amount())
            if isinstance(error, CapReached):
                self.ledger.reached = error
            raise

    def settle(self, held: Amount, used: Amount, uncertain: Amount = ZERO) -> None:
        """Release what was held for a call, and count what it used and what it may have used."""
        self.ledger.settle(held, used + uncertain)
        self.purse.settle(held, used, uncertain)

    def cancelled(self) -> bool:
        """Whether this task has been told to stop, even if a worker or a conductor swallowed what told it."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > (self.cancels if task is self.task else 0)

    def clean(self, text: str) -> str:
        """Return the text without keys, and what no journal can keep as escapes: evidence must not become a fault."""
        text = self.vault.scrub(text)
        if not text.isascii():
            text = text.encode("utf-8", "backslashreplace").decode()
        return text.replace("\x00", "\\x00")


@dataclass(slots=True)
class StepCalls:
    """The calls of one step (or of a round's planning, step None), in order; `past` are those already journaled."""

    scope: RunContext
    round: int
    step: int | None
    record: StepRecord | None = None
    count: int = 0
    waiting: Fault | None = None  # for a person, on one of its calls
    over: bool = False
    exchanges: tuple[ToolExchange, ...] = ()  # with the client's tools
    tool_choice: str = ""  # the client's, as it came with the last of them
    fixed: str = ""  # one idempotency key for all its attempts, where there is to be one effect at most
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    _key: str = field(default="", repr=False)

    def journaled(self) -> Attempt | None:
        """Return the attempt that comes next if the journal has it."""
        past = self.record.attempts if self.record else []
        return past[self.count] if self.count < len(past) else None

    def key(self, *, same: bool) -> str:
        """Return the next attempt's idempotency key: the last one's if that may have been performed, or a new one."""
        if self.fixed:
            return self.fixed
        if not same or not self._key:
            step = "plan" if self.step is None else self.step
            self._key = f"{self.scope.run}-{self.round}-{step}-{self.count}"
        return self._key

    def adopt(self, attempt: Attempt) -> None:
        """Step over a journaled attempt; what repeats it goes by its key."""
        self.count += 1
        self._key = attempt.started.key

    async def end(self) -> None:
        """Make no further call, and wait for the one that is being made."""
        self.over = True
        if self.turn.locked():
            async with self.turn:
                pass
