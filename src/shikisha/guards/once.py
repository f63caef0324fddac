"""A write is made once: the same tool with the same arguments is refused when it was called before.

An agent that lost its place, or that an unclear result worries, repeats itself: one message goes out twenty times.
Invariant: among the calls of a step that a tool answered, no two are the same in what counts. Deliberately absent:
calls of other runs (an idempotency key at the service is for that), and reads, which may be repeated.
"""

import json
from collections.abc import Mapping

from pydantic import Field

from shikisha.core.kinds import Kind
from shikisha.core.messages import Json, dump_json
from shikisha.core.toml import Table
from shikisha.engine.guards import PASSED, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.guards.evidence import CONTENT, is_refusal


class OnceSettings(Table):
    """What makes two calls the same."""

    arguments: tuple[str, ...] = Field(
        default=(), description="the arguments that make two calls the same; by default all of them"
    )


def build(settings: OnceSettings, name: str) -> "OnceGuard":
    """Return the guard."""
    return OnceGuard(settings, name)


KIND = Kind(settings=OnceSettings, build=build)


class OnceGuard:
    """Refuses a write that was made before in this step."""

    def __init__(self, settings: OnceSettings | None = None, name: str = "once") -> None:
        self.name = name
        self._arguments = (settings or OnceSettings()).arguments

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:
        """Look for the same call among those that were answered."""
        if not call.tool.writes:
            return PASSED
        mine = self._key(call.arguments)
        for exchange in situation.exchanges:
            for earlier, result in zip(exchange.calls, exchange.results, strict=False):
                if earlier.name != call.tool.name or is_refusal(result.content):
                    continue
                if self._key(_parse_object(earlier.arguments)) == mine:
                    reason = "this call was made before with the same arguments; its result is above. Go on from there."
                    return GuardDecision(passed=False, reason=reason, failure=CONTENT)
        return PASSED

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's signature
        """Have no opinion."""
        return PASSED

    def _key(self, arguments: Mapping[str, Json]) -> str:
        names = self._arguments or tuple(arguments)
        return dump_json({name: arguments.get(name) for name in sorted(names)})


def _parse_object(text: str) -> Mapping[str, Json]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}
