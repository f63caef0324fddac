"""`/feedback`: a person's word on a run's answer, kept as a grade beside those of checks and judges.

Invariant: a word is appended and never changed; who says it is the key's holder, and only runs of the key's own tenant
can be judged. Deliberately absent: any effect on the run, which has ended.
"""

from time import time
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from shikisha.errors import UnknownRun
from shikisha.events import AnswerGraded, Mark
from shikisha.server.asking import actor
from shikisha.server.doors import asker, owned
from shikisha.server.house import House, root_of
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem
from shikisha.server.refusals import refusals
from shikisha.server.wire.approvals import FeedbackRequest, FeedbackShown
from shikisha.server.wire.reading import documented, fit, read

FEEDBACK = "feedback"
router = APIRouter(tags=["feedback"])
Asker = Annotated[Principal, Depends(asker(Scope.RUN))]


@router.post(
    "/feedback",
    summary="Judge an answer",
    openapi_extra=documented(FeedbackRequest),
    responses=refusals(404, 409),
    status_code=201,
)
async def feedback(request: Request, by: Asker) -> FeedbackShown:
    """Note how good a run's answer is; policies learn from it and are compared by it."""
    house: House = request.app.state.house
    said = fit(await read(request), FeedbackRequest)
    await _check(house, by, said.run)
    scrub = house.composition.vault.scrub
    word = graded(said.run, said.worth, scrub(said.remark), actor(by))
    house.clerk.add(word)
    await house.journal.flush()
    return FeedbackShown(run=word.run, mark=word.mark, score=said.worth, actor=word.actor)


def graded(run: str, score: float, remark: str, by: str) -> AnswerGraded:
    """Return a person's word as the journal keeps it."""
    mark = Mark.RIGHT if score >= 1 else Mark.WRONG if score <= 0 else Mark.PARTIAL
    return AnswerGraded(run=run, at=time(), checker=FEEDBACK, mark=mark, score=score, evidence=remark, actor=by)


async def _check(house: House, by: Principal, run: str) -> None:
    """Let this run be judged; Problem when it is not the principal's to judge, or has no answer."""
    try:
        owned(by, (await house.served(root_of(run))).tenant, f"run {run}")
        told = await house.past(run)
    except UnknownRun:
        raise Problem(404, f"there is no run {run}", "not_found") from None
    if told.answer is None:
        state = "has not ended" if told.finished is None else "ended without an answer"
        raise Problem(409, f"run {run} {state}: there is nothing to judge", "nothing_to_judge")
