"""Guards: what must hold before a tool is called, and after it, behind one port.

Invariants: a guard decides and can change nothing; every decision is journaled before it has an effect (4), a journaled
one is not taken again, and a guard that breaks refuses (before) or fails (after): nothing is done past it. What a guard
looks at is what the agent saw, and what probes show: tools that are known to read, called inside the run's budget and
journal. Deliberately absent: the kinds of guards (they are adapters), and opinions on a step's answer (`checker`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from shikisha.core.call import GrantedStep
from shikisha.core.errors import FaultKind
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.messages import Json, ToolExchange
from shikisha.core.task import Task
from shikisha.core.tools import Tool

Probe: TypeAlias = Callable[[str, Mapping[str, Json]], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """The call that is about to be made, or was: the tool, its arguments, and its place in the step."""

    tool: Tool
    arguments: Mapping[str, Json] = field(hash=False)
    call: str = ""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call came to: the text of its result, or the fault with its message in `text`."""

    text: str
    fault: FaultKind | None = None


@dataclass(frozen=True, slots=True)
class GuardSituation:
    """Everything that the agent has seen, and how to look further.

    `exchanges` are the calls of tools so far in this step, with their results; `probe` calls a tool by name and
    returns its result: WorkerError where that cannot be had.
    """

    task: Task
    subtask: str
    granted: Sequence[GrantedStep] = ()
    exchanges: Sequence[ToolExchange] = ()
    probe: Probe | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GuardDecision:
    """Whether the guard lets the call pass, why not, and the class of failure in a word."""

    passed: bool
    reason: str = ""
    failure: str = ""


PASSED = GuardDecision(passed=True)


class Guard(Protocol):
    """Two methods, and the name that journals carry."""

    @property
    def name(self) -> str:
        """The guard's name in journals and explanations."""
        ...

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:
        """Decide whether the call may be made."""
        ...

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:
        """Decide whether the call did what it was to do; the agent is told what a failure says."""
        ...
