"""Calls of the client's own tools: their ids, the runs that wait for their results, and what came with them.

Invariants: the id of a call names its run (`call_RUN_QUESTION_PLACE`, at most 40 characters), so its result finds it
from any server. Results are accepted for a waiting run of the same tenant, for exactly its open calls, and only if the
run is no wider than the key and headers that come with them; any other conversation starts a run of its own. Such a run
gets back what an endpoint sent with the calls in its conversation, where the tenant's own earlier run has it and bears
no label that the new one lacks.
"""

import json
import re
from collections.abc import Iterable, Sequence
from time import time

from shikisha.core.errors import RunErased, UnknownRun
from shikisha.core.events import AttemptFinished, Event, QuestionAnswered, QuestionAsked, QuestionKind, RunStatus
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.messages import (
    MAX_ENVELOPE_BYTES,
    ChatMessage,
    Speaker,
    ToolCall,
    ToolExchange,
    ToolResult,
    dump_json,
    dump_records,
    load_tool_calls,
)
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.journal import Journal
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import RequestOptions
from shikisha.server.keys.key import Principal
from shikisha.server.store import RunStore, ServedRun

_TOOL_CALL_ID = re.compile(r"call_(\d{6}-\d{6}-[0-9a-z]{8})_([0-9a-f]{8})_(\d{1,3})")
_HASH_LENGTH = 8
VIA_API = "api"
_MAX_RUN_EXCHANGES = 24  # fewer than the engine allows in one step
_MAX_RECALLED_RUNS = 32  # each is read whole
_NO_OPTIONS = RequestOptions({})


@dataclass(frozen=True, slots=True)
class ToolResumption:
    """A run that the results belong to: what is to be answered (None: it was), and the last event before the answer."""

    served: ServedRun
    after: int
    answer: QuestionAnswered | None


def client_tool_calls(question: QuestionAsked) -> tuple[ToolCall, ...]:
    """Return the calls that a question asks for, under the ids that a client gets."""
    named = enumerate(load_tool_calls(question.prompt))
    return tuple(ToolCall(_client_call_id(question, place), call.name, call.arguments) for place, call in named)


def asking_turn(run: Run, question: QuestionAsked) -> ChatMessage:
    """Return the turn in which a worker made the calls that a question asks for, under the worker's own ids."""
    calls = load_tool_calls(question.prompt)
    turn = ChatMessage(Speaker.ASSISTANT, "", calls)
    for attempt in run.round(question.round).step(question.step).attempts:
        said = attempt.outcome
        if isinstance(said, AttemptFinished) and load_tool_calls(said.calls) == calls:
            turn = replace(turn, text=said.text, envelope=said.envelope)
    return turn


async def with_envelopes(store: RunStore, journal: Journal, by: Principal, task: Task) -> Task:
    """Return the task with what came with the calls in its conversation, as far as this tenant's runs have it.

    Runs and bytes are bounded, the newest turns first: what is older goes without.
    """
    known, runs, room = dict[str, str](), dict[str, Run | None](), MAX_ENVELOPE_BYTES
    turns: list[ChatMessage | ToolExchange] = [*task.history, *task.exchanges]
    for turn in reversed(turns):
        found = None if turn.envelope or not turn.calls else _TOOL_CALL_ID.fullmatch(turn.calls[0].id)
        if found is None:
            continue
        name = found[1]
        if name not in runs:
            if len(runs) == _MAX_RECALLED_RUNS:
                break
            runs[name] = await _own_run(store, journal, by, name, task.labels)
        run = runs[name]
        question = None if run is None else _question_with_hash(run.asked.values(), found[2])
        envelope = "" if run is None or question is None else _envelope_of(run, question, turn)
        room -= len(envelope)
        if room < 0:
            break
        if envelope:
            known[turn.calls[0].id] = envelope
    if not known:
        return task
    history = [replace(turn, envelope=known.get(turn.calls[0].id, "")) if turn.calls else turn for turn in task.history]
    exchanges = [replace(each, envelope=known.get(each.calls[0].id, "")) for each in task.exchanges]
    return replace(task, history=tuple(history), exchanges=tuple(exchanges))


async def _own_run(store: RunStore, journal: Journal, by: Principal, name: str, labels: Sequence[str]) -> Run | None:
    """Return a run of this very tenant that bears none but these labels; None when there is none."""
    served = await store.find(name)
    if served is None or served.tenant != by.tenant:
        return None
    try:
        run = Run.fold(await journal.read(name))
    except (UnknownRun, RunErased):
        return None
    return run if run.scope.labels <= set(labels) else None


def _envelope_of(run: Run, question: QuestionAsked, turn: ChatMessage | ToolExchange) -> str:
    """Return what came with the calls of a turn; "" where the turn has other calls now."""
    own, asking = client_tool_calls(question), asking_turn(run, question)
    if list(map(_call_content, own)) != list(map(_call_content, turn.calls)) or not asking.envelope:
        return ""
    if asking.text.strip() == turn.text.strip():
        return asking.envelope
    kept = json.loads(asking.envelope)
    kept["message"].pop("content", None)  # the client says something else in its place
    return dump_json(kept)


def _call_content(call: ToolCall) -> tuple[str, str, object]:
    """Return what a call says, however its arguments are written."""
    try:
        return call.id, call.name, json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.id, call.name, call.arguments


async def find_tool_resumption(
    store: RunStore,
    journal: Journal,
    by: Principal,
    exchanges: Sequence[ToolExchange],
    model: str,
    options: RequestOptions = _NO_OPTIONS,
    tool_choice: str = "",
) -> ToolResumption | None:
    """Return the run that waits for the results of the last exchange; None when no run of the tenant's own does.

    `tool_choice` holds for the call that reads the results.
    """
    found = _TOOL_CALL_ID.fullmatch(exchanges[-1].calls[0].id) if exchanges else None
    if found is None:
        return None
    try:
        served = await store.find(found[1])
        events = await journal.read(found[1])
    except (UnknownRun, RunErased):
        return None
    if served is None or not by.owns(served.tenant) or served.model != model:
        return None
    run = Run.fold(events)
    question = _question_with_hash(run.asked.values(), found[2])
    if question is None or _is_over(run, question) or not _is_within_limits(run, by, options):
        return None
    if _had_enough(run, exchanges):
        return None
    results = _own_results(question, exchanges[-1])
    if question.question in run.answers:
        same = run.answers[question.question].text == results
        return ToolResumption(served, _number_before_answer(events, question), None) if same else None
    answer = QuestionAnswered(
        run=question.run,
        at=time(),
        question=question.question,
        approved=True,
        actor=by.actor,
        via=VIA_API,
        text=results,
        tool_choice=tool_choice,
    )
    return ToolResumption(served, len(events) - 1, answer)


def _had_enough(run: Run, exchanges: Sequence[ToolExchange]) -> bool:
    """Whether a new run should go on instead: this one had many exchanges, and the client brings all of them along.

    A coding agent calls tools a hundred times for one question, and each time a run goes on it reads its whole journal.
    """
    had = sum(run.asked[name].asks is QuestionKind.TOOLS for name in run.answers if name in run.asked)
    return had >= _MAX_RUN_EXCHANGES and len(exchanges) > had


def _is_within_limits(run: Run, by: Principal, options: RequestOptions) -> bool:
    """Whether a run does no more, and bears no fewer labels, than who brings something to it allows and says."""
    begun = run.started
    if not {*by.labels, *options.labels} <= set(begun.labels):
        return False
    if any(allowed is not None and not set(begun.pool) <= set(allowed) for allowed in (by.workers, options.workers)):
        return False
    if options.domain and options.domain != begun.domain:
        return False
    caps = {name: getattr(begun.caps, name) for name in options.caps}
    return all(caps[name] is not None and caps[name] <= wanted for name, wanted in options.caps.items())


def _is_over(run: Run, question: QuestionAsked) -> bool:
    """Whether the run has ended, was cancelled, or waited long enough for an answer that did not come."""
    late = 0 < question.expires <= time() and question.question not in run.answers
    return run.finished is not None or run.status is RunStatus.INTERRUPTED or late


def _question_with_hash(asked: Iterable[QuestionAsked], hashed: str) -> QuestionAsked | None:
    """Return the question of which the calls are."""
    calls = (each for each in asked if each.asks is QuestionKind.TOOLS)
    return next((each for each in calls if each.question.startswith(hashed)), None)


def _own_results(question: QuestionAsked, exchange: ToolExchange) -> str:
    """Return the results under the worker's own ids; 400 when they are not those of exactly these calls."""
    came = {result.tool_call_id: result.content for result in exchange.results}
    expected = [_client_call_id(question, place) for place, _ in enumerate(load_tool_calls(question.prompt))]
    if set(came) != set(expected):
        said = f"run {question.run} waits for the results of exactly these calls: {', '.join(expected)}"
        raise ApiError(400, f"messages: {said}", "wrong_tool_calls", param="messages")
    own = load_tool_calls(question.prompt)
    return dump_records([ToolResult(call.id, came[name]) for name, call in zip(expected, own, strict=True)])


def _number_before_answer(events: Sequence[Event], question: QuestionAsked) -> int:
    for place, event in enumerate(events):
        if isinstance(event, QuestionAnswered) and event.question == question.question:
            return place - 1
    return len(events) - 1


def _client_call_id(question: QuestionAsked, place: int) -> str:
    return f"call_{question.run}_{question.question[:_HASH_LENGTH]}_{place}"
