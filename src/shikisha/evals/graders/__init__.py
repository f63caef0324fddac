"""Graders: whether an answer is right, as a Grade with its evidence, behind one method.

A Grader belongs to one task and knows its right answer, its tests, or which model to ask. Each module here is one kind
of grader (`grader_registry` lists them), or extracts what graders compare, or runs inside the sandbox (`harness_*`).
Add a kind as one module and one row of the registry. Evaluation, training, conductors and routing may import this
package; it imports only core and the sandbox.

Invariants: an answer from which nothing can be extracted is NO_ANSWER and not WRONG. What could not be graded is
UNGRADED and neither. A grade that a language model gave says so (`judged`), so it never passes for an executed check. A
grader raises only ConfigError (before the first grade) and CancelledError. Deliberately absent: averages (see
`evals`), and checks between steps, which know no right answer. The shipped fake is `ScriptedGrader`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from shikisha.core.call import Reply
from shikisha.core.events import GradeMark
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.messages import ChatMessage, Json
from shikisha.sandbox import Sandbox

__all__ = [
    "Grade",
    "GradeMark",
    "Grader",
    "GraderTools",
    "JudgeAsk",
    "ScriptedGrader",
    "grade_from_score",
    "no_answer_grade",
    "ungraded_grade",
]


@dataclass(frozen=True, slots=True)
class Grade:
    """What a grader found.

    `score` is in [0, 1], None exactly for UNGRADED. `found` is what was extracted from the answer, in canonical form;
    `evidence` says in words what was compared with what, or which test failed and how. `judged`: by a language model,
    which used `tokens` and `dollars` (None: unknown). `shared`: the program shared a process with what judged it, or
    its own word decided a comparison; training refuses such a grade.
    """

    grader: str
    mark: GradeMark
    score: float | None
    found: str | None = None
    evidence: str = ""
    judged: bool = False
    tokens: int = 0
    dollars: float | None = 0.0
    shared: bool = False


def grade_from_score(grader: str, score: float, found: str | None, evidence: str, *, judged: bool = False) -> Grade:
    """Return the grade for a score in [0, 1]."""
    mark = GradeMark.RIGHT if score >= 1 else GradeMark.WRONG if score <= 0 else GradeMark.PARTIAL
    return Grade(grader, mark, score, found, evidence, judged)


def no_answer_grade(grader: str, evidence: str) -> Grade:
    """Return the grade of an answer from which nothing could be extracted."""
    return Grade(grader, GradeMark.NO_ANSWER, 0.0, None, evidence)


def ungraded_grade(grader: str, evidence: str, *, judged: bool = False) -> Grade:
    """Return the grade for a failure of the grader itself."""
    return Grade(grader, GradeMark.UNGRADED, None, None, evidence, judged)


class Grader(Protocol):
    """Grades answers to one task."""

    @property
    def name(self) -> str:
        """The kind of check, as grades carry it."""
        ...

    async def grade(self, answer: str) -> Grade:
        """Grade a whole answer as the worker gave it."""
        ...


class ScriptedGrader:
    """The shipped fake: a score for each known answer; any other answer is NO_ANSWER."""

    name = "given"

    def __init__(self, scores: Mapping[str, float]) -> None:
        self._scores = dict(scores)

    async def grade(self, answer: str) -> Grade:
        """Return the score of exactly this answer."""
        if answer not in self._scores:
            return no_answer_grade(self.name, "not among the answers given beforehand")
        return grade_from_score(self.name, self._scores[answer], answer, "given beforehand")


JudgeAsk: TypeAlias = Callable[[Sequence[ChatMessage], Mapping[str, Json]], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class GraderTools:
    """What graders may be built with: a sandbox for code, and a judge (the call of a chat worker).

    Without one, building a grader that needs it is a ConfigError, before anything is paid for.
    """

    sandbox: Sandbox | None = None
    judge: JudgeAsk | None = None
