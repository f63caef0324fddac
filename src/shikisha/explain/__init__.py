"""Why a run went as it did: who planned what, why this worker, who saw what, what was tried, what it cost.

`explain(run)` makes an Explanation, `explain_text(explanation)` writes it down, and `assurance` says in one paragraph
why the answer should be trusted. Deliberately absent: colours, and the
taming of terminal escapes in what models wrote (the command line's business).
"""

from collections.abc import Iterable, Iterator, Sequence

from shikisha.core.budget import format_dollars
from shikisha.core.events import QuestionKind
from shikisha.core.plan import step_name
from shikisha.explain.assurance import MOST_EVIDENCE, TrackRecord, assurance, other_answers, track_record
from shikisha.explain.explanation import (
    CallExplanation,
    CheckExplanation,
    ContextExplanation,
    Explanation,
    GradeExplanation,
    GrantedStepExplanation,
    QuestionExplanation,
    RoundExplanation,
    RunTotals,
    StepExplanation,
    ToolDecision,
    ToolExplanation,
    explain,
)

# An explanation as plain text for people, one fact a line, indented under what it belongs to.
#
# Invariant: what models, tools and people wrote is shortened to one line here; the whole of it is in the explanation's
# JSON. Deliberately absent: colours and width (the command line's business).

_PIECES = 12  # of gathered context that are listed
_LONGEST = 160  # characters of a text: two lines of a terminal


def explain_text(explanation: Explanation, record: TrackRecord | None = None) -> str:
    """Return the explanation as text; `record` is what graded runs like it show."""
    return "\n".join([*_run(explanation), "  in short:", *(f"    {each}" for each in assurance(explanation, record))])


def _run(run: Explanation) -> Iterator[str]:
    yield f"run {run.run}: {run.status}" + (f" ({run.why})" if run.why else "")
    if run.conversation:
        yield f"  after {len(run.conversation):,} characters of conversation: …{_short(run.conversation[-_LONGEST:])}"
    yield f"  task: {_short(run.prompt)}"
    if run.attached:
        yield f"  attached: {_short(', '.join(run.attached))}"
    if run.context:
        yield f"  context: {_short(run.context)}"
    if run.gathered is not None:
        yield from _gathered(run.gathered)
    yield f"  conductor: {run.conductor}; pool: {', '.join(run.pool)}"
    if run.answer is not None:
        yield f"  answer{_by(run)}: {_short(run.answer)}"
    yield f"  cost: {_totals(run.totals)}"
    for grade in run.grades:
        yield f"  graded {grade.mark} by {_grader(grade)}" + _because(grade.evidence)
    if run.reward is not None:
        parts = "; ".join(f"{name} {value:+g}" for name, value in run.reward.items()) or "nothing"
        yield f"  reward: {sum(run.reward.values()):g} ({parts})"
    for substitution in run.substitutions:
        yield f"  substituted: {substitution}"
    for round_ in run.rounds:
        yield from _indented(_round(round_))
    for effect in run.effects:
        what = f"{effect.by} undid" if effect.undone else f"{effect.by} could not undo"
        yield f"  rolled back by {effect.actor}: {what} {effect.worker}'s call {effect.call}" + _because(effect.why)
    for child in run.children:
        yield "  child " + "\n  ".join(_run(child))


def _gathered(context: ContextExplanation) -> Iterator[str]:
    yield f"  gathered: {len(context.taken)} pieces, {context.tokens:,} tokens"
    for line in context.taken[:_PIECES]:
        yield f"    {_short(line)}"
    if len(context.taken) > _PIECES:
        yield f"    and {len(context.taken) - _PIECES} more"
    for line in context.left[:_PIECES]:
        yield f"    left out: {_short(line)}"
    if len(context.left) > _PIECES:
        yield f"    left out: {len(context.left) - _PIECES} more"


def _by(run: Explanation) -> str:
    by = f", by {run.answered_by}" if run.answered_by else ""
    return f"{by}, changed by {run.changed_by}" if run.changed_by else by


def _round(round_: RoundExplanation) -> Iterator[str]:
    shape = "no plan" if round_.shape is None else f"plan: {round_.shape}"
    version = f" ({round_.version})" if round_.version else ""
    kept = "" if round_.keeps is None else f", keeps the answer of round {round_.keeps}"
    yield f"round {round_.round}, conducted by {round_.substituted or round_.conductor}{version}; {shape}{kept}"
    if round_.note:
        yield f"  why: {_short(round_.note)}"
    if round_.propensity is not None:
        yield f"  drawn: with probability {round_.propensity:g}"
    for name, statement in round_.beside.items():
        yield f"  others: {name} {_short(statement)}"
    for rejected in round_.rejected:
        yield f"  rejected: {rejected.where}: {rejected.what}: {_short(rejected.text)}"
    yield from _indented(_calls(round_.calls))
    yield from _indented(map(_question, round_.questions))
    for step in round_.steps:
        yield from _indented(_step(step))


def _grader(grade: GradeExplanation) -> str:
    if grade.actor:
        return f"{grade.actor}, a person"
    return "a language model, asked to judge" if grade.judged else grade.checker


def _step(step: StepExplanation) -> Iterator[str]:
    each = "" if step.each is None else f", for each item of step {step.each}"
    yield f"step {step_name(step.step)}, for {step.planned} ({step.ordinal}){each}: {_short(step.subtask)}"
    yield f"  saw: the task{''.join(map(_seen, step.seen))}"
    if step.withheld:
        yield f"  withheld: {', '.join(f'step {index}' for index in step.withheld)}"
    yield from _indented(map(_question, step.questions))
    yield from _indented(_calls(step.calls, step.checks, step.tools))
    yield from _indented(_items(step))
    if not step.ended:
        yield "  has not ended"
    elif step.fault is not None:
        yield f"  failed: {_short(step.fault)}"
    else:
        yield f"  result, by {step.worker}: {_short(step.answer or '')}"


def _items(step: StepExplanation) -> Iterator[str]:
    """Yield for each item of a map step what it was, its calls, and the outcome."""
    for place, item in enumerate(step.items):
        shown = next((each.answer for each in item.seen if each.step == step.each), None)
        yield f"item {place}: {_short(shown or '')}"
        yield from _indented(map(_question, item.questions))
        yield from _indented(_calls(item.calls, item.checks, item.tools))
        if not item.ended:
            yield "  has not ended"
        else:
            yield (
                f"  failed: {_short(item.fault)}"
                if item.fault
                else f"  result, by {item.worker}: {_short(item.answer or '')}"
            )


def _calls(
    calls: Sequence[CallExplanation],
    checks: tuple[CheckExplanation, ...] = (),
    tools: tuple[ToolExplanation, ...] = (),
) -> Iterator[str]:
    yield from (_tool_decision(each) for each in tools if not each.after)
    for count, call in enumerate(calls, start=1):
        model = f" ({call.model})" if call.model else ""
        child = f", as run {call.child}" if call.child else ""
        named = call.tool if call.tool != call.worker else ""
        tool = " ".join(["", *filter(None, (named, _short(call.arguments))), f"[{call.call}]"]) if call.call else ""
        yield f"{call.worker}{model}{tool}: {_short(call.why)}; {_outcome(call)}{child}"
        for check in checks:
            if check.attempt == call.attempt:
                yield (
                    f"  check {check.check}: {check.status}"
                    + _because(check.reason)
                    + ("" if check.leads_to is None else f"; leads to: {check.leads_to}")
                )
        yield from (_tool_decision(each) for each in tools if each.after == count)


def _tool_decision(told: ToolExplanation) -> str:
    if told.what is ToolDecision.OFFERED:
        return f"offered: {_short(', '.join(told.tools) or 'no tool')}" + _because(told.why)
    called = f" {told.tool} {_short(told.arguments)}".rstrip() if told.tool else ""
    place = f" [{told.call}]" if told.call else ""
    return f"{told.what}:{called}{place}{_because(told.why)}" if called or place else f"{told.what}{_because(told.why)}"


def _outcome(call: CallExplanation) -> str:
    if not call.ended:
        return f"no outcome is known{_uncertain_usage(call)}"
    result = "answered" if call.fault is None else _short(call.fault)
    low = " (an estimate: the worker says less than can be true)" if call.understated else ""
    result += f" [{call.cause}]" if call.cause else ""
    low += "".join(f" ({note})" for note in call.notes)
    return (
        f"{result} in {call.seconds:.2f} s, {call.tokens} tokens, {_money(call.dollars)}{low}{_uncertain_usage(call)}"
    )


def _question(asked: QuestionExplanation) -> str:
    if asked.asks is QuestionKind.TOOLS:
        came = "" if asked.approved else "; it has not answered" if asked.approved is None else "; it declined"
        return f"asked the client to call its tools: {_short(asked.prompt)}{came}"
    kind = f"asked a person to {asked.asks}"
    if asked.approved is None:
        return f"{kind}; no answer yet"
    statement = "yes" if asked.approved else "no"
    return (
        f"{kind}; {asked.actor} said {statement} (via {asked.via})"
        + _because(asked.text or "")
        + _because(asked.remark)
    )


def _seen(granted_step: GrantedStepExplanation) -> str:
    return f", step {granted_step.step}" + (f" (failed: {granted_step.fault})" if granted_step.fault else "")


def _totals(totals: RunTotals) -> str:
    done = f"{totals.rounds} rounds, {totals.steps} steps, {totals.calls} calls"
    again = f"{totals.retries} retries, {totals.redone} redone"
    used = f"{totals.tokens} tokens, {_money(totals.dollars)}{_uncertain_usage(totals)}"
    return f"{done} ({again}), {used}, {totals.seconds:.2f} s"


def _uncertain_usage(figures: CallExplanation | RunTotals) -> str:
    """Return what may have been used as well, where that is anything."""
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


__all__ = [
    "MOST_EVIDENCE",
    "Explanation",
    "TrackRecord",
    "assurance",
    "explain",
    "explain_text",
    "other_answers",
    "track_record",
]
