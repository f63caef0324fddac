"""Going on with a run that waits for its client: results of its tools, and decisions of whoever may approve.

Invariants: an answer fits the very question it is for, of a run of the tenant's own; decisions are taken from a key
with the scope `approve` and from nobody else (5); the same answers brought twice are answers once, and find the same
response again. A request that asks for something else than its run does (other tools, another format) begins a run of
its own. Deliberately absent: what else may be sent along (`responses_asking`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shikisha.approval import Decision
from shikisha.errors import UnknownRun
from shikisha.events import QuestionAnswered, QuestionAsked, QuestionKind
from shikisha.run import Run
from shikisha.server import toolcalls
from shikisha.server.asking import Asking, actor, decided
from shikisha.server.house import House
from shikisha.server.legs import legs, read_approval_id, read_response_id
from shikisha.server.narrowing import Narrowing
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem
from shikisha.server.responses_asking import results_of
from shikisha.server.responses_keeping import Kept, kept_of
from shikisha.server.store import Served
from shikisha.server.wire.responses_request import ApprovalResponse, ResponseRequest
from shikisha.turn import Exchange, read_calls, read_results

_CALL = re.compile(r"call_(\d{6}-\d{6}-[0-9a-z]{8})_")
_SAME = ("tools", "text", "temperature", "top_p", "max_output_tokens", "parallel_tool_calls", "instructions")


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that goes on, as the response of this leg; `answers` are to be written down first."""

    served: Served
    leg: int
    answers: tuple[QuestionAnswered, ...]


async def resumed(house: House, by: Principal, request: ResponseRequest, narrow: Narrowing) -> Resumed | None:
    """Return the run that a request goes on with; None when it asks for a run of its own."""
    decisions = [item for item in request.items if isinstance(item, ApprovalResponse)]
    if decisions:
        return await _decided(house, by, decisions)
    results = results_of(request.items)
    if results is None:
        return None
    try:
        model = house.catalogue.find(request.model, by).name
        back = await toolcalls.resumption(house, by, [results], model, narrow)
    except Problem as problem:
        said = problem.message.replace("messages:", "input:")
        raise Problem(problem.status, said, problem.code, param="input") from None
    if back is None:
        return await _answered_before(house, by, results)
    kept = kept_of(back.served)
    if kept is None or not _same(kept.request, request) or not _of(request, back.served):
        return None
    events = await house.journal.read(back.served.run)
    before = len(legs(events[: back.after + 1], approves=kept.approves))
    return Resumed(back.served, before, () if back.answer is None else (back.answer,))


async def hand_in(house: House, resumed: Resumed) -> None:
    """Write the answers down, and go on with the run once all are there."""
    *first, last = resumed.answers or (None,)
    for answer in first:
        if answer is not None:
            house.clerk.add(answer)
    if last is not None:
        await house.answer(last)
        answers = (await house.past(last.run)).answers
        for said in resumed.answers:
            kept = answers.get(said.question)
            if kept is None or (kept.approved, kept.text) != (said.approved, said.text):
                raise Problem(
                    409, "somebody else was quicker, and said something else", "question_answered", param="input"
                )


async def _answered_before(house: House, by: Principal, results: Exchange) -> Resumed | None:
    """Return the response that went on with these very results before, if there is one."""
    found = _CALL.match(results.calls[0].id)
    served = None if found is None else await house.store.find(found[1])
    kept = None if served is None or not by.owns(served.tenant) else kept_of(served)
    if served is None or kept is None:
        return None
    events = await house.journal.read(served.run)
    run, came = Run.fold(events), {result.tool_call_id: result.content for result in results.results}
    for leg in legs(events, approves=kept.approves):
        if any(_given(run, asked) == came for asked in leg.waits):
            return Resumed(served, leg.number + 1, ())
    return None


def _given(run: Run, asked: QuestionAsked) -> dict[str, str] | None:
    """Return what a client answered to a question for its tools, under its own ids."""
    answer = run.answers.get(asked.question)
    if answer is None or asked.asks is not QuestionKind.TOOLS:
        return None
    results = read_results(answer.text, read_calls(asked.prompt))
    return {call.id: each.content for call, each in zip(toolcalls.outward(asked), results, strict=True)}


async def _decided(house: House, by: Principal, decisions: Sequence[ApprovalResponse]) -> Resumed:
    places = [read_approval_id(item.approval_request_id) for item in decisions]
    runs = {place[0] for place in places if place is not None}
    if None in places or len(runs) != 1:
        raise _absent()
    try:
        served = await house.served(runs.pop())
        events = await house.journal.read(served.run)
    except UnknownRun:
        raise _absent() from None
    kept = kept_of(served)
    if kept is None or not by.owns(served.tenant):
        raise _absent()
    if not by.may(Scope.APPROVE):
        raise Problem(403, f"the key {by.name!r} lacks the scope 'approve'", "missing_scope")
    run, questions = Run.fold(events), [place[1] for place in places if place is not None]
    open_now = [Asking(served, run, run.asked[name]) if name in run.asked else None for name in questions]
    answers = [await _answer(house, asking, item, by) for asking, item in zip(open_now, decisions, strict=True)]
    fresh = tuple(answer for answer in answers if answer is not None)
    ended = legs(events, approves=kept.approves)
    number = next((leg.number for leg in ended for asked in leg.waits if asked.question in questions), None)
    if number is None:
        raise _absent()
    return Resumed(served, number + 1, fresh)


async def _answer(
    house: House, asking: Asking | None, item: ApprovalResponse, by: Principal
) -> QuestionAnswered | None:
    """Return a decision as the journal is to have it; None when it was decided so already."""
    if asking is None or asking.asked.asks is not QuestionKind.APPROVE:
        raise _absent()
    before = asking.run.answers.get(asking.asked.question)
    if before is not None and before.approved == item.approve:
        return None
    said = Decision(item.approve, actor(by), via=toolcalls.API, remark=item.reason or "")
    try:
        return await decided(house, by, asking, said)
    except Problem as problem:
        problem.param = "input"
        raise


def _absent() -> Problem:
    return Problem(404, "no such request for approval waits here", "approval_not_found", param="input")


def _same(kept: ResponseRequest, request: ResponseRequest) -> bool:
    """Whether a request asks for nothing else than what its run does."""
    for name in _SAME:
        wanted = getattr(request, name)
        if wanted is not None and wanted != getattr(kept, name):
            return False
    effort = request.reasoning.effort if request.reasoning else None
    return effort is None or effort == (kept.reasoning.effort if kept.reasoning else None)


def _of(request: ResponseRequest, served: Served) -> bool:
    """Whether the previous response, if one is named, is of this run."""
    if request.previous_response_id is None:
        return True
    place = read_response_id(request.previous_response_id)
    return place is not None and place[0] == served.run


def keeps(request: ResponseRequest, by: Principal, narrow: Narrowing) -> Kept:
    """Return what is kept of a request."""
    body = request.model_dump(mode="json", exclude_unset=True, by_alias=True, exclude={"stream", "stream_options"})
    request = ResponseRequest.model_validate(body)
    return Kept(
        request=request,
        approves=by.may(Scope.APPROVE),
        progress=request.progress or narrow.progress,
        detail=narrow.detail,
    )
