"""A map step: one subtask over each item of the list that an earlier step brought, every item a step of its own.

Each item has its own step number (`plan.item_step`), attempts, checks, questions, idempotency keys and result, so
whatever holds for a step holds for it, and a resumed run takes the items that have ended from the journal and goes on
with the others. Invariants: the number of items is in the journal before the first is begun (4), and it counts against
the caps on items and steps before anything is paid (3). A call sees its own item instead of the list, and otherwise
what the access list grants (2); items are scrubbed again, since an escape in JSON can hide a key (8). A few items are
performed at once, in order; one waits while what the others hold leaves no room for it. The first cap that refuses an
item, and a check that stops the run, end the step: what has begun is finished, and each item that was not begun has a
result that says so (6). The step's result is the list of the answers; it has failed where there is none. Deliberately
absent: streaming of items, and the client's tools and options, which concern an answer in one piece.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import time

from shikisha.core.budget import ZERO, Amount
from shikisha.core.call import NO_CLIENT_OPTIONS
from shikisha.core.errors import CapReached, Fault, FaultKind, JournalError, WorkerError
from shikisha.core.events import MapStarted
from shikisha.core.item_list import MOST_CHARACTERS, parse_items
from shikisha.core.plan import item_step
from shikisha.core.run import Result, RoundRecord, StepRecord, join_results
from shikisha.core.visibility import adapt_request, grant_item, join_labels, max_usage, request_messages
from shikisha.engine.checker import Inspection
from shikisha.engine.output_checks import AnswerSchema
from shikisha.engine.pool import Member
from shikisha.engine.run_context import StepCalls
from shikisha.engine.step import RUN_STOPPED, StepEnd, journaled_end, perform_step, step_finished
from shikisha.engine.worker import Request

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
        requests = _item_requests(calls, map_input, listed.text)
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


def _item_requests(calls: StepCalls, map_input: MapInput, text: str) -> list[Request | None]:
    """Return each item's request, None for an empty item; ValueError where there is no list."""
    scrub, whole = calls.context.secret_store.scrub, map_input.request
    items = parse_items(text)
    requests: list[Request | None] = []
    for number, item in enumerate(items):
        if item is None:
            requests.append(None)
            continue
        granted = grant_item(whole.granted, map_input.each, scrub(item), number, len(items))
        requests.append(replace(whole, granted=granted, schema=None, client_options=NO_CLIENT_OPTIONS, on_text=None))
    return requests


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
        progress.calls.context.recorder.add(step_finished(_calls_of(progress, item), end))
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
            progress.calls.context.recorder.add(step_finished(_calls_of(progress, item), end))
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
