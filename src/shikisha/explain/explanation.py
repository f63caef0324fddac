"""Why a run went as it did, as frozen data made from a folded run: rounds, steps, calls, checks and questions.

Steps, rounds and attempts count from 0; a fault is its kind and message in one text. Invariant: everything is read off
the events; nothing is looked up elsewhere or guessed, so an old run is always explained the same way, and where a
journal ends in the middle, so does the explanation. Deliberately absent: judgement, and how it is written down for
people (`explain`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from shikisha.core.errors import FaultCause
from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptReason,
    CallRole,
    CheckStatus,
    EffectUndone,
    GradeMark,
    GuardDecided,
    OnCheckFailure,
    QuestionKind,
    RunStatus,
    ToolRefused,
    ToolResultsCut,
    ToolsOffered,
    TurnRouted,
)
from shikisha.core.fast_dataclass import dataclass, field, fields, is_dataclass, replace
from shikisha.core.plan import Plan, step_name
from shikisha.core.plan_parser import parse_items
from shikisha.core.prompts import attachment_name, conversation_text
from shikisha.core.run import Attempt, RoundRecord, Run, StepRecord, ToolEvent
from shikisha.core.tools import load_offer


@dataclass(frozen=True, slots=True)
class CallExplanation:
    """One call to a worker, and `why` it was made, in words.

    `ended` False: its outcome is not in the journal. `fault` is why it has no answer. `dollars` None: the cost is
    unknown; `uncertain_…` is what it may have used as well. `understated`: the worker reported less use than can be
    true, and `tokens` are an estimate. `view` is the hash of what the worker saw; `child` the run that the call was.
    Of an agent's tool, `call` is the place in the step ("2.0"), `tool` its name, `arguments` those of the call. `cause`
    is what the endpoint says of a fault, `notes` what was odd about an answer.
    """

    attempt: int
    worker: str
    role: CallRole
    reason: AttemptReason
    why: str
    instead_of: str | None
    granted: tuple[int, ...]
    ended: bool
    answer: str | None
    fault: str | None
    seconds: float
    tokens: int
    dollars: float | None
    uncertain_tokens: int
    uncertain_dollars: float | None
    understated: bool
    model: str
    view: str
    child: str | None
    call: str = ""
    tool: str = ""
    arguments: str = ""
    cause: str = ""
    notes: tuple[str, ...] = ()


class ToolDecision(StrEnum):
    """What was decided of an agent's tools."""

    OFFERED = "offered"  # these tools, from now on
    REFUSED = "refused"  # a call that the agent wanted is not made
    GUARD_PASSED = "guard passed"  # a guard let a call pass, or was content with what it did
    GUARD_REFUSED = "guard refused"  # it did not
    CUT = "cut"  # results of calls that no longer fit the agent's window
    ROUTED = "routed"  # who makes the next turn of a conversation whose tools the client calls


@dataclass(frozen=True, slots=True)
class ToolExplanation:
    """Something that was decided of an agent's tools, in words; `after` is how many calls had begun by then.

    `call` is the place of the call in the step, where it is about one; `tools` are the names of those that are offered.
    """

    what: ToolDecision
    after: int
    call: str
    tool: str
    why: str
    arguments: str = ""
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GrantedStepExplanation:
    """An earlier step that the worker saw: its subtask, and its answer or why it has none."""

    step: int
    subtask: str
    answer: str | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class CheckExplanation:
    """A check's verdict on an attempt's answer, and what it led to (None: the step went on)."""

    attempt: int
    check: str
    status: CheckStatus
    reason: str
    leads_to: OnCheckFailure | None


@dataclass(frozen=True, slots=True)
class QuestionExplanation:
    """A question to a person; `approved` None: it is not answered. `actor` answered, `via` this way.

    `expires` is the Unix time after which a yes is none; 0: never.
    """

    asks: QuestionKind
    worker: str
    prompt: str
    approved: bool | None
    actor: str | None
    via: str | None
    text: str | None
    remark: str = ""
    expires: float = 0.0


@dataclass(frozen=True, slots=True)
class StepExplanation:
    """A step: the worker that the plan names, what it saw (`seen`) and what not, the calls made, and the result.

    `withheld` are the plan's earlier steps that the access list does not grant. `worker` gave the result. A map step
    goes through the list of step `each`: `items` explains every item, which saw that item in place of the list.
    """

    step: int
    subtask: str
    ordinal: int
    planned: str
    seen: tuple[GrantedStepExplanation, ...]
    withheld: tuple[int, ...]
    calls: tuple[CallExplanation, ...]
    checks: tuple[CheckExplanation, ...]
    questions: tuple[QuestionExplanation, ...]
    ended: bool
    worker: str | None
    answer: str | None
    fault: str | None
    tools: tuple[ToolExplanation, ...] = ()
    each: int | None = None
    items: tuple["StepExplanation", ...] = ()


@dataclass(frozen=True, slots=True)
class RejectedPlan:
    """A text that was no plan: what is wrong with it and where."""

    what: str
    where: str
    text: str


@dataclass(frozen=True, slots=True)
class RoundExplanation:
    """A round: who conducted (`substituted`: which fallback did), the plan as written, its note, shape and steps.

    `shape` None: no plan is in the journal. `calls` and `questions` are those of the planning. `keeps` is the round
    whose answer an empty plan ships (None: the latest), `propensity` the probability with which the plan was drawn
    (None: it was not drawn), `beside` what others would have proposed.
    """

    round: int
    conductor: str
    substituted: str | None
    version: str
    note: str
    text: str
    shape: str | None
    final: bool
    rejected: tuple[RejectedPlan, ...]
    calls: tuple[CallExplanation, ...]
    questions: tuple[QuestionExplanation, ...]
    steps: tuple[StepExplanation, ...]
    keeps: int | None = None
    propensity: float | None = None
    beside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GradeExplanation:
    """What a grader found: the mark, the score if there is one, what it extracted; `judged`: by a language model.

    `actor` is the person who graded, where one did.
    """

    checker: str
    mark: GradeMark
    score: float | None
    found: str | None
    evidence: str
    judged: bool
    actor: str = ""


@dataclass(frozen=True, slots=True)
class EffectExplanation:
    """The outcome for a call's effect in a rollback that `actor` ordered: undone, or kept and why."""

    call: str
    worker: str
    by: str
    undone: bool
    why: str
    actor: str


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Sums over a run. `seconds` are those in which it was performed; a child run counts with the call that it was.

    `uncertain_…` is what calls of unknown outcome may have used; no other figure contains it.
    """

    rounds: int
    steps: int
    calls: int
    retries: int
    redone: int
    tokens: int
    dollars: float | None
    uncertain_tokens: int
    uncertain_dollars: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ContextExplanation:
    """What was gathered before the first plan: pieces that were taken, and what was left out with the reason.

    Both are lines such as `code: src/a.py, lines 3-40 (310 tokens)`. `dropped` are sources that a trial left out.
    """

    taken: tuple[str, ...]
    left: tuple[str, ...]
    tokens: int
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A run, explained. `substitutions` has a line for each stand-in.

    `conversation` has the messages before the prompt, a line each; `attached` names the prompt's attachments. `reward`
    None: it was given none. `changed_by` is the person who changed the answer in review.
    """

    run: str
    parent: str | None
    status: RunStatus
    why: str
    conductor: str
    pool: tuple[str, ...]
    prompt: str
    context: str
    answer: str | None
    answered_by: str | None
    totals: RunTotals
    substitutions: tuple[str, ...]
    rounds: tuple[RoundExplanation, ...]
    children: tuple["Explanation", ...] = ()
    grades: tuple[GradeExplanation, ...] = ()
    reward: Mapping[str, float] | None = None
    changed_by: str | None = None
    effects: tuple[EffectExplanation, ...] = ()
    conversation: str = ""
    attached: tuple[str, ...] = ()
    gathered: "ContextExplanation | None" = None

    def to_json(self) -> dict[str, object]:
        """Return it as JSON objects, lists, texts and numbers."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, str) else value


def explain(run: Run, children: Iterable[Run] = ()) -> Explanation:
    """Explain a run; `children` are its child runs and theirs, in any order."""
    known = {child.id: child for child in children}
    rounds = tuple(_round(run, round_, known) for round_ in run.rounds)
    return Explanation(
        run=run.id,
        parent=run.started.parent,
        status=run.status,
        why=run.why,
        conductor=run.started.conductor,
        pool=run.started.pool,
        prompt=run.started.prompt,
        context=run.started.context,
        conversation=conversation_text(run.task),
        attached=tuple(attachment_name(each) for each in run.task.attachments),
        answer=run.answer,
        answered_by=_answered_by(run, rounds),
        totals=_totals(run),
        substitutions=(*_substitutions(rounds), *_changes(run)),
        gathered=_gathered(run),
        rounds=rounds,
        children=tuple(explain(child, known.values()) for child in known.values() if child.started.parent == run.id),
        grades=tuple(
            GradeExplanation(
                grade.checker, grade.mark, grade.score, grade.found, grade.evidence, grade.judged, grade.actor
            )
            for grade in run.grades
        ),
        reward=run.rewards[-1].parts if run.rewards else None,
        changed_by=_changed_by(run),
        effects=tuple(_effects(run)),
    )


def _round(run: Run, round_: RoundRecord, known: Mapping[str, Run]) -> RoundExplanation:
    proposed, plan = round_.proposed, round_.plan
    steps = range(len(plan)) if plan else ()
    return RoundExplanation(
        round=round_.index,
        conductor=proposed.conductor if proposed else run.started.conductor,
        substituted=proposed.substituted if proposed else None,
        version=proposed.version if proposed else "",
        note=proposed.note if proposed else "",
        text=(proposed.text or proposed.plan) if proposed else "",
        shape=None if plan is None else plan.topology(),
        final=proposed.final if proposed else False,
        rejected=tuple(RejectedPlan(text.what, text.where, text.text) for text in round_.rejected),
        calls=tuple(_call(round_.planning, place, known) for place in range(len(round_.planning.attempts))),
        questions=_questions(run, round_.planning),
        steps=tuple(_planned_step(run, round_, plan, index, known) for index in steps if plan),
        keeps=proposed.keeps if proposed else None,
        propensity=proposed.propensity if proposed else None,
        beside=dict(proposed.beside) if proposed else {},
    )


def _planned_step(run: Run, round_: RoundRecord, plan: Plan, index: int, known: Mapping[str, Run]) -> StepExplanation:
    """Explain a step of the plan, and of a map step each item."""
    step, record = _step(run, round_, plan, index, known), round_.steps.get(index)
    if record is None or record.items is None:
        return step
    shown = _shown_items(step, len(record.items))
    items = []
    for item, text in zip(record.items, shown, strict=True):
        told = _step(run, round_, plan, item.index, known)
        seen = tuple(replace(each, answer=text) if each.step == step.each else each for each in told.seen)
        items.append(replace(told, seen=seen, withheld=step.withheld))
    return replace(step, items=tuple(items))


def _shown_items(step: StepExplanation, count: int) -> tuple[str | None, ...]:
    """Return the items of the list that a map step goes through; none of them where its text is erased."""
    listed = next((each.answer for each in step.seen if each.step == step.each), None)
    try:
        items = parse_items(listed or "")
    except ValueError:
        return (None,) * count
    return items if len(items) == count else (None,) * count


def _step(run: Run, round_: RoundRecord, plan: Plan, index: int, known: Mapping[str, Run]) -> StepExplanation:
    planned, record = plan.step_of(index), round_.steps.get(index) or StepRecord(index)
    result = record.result
    return StepExplanation(
        step=index,
        subtask=planned.subtask,
        ordinal=planned.worker,
        planned=run.started.pool[planned.worker],
        seen=tuple(_seen_step(round_, plan, earlier) for earlier in planned.access),
        withheld=tuple(earlier for earlier in range(min(index, len(plan))) if earlier not in planned.access),
        calls=tuple(_call(record, place, known) for place in range(len(record.attempts))),
        checks=tuple(
            CheckExplanation(each.attempt, each.check, each.status, each.reason, each.leads_to)
            for each in record.checks
        ),
        questions=_questions(run, record),
        ended=result is not None,
        worker=result.worker if result else None,
        answer=result.text if result else None,
        fault=str(result.fault) if result and result.fault else None,
        tools=tuple(_tool_decision(each, record) for each in record.tools),
        each=planned.each,
    )


def _tool_decision(event: ToolEvent, record: StepRecord) -> ToolExplanation:
    """Explain what was decided of an agent's tools."""
    after = sum(attempt.started.at <= event.at for attempt in record.attempts)
    match event:
        case ToolsOffered():
            offered = tuple(each.name for each in load_offer(event.tools))
            notes = [f"found by {event.query!r}"] if event.query else []
            notes += [f"{name} is withheld: {reason}" for name, reason in event.withheld.items()]
            return ToolExplanation(ToolDecision.OFFERED, after, event.call, "", "; ".join(notes), tools=offered)
        case ToolRefused():
            why = f"{event.fault}: {event.message}" if event.message else str(event.fault)
            return ToolExplanation(ToolDecision.REFUSED, after, event.call, event.tool, why, event.arguments)
        case GuardDecided():
            what = ToolDecision.GUARD_PASSED if event.passed else ToolDecision.GUARD_REFUSED
            why = f"{event.guard}, {event.moment} the call" + (f": {event.reason}" if event.reason else "")
            return ToolExplanation(what, after, event.call, event.tool, why)
        case ToolResultsCut():
            why = f"{event.before:,} tokens are more than the {event.window:,} that there is room for"
            named = f"the results of {', '.join(event.calls)} are cut to {event.after:,}: {why}"
            return ToolExplanation(ToolDecision.CUT, after, "", "", named)
        case TurnRouted():
            does = "its reply goes on" if event.kept else "makes this turn"
            compared = f", compared with {event.second}" if event.second and not event.kept else ""
            stands_in = f", instead of {event.instead_of}" if event.instead_of else ""
            why = f"{event.worker} {does}{stands_in}{compared}: {event.note}"
            return ToolExplanation(ToolDecision.ROUTED, after, "", "", why)


def _seen_step(round_: RoundRecord, plan: Plan, index: int) -> GrantedStepExplanation:
    result = round_.results[index]
    fault = str(result.fault.kind) if result and result.fault else None
    return GrantedStepExplanation(index, plan.steps[index].subtask, result.text if result else None, fault)


def _call(record: StepRecord, place: int, known: Mapping[str, Run]) -> CallExplanation:
    attempt = record.attempts[place]
    begun, end, charged, uncertain = attempt.started, attempt.outcome, attempt.charged, attempt.uncertain
    return CallExplanation(
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
        call=begun.call,
        tool=begun.tool,
        arguments=begun.arguments,
        cause=str(end.cause) if isinstance(end, AttemptFailed) and end.cause is not FaultCause.UNKNOWN else "",
        notes=end.notes if isinstance(end, AttemptFinished) else (),
    )


def _why(record: StepRecord, place: int) -> str:
    begun = record.attempts[place].started
    before = _cause(record, place)
    match begun.reason:
        case AttemptReason.FIRST if begun.role in _WHY_FIRST:
            return _WHY_FIRST[begun.role]
        case AttemptReason.FIRST:
            return "a check asks it"
        case AttemptReason.RETRY:
            return f"again, after {before}"
        case AttemptReason.REDO:
            return f"again, and told that {before}"
        case AttemptReason.FALLBACK:
            return f"the fallback of {begun.instead_of}, after {before}"
        case AttemptReason.ESCALATION:
            return f"the more expensive one for {begun.instead_of}, after {before}"
        case AttemptReason.RESUME if any(asked.asks is QuestionKind.ANSWER for asked in record.questions):
            return "a person answers"
        case AttemptReason.AGREED:
            return "no worker was called: the results that it would join say the same"
        case AttemptReason.COMPARED:
            return "asked as well, to compare two replies"
        case AttemptReason.TOOLS:
            agent = any(attempt.started.call for attempt in record.attempts) or record.is_agent
            return "it continues with the results of its tools" if agent else _AFTER_CLIENT_TOOLS
        case AttemptReason.RESUME:
            return f"again under the same key, after {before}"


_AFTER_CLIENT_TOOLS = "it continues with the results of the client's tools"
_WHY_FIRST = {
    CallRole.STEP: "the plan names it",
    CallRole.PLAN: "the conductor asks it",
    CallRole.TOOL: "the agent calls it",
    CallRole.PROBE: "a guard looks",
}


def _cause(record: StepRecord, place: int) -> str:
    """Return how the last attempt of the same role ended: its fault, or the check that its answer did not pass."""
    here = record.attempts[place].started
    earlier = [
        attempt
        for attempt in record.attempts[:place]
        if (attempt.started.role, attempt.started.call) == (here.role, here.call)
    ]
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


def _questions(run: Run, record: StepRecord) -> tuple[QuestionExplanation, ...]:
    explained = []
    for question in record.questions:
        answer = run.answers.get(question.question)
        explained.append(
            QuestionExplanation(
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
        )
    return tuple(explained)


def _answered_by(run: Run, rounds: Sequence[RoundExplanation]) -> str | None:
    end = run.finished
    if end is None or end.answer is None or end.round is None or end.step is None:
        return None
    return rounds[end.round].steps[end.step].worker


def _changed_by(run: Run) -> str | None:
    review, end = run.reviewed, run.reached
    if review is None or end is None or run.finished is None:
        return None
    return review.actor if review.approved and review.text not in ("", end.answer) else None


def _effects(run: Run) -> Iterator[EffectExplanation]:
    for rollback in run.rollbacks:
        for key, event in rollback.settled.items():
            undone = isinstance(event, EffectUndone)
            why = rollback.begun.why if isinstance(event, EffectUndone) else event.message
            yield EffectExplanation(key, event.worker, event.by, undone, why, rollback.begun.actor)


def _totals(run: Run) -> RunTotals:
    reasons = [attempt.started.reason for attempt in run.attempts]
    return RunTotals(
        rounds=sum(round_.plan is not None and len(round_.plan) > 0 for round_ in run.rounds),
        steps=sum(len(round_.plan) for round_ in run.rounds if round_.plan),
        calls=len(reasons),
        retries=reasons.count(AttemptReason.RETRY),
        redone=reasons.count(AttemptReason.REDO),
        tokens=run.charged.tokens,
        dollars=run.charged.dollars,
        uncertain_tokens=run.uncertain.tokens,
        uncertain_dollars=run.uncertain.dollars,
        seconds=run.active_seconds,
    )


def _changes(run: Run) -> Iterator[str]:
    for change in run.changes:
        yield f"answer: changed by {change.by} ({len(change.before):,} to {len(change.after):,} characters)"


def _gathered(run: Run) -> ContextExplanation | None:
    event = run.context
    if event is None:
        return None
    try:
        taken, left = json.loads(event.taken), json.loads(event.left)
    except ValueError:  # erased
        taken, left = [], []
    lines = [
        f"{one['source']}: {one['name']}{', lines {}-{}'.format(one['first'], one['last']) if one['first'] else ''}"
        f" ({one['tokens']:,} tokens)"
        for one in taken
    ]
    others = [f"{one['source']}{': ' if one['name'] else ''}{one['name']}: {one['why']}" for one in left]
    return ContextExplanation(tuple(lines), tuple(others), event.tokens, event.dropped)


def _substitutions(rounds: Iterable[RoundExplanation]) -> Iterator[str]:
    for round_ in rounds:
        if round_.substituted is not None:
            yield f"round {round_.round}: {round_.substituted} planned instead of {round_.conductor}"
        for step in [each for planned in round_.steps for each in (planned, *planned.items)]:
            for call in step.calls:
                if call.reason in {AttemptReason.FALLBACK, AttemptReason.ESCALATION}:
                    place = f"round {round_.round}, step {step_name(step.step)}"
                    yield f"{place}: {call.worker} instead of {call.instead_of}: {call.why}"
