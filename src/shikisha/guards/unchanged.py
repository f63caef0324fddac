"""What the agent acts on must still be what it saw: the view before a write equals the agent's own last view.

Invariant: a write passes only when this agent looked before, with the same tool and arguments as the probe, and nothing
that counts has changed since. Deliberately absent: locks. Between the probe and the write something may still change;
a tool that takes a version or an `If-Match` closes that gap.
"""

import json
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core.kinds import Kind
from shikisha.core.messages import Json
from shikisha.core.text import one_line
from shikisha.engine.guards import PASSED, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.guards.evidence import NAVIGATION, is_refusal
from shikisha.guards.expression import GuardExpressionError
from shikisha.guards.probe import GuardProbe, ProbeSettings, call_names, parse_result


class UnchangedSettings(BaseModel):
    """What is looked at, and which of its members count."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    probe: ProbeSettings = Field(description="the tool with which the agent looks, and the guard looks again")
    members: tuple[str, ...] = Field(
        default=(), description="the members of the result that must not have changed; by default all of it"
    )


def build(settings: UnchangedSettings, name: str) -> "UnchangedGuard":
    """Return the guard; ConfigError when an expression is none."""
    return UnchangedGuard(settings, name)


KIND = Kind(settings=UnchangedSettings, build=build)


class UnchangedGuard:
    """Refuses a write on what the agent has not looked at, or what has changed since."""

    def __init__(self, settings: UnchangedSettings, name: str = "unchanged") -> None:
        self.name = name
        self._members = settings.members
        self._probe = GuardProbe(settings.probe, name)

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:
        """Compare the agent's last view with a new one."""
        names = call_names(call, situation)
        try:
            arguments = self._probe.arguments(names)
            seen = _last_view(situation, self._probe.tool, arguments)
            if seen is None:
                how = json.dumps(arguments, ensure_ascii=False)
                return _refused(f"you have not looked at it: call {self._probe.tool} with {one_line(how, 200)} first")
            now = await self._probe.look(situation, names)
        except GuardExpressionError as error:
            return _refused(f"whether it changed cannot be seen: {error}")
        changed = [*_changes(parse_result(seen), now, self._members)]
        return _refused(f"it changed since you looked: {'; '.join(changed[:5])}") if changed else PASSED

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's signature
        """Have no opinion."""
        return PASSED


def _refused(reason: str) -> GuardDecision:
    return GuardDecision(passed=False, reason=reason, failure=NAVIGATION)


def _last_view(situation: GuardSituation, tool: str, arguments: Mapping[str, Json]) -> str | None:
    """Return the latest result of exactly this look, None when there was none."""
    for exchange in reversed(situation.exchanges):
        for call, result in zip(exchange.calls, exchange.results, strict=False):
            if call.name == tool and parse_result(call.arguments) == arguments and not is_refusal(result.content):
                return result.content
    return None


def _changes(before: Json, now: Json, members: tuple[str, ...]) -> list[str]:
    """Return in words what of these members differs; of all, where none are named."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return [] if before == now else [f"was {one_line(str(before), 100)}, is {one_line(str(now), 100)}"]
    names = members or tuple(dict.fromkeys([*before, *now]))
    return [
        f"{name} was {one_line(str(before.get(name)), 80)}, is {one_line(str(now.get(name)), 80)}"
        for name in names
        if before.get(name) != now.get(name)
    ]
