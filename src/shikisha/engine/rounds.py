"""The round loop: ask the conductor, perform its plan, look at the results, ask again or ship; then the run's end.

Invariants: a plan is journaled before it is performed, and a journaled plan is performed and never proposed again (4);
a plan that does not fit its pool and caps is not performed (1, 3). Neither is one of which a step can certainly not be
paid: each of its steps records that, and the plan's note says where a later step may not be paid. Whatever a conductor
does, the loop ends in a RunEnding that says why (6). When a revision fails, the answer at hand is kept and the ending
says so (9). What the run came to is journaled before a person reviews it and before effects are undone, and a resumed
run goes on from there. A refused answer is no answer, and a changed one says who changed it (9). A review looks at the
run itself, never at its child runs: their answers are its own steps'. Deliberately absent: when a person is asked
(`autonomy`) and how (`questions`), and which calls can be undone (`compensation`).
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from time import time

from shikisha.core.budget import Amount, format_dollars
from shikisha.core.call import Reply, Request
from shikisha.core.errors import (
    PROCESS_STOPS,
    CapReached,
    Fault,
    FaultKind,
    JournalError,
    PlanError,
    UnreadableTask,
    WorkerError,
    describe_error,
)
from shikisha.core.events import (
    CallRole,
    EndReached,
    PlanProposed,
    PlanRejected,
    QuestionKind,
    RunFinished,
    RunPaused,
    RunStatus,
    StepFinished,
)
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Result, RoundRecord, RoundResult, Run
from shikisha.core.task import Task, storage_problem
from shikisha.core.visibility import Labels, join_labels
from shikisha.engine.approvals import ApprovalQuestion, Decision, question_id
from shikisha.engine.attempt import CallPurpose, call_worker
from shikisha.engine.autonomy import OnFailure, review_reasons
from shikisha.engine.budget_ledger import BudgetLedger
from shikisha.engine.compensation import RollbackOrder, roll_back
from shikisha.engine.conductor import Conductor, NoPlan, Proposal, Rejection, Situation
from shikisha.engine.output_checks import AnswerSchema
from shikisha.engine.pool import Inspection, Member
from shikisha.engine.questions import ask_person, refusal_text
from shikisha.engine.run_context import RunContext, StepCalls
from shikisha.engine.scheduler import RoundInput, RoundOutcome, TextCallback, minimum_usage, perform_plan

NO_FURTHER_ROUND = "the conductor wants no further round"
_REPEATED = "the conductor proposes a plan again that has been performed: its answer is kept"


@dataclass(slots=True)
class RunEnding:
    """How a run ends: with which status, why, and what stood in the way."""

    status: RunStatus
    why: str
    cap: str | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class SingleStep:
    """The only step of a run: its plan, its worker, what that is asked, and the calls that are made for it."""

    proposal: Proposal
    member: Member
    request: Request
    calls: StepCalls


@dataclass(slots=True)
class ConductedRun:
    """A run being conducted: its fixed parts, and the rounds so far."""

    context: RunContext
    conductor: Conductor
    task: Task
    on_text: TextCallback | None = None
    rounds: list[RoundResult] = field(default_factory=list)
    keeps: int | None = None
    partial: set[int] = field(default_factory=set)  # rounds without an answer to the task
    single: SingleStep | None = None  # all that the run is to do

    @property
    def seen(self) -> Labels:
        """The labels of all results so far: a conductor has seen it all, whatever it says or asks."""
        return join_labels(*(result.labels for past in self.rounds for result in past.results))

    def answer(self) -> tuple[int, int, Result] | None:
        """Return the answer at hand, with its place: the kept round's, else the last round's that has one to give."""
        kept = [] if self.keeps is None else [self.keeps]
        for index in (*kept, *reversed(range(len(self.rounds)))):
            final = self.rounds[index].final
            if final is not None and final.ok and index not in self.partial:
                return index, len(self.rounds[index].results) - 1, final
        return None


async def run_rounds(conducted: ConductedRun) -> RunEnding:
    """Plan and perform round after round until the run ends, waits for a person, or its seconds are over."""
    context = conducted.context
    try:
        async with asyncio.timeout_at(context.deadline) as limit:
            context.limit = limit
            while True:
                proposed = await _next_plan(conducted)
                if isinstance(proposed, RunEnding):
                    return proposed
                round_input = input_of_round(conducted, proposed, len(conducted.rounds))
                refusal = _certain_refusal(context, round_input)
                if refusal is not None:
                    return _end_unaffordable(conducted, round_input, refusal)
                cards = context.pool.cards
                with context.limits.announced(cards[step.worker] for step in proposed.plan.steps):
                    outcome = await perform_plan(context, round_input)
                ending = _ending_after(conducted, proposed, outcome)
                if ending is not None:
                    return ending
    except TimeoutError:
        if not limit.expired():
            raise
        return RunEnding(
            RunStatus.CAPPED, f"seconds cap reached: {context.ledger.caps.seconds:g} s are over", "seconds"
        )


async def _next_plan(conducted: ConductedRun) -> Proposal | RunEnding:
    """Return the plan of the next round, or how the run ends without one."""
    context, index = conducted.context, len(conducted.rounds)
    try:
        context.ledger.open_round()
    except CapReached as refusal:
        return ship_answer(conducted, str(refusal), cap=refusal.cap)
    proposed = await _propose(conducted, index)
    if context.cancelled():
        raise asyncio.CancelledError  # a conductor that swallowed it gets no round performed for that
    if isinstance(proposed, Fault):
        if proposed.kind is FaultKind.CAP:
            reached = conducted.context.ledger.reached
            return RunEnding(RunStatus.CAPPED, proposed.message, reached.cap if reached else "budget", proposed)
        if proposed.kind is FaultKind.WAITING:
            return RunEnding(RunStatus.SUSPENDED, "the conductor waits for a person")
        status = RunStatus.DONE if conducted.answer() else RunStatus.FAILED
        return RunEnding(status, f"the conductor made no plan: {proposed}", fault=proposed)
    if proposed.plan.ships:
        conducted.keeps = proposed.keeps
        if conducted.partial and conducted.answer() is None:
            return ship_answer(conducted, f"the conductor gives no answer: {proposed.note}")
        repeats = proposed.note == _REPEATED
        return ship_answer(conducted, proposed.note if repeats else "the conductor keeps the answer")
    return proposed


def _ending_after(conducted: ConductedRun, proposed: Proposal, outcome: RoundOutcome) -> RunEnding | None:
    """Add a performed round to the run; return how the run ends if there is to be no further round."""
    context, plan = conducted.context, proposed.plan
    results = tuple(result for result in outcome.results if result is not None)
    if len(results) < len(plan):
        return RunEnding(RunStatus.SUSPENDED, "waits for a person")
    if proposed.partial:
        conducted.partial.add(len(conducted.rounds))
    conducted.rounds.append(RoundResult(plan, results, proposed.version))
    if outcome.stopped is not None:
        fault = outcome.stopped.fault
        return RunEnding(RunStatus.FAILED, f"a check stopped the run: {fault}", fault=fault)
    refused = next((fault for each in results if (fault := each.fault) and fault.kind is FaultKind.CAP), None)
    if refused is not None:
        cap = context.ledger.reached.cap if context.ledger.reached else "budget"
        return RunEnding(RunStatus.CAPPED, refused.message, cap, refused)
    return ship_answer(conducted, NO_FURTHER_ROUND) if proposed.final else None


async def _propose(conducted: ConductedRun, index: int) -> Proposal | Fault:
    """Return the round's plan: the journaled one, or a new one that fits pool and caps."""
    context, past = conducted.context, _journaled_round(conducted.context, index)
    if past and past.proposed and past.plan is not None:
        made = past.proposed
        return Proposal(
            past.plan,
            note=made.note,
            version=made.version,
            final=made.final,
            keeps=made.keeps,
            joins=made.joins,
            partial=made.partial,
        )
    calls = StepCalls(context, index, None, past.planning if past else None)
    rejected, proposal = await _draft(conducted, calls)
    await calls.end()
    if calls.waiting is not None:
        return calls.waiting  # a conductor does not get round a person by making do without its model
    for rejection in rejected[len(past.rejected) if past else 0 :]:
        context.recorder.add(_plan_rejected(conducted, index, rejection))
    if isinstance(proposal, Proposal):
        # Its calls would be the same ones at the same price, and no step would know more than it did. Conductors that
        # are no models ask again on purpose, and a plan that failed may be tried again.
        answered = (
            place
            for place, past in enumerate(conducted.rounds)
            if past.plan == proposal.plan and _has_answer(conducted.rounds, place)
        )
        place = next(answered, None) if proposal.text else None
        proposal = (
            proposal if place is None else replace(proposal, plan=Plan(), note=_REPEATED, final=True, keeps=place)
        )
        note = _note_with_warning(conducted, proposal, index)
        if note != proposal.note:
            proposal = replace(proposal, note=note)
        context.recorder.add(plan_proposed(conducted, index, proposal))
    return proposal


async def _draft(conducted: ConductedRun, calls: StepCalls) -> tuple[Sequence[Rejection], Proposal | Fault]:
    """Let the conductor propose; return what was no plan, and the plan as it can be journaled, or why there is none."""
    context = conducted.context
    situation = Situation(
        conducted.task,
        context.pool.cards,
        tuple(conducted.rounds),
        context.ledger.left(),
        partial(_ask_model, conducted, calls),
        context.limits.loads(context.pool.cards),
    )
    try:
        proposal = _validate_proposal(await conducted.conductor.propose(situation), context, conducted.rounds)
    except PlanError as error:
        what, where = context.clean(str(error.what)), context.clean(str(error.where))
        texts = error.rejected if isinstance(error, NoPlan) else ()
        kind = FaultKind.UNREADABLE if isinstance(error, UnreadableTask) else FaultKind.NO_PLAN
        return (*_clean_rejections(texts, context), Rejection("", what, where)), Fault(kind, f"{where}: {what}")
    except WorkerError as error:
        kind = error.fault.kind if isinstance(error.fault.kind, FaultKind) else FaultKind.INTERNAL
        return (), Fault(kind, context.clean(str(error.fault.message)))
    except JournalError:
        raise
    except asyncio.CancelledError:
        if context.cancelled():
            raise
        return (), Fault(FaultKind.NO_PLAN, "the conductor cancelled itself")
    except PROCESS_STOPS:
        raise
    except BaseException as error:  # noqa: BLE001 - a conductor is anyone's code: what it raises ends this run only
        return (), Fault(FaultKind.NO_PLAN, context.clean(describe_error(error)))
    return proposal.rejected, proposal


def _clean_rejections(rejected: Sequence[Rejection], context: RunContext) -> tuple[Rejection, ...]:
    clean = context.clean
    return tuple([Rejection(clean(each.text), clean(each.what), clean(each.where)) for each in rejected])


def _journaled_round(context: RunContext, index: int) -> RoundRecord | None:
    return context.past.rounds[index] if context.past and index < len(context.past.rounds) else None


def input_of_round(conducted: ConductedRun, proposed: Proposal, index: int) -> RoundInput:
    """Return what is to be performed in a round."""
    past = _journaled_round(conducted.context, index)
    joins = proposed.joins
    return RoundInput(conducted.task, proposed.plan, index, past, conducted.on_text, conducted.seen, joins)


def _certain_refusal(context: RunContext, round_input: RoundInput) -> CapReached | None:
    """Return the refusal that a step of this plan will meet for certain, before anything of the plan is paid."""
    begun = round_input.past is not None and any(record.attempts for record in round_input.past.steps.values())
    if len(round_input.plan) > 1 and not begun and context.ledger.counts_amounts:
        try:
            for worker, need in minimum_usage(context, round_input):
                context.ledger.check_affordable(need, worker)
        except CapReached as refusal:
            return refusal
    return None


def _end_unaffordable(conducted: ConductedRun, round_input: RoundInput, refusal: CapReached) -> RunEnding:
    """Record each step of a plan that cannot be paid as refused; return how that ends the run."""
    context, labels = conducted.context, join_labels(conducted.task.labels, round_input.seen)
    fault = Fault(FaultKind.CAP, f"{refusal}; nothing of the plan was begun, since not all of it can be paid")
    known = round_input.past.steps if round_input.past else {}
    for index, step in enumerate(round_input.plan.steps):
        if index not in known or known[index].finished is None:
            context.recorder.add(
                StepFinished(
                    run=context.run,
                    at=time(),
                    round=round_input.round,
                    step=index,
                    worker=context.pool[step.worker].card.name,
                    fault=fault.kind,
                    message=fault.message,
                    labels=tuple(sorted(labels)),
                )
            )
    return RunEnding(RunStatus.CAPPED, fault.message, refusal.cap, fault)


def _note_with_warning(conducted: ConductedRun, proposal: Proposal, index: int) -> str:
    """Return the plan's note, with a word on what its steps may use where that is more than there is."""
    context = conducted.context
    if len(proposal.plan) < 2 or not context.ledger.counts_amounts:
        return proposal.note
    left = context.ledger.left()
    total = sum((need for _, need in minimum_usage(context, input_of_round(conducted, proposal, index))), Amount())
    short = []
    if left.dollars is not None and total.dollars is not None and total.dollars > left.dollars:
        short.append(f"{format_dollars(total.dollars)} and {format_dollars(left.dollars)} are left")
    if left.tokens is not None and total.tokens > left.tokens:
        short.append(f"{total.tokens:,} tokens and {left.tokens:,} are left")
    if not short:
        return proposal.note
    warning = f"the steps may use up to {' or '.join(short)}: a later one may be refused"
    return f"{proposal.note}; {warning}" if proposal.note else warning


def _validate_proposal(proposal: Proposal, context: RunContext, rounds: Sequence[RoundResult]) -> Proposal:
    """Return the proposal as it is journaled and performed, so that nobody can change it later; PlanError if it can't.

    Whatever is no proposal raises what Python raises.
    """
    clean = context.clean
    scrub, written = context.secret_store.scrub, proposal.plan.steps
    plan = Plan(
        tuple(
            [
                Step(scrub(step.subtask), step.worker, tuple(step.access), step.each, scrub(step.kind))
                for step in written
            ]
        )
    )
    plan.check_pool(len(context.pool))
    most = context.ledger.caps.plan_steps
    if len(plan) > most:
        raise PlanError(f"{len(plan)} steps are too many: at most {most} are allowed", "plan")
    for index, step in enumerate(plan.steps):
        if problem := storage_problem(step.subtask):
            raise PlanError(f"the subtask holds {problem}", f"subtasks[{index}]")
        if step.each is not None and not context.ledger.caps.map_items:
            raise PlanError("a map step is not allowed: the budget's map_items is 0", f"access_list[{index}]")
    chance = proposal.propensity
    if proposal.keeps is not None and not (plan.ships and _has_answer(rounds, proposal.keeps)):
        raise PlanError(f"expected an empty plan and a round with an answer, found {proposal.keeps!r}", "keeps")
    if chance is not None and not 0 < chance <= 1:
        raise PlanError(f"{chance!r} is no probability: expected a number above 0, up to 1", "propensity")
    return Proposal(
        plan,
        clean(proposal.text),
        clean(proposal.note),
        clean(proposal.version),
        bool(proposal.final),
        _clean_rejections(proposal.rejected, context),
        None if proposal.substituted is None else clean(proposal.substituted),
        proposal.keeps,
        None if chance is None else float(chance),
        {clean(name): clean(plan_text) for name, plan_text in proposal.beside.items()},
        bool(proposal.joins),
        bool(proposal.partial),
    )


def _has_answer(rounds: Sequence[RoundResult], index: int) -> bool:
    final = rounds[index].final if type(index) is int and 0 <= index < len(rounds) else None
    return final is not None and final.ok


async def _ask_model(conducted: ConductedRun, calls: StepCalls, member: Member, request: Request) -> Reply:
    """Put a conductor's question to the model that it brought along, inside the run's budget and journal."""
    labels = join_labels(conducted.task.labels, conducted.seen)
    return await call_worker(calls, member, replace(request, labels=labels), CallPurpose(CallRole.PLAN))


def ship_answer(conducted: ConductedRun, why: str, cap: str | None = None) -> RunEnding:
    """End with the answer at hand; without one the run has failed, with the last step's fault."""
    final = conducted.rounds[-1].final if conducted.rounds else None
    fault = final.fault if final else None
    answer = conducted.answer()
    if answer is None:
        nothing = "its parts are none" if conducted.partial else "no step was performed"
        missing = f"the last step failed: {fault}" if fault else nothing
        # A fault says more than that the conductor was done.
        ended = missing if fault and cap is None else f"{why}; there is no answer: {missing}"
        return RunEnding(RunStatus.FAILED, ended, cap, fault)
    if fault is not None:
        return RunEnding(
            RunStatus.DONE, f"{why}; round {answer[0]}'s answer is kept, the last step failed: {fault}", cap, fault
        )
    return RunEnding(RunStatus.DONE, why, cap)


def _plan_rejected(conducted: ConductedRun, index: int, rejection: Rejection) -> PlanRejected:
    return PlanRejected(
        run=conducted.context.run,
        at=time(),
        round=index,
        conductor=conducted.conductor.name,
        what=rejection.what,
        where=rejection.where,
        text=rejection.text,
    )


def plan_proposed(conducted: ConductedRun, index: int, proposal: Proposal) -> PlanProposed:
    """Return the event that records a plan."""
    return PlanProposed(
        run=conducted.context.run,
        at=time(),
        round=index,
        conductor=conducted.conductor.name,
        plan=proposal.plan.dumps(),
        text=proposal.text,
        note=proposal.note,
        version=proposal.version,
        substituted=proposal.substituted,
        final=proposal.final,
        keeps=proposal.keeps,
        propensity=proposal.propensity,
        beside=proposal.beside,
        joins=proposal.joins,
        partial=proposal.partial,
    )


BY_CONFIGURATION = "configuration"


def ending_event(conducted: ConductedRun, ending: RunEnding) -> EndReached | RunPaused:
    """Return the event that records what the rounds came to: an end, or that the run waits for a person."""
    context, place = conducted.context, conducted.answer()
    if ending.status is RunStatus.SUSPENDED:
        return RunPaused(run=context.run, at=time(), status=ending.status, why=context.clean(ending.why))
    return EndReached(
        run=context.run,
        at=time(),
        status=ending.status,
        why=context.clean(ending.why),
        cap=ending.cap,
        fault=ending.fault.kind if ending.fault else None,
        round=place[0] if place else None,
        step=place[1] if place else None,
        answer=place[2].text if place else None,
    )


async def finalize_run(context: RunContext, end: EndReached) -> RunFinished | RunPaused:
    """Return the event with which a run that has come to this end is over, or waits for a person's review."""
    if context.ledger.parent is None:
        rolls_back = end.answer is None and context.autonomy.on_failure is OnFailure.ROLLBACK
        if context.past is None or context.past.reached is None:
            watched = context.autonomy.watches
            asks = (
                review_reasons(context.autonomy, context.recorder.fold(), end)
                if watched and end.answer is not None
                else ()
            )
            if asks:
                end = replace(end, asks=context.clean("; ".join(asks)))
            if asks or rolls_back or (end.answer is None and watched):
                # Journaled first, so that no worker's text passes for an answer that no person has looked at.
                context.recorder.add(end)
        if end.asks:
            run = context.recorder.fold()
            try:
                end = await _apply_review(end, await ask_person(context, _review_question(context, end, run)), run.task)
            except WorkerError as error:
                if error.fault.kind is not FaultKind.WAITING:
                    raise
                return RunPaused(
                    run=end.run, at=time(), status=RunStatus.SUSPENDED, why="the answer waits for a review"
                )
        if end.answer is None and context.autonomy.on_failure is OnFailure.ROLLBACK:
            caps = context.ledger.caps
            # A run that used up its caps could undo nothing: the rollback has the same caps, and nothing used yet.
            deadline = None if caps.seconds is None else asyncio.get_running_loop().time() + caps.seconds
            unspent = replace(context, ledger=BudgetLedger(caps), deadline=deadline)
            order = RollbackOrder(BY_CONFIGURATION, f"the run ended without an answer: {end.why}")
            await roll_back(unspent, context.recorder.fold(), order)
    return RunFinished(
        run=end.run,
        at=time(),
        status=end.status,
        why=end.why,
        cap=end.cap,
        fault=end.fault,
        round=end.round,
        step=end.step,
        answer=end.answer,
    )


def _review_question(context: RunContext, end: EndReached, run: Run) -> ApprovalQuestion:
    answer = end.answer or ""
    place = run.round(end.round).step(end.step).result if end.round is not None else None
    worker = place.worker if place else ""
    answer_hash = sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()
    name = question_id(run.id, end.round or 0, end.step, QuestionKind.REVIEW, worker, answer_hash)
    prompt = f"A person is asked because {end.asks}.\n\nThe task:\n{run.task.prompt}\n\nThe answer:\n{answer}"
    return ApprovalQuestion(name, QuestionKind.REVIEW, run.id, end.round or 0, end.step, worker, context.clean(prompt))


async def _apply_review(end: EndReached, decision: Decision, task: Task) -> EndReached:
    if not decision.approved:
        return _refuse_answer(end, f"the answer was refused: {refusal_text(decision)}", FaultKind.DENIED)
    if not decision.text or decision.text == end.answer:
        return replace(end, why=f"{end.why}; {decision.actor} approved the answer")
    if problem := await answer_problem(task, decision.text):
        return _refuse_answer(end, f"{decision.actor} changed the answer in review: {problem}", FaultKind.CHECK_FAILED)
    return replace(end, why=f"{end.why}; {decision.actor} changed the answer in review", answer=decision.text)


def _refuse_answer(end: EndReached, why: str, fault: FaultKind) -> EndReached:
    return replace(end, status=RunStatus.FAILED, why=why, fault=fault, round=None, step=None, answer=None)


async def answer_problem(task: Task, text: str) -> str | None:
    """Return why a text cannot be the answer to this task, whoever wrote it: the client's schema holds for people too.

    None: nothing speaks against it.
    """
    if task.answer_schema is None:
        return None
    verdict = await AnswerSchema(task.answer_schema).inspect(Inspection(task, task.prompt, text))
    return None if verdict.passed else verdict.reason
