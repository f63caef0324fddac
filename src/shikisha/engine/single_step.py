"""The narrow path of a run: one step, one worker, and two rows of the journal in place of six.

`single_step` is the one rule for who takes it; everything else goes through the round loop. The first row (the start,
the plan, the call) is durable before the call is made, the second (its outcome and the run's end) before the answer is
returned. The call is made by `attempt`, as every call is. Where it gives no answer, the round loop goes on from what is
recorded by then: stand-ins, refusals and caps are its business alone.
"""

import asyncio
from collections.abc import Callable

from shikisha.core.call import Card
from shikisha.core.errors import WorkerError
from shikisha.core.events import EndReached
from shikisha.core.plan import ANSWER
from shikisha.core.run import Result, RoundResult
from shikisha.core.visibility import adapt_request, check_clearance
from shikisha.engine.attempt import CallPurpose, call_with_retries
from shikisha.engine.autonomy import OnFailure
from shikisha.engine.conductor import Conductor, Proposal
from shikisha.engine.pool import Member, Pool
from shikisha.engine.rounds import (
    NO_FURTHER_ROUND,
    ConductedRun,
    SingleStep,
    ending_event,
    input_of_round,
    plan_proposed,
    ship_answer,
)
from shikisha.engine.run_context import StepCalls
from shikisha.engine.scheduler import step_request
from shikisha.engine.worker import ApprovalMode


def single_member(conductor: Conductor, pool: Pool) -> tuple[Proposal, Member] | None:
    """Return the plan of one step that a conductor makes for a pool, whatever the task, and its worker; else None."""
    fixed: Callable[[tuple[Card, ...]], Proposal] | None = getattr(conductor, "fixed_proposal", None)
    proposal = None if fixed is None else fixed(pool.cards)
    if proposal is None or len(proposal.plan.steps) != 1 or not proposal.final:
        return None
    step = proposal.plan.steps[0]
    member = pool[step.worker]
    own = member.agent or member.handoffs or member.guards or member.schema
    plain = step.subtask == ANSWER and step.each is None and member.card.approval is ApprovalMode.NEVER
    return (proposal, member) if plain and not own and member.card.kind not in ("conductor", "human") else None


def single_step(conducted: ConductedRun) -> SingleStep | None:
    """Return the only step of a run that begins, where nobody but its worker has a say in it; else None."""
    context, task, caps = conducted.context, conducted.task, conducted.context.ledger.caps
    found = single_member(conducted.conductor, context.pool)
    if found is None or context.ledger.parent is not None or min(caps.rounds, caps.steps, caps.plan_steps) < 1:
        return None
    (proposal, member), autonomy = found, context.autonomy
    if task.answer_schema is not None or task.tools or task.exchanges or member.card.limited:
        return None
    if autonomy.watches or autonomy.asks_before(member.card.name) or autonomy.on_failure is not OnFailure.KEEP:
        return None
    calls = StepCalls(context, 0, 0)
    try:
        check_clearance(member.card, task.labels, context.guarded_labels)
        request = adapt_request(member.card, step_request(calls, input_of_round(conducted, proposal, 0), ()))
    except WorkerError:
        return None
    return SingleStep(proposal, member, request, calls)


async def perform_single_step(conducted: ConductedRun, single: SingleStep) -> EndReached | None:
    """Perform it, and return how the run ends; None where there is no answer: the round loop goes on from there."""
    context, recorder, calls, card = conducted.context, conducted.context.recorder, single.calls, single.member.card
    recorder.add(plan_proposed(conducted, 0, single.proposal))
    try:
        async with asyncio.timeout_at(context.deadline) as context.limit:
            reply = await call_with_retries(calls, single.member, single.request, CallPurpose())
    except (WorkerError, TimeoutError):
        reply = None
    if reply is None or reply.calls:
        recorder.unbundle()
        context.past = recorder.fold()
        if calls.count:
            context.ledger.open_step()
        return None
    result = Result(card.name, reply.text, None, (), reply.usage, single.request.labels.union(card.adds))
    recorder.add(calls.finished(result, calls.last))
    conducted.rounds.append(RoundResult(single.proposal.plan, (result,), single.proposal.version))
    end = ending_event(conducted, ship_answer(conducted, NO_FURTHER_ROUND))
    return end if isinstance(end, EndReached) else None
