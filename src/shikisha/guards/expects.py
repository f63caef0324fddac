"""The state of things must be as expected before the call: an expression over a probe, the call and the question.

For example `probe.status == "pending"`, where `get_order` with `order_id = call.order_id` is the probe.
Invariant: only True passes; a view that cannot be had, or an expression that has no value, refuses and says why.
Deliberately absent: changing the call. An agent that is told what does not hold can.
"""

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core.kinds import Kind
from shikisha.core.text import one_line
from shikisha.engine.guards import PASSED, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.guards.evidence import NAVIGATION
from shikisha.guards.expression import GuardExpression, GuardExpressionError
from shikisha.guards.probe import CALL_NAMES, GuardProbe, ProbeSettings, call_names


class ExpectsSettings(BaseModel):
    """What must hold, what is looked at for it, and what the agent is told where it does not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    expression: str = Field(
        description="what must be true before the call, over `call`, `probe`, `question`, `subtask` and `calls`"
    )
    probe: ProbeSettings | None = Field(default=None, description="a tool that reads, whose result is `probe`")
    reason: str = Field(default="", description="what the agent is told when the expression is false")


def build(settings: ExpectsSettings, name: str) -> "ExpectsGuard":
    """Return the guard; ConfigError when its expression is none."""
    return ExpectsGuard(settings, name)


KIND = Kind(settings=ExpectsSettings, build=build)


class ExpectsGuard:
    """Refuses a call before which its expression is not true."""

    def __init__(self, settings: ExpectsSettings, name: str = "expects") -> None:
        self.name = name
        self._reason = settings.reason
        known = (*CALL_NAMES, "probe") if settings.probe else CALL_NAMES
        self._expression = GuardExpression(settings.expression, known, f"{name}.expression")
        self._probe = GuardProbe(settings.probe, name) if settings.probe else None

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:
        """Take the view and evaluate the expression."""
        names = call_names(call, situation)
        try:
            if self._probe is not None:
                names["probe"] = await self._probe.look(situation, names)
            if self._expression.holds(names):
                return PASSED
            why = self._reason or f"expected {self._expression.text}"
            seen = f"; {self._probe.tool} shows {one_line(str(names['probe']), 300)}" if self._probe else ""
        except GuardExpressionError as error:
            why, seen = f"expected {self._expression.text}: {error}", ""
        return GuardDecision(passed=False, reason=f"{why}{seen}", failure=NAVIGATION)

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's signature
        """Have no opinion."""
        return PASSED
