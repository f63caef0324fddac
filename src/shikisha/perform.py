"""Perform a plan: its steps as a graph, each started the moment everything it may see is there.

Invariant: a step starts when, and only when, every step on its access list has a result; there are no waves, and a slow
step holds up nobody who does not need it. What a step is handed is what `context.grant` grants (invariant 2). A step
whose every granted step failed is blocked, which is a recorded result too; when some failed, it is told which. A check
that stops the run blocks whatever has not begun, and who waits for a person waits no more. All steps live in one
TaskGroup: none outlives the round. Deliberately absent: what happens inside a step (`step`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from shikisha.budget import Amount
from shikisha.call import NO_WISHES, Wishes
from shikisha.clearance import NONE, Labels, join
from shikisha.context import bound, fitting, grant, turns
from shikisha.errors import CapReached, Fault, FaultKind, JournalError, WorkerError
from shikisha.events import OnFail
from shikisha.plan import Plan
from shikisha.run import Result, RoundRecord, StepRecord
from shikisha.scope import Scope, Track
from shikisha.step import StepEnd, finished, perform_step
from shikisha.task import Task
from shikisha.worker import Granted, Request

Hearing: TypeAlias = Callable[[int, int, str], None]
_STOPPED = "a check stopped the run"


@dataclass(frozen=True, slots=True)
class Score:
    """What is to be performed: a round's plan for a task; `on_text` hears answers grow.

    `seen` are the labels of what its conductor was told of earlier rounds: subtasks may repeat any of it. `joins`: its
    last step only brings together what the steps that it sees have answered.
    """

    task: Task
    plan: Plan
    round: int
    past: RoundRecord | None = None
    on_text: Hearing | None = None
    seen: Labels = NONE
    joins: bool = False


@dataclass(slots=True)
class Performance:
    """What a round's steps came to; None: the step waits for a person, or for a step that does."""

    results: list[Result | None]
    stopped: Result | None = None
    done: list[asyncio.Event] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Whether a person has to answer before the round can end."""
        return None in self.results


async def perform(scope: Scope, score: Score) -> Performance:
    """Perform every step of the plan and return their results, in plan order; JournalError if they cannot be kept."""
    count = len(score.plan)
    performance = Performance([None] * count, done=[asyncio.Event() for _ in range(count)])
    try:
        async with asyncio.TaskGroup() as group:
            for index in range(count):
                group.create_task(_perform_one(scope, score, performance, index))
    except ExceptionGroup as several:
        journal, _ = several.split(JournalError)
        if journal is not None:  # every step met the same closed door: say it once
            raise journal.exceptions[0] from None
        raise
    if performance.stopped is not None:
        _wait_no_more(scope, score, performance)
    return performance


def _wait_no_more(scope: Scope, score: Score, performance: Performance) -> None:
    for index, step in enumerate(score.plan.steps):
        if performance.results[index] is None:
            end = _blocked(scope.pool[step.worker].card.name, _STOPPED)
            performance.results[index] = end.result
            scope.recorder.add(finished(Track(scope, score.round, index), end))


async def _perform_one(scope: Scope, score: Score, performance: Performance, index: int) -> None:
    for seen in score.plan.steps[index].access:
        await performance.done[seen].wait()
    waiting = any(performance.results[seen] is None for seen in score.plan.steps[index].access)
    if not waiting:
        performed = await _result(scope, score, performance, index)
        if not performed.waits:
            performance.results[index] = performed.result
        if performed.stops_run:
            performance.stopped = performed.result
    performance.done[index].set()


async def _result(scope: Scope, score: Score, performance: Performance, index: int) -> StepEnd:
    past = score.past.steps.get(index) if score.past else None
    track = Track(scope, score.round, index, past)
    member = scope.pool[score.plan.steps[index].worker]
    granted = grant(score.plan, index, performance.results)
    if past and past.finished and past.result:
        return StepEnd(past.result, past.finished.attempt, _stopped(past, past.finished.attempt))
    performed = _hindered(track, performance, granted, member.card.name)
    if performed is None:
        joins = score.joins and index == len(score.plan) - 1
        performed = await perform_step(track, member, _request(track, score, granted), joins=joins)
        await track.end()
    if not performed.waits:
        scope.recorder.add(finished(track, performed))
    return performed


def _stopped(past: StepRecord, attempt: int | None) -> bool:
    return any(check.attempt == attempt and check.leads_to is OnFail.STOP for check in past.checks)


def _blocked(worker: str, why: str) -> StepEnd:
    return StepEnd(Result(worker, None, Fault(FaultKind.BLOCKED, why)))


def _hindered(track: Track, performance: Performance, granted: tuple[Granted, ...], worker: str) -> StepEnd | None:
    """Return the result of a step that cannot be started."""
    if performance.stopped is not None:
        return _blocked(worker, _STOPPED)
    if granted and all(earlier.text is None for earlier in granted):
        why = ", ".join(f"step {earlier.index}: {earlier.fault}" for earlier in granted)
        return _blocked(worker, why)
    if track.journaled() is not None:
        return None  # it was counted when the run was taken over
    try:
        track.scope.ledger.open_step()
    except CapReached as refusal:
        return StepEnd(Result(worker, None, Fault(FaultKind.CAP, str(refusal))))
    return None


def least_needs(scope: Scope, score: Score) -> list[tuple[str, Amount]]:
    """Return what the call of each step is reserved at the least: before anything that it is to see is there."""
    found = []
    for index, step in enumerate(score.plan.steps):
        card = scope.pool[step.worker].card
        request = _request(Track(scope, score.round, index), score, ())
        try:
            request = fitting(card, request)
        except WorkerError:
            continue  # it is not called
        found.append((card.name, bound(turns(request), card, request.wishes)))
    return found


def _request(track: Track, score: Score, granted: tuple[Granted, ...]) -> Request:
    """Return what a step is handed; what the client wants of its answer is for the last step alone."""
    index, task = track.step or 0, score.task
    heard = partial(score.on_text, score.round, index) if score.on_text else None
    labels = join(task.labels, score.seen, *(earlier.labels for earlier in granted))
    subtask = score.plan.steps[index].subtask
    if task.bare:
        return Request(task, subtask, granted, on_text=heard, labels=labels)
    last = index == len(score.plan) - 1
    return Request(
        task.shown(),
        subtask,
        granted,
        schema=task.answer_schema if last else None,
        on_text=heard,
        labels=labels,
        wishes=Wishes.of(task) if last else NO_WISHES,
        exchanges=task.exchanges,
    )
