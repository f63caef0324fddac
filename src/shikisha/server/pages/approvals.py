"""The page of what waits for a person: routes.

Invariant: a decision is taken from a login whose key may approve, in a form that bears its token, for the very question
that was shown. Deliberately absent: what is open and what follows from an answer (`server.asking`).
"""

from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.approval import Decision
from shikisha.errors import TaskError
from shikisha.events import QuestionKind
from shikisha.server import asking
from shikisha.server.asking import Asking
from shikisha.server.pages import view_approvals
from shikisha.server.pages.doors import Approve, Housed, PageRoute, Sent, field, led
from shikisha.server.pages.rendering import HOME, page
from shikisha.server.problems import Problem

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_MOST = 50  # runs on the page
_LONGEST = 100_000  # characters of a person's answer


@router.get(f"{HOME}/approvals")
async def approvals(request: Request, session: Approve, house: Housed) -> Response:
    """Show all that waits for a person of the login's tenant, what expires first at the top."""
    waiting = await asking.waiting(house, session.by, most=_MOST)
    shown = sorted(map(_shown, waiting.found), key=lambda each: (each.expires or float("inf"), each.asked.at))
    more = waiting.after is not None
    return page(request, "approvals.html.jinja", {"waiting": shown, "more": more, "shown_at": time()})


@router.get(f"{HOME}/approvals/{{run}}/{{question}}")
async def approval(request: Request, run: str, question: str, session: Approve, house: Housed) -> Response:
    """Show one question; one that is open no more leads to its run."""
    found = await asking.find(house, session.by, f"{run}_{question}")
    if found.asked not in found.run.open_questions:
        return led(f"{HOME}/runs/{run}")
    shown = {"waiting": [_shown(found)], "more": False, "shown_at": time()}
    return page(request, "approvals.html.jinja", shown)


@router.post(f"{HOME}/approvals/{{run}}/{{question}}")
async def decide(run: str, question: str, session: Approve, house: Housed, form: Sent) -> Response:
    """Write a person's decision down, and go on with the run."""
    found = await asking.find(house, session.by, f"{run}_{question}")
    decision = field(form, "decision")
    if decision not in ("yes", "no"):
        raise Problem(400, "expected a yes or a no", "invalid_request")
    yes = decision == "yes"
    written = yes and found.asked.asks is not QuestionKind.APPROVE
    said = _text(field(form, "text")) if written else ""
    await asking.answer(house, session.by, found, Decision(yes, "", said, "page", _text(field(form, "remark"))))
    return led(f"{HOME}/approvals" if field(form, "stay") else f"{HOME}/runs/{found.served.run}")


def _shown(found: Asking) -> view_approvals.Waiting:
    return view_approvals.waiting(found.served.run, found.run, found.asked)


def _text(text: str) -> str:
    """Return a text as it was typed: browsers send line ends of two characters."""
    if len(text) > _LONGEST:
        raise TaskError(f"at most {_LONGEST:,} characters, found {len(text):,}")
    return text.replace("\r\n", "\n")
