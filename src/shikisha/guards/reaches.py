"""The call must have reached what it was for: a read-back after the write, and an expression over it.

For example `probe.address == call.address`. Invariant: the agent is told when the state is not what the call should
have made it; a result that says "done" is not taken for it. Deliberately absent: undoing (`compensate` is for that),
and repeating the write, which might do it twice.
"""

import asyncio

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core.kinds import Kind
from shikisha.core.text import one_line
from shikisha.engine.guards import PASSED, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.guards.evidence import CONTENT
from shikisha.guards.expression import GuardExpression, GuardExpressionError
from shikisha.guards.probe import CALL_NAMES, GuardProbe, ProbeSettings, call_names, parse_result

_NAMES = (*CALL_NAMES, "result")


class ReachesSettings(BaseModel):
    """The read-back, what must be true of it, and how patiently it is looked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    expression: str = Field(
        description="what must be true after the call: an expression over `probe`, `call`, `result`"
    )
    probe: ProbeSettings = Field(description="the read-back: a tool that reads, whose result is `probe`")
    tries: int = Field(default=1, ge=1, le=10, description="how often to look, where effects show late")
    wait: float = Field(default=0.0, ge=0, le=30, allow_inf_nan=False, description="seconds between two looks")


def build(settings: ReachesSettings, name: str) -> "ReachesGuard":
    """Return the guard; ConfigError when an expression is none."""
    return ReachesGuard(settings, name)


KIND = Kind(settings=ReachesSettings, build=build)


class ReachesGuard:
    """Tells the agent when a call did not have its effect."""

    def __init__(self, settings: ReachesSettings, name: str = "reaches") -> None:
        self.name = name
        self._tries, self._wait = settings.tries, settings.wait
        self._expression = GuardExpression(settings.expression, (*_NAMES, "probe"), f"{name}.expression")
        self._probe = GuardProbe(settings.probe, name, _NAMES)

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's signature
        """Have no opinion."""
        return PASSED

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:
        """Look back, as often as allowed, until the expression is true."""
        if outcome.fault is not None or not call.tool.writes:
            return PASSED  # the agent knows already, or nothing was to change
        names = call_names(call, situation) | {"result": parse_result(outcome.text)}
        why = ""
        for attempt in range(self._tries):
            if attempt:
                await asyncio.sleep(self._wait)
            try:
                names["probe"] = await self._probe.look(situation, names)
                if self._expression.holds(names):
                    return PASSED
                why = f"{self._probe.tool} shows {one_line(str(names['probe']), 300)}"
            except GuardExpressionError as error:
                why = str(error)
        reason = f"the call was made, but expected {self._expression.text}: {why}. Do not repeat it; look first."
        return GuardDecision(passed=False, reason=reason, failure=CONTENT)
