"""`POST /feedback`: a person's grade of an answer, stored like the grades of checkers and judges.

Invariant: a grade is appended and never changed, and names the key that gave it. It has no effect on the run.
"""

from time import time
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from shikisha.core.errors import UnknownRun
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import check_tenant, require_scope
from shikisha.server.http.request import read_json, request_body_doc, validate_as
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.questions import actor_name
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.server.runs.schema import FeedbackInfo, FeedbackRequest

FEEDBACK_CHECKER = "feedback"
router = APIRouter(tags=["feedback"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]


@router.post(
    "/feedback",
    summary="Judge an answer",
    openapi_extra=request_body_doc(FeedbackRequest),
    responses=error_responses(404, 409),
    status_code=201,
)
async def give_feedback(request: Request, by: RunPrincipal) -> FeedbackInfo:
    """Note how good a run's answer is; policies learn from it and are compared by it."""
    service: RunService = request.app.state.service
    said = validate_as(await read_json(request), FeedbackRequest)
    await _check_judgeable(service, by, said.run)
    scrub = service.container.vault.scrub
    word = feedback_event(said.run, said.worth, scrub(said.remark), actor_name(by))
    service.recorder.add(word)
    await service.journal.flush()
    return FeedbackInfo(run=word.run, mark=word.mark, score=said.worth, actor=word.actor)


def feedback_event(run: str, score: float, remark: str, by: str) -> AnswerGraded:
    """Return a person's word as the journal keeps it."""
    mark = GradeMark.RIGHT if score >= 1 else GradeMark.WRONG if score <= 0 else GradeMark.PARTIAL
    return AnswerGraded(run=run, at=time(), checker=FEEDBACK_CHECKER, mark=mark, score=score, evidence=remark, actor=by)


async def _check_judgeable(service: RunService, by: Principal, run: str) -> None:
    """Let this run be judged; ApiError when it is not the principal's to judge, or has no answer."""
    try:
        check_tenant(by, (await service.find_served(root_run_id(run))).tenant, f"run {run}")
        told = await service.read_run(run)
    except UnknownRun:
        raise ApiError(404, f"there is no run {run}", "not_found") from None
    if told.answer is None:
        state = "has not ended" if told.finished is None else "ended without an answer"
        raise ApiError(409, f"run {run} {state}: there is nothing to judge", "nothing_to_judge")
