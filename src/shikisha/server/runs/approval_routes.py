"""`/approvals`: list, read and answer the questions that runs ask people.

Invariants: only keys with the scope `approve` get in, and only to questions of their own tenant; others see none
(404). An answer that comes too late is a 410, one that comes second a 409.
"""

from time import time
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request

from shikisha.core.events import QuestionAnswered, QuestionKind
from shikisha.engine.approvals import Decision
from shikisha.server.http.api_errors import error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.request import read_json, request_body_doc, validate_as
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.questions import PersonQuestion, answer_question, find_question, list_questions
from shikisha.server.lifecycle.service import RunService
from shikisha.server.runs.routes import decode_cursor, encode_cursor
from shikisha.server.runs.schema import (
    ApprovalInfo,
    ApprovalList,
    ApprovedCallInfo,
    DecisionInfo,
    DecisionRequest,
    SeenStepInfo,
)

router = APIRouter(prefix="/approvals", tags=["approvals"])
ApproverPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.APPROVE))]
ApprovalId = Annotated[str, Path(min_length=1, max_length=300)]
PageCursor = Annotated[str | None, Query(max_length=256)]
PageLimit = Annotated[int, Query(ge=1, le=200)]


@router.get("", summary="List what waits for a person", responses=error_responses())
async def list_approvals(
    request: Request, by: ApproverPrincipal, after: PageCursor = None, limit: PageLimit = 50
) -> ApprovalList:
    """Return the open questions of the newest waiting runs of the key's tenant; `limit` counts runs."""
    service: RunService = request.app.state.service
    page = await list_questions(service, by, decode_cursor(after), limit)
    data = [approval_info(service, asking) for asking in page.found]
    following = None if page.after is None else encode_cursor(page.after)
    return ApprovalList(data=data, has_more=page.after is not None, next=following)


@router.get("/{approval}", summary="Look a question up", responses=error_responses(404))
async def read_approval(request: Request, approval: ApprovalId, by: ApproverPrincipal) -> ApprovalInfo:
    """Return a question, open or not."""
    service: RunService = request.app.state.service
    return approval_info(service, await find_question(service, by, approval))


@router.post(
    "/{approval}",
    summary="Answer a question",
    openapi_extra=request_body_doc(DecisionRequest),
    responses=error_responses(404, 409, 410),
)
async def decide_approval(request: Request, approval: ApprovalId, by: ApproverPrincipal) -> ApprovalInfo:
    """Write a person's decision down, and go on with the run."""
    service: RunService = request.app.state.service
    said = validate_as(await read_json(request), DecisionRequest)
    found = await find_question(service, by, approval)
    await answer_question(service, by, found, Decision(said.approved, by.name, said.text, "api", said.remark))
    return approval_info(service, await find_question(service, by, approval))


def approval_info(service: RunService, asking: PersonQuestion) -> ApprovalInfo:
    """Return a question as clients see it."""
    asked, run = asking.asked, asking.run
    said = run.answers.get(asked.question)
    review = run.reached if asked.asks is QuestionKind.REVIEW else None
    return ApprovalInfo(
        id=asking.id,
        run=asking.served.run,
        asked_by=run.id,
        question=asked.question,
        asks=asked.asks,
        state=_approval_state(asking),
        worker=asked.worker,
        round=asked.round,
        step=asked.step,
        prompt=asked.prompt,
        task=run.started.prompt,
        call=_call_info(asking),
        why=review.asks if review else "",
        answer=review.answer if review else None,
        tokens=asked.bound.tokens,
        dollars=asked.bound.dollars,
        asked_at=asked.at,
        expires=asked.expires or None,
        page=approval_page_url(service, asking.run.id, asked.question),
        decision=_decision_info(said) if said else None,
    )


def _decision_info(said: QuestionAnswered) -> DecisionInfo:
    return DecisionInfo(
        approved=said.approved, actor=said.actor, via=said.via, text=said.text, remark=said.remark, at=said.at
    )


def approval_page_url(service: RunService, run: str, question: str) -> str:
    """Return the address at which people answer a question; its path alone where nobody said under which URL we are."""
    return f"{(service.settings.url or '').rstrip('/')}/ui/approvals/{run}/{question}"


def _approval_state(asking: PersonQuestion) -> Literal["open", "answered", "expired", "over"]:
    run, asked = asking.run, asking.asked
    if asked.question in run.answers:
        return "answered"
    if asked not in run.open_questions:
        return "over"
    return "expired" if 0 < asked.expires <= time() else "open"


def _call_info(asking: PersonQuestion) -> ApprovedCallInfo | None:
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
        SeenStepInfo(
            step=index, worker=result.worker, answer=result.text, fault=str(result.fault) if result.fault else None
        )
        for index, result in seen
        if result is not None
    ]
    return ApprovedCallInfo(subtask=step.subtask, sees=sees)
