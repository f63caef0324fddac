"""The page of what waits for a person: routes.

Invariant: a decision is taken from a login whose key may approve, in a form that bears its token, for a question that
is open and not over; the text that comes with it is kept as it was written. Deliberately absent: what follows from it
(the engine's business).
"""

from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from shikisha.errors import TaskError
from shikisha.events import QuestionAnswered, QuestionAsked, QuestionKind
from shikisha.run import Run
from shikisha.server.doors import owned
from shikisha.server.house import House, root_of
from shikisha.server.pages import view_approvals
from shikisha.server.pages.doors import Approve, Housed, PageRoute, Sent, Session, field, led
from shikisha.server.pages.rendering import HOME, page
from shikisha.server.pages.view_approvals import Waiting
from shikisha.server.problems import Problem
from shikisha.server.store import Filter, State
from shikisha.task import unstorable

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_MOST = 50  # runs on the page
_LONGEST = 100_000  # characters of a person's answer


@router.get(f"{HOME}/approvals")
async def approvals(request: Request, session: Approve, house: Housed) -> Response:
    """Show all that waits for a person of the login's tenant, what expires first at the top."""
    page_of = await house.store.search(Filter(tenant=session.tenant, states=(State.WAITING,), limit=_MOST))
    found = [each for served in page_of.runs for each in await _of(house, served.run)]
    found.sort(key=lambda each: (each.expires or float("inf"), each.asked.at))
    shown = {"waiting": found, "more": page_of.after is not None, "shown_at": time()}
    return page(request, "approvals.html.jinja", shown)


@router.get(f"{HOME}/approvals/{{run}}/{{question}}")
async def approval(request: Request, run: str, question: str, session: Approve, house: Housed) -> Response:
    """Show one question."""
    found = await _found(house, session, run, question)
    return page(request, "approvals.html.jinja", {"waiting": [found], "more": False, "shown_at": time()})


@router.post(f"{HOME}/approvals/{{run}}/{{question}}")
async def decide(run: str, question: str, session: Approve, house: Housed, form: Sent) -> Response:
    """Write a person's decision down, and go on with the run."""
    found = await _found(house, session, run, question)
    answered = _answered(found.asked, session, form, house)
    if answered.approved and found.expires is not None and answered.at > found.expires:
        raise Problem(409, "this question has expired: a yes comes too late", "approval_expired")
    await house.answer(answered)
    return led(f"{HOME}/approvals" if field(form, "stay") else f"{HOME}/runs/{found.root}")


def _answered(asked: QuestionAsked, session: Session, form: FormData, house: House) -> QuestionAnswered:
    """Return the decision that a form holds."""
    said, remark = _text(form, "text", house), _text(form, "remark", house)
    decision = field(form, "decision")
    if decision not in ("yes", "no"):
        raise TaskError("expected a yes or a no")
    approved = decision == "yes"
    if asked.asks is QuestionKind.ANSWER and approved and not said.strip():
        raise TaskError("the answer is empty")
    text = said if approved and asked.asks in (QuestionKind.ANSWER, QuestionKind.REVIEW) else ""
    return QuestionAnswered(
        run=asked.run,
        at=time(),
        question=asked.question,
        approved=approved,
        actor=session.by.name,
        via="page",
        text=text,
        remark=remark,
    )


def _text(form: FormData, name: str, house: House) -> str:
    text = field(form, name).replace("\r\n", "\n")
    if len(text) > _LONGEST:
        raise TaskError(f"at most {_LONGEST:,} characters, found {len(text):,}")
    if problem := unstorable(text):
        raise TaskError(f"the text holds {problem}")
    return house.composition.vault.scrub(text)


async def _found(house: House, session: Session, run: str, question: str) -> Waiting:
    """Return the open question; Problem (404) when there is none that this login may see."""
    served = await house.store.find(root_of(run))
    if served is None:
        raise Problem(404, f"there is no run {run}", "not_found")
    owned(session.by, served.tenant, f"run {run}")
    for each in await _of(house, root_of(run)):
        if each.asked.question == question and each.asked.run == run:
            return each
    raise Problem(409, "this question is open no more: it was answered, has expired, or its run ended", "not_open")


async def _of(house: House, root: str) -> list[Waiting]:
    """Return what a run and its child runs ask people."""
    family: dict[str, Run] = await house.family(root)
    return [each for run in family.values() for each in view_approvals.waiting(root, run)]
