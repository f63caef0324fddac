"""Every id and address in a call that changes something must have been shown in this run.

A language model that was not shown an id writes one that looks right, and the write lands on a stranger. Invariant: an
identifier passes only when the user wrote it, or a tool's result of this run shows it; what cannot be read is refused.
Deliberately absent: whether it is the right one of those that were shown (`expects`), and text that names nothing.

A guard for some tools of a catalogue: those whose names match a pattern such as `delete_*`.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from pydantic import Field

from shikisha.core.kinds import Kind
from shikisha.core.text import one_line
from shikisha.core.toml import Table
from shikisha.engine.guards import PASSED, Guard, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.guards.evidence import (
    CONTENT,
    NAVIGATION,
    ArgumentValue,
    Evidence,
    gather_evidence,
    identifiers,
    read_arguments,
)


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


_MAX_NAMED = 5  # identifiers that a refusal names


class GroundedSettings(Table):
    """What must have been shown, and who may have shown it."""

    arguments: tuple[str, ...] = Field(
        default=(), description="further arguments whose text must have been shown, as in `subject`"
    )
    sources: tuple[str, ...] = Field(
        default=(),
        description="who may have shown it: `question`, `steps`, or names of tools; by default all of them",
    )
    whole: bool = Field(
        default=False,
        description="an identifier inside a longer text of a result, such as a message's body, counts as not shown",
    )


def build(settings: GroundedSettings, name: str) -> "GroundedGuard":
    """Return the guard."""
    return GroundedGuard(settings, name)


KIND = Kind(settings=GroundedSettings, build=build)


class GroundedGuard:
    """Refuses a call with an identifier that nothing in this run has shown."""

    def __init__(self, settings: GroundedSettings | None = None, name: str = "grounded") -> None:
        self.name = name
        self._settings = settings or GroundedSettings()

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:
        """Look up each identifier among what was shown."""
        return self.decide(call, gather_evidence(situation))

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's signature
        """Have no opinion: what was done is done."""
        return PASSED

    def decide(self, call: GuardedCall, evidence: Evidence) -> GuardDecision:
        """Return the decision on a call, given what was shown so far."""
        if not call.tool.writes:
            return PASSED
        try:
            values = read_arguments(call.arguments, call.tool.schema)
        except ValueError as error:
            return GuardDecision(passed=False, reason=f"the arguments cannot be checked: {error}", failure=CONTENT)
        missing = [found for value in values for found in self._missing(value, evidence)]
        if not missing:
            return PASSED
        return GuardDecision(passed=False, reason=self._reason(missing), failure=NAVIGATION)

    def _missing(self, value: ArgumentValue, evidence: Evidence) -> Iterator[tuple[str, str]]:
        """Yield what in an argument was not shown, with the argument's place."""
        settings = self._settings
        wanted = list(identifiers(value))
        if value.path.split(".")[0].split("[")[0] in settings.arguments:
            wanted.append(value.text)
        for each in wanted:
            if evidence.find(each, settings.sources, whole=settings.whole) is None:
                yield value.path, each

    def _reason(self, missing: list[tuple[str, str]]) -> str:
        named = ", ".join(f"{path} = {one_line(text, 80)!r}" for path, text in missing[:_MAX_NAMED])
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        by = f" by {', '.join(self._settings.sources)}" if self._settings.sources else " in this run"
        return f"not shown{by}: {named}{more}. Look it up with a tool first and use exactly what it returns."
