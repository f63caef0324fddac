"""From a folded run to its explanation.

Invariant: everything is read off the events; nothing is looked up elsewhere or guessed, so an old run is explained the
same way for ever, and where a journal ends in the middle, so does the explanation. Deliberately absent: judgement.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shikisha.events import (
    AttemptFailed,
    AttemptFinished,
    CheckStatus,
    EffectUndone,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    Reason,
    Role,
)
from shikisha.explain.story import (
    Asked,
    Call,
    Checked,
    Effect,
    Explanation,
    Graded,
    Rejected,
    RoundStory,
    Seen,
    StepStory,
    Totals,
)
from shikisha.plan import Plan
from shikisha.prompt import conversation, named
from shikisha.run import Attempt, RoundRecord, Run, StepRecord


def explain(run: Run, children: Iterable[Run] = ()) -> Explanation:
    """Explain a run; `children` are its child runs and theirs, in any order."""
    known = {child.id: child for child in children}
    rounds = tuple(_round(run, turn, known) for turn in run.rounds)
    return Explanation(
        run=run.id,
        parent=run.started.parent,
        status=run.status,
        why=run.why,
        conductor=run.started.conductor,
        pool=run.started.pool,
        prompt=run.started.prompt,
        context=run.started.context,
        conversation=conversation(run.task),
        attached=tuple(named(each) for each in run.task.attachments),
        answer=run.answer,
        answered_by=_answered_by(run, rounds),
        totals=_totals(run),
        substitutions=tuple(_substitutions(rounds)),
        rounds=rounds,
        children=tuple(explain(child, known.values()) for child in known.values() if child.started.parent == run.id),
        grades=tuple(
            Graded(grade.checker, grade.mark, grade.score, grade.found, grade.evidence, grade.judged, grade.actor)
            for grade in run.grades
        ),
        reward=run.rewards[-1].parts if run.rewards else None,
        changed_by=_changed_by(run),
        effects=tuple(_effects(run)),
    )


def _round(run: Run, turn: RoundRecord, known: Mapping[str, Run]) -> RoundStory:
    proposed, plan = turn.proposed, turn.plan
    steps = range(len(plan)) if plan else ()
    return RoundStory(
        round=turn.index,
        conductor=proposed.conductor if proposed else run.started.conductor,
        substituted=proposed.substituted if proposed else None,
        version=proposed.version if proposed else "",
        note=proposed.note if proposed else "",
        text=(proposed.text or proposed.plan) if proposed else "",
        shape=None if plan is None else plan.topology(),
        final=proposed.final if proposed else False,
        rejected=tuple(Rejected(text.what, text.where, text.text) for text in turn.rejected),
        calls=_calls(turn.planning, known),
        questions=_questions(run, turn.planning),
        steps=tuple(_step(run, turn, plan, index, known) for index in steps if plan),
        keeps=proposed.keeps if proposed else None,
        propensity=proposed.propensity if proposed else None,
        beside=dict(proposed.beside) if proposed else {},
    )


def _step(run: Run, turn: RoundRecord, plan: Plan, index: int, known: Mapping[str, Run]) -> StepStory:
    planned, record = plan.steps[index], turn.steps.get(index) or StepRecord(index)
    result = record.result
    return StepStory(
        step=index,
        subtask=planned.subtask,
        ordinal=planned.worker,
        planned=run.started.pool[planned.worker],
        seen=tuple(_seen(turn, plan, earlier) for earlier in planned.access),
        withheld=tuple(earlier for earlier in range(index) if earlier not in planned.access),
        calls=_calls(record, known),
        checks=tuple(
            Checked(each.attempt, each.check, each.status, each.reason, each.leads_to) for each in record.checks
        ),
        questions=_questions(run, record),
        ended=result is not None,
        worker=result.worker if result else None,
        answer=result.text if result else None,
        fault=str(result.fault) if result and result.fault else None,
    )


def _seen(turn: RoundRecord, plan: Plan, index: int) -> Seen:
    result = turn.results[index]
    fault = str(result.fault.kind) if result and result.fault else None
    return Seen(index, plan.steps[index].subtask, result.text if result else None, fault)


def _calls(record: StepRecord, known: Mapping[str, Run]) -> tuple[Call, ...]:
    return tuple(_call(record, place, known) for place in range(len(record.attempts)))


def _call(record: StepRecord, place: int, known: Mapping[str, Run]) -> Call:
    attempt = record.attempts[place]
    begun, end, charged, uncertain = attempt.started, attempt.outcome, attempt.charged, attempt.uncertain
    return Call(
        attempt=begun.attempt,
        worker=begun.worker,
        role=begun.role,
        reason=begun.reason,
        why=_why(record, place),
        instead_of=begun.instead_of,
        granted=begun.granted,
        ended=end is not None,
        answer=end.text if isinstance(end, AttemptFinished) else None,
        fault=_fault(attempt),
        seconds=end.seconds if end else 0.0,
        tokens=charged.tokens,
        dollars=charged.dollars,
        uncertain_tokens=uncertain.tokens,
        uncertain_dollars=uncertain.dollars,
        understated=isinstance(end, AttemptFinished) and end.stated is not None,
        model=end.model if isinstance(end, AttemptFinished) else "",
        view=begun.view,
        child=begun.key if begun.key in known else None,
    )


def _why(record: StepRecord, place: int) -> str:
    begun = record.attempts[place].started
    before = _cause(record, place)
    match begun.reason:
        case Reason.FIRST if begun.role is Role.STEP:
            return "the plan names it"
        case Reason.FIRST:
            return "the conductor asks it" if begun.role is Role.PLAN else "a check asks it"
        case Reason.RETRY:
            return f"again, after {before}"
        case Reason.REDO:
            return f"again, and told that {before}"
        case Reason.FALLBACK:
            return f"the fallback of {begun.instead_of}, after {before}"
        case Reason.ESCALATION:
            return f"the dearer one for {begun.instead_of}, after {before}"
        case Reason.RESUME if any(asked.asks is QuestionKind.ANSWER for asked in record.questions):
            return "a person answers"
        case Reason.AGREED:
            return "nobody was called: what it was to bring together says the same"
        case Reason.TOOLS:
            return "it goes on with what the client's tools came to"
        case Reason.RESUME:
            return f"again under the same key, after {before}"


def _cause(record: StepRecord, place: int) -> str:
    """Say what the last attempt of the same role came to: its fault, or the check that its answer did not pass."""
    role = record.attempts[place].started.role
    earlier = [attempt for attempt in record.attempts[:place] if attempt.started.role is role]
    if not earlier:
        return "nothing that is in the journal"
    fault = _fault(earlier[-1])
    if fault is not None:
        return fault
    number = earlier[-1].started.attempt
    failed = [each for each in record.checks if each.attempt == number and each.status is not CheckStatus.PASS]
    return f"check {failed[-1].check} did not pass: {failed[-1].reason}" if failed else "an outcome that was lost"


def _fault(attempt: Attempt) -> str | None:
    if not isinstance(attempt.outcome, AttemptFailed):
        return None
    fault, message = attempt.outcome.fault, attempt.outcome.message
    return f"{fault}: {message}" if message else str(fault)


def _questions(run: Run, record: StepRecord) -> tuple[Asked, ...]:
    return tuple(_asked(question, run.answers.get(question.question)) for question in record.questions)


def _asked(question: QuestionAsked, answer: QuestionAnswered | None) -> Asked:
    return Asked(
        asks=question.asks,
        worker=question.worker,
        prompt=question.prompt,
        approved=answer.approved if answer else None,
        actor=answer.actor if answer else None,
        via=answer.via if answer else None,
        text=answer.text if answer else None,
        remark=answer.remark if answer else "",
        expires=question.expires,
    )


def _answered_by(run: Run, rounds: Sequence[RoundStory]) -> str | None:
    end = run.finished
    if end is None or end.answer is None or end.round is None or end.step is None:
        return None
    return rounds[end.round].steps[end.step].worker


def _changed_by(run: Run) -> str | None:
    said, end = run.reviewed, run.reached
    changed = said is not None and said.approved and end is not None and said.text not in ("", end.answer)
    return said.actor if said is not None and changed and run.finished is not None else None


def _effects(run: Run) -> Iterator[Effect]:
    for rollback in run.rollbacks:
        for key, event in rollback.settled.items():
            undone = isinstance(event, EffectUndone)
            why = rollback.begun.why if isinstance(event, EffectUndone) else event.message
            yield Effect(key, event.worker, event.by, undone, why, rollback.begun.actor)


def _totals(run: Run) -> Totals:
    reasons = [attempt.started.reason for attempt in run.attempts]
    return Totals(
        rounds=sum(turn.plan is not None and len(turn.plan) > 0 for turn in run.rounds),
        steps=sum(len(turn.plan) for turn in run.rounds if turn.plan),
        calls=len(reasons),
        retries=reasons.count(Reason.RETRY),
        redone=reasons.count(Reason.REDO),
        tokens=run.charged.tokens,
        dollars=run.charged.dollars,
        uncertain_tokens=run.uncertain.tokens,
        uncertain_dollars=run.uncertain.dollars,
        seconds=run.active_seconds,
    )


def _substitutions(rounds: Iterable[RoundStory]) -> Iterator[str]:
    for turn in rounds:
        if turn.substituted is not None:
            yield f"round {turn.round}: {turn.substituted} planned instead of {turn.conductor}"
        for step in turn.steps:
            for call in step.calls:
                if call.reason in {Reason.FALLBACK, Reason.ESCALATION}:
                    place = f"round {turn.round}, step {step.step}"
                    yield f"{place}: {call.worker} instead of {call.instead_of}: {call.why}"
