"""What a guard looks at: a tool that reads, called with arguments that are computed from the guarded call.

Invariant: a probe that cannot be called, or whose arguments have no value, leaves its guard without a view, and a guard
without a view refuses. Deliberately absent: calling anything (`GuardSituation.probe` does, inside the run's limits).
"""

import json
from collections.abc import Mapping
from typing import cast

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core.errors import WorkerError
from shikisha.core.messages import Json
from shikisha.engine.guards import GuardedCall, GuardSituation
from shikisha.guards.evidence import is_refusal
from shikisha.guards.expression import GuardExpression, GuardExpressionError

CALL_NAMES = ("call", "question", "subtask", "calls")  # what every expression of a guard may read


class ProbeSettings(BaseModel):
    """A tool that reads, and an expression for each of its arguments: `{ order_id = "call.order_id" }`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
