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
from shikisha.core.fast_dataclass import dataclass
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


@dataclass(frozen=True, slots=True)
class EarlierStepView:
    """An earlier step that the call would be shown."""

    step: int
    worker: str
    text: str


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """A question to a person. `call` is the subtask word by word, `arguments` its JSON where it is an object.

    `answer` is what a review is about. `expires` None: never; `dollars` None: it is unknown what it may cost.
    """

    root: str
    asked: QuestionAsked
    task: str
    labels: tuple[str, ...]
    domain: str
    call: str
    arguments: tuple[tuple[str, str], ...]
    why: str
    answer: str
    sees: tuple[EarlierStepView, ...]
    expires: float | None
    tokens: int
    dollars: float | None

    @property
    def kind(self) -> str:
        """What is wanted: approve, answer or review."""
        return str(self.asked.asks)


def approval_view(root: str, run: Run, asked: QuestionAsked) -> ApprovalView:
    """Return a question of a run (the root, or a child run of it) as it is shown."""
    call = _call_text(run, asked)
    reviewed = run.reached if asked.asks is QuestionKind.REVIEW else None
    return ApprovalView(
        root=root,
        asked=asked,
        task=run.started.prompt,
        labels=run.started.labels,
        domain=run.started.domain,
        call=call,
        arguments=_arguments(call),
        why=reviewed.asks if reviewed else "",
        answer=(reviewed.answer or "") if reviewed else "",
        sees=tuple(_earlier_steps(run, asked)),
        expires=asked.expires or None,
        tokens=asked.bound.tokens,
        dollars=asked.bound.dollars,
    )


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


def _earlier_steps(run: Run, asked: QuestionAsked) -> Iterator[EarlierStepView]:
    if asked.step is None or asked.round < 0 or asked.asks is QuestionKind.REVIEW:
        return
    turn = run.round(asked.round)
    if turn.plan is None or asked.step >= len(turn.plan):
        return
    for earlier in turn.plan.step_of(asked.step).access:
        result = turn.results[earlier] if earlier < len(turn.results) else None
        if result is not None:
            yield EarlierStepView(
                earlier, result.worker, result.text if result.text is not None else f"no answer: {result.fault}"
            )


router = APIRouter(route_class=PageRoute, include_in_schema=False)
_MAX_RUNS = 50  # runs on the page
_MAX_ANSWER = 100_000  # characters of a person's answer


@router.get(f"{UI_ROOT}/approvals")
async def show_approvals(request: Request, session: ApproverLogin, service: Service) -> Response:
    """Show all that waits for a person of the login's tenant, what expires first at the top."""
    waiting = await questions.list_questions(service, session.by, most=_MAX_RUNS)
    shown = sorted(map(_view_of, waiting.found), key=lambda each: (each.expires or float("inf"), each.asked.at))
    more = waiting.after is not None
    signed = await _signed_questions(service, session, waiting.found)
    page = {"waiting": shown, "more": more, "shown_at": time(), "signed": signed}
    return render_page(request, "approvals.html.jinja", page)


@router.get(f"{UI_ROOT}/approvals/{{run}}/{{question}}")
async def show_approval(
    request: Request, run: str, question: str, session: ApproverLogin, service: Service
) -> Response:
    """Show one question; one that is open no more leads to its run."""
    found = await questions.find_question(service, session.by, f"{run}_{question}")
    if found.asked not in found.run.open_questions:
        return redirect(f"{UI_ROOT}/runs/{run}")
    signed = await _signed_questions(service, session, [found])
    shown = {"waiting": [_view_of(found)], "more": False, "shown_at": time(), "signed": signed}
    return render_page(request, "approvals.html.jinja", shown)


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


async def _signed_questions(service: RunService, session: PageSession, found: Sequence[PersonQuestion]) -> set[str]:
    """Return the questions to which a yes of this login counts only with a passkey."""
    return {each.asked.question for each in found if await questions.needs_passkey(service, session.by, each)}


def _view_of(found: PersonQuestion) -> ApprovalView:
    return approval_view(found.served.run, found.run, found.asked)


def _typed_text(text: str) -> str:
    """Return a text as it was typed: browsers send line ends of two characters."""
    if len(text) > _MAX_ANSWER:
        raise TaskError(f"at most {_MAX_ANSWER:,} characters, found {len(text):,}")
    return text.replace("\r\n", "\n")
