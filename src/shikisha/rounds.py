"""The round loop: ask the conductor, perform its plan, look at the results, ask again or ship.

Invariants: a plan is journaled before it is performed, and a journaled plan is performed and never proposed again (4);
a plan that does not fit its pool and caps is not performed (1, 3), and neither is one of which a step can certainly not
be paid: that is a recorded result of each of its steps, and that a later step may not be paid is said in the plan's
note; the loop ends in an Ending that says why, whatever a conductor does (6). When a revision fails, the answer at hand
is kept and the ending says so (9). Deliberately absent: the run's start and end, its deadline and its children
(`conduct`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import time

from shikisha.attempt import Why, call
from shikisha.budget import Amount, format_dollars
from shikisha.call import Reply, Request
from shikisha.clearance import Labels, join
from shikisha.conductor import Conductor, NoPlan, Proposal, Rejection, Situation
from shikisha.errors import (
    STOPS,
    CapReached,
    Fault,
    FaultKind,
    JournalError,
    PlanError,
    Unreadable,
    WorkerError,
    described,
)
from shikisha.events import PlanProposed, PlanRejected, Role, Status, StepFinished
from shikisha.perform import Hearing, Score, least_needs, perform
from shikisha.plan import Plan, Step
from shikisha.pool import Member
from shikisha.run import Performed, Result, RoundRecord
from shikisha.scope import Scope, Track
from shikisha.task import Task, unstorable


@dataclass(slots=True)
class Ending:
    """How a run ends: with which status, why, and what stood in the way."""

    status: Status
    why: str
    cap: str | None = None
    fault: Fault | None = None


@dataclass(slots=True)
class Conducted:
    """A run being conducted: its fixed parts, and the rounds so far."""

    scope: Scope
    conductor: Conductor
    task: Task
    on_text: Hearing | None = None
    rounds: list[Performed] = field(default_factory=list)
    keeps: int | None = None

    @property
    def seen(self) -> Labels:
        """The labels of all results so far: a conductor has seen it all, whatever it says or asks."""
        return join(*(result.labels for past in self.rounds for result in past.results))

    def answer(self) -> tuple[int, int, Result] | None:
        """Return the answer at hand, with its place: the kept round's, else the last round's that has one to give."""
        kept = [] if self.keeps is None else [self.keeps]
        for index in (*kept, *reversed(range(len(self.rounds)))):
            final = self.rounds[index].final
            if final is not None and final.ok:
                return index, len(self.rounds[index].results) - 1, final
        return None


async def conduct_rounds(conducted: Conducted) -> Ending:
    """Conduct rounds until the run ends or waits."""
    while True:
        index = len(conducted.rounds)
        try:
            conducted.scope.ledger.open_round()
        except CapReached as refusal:
            return _shipped(conducted, str(refusal), cap=refusal.cap)
        proposed = await _propose(conducted, index)
        if conducted.scope.cancelled():
            raise asyncio.CancelledError  # a conductor that swallowed it gets no performance for that
        if isinstance(proposed, Fault):
            return _without_plan(conducted, proposed)
        if proposed.plan.ships:
            conducted.keeps = proposed.keeps
            return _shipped(conducted, "the conductor keeps the answer")
        ending = await _perform_round(conducted, proposed, index)
        if ending is not None:
            return ending
        if proposed.final:
            return _shipped(conducted, "the conductor wants no further round")


async def _propose(conducted: Conducted, index: int) -> Proposal | Fault:
    """Return the round's plan: the journaled one, or a new one that fits pool and caps."""
    scope, past = conducted.scope, _past(conducted.scope, index)
    if past and past.proposed and past.plan is not None:
        made = past.proposed
        return Proposal(past.plan, version=made.version, final=made.final, keeps=made.keeps, joins=made.joins)
    track = Track(scope, index, None, past.planning if past else None)
    rejected, proposal = await _draft(conducted, track)
    await track.end()
    if track.waiting is not None:
        return track.waiting  # a conductor does not get round a person by making do without its model
    for rejection in rejected[len(past.rejected) if past else 0 :]:
        scope.recorder.add(_rejected(conducted, index, rejection))
    if isinstance(proposal, Proposal):
        proposal = replace(proposal, note=_forewarned(conducted, proposal, index))
        scope.recorder.add(_proposed(conducted, index, proposal))
    return proposal


async def _draft(conducted: Conducted, track: Track) -> tuple[Sequence[Rejection], Proposal | Fault]:
    """Let the conductor propose; return what was no plan, and the plan as it can be journaled, or why there is none."""
    scope = conducted.scope
    situation = Situation(
        conducted.task, scope.pool.cards, tuple(conducted.rounds), scope.ledger.left(), partial(_ask, conducted, track)
    )
    try:
        proposal = _fitting(await conducted.conductor.propose(situation), scope, conducted.rounds)
    except PlanError as error:
        what, where = scope.clean(str(error.what)), scope.clean(str(error.where))
        texts = error.rejected if isinstance(error, NoPlan) else ()
        kind = FaultKind.UNREADABLE if isinstance(error, Unreadable) else FaultKind.NO_PLAN
        return (*_clean(texts, scope), Rejection("", what, where)), Fault(kind, f"{where}: {what}")
    except WorkerError as error:
        kind = error.fault.kind if isinstance(error.fault.kind, FaultKind) else FaultKind.INTERNAL
        return (), Fault(kind, scope.clean(str(error.fault.message)))
    except JournalError:
        raise
    except asyncio.CancelledError:
        if scope.cancelled():
            raise
        return (), Fault(FaultKind.NO_PLAN, "the conductor cancelled itself")
    except STOPS:
        raise
    except BaseException as error:  # noqa: BLE001 - a conductor is anyone's code: what it raises ends this run only
        return (), Fault(FaultKind.NO_PLAN, scope.clean(described(error)))
    return proposal.rejected, proposal


def _clean(rejected: Sequence[Rejection], scope: Scope) -> tuple[Rejection, ...]:
    clean = scope.clean
    return tuple([Rejection(clean(each.text), clean(each.what), clean(each.where)) for each in rejected])


def _past(scope: Scope, index: int) -> RoundRecord | None:
    return scope.past.rounds[index] if scope.past and index < len(scope.past.rounds) else None


async def _perform_round(conducted: Conducted, proposed: Proposal, index: int) -> Ending | None:
    """Perform a round; return how the run ends if it does not go on."""
    scope, plan = conducted.scope, proposed.plan
    score = _score(conducted, proposed, index)
    try:
        _refuse_unaffordable(scope, score)
    except CapReached as refusal:
        return _unaffordable(conducted, score, refusal)
    performance = await perform(scope, score)
    results = tuple(result for result in performance.results if result is not None)
    if len(results) < len(plan):
        return Ending(Status.SUSPENDED, "waits for a person")
    conducted.rounds.append(Performed(plan, results, proposed.version))
    if performance.stopped is not None:
        fault = performance.stopped.fault
        return Ending(Status.FAILED, f"a check stopped the run: {fault}", fault=fault)
    refused = next((result.fault for result in results if _is_capped(result)), None)
    if refused is not None:
        cap = scope.ledger.reached.cap if scope.ledger.reached else "budget"
        return Ending(Status.CAPPED, refused.message, cap, refused)
    return None


def _score(conducted: Conducted, proposed: Proposal, index: int) -> Score:
    past = _past(conducted.scope, index)
    joins = proposed.joins
    return Score(conducted.task, proposed.plan, index, past, conducted.on_text, conducted.seen, joins)


def _refuse_unaffordable(scope: Scope, score: Score) -> None:
    """Raise CapReached for a plan of which a step will be refused for certain, before anything of it is paid."""
    begun = score.past is not None and any(record.attempts for record in score.past.steps.values())
    left = scope.ledger.left()
    if len(score.plan) > 1 and not begun and (left.dollars is not None or left.tokens is not None):
        for worker, need in least_needs(scope, score):
            scope.ledger.foresee(need, worker)


def _unaffordable(conducted: Conducted, score: Score, refusal: CapReached) -> Ending:
    """Record each step of a plan that cannot be paid as refused; return how that ends the run."""
    scope, labels = conducted.scope, join(conducted.task.labels, score.seen)
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
    return Ending(Status.CAPPED, fault.message, refusal.cap, fault)


def _forewarned(conducted: Conducted, proposal: Proposal, index: int) -> str:
    """Return the plan's note, with a word on what its steps may use where that is more than there is."""
    scope = conducted.scope
    left = scope.ledger.left()
    if len(proposal.plan) < 2 or (left.dollars is None and left.tokens is None):
        return proposal.note
    total = sum((need for _, need in least_needs(scope, _score(conducted, proposal, index))), Amount())
    short = []
    if left.dollars is not None and total.dollars is not None and total.dollars > left.dollars:
        short.append(f"{format_dollars(total.dollars)} and {format_dollars(left.dollars)} are left")
    if left.tokens is not None and total.tokens > left.tokens:
        short.append(f"{total.tokens:,} tokens and {left.tokens:,} are left")
    if not short:
        return proposal.note
    said = f"the steps may use up to {' or '.join(short)}: a later one may be refused"
    return f"{proposal.note}; {said}" if proposal.note else said


def _fitting(proposal: Proposal, scope: Scope, rounds: Sequence[Performed]) -> Proposal:
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
        if problem := unstorable(step.subtask):
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
        _clean(proposal.rejected, scope),
        None if proposal.substituted is None else clean(proposal.substituted),
        proposal.keeps,
        None if chance is None else float(chance),
        {clean(name): clean(said) for name, said in proposal.beside.items()},
        bool(proposal.joins),
    )


def _has_answer(rounds: Sequence[Performed], index: int) -> bool:
    final = rounds[index].final if type(index) is int and 0 <= index < len(rounds) else None
    return final is not None and final.ok


async def _ask(conducted: Conducted, track: Track, member: Member, request: Request) -> Reply:
    """Put a conductor's question to the model that it brought along, inside the run's budget and journal."""
    labels = join(conducted.task.labels, conducted.seen)
    return await call(track, member, replace(request, labels=labels), Why(Role.PLAN))


def _is_capped(result: Result) -> bool:
    return result.fault is not None and result.fault.kind is FaultKind.CAP


def _shipped(conducted: Conducted, why: str, cap: str | None = None) -> Ending:
    """End with the answer at hand; without one the run has failed, with the last step's fault."""
    final = conducted.rounds[-1].final if conducted.rounds else None
    fault = final.fault if final else None
    answer = conducted.answer()
    if answer is None:
        missing = f"the last step failed: {fault}" if fault else "no step was performed"
        return Ending(Status.FAILED, f"{why}; there is no answer: {missing}", cap, fault)
    if fault is not None:
        return Ending(
            Status.DONE, f"{why}; round {answer[0]}'s answer is kept, the last step failed: {fault}", cap, fault
        )
    return Ending(Status.DONE, why, cap)


def _without_plan(conducted: Conducted, fault: Fault) -> Ending:
    if fault.kind is FaultKind.CAP:
        reached = conducted.scope.ledger.reached
        return Ending(Status.CAPPED, fault.message, reached.cap if reached else "budget", fault)
    if fault.kind is FaultKind.WAITING:
        return Ending(Status.SUSPENDED, "the conductor waits for a person")
    status = Status.DONE if conducted.answer() else Status.FAILED
    return Ending(status, f"the conductor made no plan: {fault}", fault=fault)


def _rejected(conducted: Conducted, index: int, rejection: Rejection) -> PlanRejected:
    return PlanRejected(
        run=conducted.scope.run,
        at=time(),
        round=index,
        conductor=conducted.conductor.name,
        what=rejection.what,
        where=rejection.where,
        text=rejection.text,
    )


def _proposed(conducted: Conducted, index: int, proposal: Proposal) -> PlanProposed:
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
