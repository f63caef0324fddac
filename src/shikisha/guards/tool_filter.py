"""A guard for some tools of a catalogue: those whose names match a pattern such as `delete_*`.

Invariant: a name that no pattern fits is not guarded by it, and one that fits is. Deliberately absent: patterns over
arguments, which are what `expects` is for.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from shikisha.engine.guards import PASSED, Guard, GuardDecision, GuardedCall, GuardSituation, ToolOutcome


class ToolFilter:
    """Lets a guard decide on calls of these tools, and passes all others."""

    def __init__(self, guard: Guard, patterns: Sequence[str]) -> None:
        self.name = guard.name
        self._guard = guard
        self._patterns = tuple(patterns)

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:
        """Ask the guard where the tool's name fits."""
        return await self._guard.before(call, situation) if self._fits(call) else PASSED

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:
        """Ask the guard where the tool's name fits."""
        return await self._guard.after(call, outcome, situation) if self._fits(call) else PASSED

    def _fits(self, call: GuardedCall) -> bool:
        return any(fnmatchcase(call.tool.name, pattern) for pattern in self._patterns)
