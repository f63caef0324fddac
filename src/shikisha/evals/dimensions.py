"""Three dimensions of every task: what it plays in, how exactly it says what to do, and how strictly it is graded.

An accuracy means little without them: 80 % of questions matched by a letter is not 80 % of goals reached in a system
that changes. Invariants: every task has all three, and a grade that a language model gave has the rigour `judge`
whatever its task says. Deliberately absent: weights. Accuracies of different rigour stand side by side, and `compare`
never averages over them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from shikisha.evals.graders import Grader


class TaskEnvironment(StrEnum):
    """What a task plays in."""

    TEXT = "text"  # a question and its answer
    TOOL = "tool"  # tools that look something up and change nothing
    STATEFUL = "stateful"  # tools that change a state which is there for this task alone
    LIVE = "live"  # systems that others use and change too


class TaskSpecification(StrEnum):
    """How exactly a task says what to do."""

    STEPS = "steps"  # step by step
    GOAL = "goal"  # what is to be reached
    OPEN = "open"  # what is wanted, with the goal to be found out


class GradeRigour(StrEnum):
    """How strictly answers are graded, the strictest first."""

    EXECUTED = "executed"  # a program runs: tests of code, a comparison of states
    MATCHED = "matched"  # the answer is compared with a right one
    PERSON = "person"  # a person says so
    JUDGE = "judge"  # a language model says so


_RIGOUR_OF_GRADERS: Mapping[str, GradeRigour] = {
    **dict.fromkeys(("code", "entry_point", "repository", "swebench", "state"), GradeRigour.EXECUTED),
    "person": GradeRigour.PERSON,
    "judge": GradeRigour.JUDGE,
}
DIMENSIONS: Mapping[str, type[StrEnum]] = {
    "environment": TaskEnvironment,
    "specification": TaskSpecification,
    "rigour": GradeRigour,
}


@dataclass(frozen=True, slots=True)
class TaskDimensions:
    """Where a task stands in each dimension; `goal` is shared by tasks that want the same in other words."""

    environment: TaskEnvironment = TaskEnvironment.TEXT
    specification: TaskSpecification = TaskSpecification.GOAL
    rigour: GradeRigour = GradeRigour.MATCHED
    goal: str = ""


def default_dimensions(grader: Grader) -> TaskDimensions:
    """Return where a task stands that says nothing else: a text with a goal, graded as its grader grades."""
    return TaskDimensions(rigour=_RIGOUR_OF_GRADERS.get(grader.name, GradeRigour.MATCHED))
