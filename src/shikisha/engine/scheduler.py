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

from shikisha.core.budget import Amount
from shikisha.core.call import NO_CLIENT_OPTIONS, ClientOptions
from shikisha.core.errors import CapReached, Fault, FaultKind, JournalError, WorkerError
from shikisha.core.events import OnCheckFailure
from shikisha.core.plan import Plan
from shikisha.core.run import Result, RoundRecord, StepRecord
from shikisha.core.task import Task
from shikisha.core.visibility import (
    NO_LABELS,
    Labels,
    adapt_request,
    grant_results,
    join_labels,
    max_usage,
    request_messages,
)
from shikisha.engine.run_context import RunContext, StepCalls
from shikisha.engine.step import StepEnd, perform_step, step_finished
from shikisha.engine.worker import GrantedStep, Request

TextCallback: TypeAlias = Callable[[int, int, str], None]
_STOPPED = "a check stopped the run"


@dataclass(frozen=True, slots=True)
class RoundInput:
    """What is to be performed: a round's plan for a task; `on_text` hears answers grow.

    `seen` are the labels of what its conductor was told of earlier rounds: subtasks may repeat any of it. `joins`: its
    last step only brings together what the steps that it sees have answered.
    """

    task: Task
    plan: Plan
    round: int
    past: RoundRecord | None = None
    on_text: TextCallback | None = None
    seen: Labels = NO_LABELS
    joins: bool = False


@dataclass(slots=True)
class RoundOutcome:
    """What a round's steps came to; None: the step waits for a person, or for a step that does."""

    results: list[Result | None]
    stopped: Result | None = None
    done: list[asyncio.Event] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Whether a person has to answer before the round can end."""
        return None in self.results


async def perform_plan(scope: RunContext, score: RoundInput) -> RoundOutcome:
    """Perform every step of the plan and return their results, in plan order; JournalError if they cannot be kept."""
    count = len(score.plan)
    performance = RoundOutcome([None] * count, done=[asyncio.Event() for _ in range(count)])
    try:
        async with asyncio.TaskGroup() as group:
            for index in range(count):
                group.create_task(_perform_when_ready(scope, score, performance, index))
    except ExceptionGroup as several:
        journal, _ = several.split(JournalError)
        if journal is not None:  # every step met the same closed door: say it once
            raise journal.exceptions[0] from None
        raise
    if performance.stopped is not None:
        _block_waiting_steps(scope, score, performance)
    return performance


def _block_waiting_steps(scope: RunContext, score: RoundInput, performance: RoundOutcome) -> None:
    for index, step in enumerate(score.plan.steps):
        if performance.results[index] is None:
            end = _blocked_step(scope.pool[step.worker].card.name, _STOPPED)
            performance.results[index] = end.result
            scope.recorder.add(step_finished(StepCalls(scope, score.round, index), end))


async def _perform_when_ready(scope: RunContext, score: RoundInput, performance: RoundOutcome, index: int) -> None:
    for seen in score.plan.steps[index].access:
        await performance.done[seen].wait()
    waiting = any(performance.results[seen] is None for seen in score.plan.steps[index].access)
    if not waiting:
        performed = await _step_end(scope, score, performance, index)
        if not performed.waits:
            performance.results[index] = performed.result
        if performed.stops_run:
            performance.stopped = performed.result
    performance.done[index].set()


async def _step_end(scope: RunContext, score: RoundInput, performance: RoundOutcome, index: int) -> StepEnd:
    past = score.past.steps.get(index) if score.past else None
    track = StepCalls(scope, score.round, index, past)
    member = scope.pool[score.plan.steps[index].worker]
    granted = grant_results(score.plan, index, performance.results)
    if past and past.finished and past.result:
        return StepEnd(past.result, past.finished.attempt, _check_stopped_run(past, past.finished.attempt))
    performed = _blocked_end(track, performance, granted, member.card.name)
    if performed is None:
        joins = score.joins and index == len(score.plan) - 1
        performed = await perform_step(track, member, _step_request(track, score, granted), joins=joins)
        await track.end()
    if not performed.waits:
        scope.recorder.add(step_finished(track, performed))
    return performed


def _check_stopped_run(past: StepRecord, attempt: int | None) -> bool:
    return any(check.attempt == attempt and check.leads_to is OnCheckFailure.STOP for check in past.checks)


def _blocked_step(worker: str, why: str) -> StepEnd:
    return StepEnd(Result(worker, None, Fault(FaultKind.BLOCKED, why)))


def _blocked_end(
    track: StepCalls, performance: RoundOutcome, granted: tuple[GrantedStep, ...], worker: str
) -> StepEnd | None:
    """Return the result of a step that cannot be started."""
    if performance.stopped is not None:
        return _blocked_step(worker, _STOPPED)
    if granted and all(earlier.text is None for earlier in granted):
        why = ", ".join(f"step {earlier.index}: {earlier.fault}" for earlier in granted)
        return _blocked_step(worker, why)
    if track.journaled() is not None:
        return None  # it was counted when the run was taken over
    try:
        track.scope.ledger.open_step()
    except CapReached as refusal:
        return StepEnd(Result(worker, None, Fault(FaultKind.CAP, str(refusal))))
    return None


def minimum_usage(scope: RunContext, score: RoundInput) -> list[tuple[str, Amount]]:
    """Return what the call of each step is reserved at the least: before anything that it is to see is there."""
    found = []
    for index, step in enumerate(score.plan.steps):
        card = scope.pool[step.worker].card
        request = _step_request(StepCalls(scope, score.round, index), score, ())
        try:
            request = adapt_request(card, request)
        except WorkerError:
            continue  # it is not called
        found.append((card.name, max_usage(request_messages(request), card, request.wishes)))
    return found


def _step_request(track: StepCalls, score: RoundInput, granted: tuple[GrantedStep, ...]) -> Request:
    """Return what a step is handed; what the client wants of its answer is for the last step alone."""
    index, task = track.step or 0, score.task
    heard = partial(score.on_text, score.round, index) if score.on_text else None
    labels = join_labels(task.labels, score.seen, *(earlier.labels for earlier in granted))
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
        wishes=ClientOptions.of(task) if last else NO_CLIENT_OPTIONS,
        exchanges=task.exchanges,
    )
