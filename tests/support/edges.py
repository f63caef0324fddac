"""What the tests of the engine's edges share: a strict memory, and checks, conductors and bosses made of functions."""

from collections.abc import Callable, Coroutine
from typing import Any, cast

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import FaultKind
from shikisha.core.events import CheckStatus, Event
from shikisha.core.plan import Plan
from shikisha.core.run import CheckVerdict, Run
from shikisha.core.task import Task
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.pool import Inspection, Member
from shikisha.engine.recorder import MemoryRecorder
from shikisha.journal.codec import encode_event
from support import (
    Answers,
    plan_of,
)


class Panic(BaseException):
    """What a Rust extension raises when it panics."""


class Wordless(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise Panic("no words")


FOREIGN = [  # what other people's code raises, besides what everybody foresees
    Panic("index out of bounds"),
    SystemExit("a library's own end"),
    RecursionError(),
    MemoryError(),
    Wordless(),
    BaseExceptionGroup("several", [Panic("one")]),
]
ONE = plan_of((0, ()))
KEY = "sk-very-secret-key"


class Strict(MemoryRecorder):
    """A memory that takes only what a journal can store."""

    def add(self, event: Event) -> None:
        encode_event(event)
        super().add(event)


class Judged:
    """A check made of a function."""

    def __init__(self, judge: Callable[[Inspection], Coroutine[Any, Any, Any]], name: str = "judged") -> None:
        self._judge, self.name = judge, name

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        return cast("CheckVerdict", await self._judge(inspection))


class Proposes:
    """A conductor made of a function."""

    name = "fixed:scripted"

    def __init__(self, propose: Callable[[Situation], Coroutine[Any, Any, Any]]) -> None:
        self._propose = propose

    async def propose(self, situation: Situation) -> Proposal:
        return cast("Proposal", await self._propose(situation))


def always(status: CheckStatus, name: str = "judged") -> Judged:
    async def judge(_: Inspection) -> CheckVerdict:
        return CheckVerdict(name, status, f"{name} says {status}")

    return Judged(judge, name)


async def stored(recorder: MemoryRecorder) -> list[Event]:
    return [event for events in recorder._events.values() for event in events]


async def killed(recorder: MemoryRecorder, run: str, after: Callable[[Event], bool]) -> MemoryRecorder:
    """The memory of a process that died right after this event was stored; child runs are kept whole."""
    events = await recorder.read(run)
    cut = next(index for index, event in enumerate(events) if after(event)) + 1
    left = MemoryRecorder()
    for event in await stored(recorder):
        if event.run != run or event in events[:cut]:
            left.add(event)
    return left


def fault(run: Run, step: int = 0) -> FaultKind | None:
    result = run.rounds[0].results[step]
    return result.fault.kind if result and result.fault else None


def boss(names: tuple[str, ...] = ("w",), plan: Plan = ONE, timeout: float = 60.0) -> Member:
    async def answer(request: Request) -> Reply:
        assert request.spawn is not None
        child = await request.spawn(Task(request.subtask), ScriptedConductor([plan]), names, Caps())
        return Reply(child.answer or "", child.usage, child.dollars, prepaid=True)

    return Member(Card("boss", kind="conductor", timeout=timeout, attempts=3), Answers(answer))
