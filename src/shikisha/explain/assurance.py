"""Why an answer should be trusted: one paragraph that a compliance officer reads, and the track record behind it.

Invariants: every sentence is read from the run's own events or counted over graded runs of the same kind of task whose
data this run's reader may be shown; what no evidence shows is named as not known. A language model's grades are not
counted: nobody has said how often that model is wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from shikisha.core.budget import wilson
from shikisha.core.events import AttemptFinished, AttemptReason, CallRole, CheckStatus, GradeBasis
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.run import Run, StepRecord
from shikisha.explain.explanation import Explanation, GradeExplanation, StepExplanation

_EXECUTING = frozenset({"code", "repository", "swebench"})  # graders that run the answer
_COMPARING = frozenset({"choice", "json_schema", "math", "number", "recorded", "regex", "text"})
_RIGHT = 0.5  # a grade from here on counts as right
MOST_EVIDENCE = 200  # graded runs that a record is counted over, the newest


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """What graded runs of one kind of task show. `right`: of each worker's answers, how many were right, and of how
    many. `wrong`: of each check's verdicts on answers that were graded, how many were wrong, and of how many.
    """

    kind: str = ""
    right: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    wrong: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def track_record(run: Run, graded: Iterable[Run]) -> TrackRecord:
    """Count what other graded runs of this run's kind of task show; others are left out."""
    right: dict[str, tuple[int, int]] = {}
    wrong: dict[str, tuple[int, int]] = {}
    scope = run.scope
    for other in graded:
        grade, step = other.grade, _answering_step(other)
        alike = other.id != run.id and other.started.domain == run.started.domain and other.scope.admits(scope)
        if other.erased is not None:  # its labels went too, so nobody can say who may be shown it
            continue
        if step is None or step.result is None or not alike or grade is None or grade.basis is GradeBasis.JUDGE:
            continue
        good = (grade.score or 0.0) >= _RIGHT
        _count(right, step.result.worker, good)
        finished = [each for each in step.attempts if isinstance(each.outcome, AttemptFinished)]
        last = max((each.started.attempt for each in finished if each.started.role is CallRole.STEP), default=None)
        for check in step.checks:
            if check.attempt == last:
                _count(wrong, check.check, (check.status is CheckStatus.PASS) is not good)
    return TrackRecord(run.started.domain, right, wrong)


def _answering_step(run: Run) -> StepRecord | None:
    end = run.finished
    if end is None or end.answer is None or end.round is None or end.step is None:
        return None
    return run.round(end.round).steps.get(end.step)


def _count(counts: dict[str, tuple[int, int]], name: str, hit: bool) -> None:
    hits, total = counts.get(name, (0, 0))
    counts[name] = (hits + hit, total + 1)


def assurance(run: Explanation, record: TrackRecord | None = None) -> tuple[str, ...]:
    """Return the paragraph's sentences; without a `record`, nothing is stated of how often anybody is right."""
    steps = [step for round_ in run.rounds for planned in round_.steps for step in (planned, *planned.items)]
    same = [step for step in steps if step.answer is not None and step.answer == run.answer]
    parts: tuple[Callable[..., Iterator[str]], ...] = (_who, _checked)
    sentences = [sentence for part in parts for sentence in part(run, record, steps, same)]
    return (*sentences, _disagreed(run), *_withheld(run, steps), *_judged(run))


def _who(
    run: Explanation, record: TrackRecord | None, _: Sequence[StepExplanation], same: Sequence[StepExplanation]
) -> Iterator[str]:
    who = run.answered_by
    if who is None:
        yield "Nobody answered." if run.answer is None else "The answer is of no one step."
        return
    children = [call.child for step in same for call in step.calls if call.child and step.worker == who]
    yield f"{who} answered" + (f", in the child run {children[-1]}." if children else ".")
    if run.changed_by:
        yield f"{run.changed_by} changed the answer in review."
    if record is None:
        return
    right, of = record.right.get(who, (0, 0))
    kind = f"of the kind {record.kind!r}" if record.kind else "to which no kind was given"
    if of:
        yield f"Of its answers to other graded tasks {kind}, {_share(right, of)} were right."
    else:
        yield "How often it is right on work like this is not known."


def _checked(
    _: Explanation, record: TrackRecord | None, steps: Sequence[StepExplanation], same: Sequence[StepExplanation]
) -> Iterator[str]:
    verdicts = {check.check: check for step in steps for check in step.checks}
    for name, check in verdicts.items():
        wrong, of = (0, 0) if record is None else record.wrong.get(name, (0, 0))
        often = f"; {_share(wrong, of)} of its verdicts on such tasks were wrong" if of else _UNKNOWN
        yield f"The check {name} {_VERDICTS[check.status]}{'' if record is None else often}."
    own = {step.step for step in same}
    readers = [f"{step.planned} (step {step.step})" for step in steps if own & {seen.step for seen in step.seen}]
    if readers:
        yield f"The answer was shown to {_list(readers)}."
    people = [
        f"{asked.actor} {'approved' if asked.approved else 'refused'} a call to {asked.worker}"
        for step in steps
        for asked in step.questions
        if asked.actor
    ]
    if people:
        yield f"{'; '.join(dict.fromkeys(people))}."
    if not verdicts and not readers:
        yield "No check looked at it."


_UNKNOWN = "; how often it is wrong is not known"
_VERDICTS = {
    CheckStatus.PASS: "passed the last answer that it saw",
    CheckStatus.FAIL: "did not pass the last answer that it saw",
    CheckStatus.NO_ANSWER: "gave no verdict",
}


def _disagreed(run: Explanation) -> str:
    if others := [f"{worker} ({place})" for worker, place, _ in other_answers(run)]:
        return f"Another answer to the same subtask was given by {_list(others)}."
    return "Nobody gave another answer to the same subtask."


def other_answers(run: Explanation) -> list[tuple[str, str, str]]:
    """Return who gave another answer to the same subtask, where, and which; case and white space do not count."""
    steps = [step for round_ in run.rounds for planned in round_.steps for step in (planned, *planned.items)]
    own = _plain(run.answer or "")
    same = [step for step in steps if step.answer is not None and _plain(step.answer) == own]
    asked = {step.subtask for step in same}
    rivals = [step for step in steps if step.subtask in asked and step.answer is not None and step not in same]
    compared = [
        (call.worker, f"asked as well, step {step.step}", call.answer)
        for step in same
        for call in step.calls
        if call.reason is AttemptReason.COMPARED and call.answer and _plain(call.answer) != own
    ]
    return [(step.worker or step.planned, f"step {step.step}", step.answer or "") for step in rivals] + compared


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def _withheld(run: Explanation, steps: Sequence[StepExplanation]) -> Iterator[str]:
    hidden = [
        f"{step.planned} (step {step.step}) did not see {_steps(step.withheld)}" for step in steps if step.withheld
    ]
    yield f"Withheld: {'; '.join(hidden)}." if hidden else "Nothing was withheld from a step."
    tools = [note for step in steps for tool in step.tools for note in tool.why.split("; ") if " is withheld: " in note]
    if tools:
        yield f"Tools: {'; '.join(dict.fromkeys(tools))}."
    if run.gathered is not None and run.gathered.left:
        yield f"{len(run.gathered.left)} pieces of the gathered context were shown to nobody."


def _judged(run: Explanation) -> Iterator[str]:
    judged = [f"{grade.mark} by {grade.actor or grade.checker} ({_judge(grade)})" for grade in run.grades]
    yield f"The answer was judged {'; '.join(judged)}." if judged else "Nobody judged the answer."
    if len({(grade.score or 0.0) >= _RIGHT for grade in run.grades if grade.score is not None}) > 1:
        yield "They disagree."


def _judge(grade: GradeExplanation) -> str:
    if grade.actor:
        return "a person"
    if grade.judged:
        return "a model"
    rule = "a comparison with a known answer" if grade.checker in _COMPARING else "an outcome that it reported"
    return "execution" if grade.checker in _EXECUTING else rule


def _share(part: int, whole: int) -> str:
    low, high = wilson(part, whole)
    return f"{part:,} of {whole:,} ({part / whole:.0%}, 95% interval {low:.0%} to {high:.0%})"


def _steps(places: Sequence[int]) -> str:
    return f"step{'s' * (len(places) > 1)} {_list(list(map(str, places)))}"


def _list(names: Sequence[str]) -> str:
    """Return names in one phrase, each once."""
    return ", ".join(dict.fromkeys(names))
