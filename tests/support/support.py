"""What tests share: workers made of functions, short ways to write members, pools and plans, one line to run them."""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import TypedDict, Unpack

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps, Price
from shikisha.core.errors import WorkerError
from shikisha.core.events import Event
from shikisha.core.plan import ANSWER, Plan, Step
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.approvals import Approver
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder, Recorder
from shikisha.engine.run_context import RetryPolicy
from shikisha.engine.worker import ApprovalMode, Card, ChatMessage, Reply, Request

Answer = str | Reply | WorkerError
AnswerFunction = Callable[[Request], Answer | Awaitable[Answer]]
AT_ONCE = RetryPolicy(first=0.0, longest=0.0)  # retries without a wait
TASK = Task("What is it?")


class CardOptions(TypedDict, total=False):
    """What a test may say of a worker besides its name."""

    description: str
    kind: str
    price: Price | None
    max_output_tokens: int
    concurrency: int | None
    rate: float | None
    timeout: float
    attempts: int
    fallback: str | None
    escalate: str | None
    approval: ApprovalMode


class Answers:
    """A worker that answers what a function (or a text) says; a WorkerError is raised. Keeps what it was asked."""

    def __init__(self, answer: Answer | AnswerFunction) -> None:
        self._answer = answer
        self.seen: list[Request] = []

    async def perform(self, request: Request) -> Reply:
        self.seen.append(request)
        answer = self._answer(request) if callable(self._answer) else self._answer
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, WorkerError):
            raise answer
        return Reply(answer) if isinstance(answer, str) else answer


def member(
    name: str, answer: Answer | AnswerFunction = "done", *handoffs: OutputCheck, **card: Unpack[CardOptions]
) -> Member:
    """A member of this name; `seen(member)` tells what it was asked."""
    return Member(Card(name, **card), Answers(answer), handoffs)


def seen(one: Member) -> list[Request]:
    """What a member made here was asked, in order."""
    assert isinstance(one.worker, Answers)
    return one.worker.seen


def pool_of(*members: Member, **answers: Answer | AnswerFunction) -> Pool:
    """A pool of these members, then of one worker for each `name=answer`."""
    return Pool([*members, *(member(name, answer) for name, answer in answers.items())])


def plan_of(*steps: tuple[int, Sequence[int]]) -> Plan:
    """A plan of (worker, access) pairs whose subtasks are `part 0`, `part 1`, ..."""
    return Plan(tuple(Step(f"part {i}", worker, tuple(access)) for i, (worker, access) in enumerate(steps)))


def whole_plan(*steps: tuple[int, Sequence[int]]) -> Plan:
    """A plan of (worker, access) pairs whose subtask is the task itself."""
    return Plan(tuple(Step(ANSWER, worker, tuple(access)) for worker, access in steps))


def engine(recorder: Recorder | None = None, approver: Approver | None = None) -> Engine:
    """An engine in memory that retries without a wait."""
    return Engine(recorder or MemoryRecorder(), approver=approver, retry=AT_ONCE)


async def run_plans(pool: Pool, *plans: Plan, caps: Caps | None = None, approver: Approver | None = None) -> Run:
    """Perform these plans, one a round, and return the run."""
    return await engine(approver=approver).run(TASK, pool, ScriptedConductor(plans), caps)


async def run_events(pool: Pool, *plans: Plan, caps: Caps | None = None) -> tuple[Run, tuple[Event, ...]]:
    """Perform these plans and return the run with the events that were recorded."""
    recorder = MemoryRecorder()
    run = await engine(recorder).run(TASK, pool, ScriptedConductor(plans), caps)
    return run, await recorder.read(run.id)


def whole(shown: Sequence[ChatMessage]) -> str:
    """All that a worker is shown, in one text."""
    return "\n".join(turn.text for turn in shown)
