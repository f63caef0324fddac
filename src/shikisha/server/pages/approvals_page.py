"""`/ui/approvals`: the exact call that waits for a person, what it may cost, until when, and the form to answer.

Invariants: what is approved is what is shown: arguments are printed whole, and an answer goes to that question and no
other. A decision needs a login whose key may approve.
"""

import json
from collections.abc import Iterator, Sequence
from time import time
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from shikisha.core.errors import TaskError
from shikisha.core.events import QuestionAsked, QuestionKind
from shikisha.core.run import Run
from shikisha.engine.approvals import Decision
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.passkeys import CodePurpose
from shikisha.server.lifecycle import questions
from shikisha.server.lifecycle.questions import PersonQuestion
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages.device_page import require_site, script_answer
from shikisha.server.pages.login import (
    ApproverLogin,
    CheckedForm,
    PageRoute,
    PageSession,
    Service,
    form_text,
    redirect,
)
from shikisha.server.pages.templates import UI_ROOT, render_page


def approval_view(run: Run, asked: QuestionAsked) -> dict[str, object]:
    """Return a question of a run (the root, or a child run of it) as it is shown.

    `call` is the subtask word by word, `arguments` its JSON where it is an object, `reviewed` what a review is about.
    """
    call = _call_text(run, asked)
    return {
        "asked": asked,
        "kind": str(asked.asks),
        "begun": run.started,
        "call": call,
        "arguments": _arguments(call),
        "reviewed": run.reached if asked.asks is QuestionKind.REVIEW else None,
        "sees": tuple(_earlier_steps(run, asked)),
    }


def _call_text(run: Run, asked: QuestionAsked) -> str:
    """Return the subtask that the plan gives the worker; what the question says where no plan does."""
    if asked.asks is QuestionKind.APPROVE and asked.round >= 0 and asked.step is not None:
        plan = run.round(asked.round).plan
        if plan is not None and asked.step < len(plan):
            return plan.step_of(asked.step).subtask
    return asked.prompt


def _arguments(call: str) -> tuple[tuple[str, str], ...]:
    """Return a JSON object's members as texts; nothing for any other text."""
    try:
        found = json.loads(call)
    except ValueError:
        return ()
    if not isinstance(found, dict):
        return ()
    return tuple((str(name), value if isinstance(value, str) else json.dumps(value)) for name, value in found.items())


def _earlier_steps(run: Run, asked: QuestionAsked) -> Iterator[tuple[int, str, str]]:
    """Yield the earlier steps that the call would be shown: number, worker, text."""
    if asked.step is None or asked.round < 0 or asked.asks is QuestionKind.REVIEW:
        return
    turn = run.round(asked.round)
    if turn.plan is None or asked.step >= len(turn.plan):
        return
    for earlier in turn.plan.step_of(asked.step).access:
        result = turn.results[earlier] if earlier < len(turn.results) else None
        if result is not None:
            yield earlier, result.worker, result.text if result.text is not None else f"no answer: {result.fault}"


router = APIRouter(route_class=PageRoute, include_in_schema=False)
_MAX_RUNS = 50  # runs on the page
_MAX_ANSWER = 100_000  # characters of a person's answer


@router.get(f"{UI_ROOT}/approvals")
async def show_approvals(request: Request, session: ApproverLogin, service: Service) -> Response:
    """Show all that waits for a person of the login's tenant, what expires first at the top."""
    waiting = await questions.list_questions(service, session.by, most=_MAX_RUNS)
    found = sorted(waiting.found, key=lambda each: (each.asked.expires or float("inf"), each.asked.at))
    return await _approvals_page(request, session, service, found, more=waiting.after is not None)


@router.get(f"{UI_ROOT}/approvals/{{run}}/{{question}}")
async def show_approval(
    request: Request, run: str, question: str, session: ApproverLogin, service: Service
) -> Response:
    """Show one question; one that is open no more leads to its run."""
    found = await questions.find_question(service, session.by, f"{run}_{question}")
    if found.asked not in found.run.open_questions:
        return redirect(f"{UI_ROOT}/runs/{run}")
    return await _approvals_page(request, session, service, [found])


@router.post(f"{UI_ROOT}/approvals/{{run}}/{{question}}")
async def decide_on_page(
    run: str, question: str, session: ApproverLogin, service: Service, form: CheckedForm
) -> Response:
    """Write a person's decision down, and continue with the run."""
    found = await questions.find_question(service, session.by, f"{run}_{question}")
    decision = form_text(form, "decision")
    if decision not in ("yes", "no"):
        raise ApiError(400, "expected a yes or a no", "invalid_request")
    yes = decision == "yes"
    written = yes and found.asked.asks is not QuestionKind.APPROVE
    said = _typed_text(form_text(form, "text")) if written else ""
    decided = Decision(yes, "", said, "page", _typed_text(form_text(form, "remark")))
    await questions.answer_question(service, session.by, found, decided, form_text(form, "passkey"))
    if name := form_text(form, "session"):
        return redirect(f"{UI_ROOT}/sessions/{quote(name)}")
    return redirect(f"{UI_ROOT}/approvals" if form_text(form, "stay") else f"{UI_ROOT}/runs/{found.served.run}")


passkey_router = APIRouter(include_in_schema=False)  # for the script of the page: it wants JSON, refusals too


@passkey_router.post(f"{UI_ROOT}/approvals/{{run}}/{{question}}/passkey")
async def offer_to_sign(
    request: Request, run: str, question: str, session: ApproverLogin, service: Service, form: CheckedForm
) -> JSONResponse:
    """Return what the browser needs to sign a yes to exactly this question, with the text as it is typed now."""
    found = await questions.find_question(service, session.by, f"{run}_{question}")
    questions.check_open(found)
    said = _typed_text(form_text(form, "text")) if found.asked.asks is not QuestionKind.APPROVE else ""
    action = questions.approval_action(found, said)
    site = require_site(request, service)
    return script_answer(await service.passkeys.assertion_options(CodePurpose.APPROVE, session.by.key, site, action))


async def _approvals_page(
    request: Request, session: PageSession, service: RunService, found: Sequence[PersonQuestion], *, more: bool = False
) -> Response:
    """Show questions; `signed` are those to which a yes of this login counts only with a passkey."""
    signed = {each.asked.question for each in found if await questions.needs_passkey(service, session.by, each)}
    waiting = [approval_view(each.run, each.asked) for each in found]
    shown = {"waiting": waiting, "more": more, "shown_at": time(), "signed": signed}
    return render_page(request, "approvals.html.jinja", shown)


def _typed_text(text: str) -> str:
    """Return a text as it was typed: browsers send line ends of two characters."""
    if len(text) > _MAX_ANSWER:
        raise TaskError(f"at most {_MAX_ANSWER:,} characters, found {len(text):,}")
    return text.replace("\r\n", "\n")
