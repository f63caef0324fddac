"""Infer scores of other workers' answers to the same question from the grade of the run's answer.

A run's grade belongs to the one answer that it shipped. Another worker's answer to the same subtask with the same
canonical form deserves the same score. Where a question has exactly one right answer (a choice, a number) and the
shipped one is right, a clearly different answer is wrong. Invariants: nothing is inferred from answers to other
subtasks, from rejected answers, or without a grade; nor from numbers that differ slightly or in their unit, since a
grader may be lenient. Deliberately absent: inference from one run to another.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from shikisha.core.events import AttemptFinished, GradeBasis
from shikisha.core.run import Run
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.evals.graders.quantities import extract_quantity

StepPosition = tuple[int, int]  # a round and a step

_ONE_RIGHT = (AnswerForm.CHOICE, AnswerForm.NUMBER)
_FORMS = {form.value for form in AnswerForm}
_OPTION = re.compile(r"^\W{0,3}([A-Z])\W{0,2}[.):]\W{0,2}\s", re.MULTILINE)
# Characters; a longer answer is not a bare number.
_SHORT = 40
# Relative difference that no grader tolerates.
_APART = Fraction(1, 100)


@dataclass(frozen=True, slots=True)
class InferredScore:
    """An inferred score, its basis, the canonical answer, and whether it `agrees` with the shipped one."""

    score: float
    basis: GradeBasis
    said: str
    agrees: bool


def infer_scores(run: Run, form: AnswerForm | None = None) -> Mapping[StepPosition, InferredScore]:
    """Return the scores that follow from the run's grade; `form` None: `answer_form_of` finds it."""
    grade, place = run.grade, shipped_step(run)
    if grade is None or grade.score is None or place is None:
        return {}
    answers = dict(_same_question(run, place))
    if place not in answers:
        return {}
    known = form or answer_form_of(run)
    found = {}
    for other, text in answers.items():
        said, right = _comparable_text(text, known), _comparable_text(answers[place], known)
        if other == place or said is None or right is None:
            continue
        if said == right:
            if known is not AnswerForm.NUMBER or _may_share_unit(text, answers[place]):
                found[other] = InferredScore(grade.score, grade.basis, said, agrees=True)
        elif known in _ONE_RIGHT and grade.score >= 1 and _surely_differ(text, answers[place], known):
            found[other] = InferredScore(0.0, grade.basis, said, agrees=False)
    return found


def answer_form_of(run: Run) -> AnswerForm | None:
    """Return the form in which answers to a run's task are compared, None where it is unknown.

    The grade's grader decides; else CHOICE if every answer chooses one of the prompt's lettered options, or NUMBER if
    every answer is a bare number.
    """
    grade, place = run.grade, shipped_step(run)
    if grade is not None and grade.checker in _FORMS:
        return AnswerForm(grade.checker)
    texts = [text for _, text in _same_question(run, place)] if place else []
    if not texts:
        return None
    options = set(_OPTION.findall(run.started.prompt))
    if {"A", "B"} <= options and all(canonicalize(text, AnswerForm.CHOICE, len(options)) for text in texts):
        return AnswerForm.CHOICE
    if all(
        len(text) <= _SHORT
        and canonicalize(text, AnswerForm.NUMBER)
        and not (len(re.findall(r"[^\W\d_]{2,}", text)) > 2)
        for text in texts
    ):
        return AnswerForm.NUMBER
    return None


def shipped_step(run: Run) -> StepPosition | None:
    """Return the round and step whose answer the run shipped."""
    end = run.finished
    if end is None or end.answer is None or end.round is None or end.step is None:
        return None
    return end.round, end.step


def _same_question(run: Run, place: StepPosition) -> Iterator[tuple[StepPosition, str]]:
    """Yield the answers of all steps with the shipped step's subtask, including its own."""
    plan = run.round(place[0]).plan
    asked = plan.step_of(place[1]).subtask if plan else None
    for turn in run.rounds:
        for index, step in enumerate(turn.plan.steps if turn.plan else ()):
            attempt = turn.steps[index].accepted_attempt if index in turn.steps else None
            if step.subtask == asked and attempt and isinstance(attempt.outcome, AttemptFinished):
                yield (turn.index, index), attempt.outcome.text


def _comparable_text(text: str, form: AnswerForm | None) -> str | None:
    """Return the canonical form, or the exact text without a form."""
    return (text.strip() or None) if form is None else canonicalize(text, form)


def _may_share_unit(one: str, other: str) -> bool:
    """Whether two numbers may have the same unit, which `canonicalize` ignores."""
    units = [
        found.unit for found in (extract_quantity(one), extract_quantity(other)) if found is not None and found.unit
    ]
    return len(set(units)) < 2


def _surely_differ(one: str, other: str, form: AnswerForm | None) -> bool:
    """Whether two answers, whose canonical forms differ, cannot both be right."""
    if form is not AnswerForm.NUMBER:
        return True
    first, second = extract_quantity(one), extract_quantity(other)
    if first is None or second is None or first.value is None or second.value is None:
        return False
    most = max(abs(first.value), abs(second.value))
    return first.unit == second.unit and abs(first.value - second.value) > _APART * most
