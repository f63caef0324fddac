"""What people decide about runs: `/approvals`, `/feedback`, and `/runs/{run}/rollback`.

Invariants: only keys with the scope `approve` get to approvals and rollbacks, and only to those of their own tenant;
others see none (404). An answer that comes too late is a 410, one that comes second a 409. A grade is appended and
never changed, and names the key that gave it. A rollback is journaled call by call, undoes nothing twice, and is paid
by the key that asks for it (the run's own key may be revoked). This server owns the run meanwhile; a run that is being
performed or rolled back elsewhere is a 409.
"""

from contextlib import suppress
from dataclasses import replace
from time import time
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request

from shikisha.core.errors import ConfigError, JournalUnavailable, RunErased, UnknownRun
from shikisha.core.events import AnswerGraded, EffectKept, EffectUndone, GradeMark, QuestionAnswered, QuestionKind
from shikisha.core.run import Run
from shikisha.engine.approvals import Decision
from shikisha.engine.compensation import RollbackOrder
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import check_tenant, require_scope
from shikisha.server.http.request import read_json, request_body_doc, validate_as
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.questions import (
    PersonQuestion,
    answer_question,
    find_question,
    list_questions,
)
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.server.runs.routes import decode_cursor, encode_cursor
from shikisha.server.runs.schema import (
    ApprovalInfo,
    ApprovalList,
    ApprovedCallInfo,
    DecisionInfo,
    DecisionRequest,
    EffectInfo,
    FeedbackInfo,
    FeedbackRequest,
    RollbackInfo,
    RollbackRequest,
    SeenStepInfo,
)
from shikisha.server.store import ServedState

router = APIRouter(prefix="/approvals", tags=["approvals"])
ApproverPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.APPROVE))]
ApprovalId = Annotated[str, Path(min_length=1, max_length=300)]
PageCursor = Annotated[str | None, Query(max_length=256)]
PageLimit = Annotated[int, Query(ge=1, le=200)]


@router.get("", summary="List open questions", responses=error_responses())
async def list_approvals(
    request: Request, by: ApproverPrincipal, after: PageCursor = None, limit: PageLimit = 50
) -> ApprovalList:
    """Return the open questions of the key's tenant, of the newest waiting runs first. `limit` counts runs."""
    service: RunService = request.app.state.service
    page = await list_questions(service, by, decode_cursor(after), limit)
    data = [approval_info(service, asking) for asking in page.found]
    following = None if page.after is None else encode_cursor(page.after)
    return ApprovalList(data=data, has_more=page.after is not None, next=following)


@router.get("/{approval}", summary="Retrieve a question", responses=error_responses(404))
async def read_approval(request: Request, approval: ApprovalId, by: ApproverPrincipal) -> ApprovalInfo:
    """Return a question, whether it is open or closed."""
    service: RunService = request.app.state.service
    return approval_info(service, await find_question(service, by, approval))


@router.post(
    "/{approval}",
    summary="Answer a question",
    openapi_extra=request_body_doc(DecisionRequest),
    responses=error_responses(404, 409, 410),
)
async def decide_approval(request: Request, approval: ApprovalId, by: ApproverPrincipal) -> ApprovalInfo:
    """Record a person's decision, and resume the run."""
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
    """Return the URL at which people answer a question; only its path if `server.url` is not set."""
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
    step = turn.plan.step_of(asked.step)
    seen = [(index, turn.results[index]) for index in step.access]
    sees = [
        SeenStepInfo(
            step=index, worker=result.worker, answer=result.text, fault=str(result.fault) if result.fault else None
        )
        for index, result in seen
        if result is not None
    ]
    return ApprovedCallInfo(subtask=step.subtask, sees=sees)


FEEDBACK_GRADER = "feedback"
feedback_router = APIRouter(tags=["feedback"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]


@feedback_router.post(
    "/feedback",
    summary="Grade an answer",
    openapi_extra=request_body_doc(FeedbackRequest),
    responses=error_responses(404, 409),
    status_code=201,
)
async def give_feedback(request: Request, by: RunPrincipal) -> FeedbackInfo:
    """Record how good a run's answer is. Policies learn from these grades and are compared by them."""
    service: RunService = request.app.state.service
    said = validate_as(await read_json(request), FeedbackRequest)
    await check_judgeable(service, by, said.run)
    scrub = service.container.secret_store.scrub
    word = feedback_event(said.run, said.worth, scrub(said.remark), by.actor)
    service.recorder.add(word)
    await service.journal.flush()
    return FeedbackInfo(run=word.run, mark=word.mark, score=said.worth, actor=word.actor)


def feedback_event(run: str, score: float, remark: str, by: str) -> AnswerGraded:
    """Return the event that records a person's grade."""
    mark = GradeMark.RIGHT if score >= 1 else GradeMark.WRONG if score <= 0 else GradeMark.PARTIAL
    return AnswerGraded(run=run, at=time(), checker=FEEDBACK_GRADER, mark=mark, score=score, evidence=remark, actor=by)


async def check_judgeable(service: RunService, by: Principal, run: str) -> None:
    """Raise ApiError unless the principal may grade this run and it has an answer."""
    try:
        check_tenant(by, (await service.find_served(root_run_id(run))).tenant, f"run {run}")
        told = await service.read_run(run)
    except UnknownRun:
        raise ApiError(404, f"there is no run {run}", "not_found") from None
    if told.answer is None:
        state = "has not ended" if told.finished is None else "ended without an answer"
        raise ApiError(409, f"run {run} {state}: there is nothing to judge", "nothing_to_judge")


rollback_router = APIRouter(prefix="/runs", tags=["runs"])
RunIdPath = Annotated[str, Path(min_length=1, max_length=256)]


@rollback_router.post(
    "/{run}/rollback",
    summary="Roll a run back",
    openapi_extra=request_body_doc(RollbackRequest),
    responses=error_responses(404, 409),
)
async def roll_back(request: Request, run: RunIdPath, by: ApproverPrincipal) -> RollbackInfo:
    """Make the compensating calls, newest first, and return the outcome for every effect."""
    service: RunService = request.app.state.service
    said = validate_as(await read_json(request), RollbackRequest)
    try:
        check_tenant(by, (await service.find_served(root_run_id(run))).tenant, f"run {run}")
        past = await service.read_run(run)
    except UnknownRun:
        raise ApiError(404, f"there is no run {run}", "not_found") from None
    if run != root_run_id(run):
        raise ApiError(409, f"{run} is a child run of {root_run_id(run)}: roll that one back", "child_run")
    requested = RollbackOrder(by.actor, service.container.secret_store.scrub(said.remark), again=True)
    return rollback_info(await roll_back_run(service, by, past, requested, said.dollars))


async def roll_back_run(
    service: RunService, by: Principal, past: Run, requested: RollbackOrder, dollars: float | None = None
) -> Run:
    """Roll back a run that has ended, waits or was stopped; ApiError (409) while it is performed."""
    served = await service.find_served(past.id)
    if past.id in service.running or not await service.store.take(past.id, ended=True):
        raise ApiError(409, f"run {past.id} is being performed or rolled back: cancel it, or wait", "run_open")
    caps = past.started.caps
    caps = caps if dollars is None else caps.narrowed(replace(caps, dollars=dollars))
    budget = service.key_budgets.budget_of_key(by.key)
    try:
        pool = service.container.pool(past.started.pool)
        run = await service.engine.with_observers(shared_budget=budget).undo(past.id, pool, requested, caps)
    except (ConfigError, RunErased) as error:
        service.store.mark(past.id, served.state)
        await service.journal.flush()
        raise ApiError(409, f"run {past.id} cannot be rolled back: {error}", "not_possible") from None
    except BaseException:
        with suppress(JournalUnavailable):
            service.store.mark(past.id, served.state)  # as before, so the rollback can be repeated
        raise
    finally:
        budget.release()
    service.store.mark(past.id, ServedState.ENDED, status=run.status, used=served.used, uncertain=served.uncertain)
    await service.journal.flush()
    return run


def rollback_info(run: Run) -> RollbackInfo:
    """Return the outcome of a run's effects as the API reports it."""
    return RollbackInfo(run=run.id, status=run.status, effects=[_effect_info(event) for event in run.effects.values()])


def _effect_info(event: EffectUndone | EffectKept) -> EffectInfo:
    kept = event if isinstance(event, EffectKept) else None
    return EffectInfo(
        call=event.effect,
        worker=event.worker,
        by=event.by,
        undone=kept is None,
        fault=kept.fault if kept else None,
        message=kept.message if kept else "",
    )
