"""Checks: what must hold of a step's output before anyone downstream sees it, behind one method.

Invariant: a check judges text and can change nothing: it returns a Verdict. A check that needs a worker's opinion
asks through the Inspection's `ask`, which is inside the run's budget and journal. Deliberately absent: gold answers
(they belong to grading). The shipped fake is `FixedCheck` in `checks.text_checks`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from shikisha.core.events import OnCheckFailure
from shikisha.core.run import CheckVerdict
from shikisha.core.task import Task


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a check sees: task, subtask, answer; `ask(name, question, schema=None)` puts a question to a worker."""

    task: Task
    subtask: str
    text: str
    ask: Callable[..., Awaitable[str]] | None = field(default=None, compare=False)


class Check(Protocol):
    """The one method, and the name that verdicts carry."""

    @property
    def name(self) -> str:
        """The check's name in journals and explanations."""
        ...

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Judge the answer."""
        ...


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """A check and what its failure leads to; `redo` bounds how often the worker is asked again."""

    check: Check
    on_fail: OnCheckFailure = OnCheckFailure.REDO
    redo: int = 1
