"""The class of failure of a run whose workers use tools: where it went wrong, from its guards, its calls and its grade.

The classes are those of studies of web and tool agents. Invariants: a right run and one that nobody graded have none, a
run without tools has none, and every other has exactly one; it follows from events alone, so a journal gives the same.
Deliberately absent: judging a transcript. What no event shows counts as content: right tools, wrong values.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from shikisha.core.errors import FaultKind
from shikisha.core.events import AttemptFinished, CallRole, GuardDecided, RunStatus, ToolRefused, ToolsOffered
from shikisha.core.run import Run, StepRecord


class FailureClass(StrEnum):
    """Where a run with tools went wrong."""

    INCOMPLETE = "incomplete"  # it ended before it was done: a cap, a fault, no answer, or no call at all
    NAVIGATION = "navigation"  # a guard refused a call on something unseen, stale or unfit, and it was never mended
    TOOL_USE = "tool use"  # a call of no tool that was offered, with arguments that do not fit, or that only failed
    CONTENT = "content"  # the calls were made, with wrong values


_MISUSES = frozenset({FaultKind.NOT_OFFERED, FaultKind.BAD_ARGUMENTS, FaultKind.TOOL_ERROR})


def classify_failure(run: Run, score: float | None) -> FailureClass | None:
    """Return the class of a run's failure; None for a right or ungraded run, and for one without tools."""
    steps = [step for turn in run.rounds for step in turn.steps.values()]
    used_tools = any(isinstance(event, ToolsOffered) for step in steps for event in step.tools)
    if not used_tools or score is None or score >= 1:
        return None
    made = set(_performed(steps))
    if run.status is not RunStatus.DONE or run.answer is None:
        return FailureClass.INCOMPLETE
    unmended = [event for event in _refusals(steps) if event.tool not in made]
    if any(event.fault is FaultKind.GUARDED for event in unmended):
        return FailureClass.NAVIGATION
    if any(event.fault in _MISUSES for event in unmended) or _failed(steps) - made:
        return FailureClass.TOOL_USE
    if any(isinstance(e, GuardDecided) and not e.passed and e.moment == "after" for s in steps for e in s.tools):
        return FailureClass.CONTENT
    return FailureClass.CONTENT if made else FailureClass.INCOMPLETE


def _refusals(steps: Sequence[StepRecord]) -> Iterator[ToolRefused]:
    for step in steps:
        for event in step.tools:
            if isinstance(event, ToolRefused):
                yield event


def _performed(steps: Sequence[StepRecord]) -> Iterator[str]:
    """Yield the names of the tools that were called and answered."""
    for step in steps:
        for attempt in step.attempts:
            if attempt.started.role is CallRole.TOOL and isinstance(attempt.outcome, AttemptFinished):
                yield attempt.started.tool


def _failed(steps: Sequence[StepRecord]) -> set[str]:
    """Return the names of the tools of which a call failed."""
    return {
        attempt.started.tool
        for step in steps
        for attempt in step.attempts
        if attempt.started.role is CallRole.TOOL and not isinstance(attempt.outcome, AttemptFinished)
    }
