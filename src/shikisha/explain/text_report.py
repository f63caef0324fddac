"""An explanation as plain text for people, a fact a line, indented by what it belongs to.

Invariant: what models, tools and people wrote is shortened to one line here; the whole of it is in the explanation's
JSON. Deliberately absent: colours and width (the command line's business).
"""

from collections.abc import Iterable, Iterator

from shikisha.core.budget import format_dollars
from shikisha.core.events import QuestionKind
from shikisha.explain.explanation import (
    CallExplanation,
    CheckExplanation,
    Explanation,
    GradeExplanation,
    GrantedStepExplanation,
    QuestionExplanation,
    RoundExplanation,
    RunTotals,
    StepExplanation,
)

_LONGEST = 160


def explain_text(explanation: Explanation) -> str:
    """Return the explanation as text."""
    return "\n".join(_run(explanation))


def _run(told: Explanation) -> Iterator[str]:
    yield f"run {told.run}: {told.status}" + (f" ({told.why})" if told.why else "")
    if told.conversation:
        yield f"  after {len(told.conversation):,} characters of conversation: …{_short(told.conversation[-_LONGEST:])}"
    yield f"  task: {_short(told.prompt)}"
    if told.attached:
        yield f"  attached: {_short(', '.join(told.attached))}"
    if told.context:
        yield f"  context: {_short(told.context)}"
    yield f"  conductor: {told.conductor}; pool: {', '.join(told.pool)}"
    if told.answer is not None:
        yield f"  answer{_by(told)}: {_short(told.answer)}"
    yield f"  cost: {_totals(told.totals)}"
    for grade in told.grades:
        yield f"  graded {grade.mark} by {_grader(grade)}" + _because(grade.evidence)
    if told.reward is not None:
        parts = "; ".join(f"{name} {value:+g}" for name, value in told.reward.items()) or "nothing"
        yield f"  reward: {sum(told.reward.values()):g} ({parts})"
    for substitution in told.substitutions:
        yield f"  substituted: {substitution}"
    for turn in told.rounds:
        yield from _indented(_round(turn))
    for effect in told.effects:
        what = f"{effect.by} undid" if effect.undone else f"{effect.by} could not undo"
        yield f"  rolled back by {effect.actor}: {what} {effect.worker}'s call {effect.call}" + _because(effect.why)
    for child in told.children:
        yield "  child " + "\n  ".join(_run(child))


def _by(told: Explanation) -> str:
    by = f", by {told.answered_by}" if told.answered_by else ""
    return f"{by}, changed by {told.changed_by}" if told.changed_by else by


def _round(turn: RoundExplanation) -> Iterator[str]:
    shape = "no plan" if turn.shape is None else f"plan: {turn.shape}"
    version = f" ({turn.version})" if turn.version else ""
    kept = "" if turn.keeps is None else f", keeps the answer of round {turn.keeps}"
    yield f"round {turn.round}, conducted by {turn.substituted or turn.conductor}{version}; {shape}{kept}"
    if turn.note:
        yield f"  why: {_short(turn.note)}"
    if turn.propensity is not None:
        yield f"  drawn: with probability {turn.propensity:g}"
    for name, said in turn.beside.items():
        yield f"  beside: {name} {_short(said)}"
    for rejected in turn.rejected:
        yield f"  rejected: {rejected.where}: {rejected.what}: {_short(rejected.text)}"
    yield from _indented(_calls(turn.calls))
    yield from _indented(map(_question, turn.questions))
    for step in turn.steps:
        yield from _indented(_step(step))


def _grader(grade: GradeExplanation) -> str:
    if grade.actor:
        return f"{grade.actor}, a person"
    return "a language model, asked to judge" if grade.judged else grade.checker


def _step(step: StepExplanation) -> Iterator[str]:
    yield f"step {step.step}, for {step.planned} ({step.ordinal}): {_short(step.subtask)}"
    yield f"  saw: the task{''.join(map(_seen, step.seen))}"
    if step.withheld:
        yield f"  withheld: {', '.join(f'step {index}' for index in step.withheld)}"
    yield from _indented(map(_question, step.questions))
    yield from _indented(_calls(step.calls, step.checks))
    if not step.ended:
        yield "  has not ended"
    elif step.fault is not None:
        yield f"  failed: {_short(step.fault)}"
    else:
        yield f"  result, by {step.worker}: {_short(step.answer or '')}"


def _calls(calls: Iterable[CallExplanation], checks: tuple[CheckExplanation, ...] = ()) -> Iterator[str]:
    for call in calls:
        model = f" ({call.model})" if call.model else ""
        child = f", as run {call.child}" if call.child else ""
        yield f"{call.worker}{model}: {_short(call.why)}; {_outcome(call)}{child}"
        for check in checks:
            if check.attempt == call.attempt:
                yield f"  check {check.check}: {check.status}" + _because(check.reason) + _leads_to(check)


def _outcome(call: CallExplanation) -> str:
    if not call.ended:
        return f"no outcome is known{_uncertain_usage(call)}"
    result = "answered" if call.fault is None else _short(call.fault)
    low = " (an estimate: the worker says less than can be true)" if call.understated else ""
    return (
        f"{result} in {call.seconds:.2f} s, {call.tokens} tokens, {_money(call.dollars)}{low}{_uncertain_usage(call)}"
    )


def _leads_to(check: CheckExplanation) -> str:
    return "" if check.leads_to is None else f"; leads to: {check.leads_to}"


def _question(asked: QuestionExplanation) -> str:
    if asked.asks is QuestionKind.TOOLS:
        came = "" if asked.approved else "; it has not answered" if asked.approved is None else "; it declined"
        return f"asked the client to call its tools: {_short(asked.prompt)}{came}"
    kind = f"asked a person to {asked.asks}"
    if asked.approved is None:
        return f"{kind}; nobody has answered"
    said = "yes" if asked.approved else "no"
    return f"{kind}; {asked.actor} said {said} (via {asked.via})" + _because(asked.text or "") + _because(asked.remark)


def _seen(earlier: GrantedStepExplanation) -> str:
    return f", step {earlier.step}" + (f" (failed: {earlier.fault})" if earlier.fault else "")


def _totals(totals: RunTotals) -> str:
    done = f"{totals.rounds} rounds, {totals.steps} steps, {totals.calls} calls"
    again = f"{totals.retries} retries, {totals.redone} redone"
    used = f"{totals.tokens} tokens, {_money(totals.dollars)}{_uncertain_usage(totals)}"
    return f"{done} ({again}), {used}, {totals.seconds:.2f} s"


def _uncertain_usage(figures: CallExplanation | RunTotals) -> str:
    """Say what may have been used besides, where that is anything."""
    if not (figures.uncertain_tokens or figures.uncertain_dollars):
        return ""
    return f", and uncertain: up to {figures.uncertain_tokens} tokens, {_money(figures.uncertain_dollars)}"


def _money(dollars: float | None) -> str:
    return "unknown cost" if dollars is None else format_dollars(dollars)


def _because(reason: str) -> str:
    return f": {_short(reason)}" if reason else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
