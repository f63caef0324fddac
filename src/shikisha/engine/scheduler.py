"""Perform a plan: its steps as a graph, each started the moment everything it may see is there.

Invariant: a step starts when, and only when, every step on its access list has a result; there are no waves, and a slow
step delays only the steps that need it. A step sees what `visibility.grant_results` grants it (invariant 2). A step
whose every granted step failed is blocked, which is a recorded result too; when some failed, it is told which. A check
that stops the run blocks whatever has not begun, and a step that waits for a person waits no more. All steps live in
one TaskGroup: none outlives the round. A step whose list a map step goes through is asked for a JSON list, which is
checked like a client's schema. Deliberately absent: what happens inside a step (`step`), and in a map step
(`map_step`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from shikisha.core.budget import Amount
from shikisha.core.call import NO_CLIENT_OPTIONS, ClientOptions
from shikisha.core.errors import CapReached, Fault, FaultKind, JournalError, WorkerError
from shikisha.core.item_list import list_schema
from shikisha.core.plan import Plan
from shikisha.core.run import Result, RoundRecord
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
from shikisha.engine.map_step import MapInput, perform_map
from shikisha.engine.run_context import RunContext, StepCalls
from shikisha.engine.step import RUN_STOPPED, StepEnd, journaled_end, perform_step, step_finished
from shikisha.engine.worker import GrantedStep, Request

TextCallback: TypeAlias = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class RoundInput:
    """What is to be performed: a round's plan for a task; `on_text(round, step, piece)` receives answers as they grow.

    `seen` are the labels of the earlier rounds that the conductor has seen: subtasks may repeat any of them. `joins`:
    the last step only brings together the answers of the steps that it sees.
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
    """The results of a round's steps; None: the step waits for a person, or for a step that does."""

    results: list[Result | None]
    stopped: Result | None = None
    done: list[asyncio.Event] = field(default_factory=list)


async def perform_plan(context: RunContext, round_input: RoundInput) -> RoundOutcome:
    """Perform every step of the plan and return their results, in plan order; JournalError if they cannot be kept."""
    count = len(round_input.plan)
    outcome = RoundOutcome([None] * count, done=[asyncio.Event() for _ in range(count)])
    try:
        async with asyncio.TaskGroup() as group:
            for index in range(count):
                group.create_task(_perform_when_ready(context, round_input, outcome, index))
    except ExceptionGroup as several:
        journal, _ = several.split(JournalError)
        if journal is not None:  # all steps failed for the same reason: report it once
            raise journal.exceptions[0] from None
        raise
    if outcome.stopped is not None:
        for index, step in enumerate(round_input.plan.steps):
            if outcome.results[index] is None:
                end = _blocked_step(context.pool[step.worker].card.name, RUN_STOPPED)
                outcome.results[index] = end.result
                context.recorder.add(step_finished(StepCalls(context, round_input.round, index), end))
    return outcome


async def _perform_when_ready(context: RunContext, round_input: RoundInput, outcome: RoundOutcome, index: int) -> None:
    """Wait for what the step may see, perform it or take its end from the journal, and let the steps after it go on."""
    plan = round_input.plan
    access = plan.steps[index].access
    for seen in access:
        if not outcome.done[seen].is_set():
            await outcome.done[seen].wait()
    if all(outcome.results[seen] is not None for seen in access):
        past = round_input.past.steps.get(index) if round_input.past else None
        calls = StepCalls(context, round_input.round, index, past)
        member = context.pool[plan.steps[index].worker]
        known = journaled_end(past)
        if known is not None:
            end = known
        else:
            granted, each = grant_results(plan, index, outcome.results), plan.steps[index].each
            blocked = _blocked_end(calls, outcome, granted, member.card.name, maps=each is not None)
            if blocked is not None:
                end = blocked
            elif each is None:
                joins = round_input.joins and index == len(plan) - 1
                end = await perform_step(calls, member, _step_request(calls, round_input, granted), joins=joins)
                await calls.end()
            else:
                request = _step_request(calls, round_input, granted)
                end = await perform_map(
                    calls, MapInput(member, request, each, round_input.past, lambda: outcome.stopped is not None)
                )
            if not end.waits:
                context.recorder.add(step_finished(calls, end))
        if not end.waits:
            outcome.results[index] = end.result
        if end.stops_run:
            outcome.stopped = end.result
    outcome.done[index].set()


def _blocked_step(worker: str, why: str) -> StepEnd:
    return StepEnd(Result(worker, None, Fault(FaultKind.BLOCKED, why)))


def _blocked_end(
    calls: StepCalls, outcome: RoundOutcome, granted: tuple[GrantedStep, ...], worker: str, *, maps: bool
) -> StepEnd | None:
    """Return the result of a step that cannot be started; one that can is counted, a map step by its items."""
    if outcome.stopped is not None:
        return _blocked_step(worker, RUN_STOPPED)
    if granted and all(earlier.text is None for earlier in granted):
        why = ", ".join(f"step {earlier.index}: {earlier.fault}" for earlier in granted)
        return _blocked_step(worker, why)
    if maps or calls.journaled() is not None:
        return None  # it was counted when the run was resumed
    try:
        calls.context.ledger.open_step()
    except CapReached as refusal:
        return StepEnd(Result(worker, None, Fault(FaultKind.CAP, str(refusal))))
    return None


def minimum_usage(context: RunContext, round_input: RoundInput) -> list[tuple[str, Amount]]:
    """Return each worker's name with the least that its step's call reserves: that of a request without results."""
    needs = []
    for index, step in enumerate(round_input.plan.steps):
        card = context.pool[step.worker].card
        request = _step_request(StepCalls(context, round_input.round, index), round_input, ())
        try:
            request = adapt_request(card, request)
        except WorkerError:
            continue  # this worker will not be called
        needs.append((card.name, max_usage(request_messages(request), card, request.client_options)))
    return needs


def _step_request(calls: StepCalls, round_input: RoundInput, granted: tuple[GrantedStep, ...]) -> Request:
    """Return a step's request; the client's schema and options concern the answer, so only the last step has them.

    A step whose list a map step goes through is held to a schema of its own, and so is a worker that has one.
    """
    index, task = calls.step or 0, round_input.task
    on_text = partial(round_input.on_text, round_input.round, index) if round_input.on_text else None
    labels = join_labels(task.labels, round_input.seen, *[earlier.labels for earlier in granted])
    step = round_input.plan.steps[index]
    subtask = step.subtask
    listed = index in [later.each for later in round_input.plan.steps]
    own = calls.context.pool[step.worker].schema
    schema = own or (list_schema(calls.context.ledger.caps.map_items) if listed else None)
    if task.bare:
        return Request(task, subtask, granted, schema=schema, on_text=on_text, labels=labels)
    last = index == len(round_input.plan) - 1
    client_options = ClientOptions.of(task) if last or task.completes else NO_CLIENT_OPTIONS
    return Request(
        task.shown(),
        subtask,
        granted,
        schema=task.answer_schema if last and own is None else schema,
        on_text=on_text,
        labels=labels,
        client_options=client_options,
        exchanges=task.exchanges,
    )
