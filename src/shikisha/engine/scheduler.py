"""Perform a plan: its steps as a graph, each started the moment everything it may see is there.

Invariant: a step starts when, and only when, every step on its access list has a result; there are no waves, and a slow
step delays only the steps that need it. A step sees what `visibility.grant_results` grants it (invariant 2). A step
whose every granted step failed is blocked, which is a recorded result too; when some failed, it is told which. A check
that stops the run blocks whatever has not begun, and a step that waits for a person waits no more. All steps live in
one TaskGroup: none outlives the round. A step whose list a map step goes through is asked for a JSON list, which is
checked like a client's schema. Deliberately absent: what happens inside a step (`step`), and in a map step
(`map_step`).

A map step: one subtask over each item of the list that an earlier step brought, every item a step of its own.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from time import time
from typing import TypeAlias

from shikisha.core.budget import ZERO, Amount
from shikisha.core.call import NO_CLIENT_OPTIONS, ClientOptions
from shikisha.core.errors import CapReached, Fault, FaultKind, JournalError, WorkerError
from shikisha.core.events import MapStarted
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.plan import Plan, item_step
from shikisha.core.plan_parser import MOST_CHARACTERS, list_schema, parse_items
from shikisha.core.run import Result, RoundRecord, StepRecord, join_results
from shikisha.core.task import Task
from shikisha.core.visibility import (
    NO_LABELS,
    Labels,
    adapt_request,
    grant_item,
    grant_results,
    join_labels,
    max_usage,
    request_messages,
)
from shikisha.engine.output_checks import AnswerSchema
from shikisha.engine.pool import Inspection, Member
from shikisha.engine.run_context import RunContext, StepCalls
from shikisha.engine.step import RUN_STOPPED, StepEnd, journaled_end, perform_step
from shikisha.engine.worker import GrantedStep, Request

_AT_ONCE = 16  # items; a worker's own limits hold besides
_NO_ITEM = Fault(FaultKind.BLOCKED, "the item is empty: there is nothing to work on")


@dataclass(frozen=True, slots=True)
class MapInput:
    """What is to be performed: a worker, the request with the whole list of step `each`, and the journaled round.

    `stopped` says whether a check of another step stops the run.
    """

    member: Member
    request: Request
    each: int
    past: RoundRecord | None
    stopped: Callable[[], bool]


@dataclass(slots=True)
class _MapProgress:
    """Where a map step stands: the requests of its items, their results, and why no further one is begun."""

    calls: StepCalls
    map_input: MapInput
    requests: list[Request | None]
    results: list[Result | None]
    waiting: StepEnd | None = None
    halted: Fault | None = None
    stops_run: bool = False
    in_flight: dict[int, Amount] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


async def perform_map(calls: StepCalls, map_input: MapInput) -> StepEnd:
    """Perform the subtask for every item of the list, to the end or to the point where all that is left waits."""
    name, labels = map_input.member.card.name, map_input.request.labels
    listed = next(earlier for earlier in map_input.request.granted if earlier.index == map_input.each)
    if listed.text is None:
        why = f"step {listed.index}, whose list it goes through: {listed.fault}"
        return StepEnd(Result(name, None, Fault(FaultKind.BLOCKED, why), labels=labels))
    try:
        # Each item's request, None for an empty item; ValueError where there is no list
        scrub, whole = calls.context.secret_store.scrub, map_input.request
        items = parse_items(listed.text)
        requests: list[Request | None] = []
        for number, item in enumerate(items):
            if item is None:
                requests.append(None)
                continue
            granted = grant_item(whole.granted, map_input.each, scrub(item), number, len(items))
            requests.append(
                replace(whole, granted=granted, schema=None, client_options=NO_CLIENT_OPTIONS, on_text=None)
            )
        _begin(calls, map_input, requests)
    except ValueError as error:
        why = f"step {listed.index}, whose list it goes through: {error}"
        return StepEnd(Result(name, None, Fault(FaultKind.BLOCKED, why), labels=labels))
    except CapReached as refusal:
        fault = Fault(FaultKind.CAP, f"{refusal}; no item was begun")
        return StepEnd(Result(name, None, fault, labels=labels))
    progress = _MapProgress(calls, map_input, requests, [None] * len(requests))
    order = iter(range(len(requests)))
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_AT_ONCE, len(requests))):
                group.create_task(_perform_items(progress, order))
    except ExceptionGroup as several:
        journal, _ = several.split(JournalError)
        if journal is not None:
            raise journal.exceptions[0] from None
        raise
    if progress.halted is not None:
        _record_rest(progress, progress.halted)
    elif progress.waiting is not None:
        return progress.waiting
    return await _map_end(progress)


def _begin(calls: StepCalls, map_input: MapInput, requests: list[Request | None]) -> None:
    """Journal that the step begins with so many items, unless it has; CapReached where not all of them can be paid."""
    context, step = calls.context, calls.step or 0
    record = map_input.past.steps.get(step) if map_input.past else None
    if record is not None and record.items is not None:
        if len(record.items) != len(requests):
            why = f"step {step} began with {len(record.items)} items, and its list has {len(requests)} now"
            raise JournalError(f"run {context.run} cannot be resumed: {why}")
        return
    context.ledger.check_items(len(requests))
    for request in requests:
        if request is not None:
            context.ledger.check_affordable(_need(map_input.member, request), map_input.member.card.name)
    context.recorder.add(MapStarted(run=context.run, at=time(), round=calls.round, step=step, items=len(requests)))


def _need(member: Member, request: Request) -> Amount:
    """Return what the first call for an item reserves."""
    try:
        request = adapt_request(member.card, request)
    except WorkerError:
        return ZERO  # this worker will not be called
    return max_usage(request_messages(request), member.card, request.client_options)


async def _perform_items(progress: _MapProgress, order: Iterator[int]) -> None:
    """Perform one item after another, until none is left or no further one is to be begun."""
    for item in order:
        known = journaled_end(_record(progress, item))
        if known is not None:
            _take_end(progress, item, known)
            continue
        request = progress.requests[item]
        if request is None:
            end = StepEnd(Result(progress.map_input.member.card.name, None, _NO_ITEM))
        else:
            need = _need(progress.map_input.member, request)
            while progress.in_flight and not _fits(progress, need):
                progress.changed.clear()
                await progress.changed.wait()
            if progress.map_input.stopped():
                progress.halted = progress.halted or Fault(FaultKind.BLOCKED, RUN_STOPPED)
            if progress.halted is not None and not _begun(progress, item):
                continue
            progress.in_flight[item] = need
            try:
                end = await _perform_item(progress, item, request)
            finally:
                del progress.in_flight[item]
                progress.changed.set()
        if end.waits:
            progress.waiting = end
            continue
        progress.calls.context.recorder.add(_calls_of(progress, item).finished(end.result, end.attempt))
        _take_end(progress, item, end)


def _fits(progress: _MapProgress, need: Amount) -> bool:
    """Whether an item can be paid besides those under way, even if none of them has reserved anything yet."""
    left = progress.calls.context.ledger.left()
    total = sum(progress.in_flight.values(), need)
    tokens = left.tokens is None or total.tokens <= left.tokens
    return tokens and (left.dollars is None or total.dollars is None or total.dollars <= left.dollars)


async def _perform_item(progress: _MapProgress, item: int, request: Request) -> StepEnd:
    calls = _calls_of(progress, item)
    if calls.journaled() is None:  # else it was counted when the run was resumed
        try:
            calls.context.ledger.open_step()
        except CapReached as refusal:
            return StepEnd(Result(progress.map_input.member.card.name, None, Fault(FaultKind.CAP, str(refusal))))
    end = await perform_step(calls, progress.map_input.member, request)
    await calls.end()
    return end


def _record(progress: _MapProgress, item: int) -> StepRecord | None:
    past = progress.map_input.past
    return past.steps.get(item_step(progress.calls.step or 0, item)) if past else None


def _begun(progress: _MapProgress, item: int) -> bool:
    record = _record(progress, item)
    return record is not None and bool(record.attempts)


def _calls_of(progress: _MapProgress, item: int) -> StepCalls:
    calls = progress.calls
    return StepCalls(calls.context, calls.round, item_step(calls.step or 0, item), _record(progress, item))


def _take_end(progress: _MapProgress, item: int, end: StepEnd) -> None:
    progress.results[item] = end.result
    progress.stops_run = progress.stops_run or end.stops_run
    if end.stops_run:
        progress.halted = Fault(FaultKind.BLOCKED, RUN_STOPPED)
    elif end.result.fault is not None and end.result.fault.kind is FaultKind.CAP:
        progress.halted = progress.halted or end.result.fault


def _record_rest(progress: _MapProgress, fault: Fault) -> None:
    """Record each item that was not begun, or waits for a person, as not performed, and why."""
    for item, result in enumerate(progress.results):
        if result is None:
            end = StepEnd(Result(progress.map_input.member.card.name, None, Fault(fault.kind, fault.message)))
            progress.calls.context.recorder.add(_calls_of(progress, item).finished(end.result, end.attempt))
            progress.results[item] = end.result


async def _map_end(progress: _MapProgress) -> StepEnd:
    """Return the step's end: the list of the answers, or why there is none."""
    results = [result for result in progress.results if result is not None]
    name, request = progress.map_input.member.card.name, progress.map_input.request
    labels = join_labels(request.labels, *(result.labels for result in results))
    fault = await _map_fault(progress, results)
    if fault is not None:
        return StepEnd(Result(name, None, fault, labels=labels), None, progress.stops_run)
    return StepEnd(join_results(name, progress.results, labels))


async def _map_fault(progress: _MapProgress, results: list[Result]) -> Fault | None:
    done, request = sum(result.ok for result in results), progress.map_input.request
    part = f"{done} of {len(results)} items have an answer"
    failed = [result.fault for result in results if result.fault is not None]
    if progress.stops_run:
        refused = next(fault for fault in failed if fault.kind is FaultKind.CHECK_FAILED)
        return Fault(FaultKind.CHECK_FAILED, f"{part}; {refused.message}")
    if progress.halted is not None:
        return Fault(progress.halted.kind, f"{part}; {progress.halted.message}")
    if failed and not done:
        return Fault(failed[0].kind, f"no item has an answer: {failed[0]}")
    answers = join_results("", progress.results, request.labels).text or ""
    if len(answers) > MOST_CHARACTERS:
        why = f"the answers have {len(answers):,} characters together: at most {MOST_CHARACTERS:,} are passed on"
        return Fault(FaultKind.TOO_LARGE, why)
    if request.schema is None:
        return None
    verdict = await AnswerSchema(request.schema).inspect(Inspection(request.task, request.subtask, answers))
    return None if verdict.passed else Fault(FaultKind.CHECK_FAILED, f"{verdict.check}: {verdict.reason}")


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
                context.recorder.add(StepCalls(context, round_input.round, index).finished(end.result, end.attempt))
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
                end = await perform_step(calls, member, step_request(calls, round_input, granted), joins=joins)
                await calls.end()
            else:
                request = step_request(calls, round_input, granted)
                end = await perform_map(
                    calls, MapInput(member, request, each, round_input.past, lambda: outcome.stopped is not None)
                )
            if not end.waits:
                context.recorder.add(calls.finished(end.result, end.attempt))
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
        request = step_request(StepCalls(context, round_input.round, index), round_input, ())
        try:
            request = adapt_request(card, request)
        except WorkerError:
            continue  # this worker will not be called
        needs.append((card.name, max_usage(request_messages(request), card, request.client_options)))
    return needs


def step_request(calls: StepCalls, round_input: RoundInput, granted: tuple[GrantedStep, ...]) -> Request:
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
