"""Asking a person in the course of a run: for leave to make a call, for an answer, or for a look at the run's answer.

Invariant: a question is journaled before it is asked and a decision before it has any effect; a decision in the journal
is not asked for again, and it fits the exact call (or answer) it was asked for (4, 5). A question whose time is over is
a no of nobody's, whoever says yes later. Deliberately absent: how people are reached (`approvals.Approver`).
"""

import asyncio
from hashlib import sha256
from time import time

from shikisha.core.budget import Amount
from shikisha.core.errors import PROCESS_STOPS, FaultKind, WorkerError
from shikisha.core.events import QuestionAnswered, QuestionAsked, QuestionKind
from shikisha.core.messages import ChatMessage, Speaker, dump_json
from shikisha.core.tools import Tool
from shikisha.core.visibility import max_usage, request_messages, view_hash
from shikisha.engine.approvals import EXPIRED, ApprovalQuestion, Decision, question_id
from shikisha.engine.pool import Member
from shikisha.engine.run_context import RunContext, StepCalls
from shikisha.engine.worker import ApprovalMode, Request


async def require_approval(calls: StepCalls, member: Member, request: Request) -> None:
    """Ask a person whether this exact call may be made, where card or class want that; DENIED or WAITING if not."""
    card = member.card
    if card.approval is ApprovalMode.NEVER and not calls.context.autonomy.asks_before(card.name):
        return
    shown = f"May {card.name} be called?\n\n{request.subtask}"
    decision = await ask_about_call(calls, member, request, QuestionKind.APPROVE, shown)
    if not decision.approved:
        raise WorkerError(FaultKind.DENIED, refusal_text(decision))


async def require_tool_approval(calls: StepCalls, member: Member, tool: Tool, arguments: str, *, denied: bool) -> bool:
    """Ask a person whether this tool may be called with these very arguments, at this place of the step.

    Return whether anybody was asked; DENIED or WAITING without a yes. `denied`: they refused exactly this before.
    """
    context, card, asks = calls.context, member.card, calls.context.autonomy.asks_before
    wanted = card.approval is ApprovalMode.ALWAYS or (card.approval is ApprovalMode.WRITES and tool.writes)
    if not (wanted or asks(card.name) or asks(tool.name)):
        return False
    if denied:
        raise WorkerError(FaultKind.DENIED, "a person refused exactly this call before")
    named = tool.name if tool.name == card.name else f"{tool.name} of {card.name}"
    exact = sha256(dump_json([calls.call, tool.name, tool.sha256, arguments]).encode()).hexdigest()
    name = question_id(context.run, calls.round, calls.step, QuestionKind.APPROVE, card.name, exact)
    prompt = context.clean(f"May {named} be called with exactly these arguments?\n\n{arguments}")
    question = ApprovalQuestion(name, QuestionKind.APPROVE, context.run, calls.round, calls.step, card.name, prompt)
    decision = await ask_person(context, question, max_usage((ChatMessage(Speaker.USER, arguments),), card))
    if not decision.approved:
        raise WorkerError(FaultKind.DENIED, refusal_text(decision))
    return True


def refusal_text(decision: Decision) -> str:
    """Return a no in words."""
    said = "the question expired" if decision.via == EXPIRED.via else f"{decision.actor} said no"
    return f"{said}: {decision.remark}" if decision.remark and decision.via != EXPIRED.via else said


async def ask_about_call(
    calls: StepCalls, member: Member, request: Request, asks: QuestionKind, prompt: str
) -> Decision:
    """Return a person's decision on this exact call: the journaled one, or the desk's; WAITING when nobody is there."""
    context, card, shown = calls.context, member.card, request_messages(request)
    this_call = question_id(
        context.run, calls.round, calls.step, asks, card.name, view_hash(shown, request.client_options)
    )
    question = ApprovalQuestion(this_call, asks, context.run, calls.round, calls.step, card.name, context.clean(prompt))
    if asks is not QuestionKind.APPROVE:
        return await ask_person(context, question)
    return await ask_person(context, question, max_usage(shown, card, request.client_options))


async def ask_person(context: RunContext, question: ApprovalQuestion, bound: Amount | None = None) -> Decision:
    """Return what was or is decided of this question; WAITING when nobody has answered, and there is time left."""
    past = context.past
    answered = past.answers.get(question.id) if past else None
    if answered is not None:
        rest = (answered.text, answered.via, answered.remark, answered.tool_choice)
        return Decision(answered.approved, answered.actor, *rest)
    if question.id in context.decisions:
        return context.decisions[question.id]
    asked = past.asked.get(question.id) if past else None
    if asked is None:
        asked = _question_asked(question, context.autonomy.until(), bound or Amount())
        context.recorder.add(asked)
        await context.recorder.flush()
    decision = await _ask_until_expiry(context, question, asked.expires)
    if decision is None:
        raise WorkerError(FaultKind.WAITING, f"{question.worker} waits for a person (question {question.id})")
    context.decisions[question.id] = decision
    context.recorder.add(_question_answered(question, decision))
    await context.recorder.flush()
    return decision


async def _ask_until_expiry(context: RunContext, question: ApprovalQuestion, expires: float) -> Decision | None:
    """Ask at the desk until the question expires; what is said later is nobody's no."""
    if not expires:
        return await _ask_approver(context, question)
    decision = None
    if not context.autonomy.over(expires):
        try:
            async with asyncio.timeout(max(0.0, expires - context.autonomy.clock())) as limit:
                decision = await _ask_approver(context, question)
        except TimeoutError:
            if not limit.expired():
                raise
            return EXPIRED
    return EXPIRED if context.autonomy.over(expires) else decision


async def _ask_approver(context: RunContext, question: ApprovalQuestion) -> Decision | None:
    """Ask at the desk. A desk that breaks is one with nobody at it: the question stays open."""
    try:
        said = await context.approver.ask(question)
        if said is None:
            return None
        clean = context.clean
        return Decision(said.approved is True, clean(said.actor), clean(said.text), clean(said.via), clean(said.remark))
    except asyncio.CancelledError:
        if context.cancelled():
            raise
        return None
    except PROCESS_STOPS:
        raise
    except BaseException:  # noqa: BLE001 - its __str__ is anyone's code too
        return None


def _question_asked(question: ApprovalQuestion, expires: float, bound: Amount) -> QuestionAsked:
    return QuestionAsked(
        run=question.run,
        at=time(),
        round=question.round,
        step=question.step,
        worker=question.worker,
        question=question.id,
        asks=question.asks,
        prompt=question.prompt,
        expires=expires,
        bound=bound,
    )


def _question_answered(question: ApprovalQuestion, decision: Decision) -> QuestionAnswered:
    return QuestionAnswered(
        run=question.run,
        at=time(),
        question=question.id,
        approved=decision.approved,
        actor=decision.actor,
        via=decision.via,
        text=decision.text,
        remark=decision.remark,
    )
