"""The client's tools: calls as they are handed out, and a conversation that comes back with their results.

A call is handed out under an id that says which run waits for it, so that the results find the run again, whichever
server they come to: `call_RUN_QUESTION_PLACE`, at most 40 characters. Invariant: results are taken for a run of the
tenant's own only, for the very calls that it waits for, and all of them together; a conversation that belongs to no
waiting run (another provider's, one that has ended), or to one with wider limits or fewer labels than the key and the
headers that come with the results, is none of this module's business and begins a run of its own.
Deliberately absent: looking into results.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from time import time

from shikisha.errors import RunErased, UnknownRun
from shikisha.events import Event, QuestionAnswered, QuestionAsked, QuestionKind, Status
from shikisha.run import Run
from shikisha.server.asking import actor
from shikisha.server.house import House
from shikisha.server.narrowing import Narrowing
from shikisha.server.principal import Principal
from shikisha.server.problems import Problem
from shikisha.server.store import Served
from shikisha.turn import Exchange, ToolCall, ToolResult, read_calls, written

_ID = re.compile(r"call_(\d{6}-\d{6}-[0-9a-z]{8})_([0-9a-f]{8})_(\d{1,3})")
_HASH = 8
API = "api"
_PLAIN = Narrowing({})


@dataclass(frozen=True, slots=True)
class Resumption:
    """A run that the results belong to: what is to be answered (None: it was), and the last event before the answer."""

    served: Served
    after: int
    answer: QuestionAnswered | None


def outward(question: QuestionAsked) -> tuple[ToolCall, ...]:
    """Return the calls that a question asks for, under the ids that a client gets."""
    named = enumerate(read_calls(question.prompt))
    return tuple(ToolCall(_name(question, place), call.name, call.arguments) for place, call in named)


async def resumption(
    house: House, by: Principal, exchanges: Sequence[Exchange], model: str, narrow: Narrowing = _PLAIN
) -> Resumption | None:
    """Return the run that waits for the results of the last exchange; None when no run of the tenant's own does."""
    found = _ID.fullmatch(exchanges[-1].calls[0].id) if exchanges else None
    if found is None:
        return None
    try:
        served = await house.store.find(found[1])
        events = await house.journal.read(found[1])
    except (UnknownRun, RunErased):
        return None
    if served is None or not by.owns(served.tenant) or served.model != model:
        return None
    run = Run.fold(events)
    question = _question(events, found[2])
    if question is None or _over(run, question) or not _within(run, by, narrow):
        return None
    results = _results(question, exchanges[-1])
    if question.question in run.answers:
        same = run.answers[question.question].text == results
        return Resumption(served, _place(events, question), None) if same else None
    answer = QuestionAnswered(
        run=question.run,
        at=time(),
        question=question.question,
        approved=True,
        actor=actor(by),
        via=API,
        text=results,
    )
    return Resumption(served, len(events) - 1, answer)


def _within(run: Run, by: Principal, narrow: Narrowing) -> bool:
    """Whether a run does no more, and bears no fewer labels, than who brings something to it allows and says."""
    begun = run.started
    if not {*by.labels, *narrow.labels} <= set(begun.labels):
        return False
    if any(allowed is not None and not set(begun.pool) <= set(allowed) for allowed in (by.workers, narrow.workers)):
        return False
    if narrow.domain and narrow.domain != begun.domain:
        return False
    caps = {name: getattr(begun.caps, name) for name in narrow.caps}
    return all(caps[name] is not None and caps[name] <= wanted for name, wanted in narrow.caps.items())


def _over(run: Run, question: QuestionAsked) -> bool:
    """Whether the run has ended, was cancelled, or waited long enough for an answer that did not come."""
    late = 0 < question.expires <= time() and question.question not in run.answers
    return run.finished is not None or run.status is Status.INTERRUPTED or late


def _question(events: Sequence[Event], hashed: str) -> QuestionAsked | None:
    """Return the question of which the calls are, or the one that the run waits for instead."""
    asked = [each for each in events if isinstance(each, QuestionAsked) and each.asks is QuestionKind.TOOLS]
    return next((each for each in asked if each.question.startswith(hashed)), None)


def _results(question: QuestionAsked, exchange: Exchange) -> str:
    """Return the results under the worker's own ids; 400 when they are not those of exactly these calls."""
    came = {result.tool_call_id: result.content for result in exchange.results}
    expected = [_name(question, place) for place, _ in enumerate(read_calls(question.prompt))]
    if set(came) != set(expected):
        said = f"run {question.run} waits for the results of exactly these calls: {', '.join(expected)}"
        raise Problem(400, f"messages: {said}", "wrong_tool_calls", param="messages")
    own = read_calls(question.prompt)
    return written([ToolResult(call.id, came[name]) for name, call in zip(expected, own, strict=True)])


def _place(events: Sequence[Event], question: QuestionAsked) -> int:
    for place, event in enumerate(events):
        if isinstance(event, QuestionAnswered) and event.question == question.question:
            return place - 1
    return len(events) - 1


def _name(question: QuestionAsked, place: int) -> str:
    return f"call_{question.run}_{question.question[:_HASH]}_{place}"
