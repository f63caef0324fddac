"""`/approvals`: what runs wait for from people, listed, looked at and answered.

Invariants: only a key with the scope to approve gets in, whatever else it may do, and only to questions of its own
tenant; others learn of none (404). An answer that comes too late is told so (410), one that comes second, too (409).
Deliberately absent: waiting for the run (`/runs/{run}/events` follows it).
"""

from time import time
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request

from shikisha.approval import Decision
from shikisha.events import QuestionAnswered, QuestionKind
from shikisha.server.asking import Asking, answer, find, waiting
from shikisha.server.doors import asker
from shikisha.server.house import House
from shikisha.server.principal import Principal, Scope
from shikisha.server.refusals import refusals
from shikisha.server.runs_view import cursor, read_cursor
from shikisha.server.wire.approvals import (
    ApprovalList,
    ApprovalShown,
    DecisionRequest,
    DecisionShown,
    Exactly,
    SeenStep,
)
from shikisha.server.wire.reading import documented, fit, read

router = APIRouter(prefix="/approvals", tags=["approvals"])
Approver = Annotated[Principal, Depends(asker(Scope.APPROVE))]
Named = Annotated[str, Path(min_length=1, max_length=300)]
After = Annotated[str | None, Query(max_length=256)]
Limit = Annotated[int, Query(ge=1, le=200)]


@router.get("", summary="List what waits for a person", responses=refusals())
async def listed(request: Request, by: Approver, after: After = None, limit: Limit = 50) -> ApprovalList:
    """Return the open questions of the newest waiting runs of the key's tenant; `limit` counts runs."""
    house: House = request.app.state.house
    page = await waiting(house, by, read_cursor(after), limit)
    data = [shown(house, asking) for asking in page.found]
    following = None if page.after is None else cursor(page.after)
    return ApprovalList(data=data, has_more=page.after is not None, next=following)


@router.get("/{approval}", summary="Look a question up", responses=refusals(404))
async def look(request: Request, approval: Named, by: Approver) -> ApprovalShown:
    """Return a question, open or not."""
    house: House = request.app.state.house
    return shown(house, await find(house, by, approval))


@router.post(
    "/{approval}",
    summary="Answer a question",
    openapi_extra=documented(DecisionRequest),
    responses=refusals(404, 409, 410),
)
async def decide(request: Request, approval: Named, by: Approver) -> ApprovalShown:
    """Write a person's decision down, and go on with the run."""
    house: House = request.app.state.house
    said = fit(await read(request), DecisionRequest)
    found = await find(house, by, approval)
    await answer(house, by, found, Decision(said.approved, by.name, said.text, "api", said.remark))
    return shown(house, await find(house, by, approval))


def shown(house: House, asking: Asking) -> ApprovalShown:
    """Return a question as clients see it."""
    asked, run = asking.asked, asking.run
    said = run.answers.get(asked.question)
    review = run.reached if asked.asks is QuestionKind.REVIEW else None
    return ApprovalShown(
        id=asking.id,
        run=asking.served.run,
        asked_by=run.id,
        question=asked.question,
        asks=asked.asks,
        state=_state(asking),
        worker=asked.worker,
        round=asked.round,
        step=asked.step,
        prompt=asked.prompt,
        task=run.started.prompt,
        call=_call(asking),
        why=review.asks if review else "",
        answer=review.answer if review else None,
        tokens=asked.bound.tokens,
        dollars=asked.bound.dollars,
        asked_at=asked.at,
        expires=asked.expires or None,
        page=page_of(house, asking.run.id, asked.question),
        decision=_decision(said) if said else None,
    )


def _decision(said: QuestionAnswered) -> DecisionShown:
    return DecisionShown(
        approved=said.approved, actor=said.actor, via=said.via, text=said.text, remark=said.remark, at=said.at
    )


def page_of(house: House, run: str, question: str) -> str:
    """Return the address at which people answer a question; its path alone where nobody said under which URL we are."""
    return f"{(house.settings.url or '').rstrip('/')}/ui/approvals/{run}/{question}"


def _state(asking: Asking) -> Literal["open", "answered", "expired", "over"]:
    run, asked = asking.run, asking.asked
    if asked.question in run.answers:
        return "answered"
    if asked not in run.open_questions:
        return "over"
    return "expired" if 0 < asked.expires <= time() else "open"


def _call(asking: Asking) -> Exactly | None:
    """Return the call of a plan that a question is about."""
    asked = asking.asked
    if asked.asks is QuestionKind.REVIEW or asked.step is None or asked.round < 0:
        return None
    turn = asking.run.round(asked.round)
    if turn.plan is None or asked.step >= len(turn.plan):
        return None
    step = turn.plan.steps[asked.step]
    seen = [(index, turn.results[index]) for index in step.access]
    sees = [
        SeenStep(
            step=index, worker=result.worker, answer=result.text, fault=str(result.fault) if result.fault else None
        )
        for index, result in seen
        if result is not None
    ]
    return Exactly(subtask=step.subtask, sees=sees)
