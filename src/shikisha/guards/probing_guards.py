"""What a guard looks at: a tool that reads, called with arguments that are computed from the guarded call.

Invariant: a probe that cannot be called, or whose arguments have no value, leaves its guard without a view, and a guard
without a view refuses. Deliberately absent: calling anything (`GuardSituation.probe` does, inside the run's limits).

The call must have reached what it was for: a read-back after the write, and an expression over it.

The state of things must be as expected before the call: an expression over a probe, the call and the question.

What the agent acts on must still be what it saw: the view before a write equals the agent's own last view.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import cast

from pydantic import Field

from shikisha.core.errors import WorkerError
from shikisha.core.kinds import Kind
from shikisha.core.messages import Json
from shikisha.core.text import one_line
from shikisha.core.toml import Table
from shikisha.engine.guards import PASSED, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.guards.evidence import CONTENT, NAVIGATION, is_refusal
from shikisha.guards.expression import GuardExpression, GuardExpressionError

CALL_NAMES = ("call", "question", "subtask", "calls")  # what every expression of a guard may read


class ProbeSettings(Table):
    """A tool that reads, and an expression for each of its arguments: `{ order_id = "call.order_id" }`."""

    tool: str = Field(min_length=1, description="the name of a tool that reads")
    arguments: Mapping[str, str] = Field(
        default_factory=dict, description="for each argument of the tool, an expression over `call`"
    )


class GuardProbe:
    """A probe with its expressions parsed; ConfigError names the one that is none."""

    def __init__(self, settings: ProbeSettings, where: str, known: tuple[str, ...] = CALL_NAMES) -> None:
        self.tool = settings.tool
        self._arguments = {
            name: GuardExpression(text, known, f"{where}.probe.arguments.{name}")
            for name, text in settings.arguments.items()
        }

    def arguments(self, names: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments of the look; GuardExpressionError when one has no value."""
        return {name: expression.value(names) for name, expression in self._arguments.items()}

    async def look(self, situation: GuardSituation, names: Mapping[str, Json]) -> Json:
        """Return what the tool shows, parsed where it is JSON; GuardExpressionError when nothing can be seen."""
        if situation.probe is None:
            raise GuardExpressionError(f"{self.tool} cannot be asked here")
        try:
            text = await situation.probe(self.tool, self.arguments(names))
        except WorkerError as error:
            raise GuardExpressionError(f"{self.tool} gave no view: {error.fault}") from error
        if is_refusal(text):
            raise GuardExpressionError(f"{self.tool} gave no view: {text}")
        return parse_result(text)


def parse_result(text: str) -> Json:
    """Return a tool's result as JSON, as the text that it is otherwise."""
    try:
        return cast("Json", json.loads(text))
    except (ValueError, RecursionError):
        return text


def call_names(call: GuardedCall, situation: GuardSituation) -> dict[str, Json]:
    """Return what an expression may read: the call's arguments, the question, and how many calls were made so far."""
    results = [result for exchange in situation.exchanges for result in exchange.results]
    made = sum(not is_refusal(result.content) for result in results)
    return {
        "call": call.arguments,
        "question": situation.task.prompt,
        "subtask": situation.subtask,
        "calls": made,
    }


_NAMES = (*CALL_NAMES, "result")


class ReachesSettings(Table):
    """The read-back, what must be true of it, and how patiently it is looked for."""

    expression: str = Field(
        description="what must be true after the call: an expression over `probe`, `call`, `result`"
    )
    probe: ProbeSettings = Field(description="the read-back: a tool that reads, whose result is `probe`")
    tries: int = Field(default=1, ge=1, le=10, description="how often to look, where effects show late")
    wait: float = Field(default=0.0, ge=0, le=30, allow_inf_nan=False, description="seconds between two looks")


def build_reaches(settings: ReachesSettings, name: str) -> "ReachesGuard":
    """Return the guard; ConfigError when an expression is none."""
    return ReachesGuard(settings, name)


REACHES = Kind(settings=ReachesSettings, build=build_reaches)


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


class ExpectsSettings(Table):
    """What must hold, what is looked at for it, and what the agent is told where it does not."""

    expression: str = Field(
        description="what must be true before the call, over `call`, `probe`, `question`, `subtask` and `calls`"
    )
    probe: ProbeSettings | None = Field(default=None, description="a tool that reads, whose result is `probe`")
    reason: str = Field(default="", description="what the agent is told when the expression is false")


def build_expects(settings: ExpectsSettings, name: str) -> "ExpectsGuard":
    """Return the guard; ConfigError when its expression is none."""
    return ExpectsGuard(settings, name)


EXPECTS = Kind(settings=ExpectsSettings, build=build_expects)


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


class UnchangedSettings(Table):
    """What is looked at, and which of its members count."""

    probe: ProbeSettings = Field(description="the tool with which the agent looks, and the guard looks again")
    members: tuple[str, ...] = Field(
        default=(), description="the members of the result that must not have changed; by default all of it"
    )


def build_unchanged(settings: UnchangedSettings, name: str) -> "UnchangedGuard":
    """Return the guard; ConfigError when an expression is none."""
    return UnchangedGuard(settings, name)


UNCHANGED = Kind(settings=UnchangedSettings, build=build_unchanged)


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
