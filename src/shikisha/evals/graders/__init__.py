"""Grading: whether an answer is right, as a Grade with its evidence, behind one method.

A Checker belongs to one task and knows its right answer, its tests, or whom to ask. Invariants: an answer from which
nothing can be extracted is NO_ANSWER and not WRONG; what could not be graded is UNGRADED and neither; a grade that a
language model gave says so (`judged`), so that it is never counted among executed checks without being named; a
checker raises nothing but ConfigError (before the first grade) and CancelledError. Deliberately absent: partial trust,
averages (see `evaluate`), and handoff checks between steps, which know no right answer (`checker`). The shipped fake is
`Given`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from shikisha.core.call import Reply
from shikisha.core.events import GradeMark
from shikisha.core.messages import ChatMessage
from shikisha.sandbox import Sandbox

__all__ = [
    "Checker",
    "Grade",
    "GradeMark",
    "GraderTools",
    "JudgeAsk",
    "ScriptedChecker",
    "grade_from_score",
    "no_answer_grade",
    "ungraded_grade",
]


@dataclass(frozen=True, slots=True)
class Grade:
    """A checker's finding.

    `score` is in [0, 1], None exactly for UNGRADED. `found` is what was extracted from the answer, in canonical form;
    `evidence` says in words what was compared with what, or which test failed how. `judged`: by a language model, whose
    use of `tokens` and `dollars` (None: unknown) is told too.
    """

    checker: str
    mark: GradeMark
    score: float | None
    found: str | None = None
    evidence: str = ""
    judged: bool = False
    tokens: int = 0
    dollars: float | None = 0.0


def grade_from_score(checker: str, score: float, found: str | None, evidence: str, *, judged: bool = False) -> Grade:
    """Return the grade for a score in [0, 1]."""
    mark = GradeMark.RIGHT if score >= 1 else GradeMark.WRONG if score <= 0 else GradeMark.PARTIAL
    return Grade(checker, mark, score, found, evidence, judged)


def no_answer_grade(checker: str, evidence: str) -> Grade:
    """Return the grade of an answer from which nothing could be extracted."""
    return Grade(checker, GradeMark.NO_ANSWER, 0.0, None, evidence)


def ungraded_grade(checker: str, evidence: str, *, judged: bool = False) -> Grade:
    """Return the grade that says that the checker itself failed."""
    return Grade(checker, GradeMark.UNGRADED, None, None, evidence, judged)


class Checker(Protocol):
    """Grades answers to one task."""

    @property
    def name(self) -> str:
        """The kind of check, as grades carry it."""
        ...

    async def grade(self, answer: str) -> Grade:
        """Grade a whole answer as it was given, with whatever stands around what counts."""
        ...


class ScriptedChecker:
    """The shipped fake: scores by answer, given beforehand; any other answer is NO_ANSWER."""

    name = "given"

    def __init__(self, scores: Mapping[str, float]) -> None:
        self._scores = dict(scores)

    async def grade(self, answer: str) -> Grade:
        """Return the score given for exactly this answer."""
        if answer not in self._scores:
            return no_answer_grade(self.name, "not among the answers given beforehand")
        return grade_from_score(self.name, self._scores[answer], answer, "given beforehand")


JudgeAsk: TypeAlias = Callable[[Sequence[ChatMessage]], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class GraderTools:
    """What checkers may be built with: a sandbox for code, and a judge (a chat worker's voice).

    None where there is none: building a checker that needs it is then a ConfigError, before anything is paid.
    """

    sandbox: Sandbox | None = None
    judge: JudgeAsk | None = None
