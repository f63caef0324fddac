"""The round loop: ask the conductor, perform its plan, look at the results, ask again or ship.

Invariants: a plan is journaled before it is performed, and a journaled plan is performed and never proposed again (4);
a plan that does not fit its pool and caps is not performed (1, 3), and neither is one of which a step can certainly not
be paid: that is a recorded result of each of its steps, and that a later step may not be paid is said in the plan's
note; the loop ends in an Ending that says why, whatever a conductor does (6). When a revision fails, the answer at hand
is kept and the ending says so (9). Deliberately absent: the run's start and end, its deadline and its children
(`conduct`).

The end of a run: a person looks at its answer where the class of its task wants that, and effects are undone.

Invariants: what the run comes to is journaled before anybody is asked or anything undone, and a resumed run goes on
from there: no round is conducted again (4). A refused answer is no answer, and a changed one says who changed it (9).
Only the run itself is looked at, never its child runs (their answers are its own steps'). Deliberately absent: when a
person is asked (`oversight`) and how (`people`), and which calls can be undone (`undo`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Result, RoundRecord, RoundResult, Run
from shikisha.core.task import Task, storage_problem
from shikisha.core.visibility import Labels, join_labels
from shikisha.engine.approvals import ApprovalQuestion, Decision, question_id
from shikisha.engine.attempt import CallPurpose, call_worker
from shikisha.engine.autonomy import OnFailure, review_reasons
from shikisha.engine.budget_ledger import BudgetLedger
from shikisha.engine.checker import Inspection
from shikisha.engine.compensation import RollbackOrder, roll_back
from shikisha.engine.conductor import Conductor, NoPlan, Proposal, Rejection, Situation
from shikisha.engine.output_checks import AnswerSchema
from shikisha.engine.pool import Member
from shikisha.engine.questions import ask_person, refusal_text
from shikisha.engine.run_context import RunContext, StepCalls
from shikisha.engine.scheduler import RoundInput, TextCallback, minimum_usage, perform_plan


@dataclass(slots=True)
class RunEnding:
    """How a run ends: with which status, why, and what stood in the way."""

    status: RunStatus
    why: str
    cap: str | None = None
    fault: Fault | None = None


@dataclass(slots=True)
class ConductedRun:
    """A run being conducted: its fixed parts, and the rounds so far."""

    scope: RunContext
    conductor: Conductor
    task: Task
    on_text: TextCallback | None = None
    rounds: list[RoundResult] = field(default_factory=list)
    keeps: int | None = None

    @property
    def seen(self) -> Labels:
        """The labels of all results so far: a conductor has seen it all, whatever it says or asks."""
        return join_labels(*(result.labels for past in self.rounds for result in past.results))

    def answer(self) -> tuple[int, int, Result] | None:
        """Return the answer at hand, with its place: the kept round's, else the last round's that has one to give."""
        kept = [] if self.keeps is None else [self.keeps]
        for index in (*kept, *reversed(range(len(self.rounds)))):
            final = self.rounds[index].final
            if final is not None and final.ok:
                return index, len(self.rounds[index].results) - 1, final
        return None


async def run_rounds(conducted: ConductedRun) -> RunEnding:
    """Conduct rounds until the run ends or waits."""
    while True:
        index = len(conducted.rounds)
        try:
            conducted.scope.ledger.open_round()
        except CapReached as refusal:
            return _ship_answer(conducted, str(refusal), cap=refusal.cap)
        proposed = await _propose(conducted, index)
        if conducted.scope.cancelled():
            raise asyncio.CancelledError  # a conductor that swallowed it gets no performance for that
        if isinstance(proposed, Fault):
            return _end_without_plan(conducted, proposed)
        if proposed.plan.ships:
            conducted.keeps = proposed.keeps
            return _ship_answer(conducted, "the conductor keeps the answer")
        ending = await _perform_round(conducted, proposed, index)
        if ending is not None:
            return ending
        if proposed.final:
            return _ship_answer(conducted, "the conductor wants no further round")


async def _propose(conducted: ConductedRun, index: int) -> Proposal | Fault:
    """Return the round's plan: the journaled one, or a new one that fits pool and caps."""
    scope, past = conducted.scope, _journaled_round(conducted.scope, index)
    if past and past.proposed and past.plan is not None:
        made = past.proposed
        return Proposal(past.plan, version=made.version, final=made.final, keeps=made.keeps, joins=made.joins)
    track = StepCalls(scope, index, None, past.planning if past else None)
    rejected, proposal = await _draft(conducted, track)
    await track.end()
    if track.waiting is not None:
        return track.waiting  # a conductor does not get round a person by making do without its model
    for rejection in rejected[len(past.rejected) if past else 0 :]:
        scope.recorder.add(_plan_rejected(conducted, index, rejection))
    if isinstance(proposal, Proposal):
        proposal = replace(proposal, note=_note_with_warning(conducted, proposal, index))
        scope.recorder.add(_plan_proposed(conducted, index, proposal))
    return proposal


async def _draft(conducted: ConductedRun, track: StepCalls) -> tuple[Sequence[Rejection], Proposal | Fault]:
    """Let the conductor propose; return what was no plan, and the plan as it can be journaled, or why there is none."""
    scope = conducted.scope
    situation = Situation(
        conducted.task,
        scope.pool.cards,
        tuple(conducted.rounds),
        scope.ledger.left(),
        partial(_ask_model, conducted, track),
    )
    try:
        proposal = _validate_proposal(await conducted.conductor.propose(situation), scope, conducted.rounds)
    except PlanError as error:
        what, where = scope.clean(str(error.what)), scope.clean(str(error.where))
        texts = error.rejected if isinstance(error, NoPlan) else ()
        kind = FaultKind.UNREADABLE if isinstance(error, UnreadableTask) else FaultKind.NO_PLAN
        return (*_clean_rejections(texts, scope), Rejection("", what, where)), Fault(kind, f"{where}: {what}")
    except WorkerError as error:
        kind = error.fault.kind if isinstance(error.fault.kind, FaultKind) else FaultKind.INTERNAL
        return (), Fault(kind, scope.clean(str(error.fault.message)))
    except JournalError:
        raise
    except asyncio.CancelledError:
        if scope.cancelled():
            raise
        return (), Fault(FaultKind.NO_PLAN, "the conductor cancelled itself")
    except PROCESS_STOPS:
        raise
    except BaseException as error:  # noqa: BLE001 - a conductor is anyone's code: what it raises ends this run only
        return (), Fault(FaultKind.NO_PLAN, scope.clean(describe_error(error)))
    return proposal.rejected, proposal


def _clean_rejections(rejected: Sequence[Rejection], scope: RunContext) -> tuple[Rejection, ...]:
    clean = scope.clean
    return tuple([Rejection(clean(each.text), clean(each.what), clean(each.where)) for each in rejected])


def _journaled_round(scope: RunContext, index: int) -> RoundRecord | None:
    return scope.past.rounds[index] if scope.past and index < len(scope.past.rounds) else None


async def _perform_round(conducted: ConductedRun, proposed: Proposal, index: int) -> RunEnding | None:
    """Perform a round; return how the run ends if it does not go on."""
    scope, plan = conducted.scope, proposed.plan
    score = _round_input(conducted, proposed, index)
    try:
        _refuse_unaffordable(scope, score)
    except CapReached as refusal:
        return _end_unaffordable(conducted, score, refusal)
    performance = await perform_plan(scope, score)
    results = tuple(result for result in performance.results if result is not None)
    if len(results) < len(plan):
        return RunEnding(RunStatus.SUSPENDED, "waits for a person")
    conducted.rounds.append(RoundResult(plan, results, proposed.version))
    if performance.stopped is not None:
        fault = performance.stopped.fault
        return RunEnding(RunStatus.FAILED, f"a check stopped the run: {fault}", fault=fault)
    refused = next((result.fault for result in results if _is_capped(result)), None)
    if refused is not None:
        cap = scope.ledger.reached.cap if scope.ledger.reached else "budget"
        return RunEnding(RunStatus.CAPPED, refused.message, cap, refused)
    return None


def _round_input(conducted: ConductedRun, proposed: Proposal, index: int) -> RoundInput:
    past = _journaled_round(conducted.scope, index)
    joins = proposed.joins
    return RoundInput(conducted.task, proposed.plan, index, past, conducted.on_text, conducted.seen, joins)


def _refuse_unaffordable(scope: RunContext, score: RoundInput) -> None:
    """Raise CapReached for a plan of which a step will be refused for certain, before anything of it is paid."""
    begun = score.past is not None and any(record.attempts for record in score.past.steps.values())
    left = scope.ledger.left()
    if len(score.plan) > 1 and not begun and (left.dollars is not None or left.tokens is not None):
        for worker, need in minimum_usage(scope, score):
            scope.ledger.foresee(need, worker)


def _end_unaffordable(conducted: ConductedRun, score: RoundInput, refusal: CapReached) -> RunEnding:
    """Record each step of a plan that cannot be paid as refused; return how that ends the run."""
    scope, labels = conducted.scope, join_labels(conducted.task.labels, score.seen)
    fault = Fault(FaultKind.CAP, f"{refusal}; nothing of the plan was begun, since not all of it can be paid")
    known = score.past.steps if score.past else {}
    for index, step in enumerate(score.plan.steps):
        if index not in known or known[index].finished is None:
            scope.recorder.add(
                StepFinished(
                    run=scope.run,
                    at=time(),
                    round=score.round,
                    step=index,
                    worker=scope.pool[step.worker].card.name,
                    fault=fault.kind,
                    message=fault.message,
                    labels=tuple(sorted(labels)),
                )
            )
    return RunEnding(RunStatus.CAPPED, fault.message, refusal.cap, fault)


def _note_with_warning(conducted: ConductedRun, proposal: Proposal, index: int) -> str:
    """Return the plan's note, with a word on what its steps may use where that is more than there is."""
    scope = conducted.scope
    left = scope.ledger.left()
    if len(proposal.plan) < 2 or (left.dollars is None and left.tokens is None):
        return proposal.note
    total = sum((need for _, need in minimum_usage(scope, _round_input(conducted, proposal, index))), Amount())
    short = []
    if left.dollars is not None and total.dollars is not None and total.dollars > left.dollars:
        short.append(f"{format_dollars(total.dollars)} and {format_dollars(left.dollars)} are left")
    if left.tokens is not None and total.tokens > left.tokens:
        short.append(f"{total.tokens:,} tokens and {left.tokens:,} are left")
    if not short:
        return proposal.note
    said = f"the steps may use up to {' or '.join(short)}: a later one may be refused"
    return f"{proposal.note}; {said}" if proposal.note else said


def _validate_proposal(proposal: Proposal, scope: RunContext, rounds: Sequence[RoundResult]) -> Proposal:
    """Return the proposal as it is journaled and performed, so that nobody can change it later; PlanError if it can't.

    Whatever is no proposal raises what Python raises.
    """
    clean = scope.clean
    scrub, written = scope.vault.scrub, proposal.plan.steps
    plan = Plan(tuple([Step(scrub(step.subtask), step.worker, tuple(step.access)) for step in written]))
    plan.check_pool(len(scope.pool))
    most = scope.ledger.caps.plan_steps
    if len(plan) > most:
        raise PlanError(f"{len(plan)} steps are too many: at most {most} are allowed", "plan")
    for index, step in enumerate(plan.steps):
        if problem := storage_problem(step.subtask):
            raise PlanError(f"the subtask holds {problem}", f"subtasks[{index}]")
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
        _clean_rejections(proposal.rejected, scope),
        None if proposal.substituted is None else clean(proposal.substituted),
        proposal.keeps,
        None if chance is None else float(chance),
        {clean(name): clean(said) for name, said in proposal.beside.items()},
        bool(proposal.joins),
    )


def _has_answer(rounds: Sequence[RoundResult], index: int) -> bool:
    final = rounds[index].final if type(index) is int and 0 <= index < len(rounds) else None
    return final is not None and final.ok


async def _ask_model(conducted: ConductedRun, track: StepCalls, member: Member, request: Request) -> Reply:
    """Put a conductor's question to the model that it brought along, inside the run's budget and journal."""
    labels = join_labels(conducted.task.labels, conducted.seen)
    return await call_worker(track, member, replace(request, labels=labels), CallPurpose(CallRole.PLAN))


def _is_capped(result: Result) -> bool:
    return result.fault is not None and result.fault.kind is FaultKind.CAP


def _ship_answer(conducted: ConductedRun, why: str, cap: str | None = None) -> RunEnding:
    """End with the answer at hand; without one the run has failed, with the last step's fault."""
    final = conducted.rounds[-1].final if conducted.rounds else None
    fault = final.fault if final else None
    answer = conducted.answer()
    if answer is None:
        missing = f"the last step failed: {fault}" if fault else "no step was performed"
        return RunEnding(RunStatus.FAILED, f"{why}; there is no answer: {missing}", cap, fault)
    if fault is not None:
        return RunEnding(
            RunStatus.DONE, f"{why}; round {answer[0]}'s answer is kept, the last step failed: {fault}", cap, fault
        )
    return RunEnding(RunStatus.DONE, why, cap)


def _end_without_plan(conducted: ConductedRun, fault: Fault) -> RunEnding:
    if fault.kind is FaultKind.CAP:
        reached = conducted.scope.ledger.reached
        return RunEnding(RunStatus.CAPPED, fault.message, reached.cap if reached else "budget", fault)
    if fault.kind is FaultKind.WAITING:
        return RunEnding(RunStatus.SUSPENDED, "the conductor waits for a person")
    status = RunStatus.DONE if conducted.answer() else RunStatus.FAILED
    return RunEnding(status, f"the conductor made no plan: {fault}", fault=fault)


def _plan_rejected(conducted: ConductedRun, index: int, rejection: Rejection) -> PlanRejected:
    return PlanRejected(
        run=conducted.scope.run,
        at=time(),
        round=index,
        conductor=conducted.conductor.name,
        what=rejection.what,
        where=rejection.where,
        text=rejection.text,
    )


def _plan_proposed(conducted: ConductedRun, index: int, proposal: Proposal) -> PlanProposed:
    return PlanProposed(
        run=conducted.scope.run,
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
    )


BY_CONFIGURATION = "configuration"


async def finalize_run(scope: RunContext, end: EndReached, told: Callable[[], Run]) -> RunFinished | RunPaused:
    """Return the event with which a run that has come to this end is over, or waits for a person.

    `told` folds the run's events so far.
    """
    if scope.ledger.parent is not None:
        return _run_finished(end)
    if scope.past is None or scope.past.reached is None:
        asks = review_reasons(scope.autonomy, told(), end) if end.answer is not None and scope.autonomy.watches else ()
        end = replace(end, asks=scope.clean("; ".join(asks)))
        if asks or _rolls_back(scope, end) or (end.answer is None and scope.autonomy.watches):
            scope.recorder.add(end)  # so nothing that a worker said is taken for an answer that nobody has seen
    if end.asks:
        run = told()
        try:
            end = await _apply_review(end, await ask_person(scope, _review_question(scope, end, run)), run.task)
        except WorkerError as error:
            if error.fault.kind is not FaultKind.WAITING:
                raise
            return RunPaused(run=end.run, at=time(), status=RunStatus.SUSPENDED, why="the answer waits for a review")
    if _rolls_back(scope, end):
        await roll_back(
            _rollback_context(scope),
            told(),
            RollbackOrder(BY_CONFIGURATION, f"the run ended without an answer: {end.why}"),
        )
    return _run_finished(end)


def _rolls_back(scope: RunContext, end: EndReached) -> bool:
    return end.answer is None and scope.autonomy.on_failure is OnFailure.ROLLBACK


def _rollback_context(scope: RunContext) -> RunContext:
    """Return the scope of a rollback: caps as the run had them, and nothing used yet."""
    caps = scope.ledger.caps
    deadline = None if caps.seconds is None else asyncio.get_running_loop().time() + caps.seconds
    return replace(scope, ledger=BudgetLedger(caps), deadline=deadline)


def _review_question(scope: RunContext, end: EndReached, run: Run) -> ApprovalQuestion:
    answer = end.answer or ""
    place = run.round(end.round).step(end.step).result if end.round is not None else None
    worker = place.worker if place else ""
    shown = sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()
    name = question_id(run.id, end.round or 0, end.step, QuestionKind.REVIEW, worker, shown)
    prompt = f"A person is asked because {end.asks}.\n\nThe task:\n{run.task.prompt}\n\nThe answer:\n{answer}"
    return ApprovalQuestion(name, QuestionKind.REVIEW, run.id, end.round or 0, end.step, worker, scope.clean(prompt))


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


def _run_finished(end: EndReached) -> RunFinished:
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
