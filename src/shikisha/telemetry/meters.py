"""Metrics of runs, made of the spans that have ended: durations and tokens as the conventions have them, and ours.

Invariants: a duration is that of its span; bucket boundaries are the conventions' own. Attributes have few values: no
run, no step, no person (those are on spans). What can be counted without an SDK is (dollars, runs, refusals), and is
read off when metrics are collected. Deliberately absent: Prometheus (`server.watching`), which counts for itself.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.util.types import AttributeValue

from shikisha.telemetry import names
from shikisha.telemetry.span import Span, Value

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
WORKFLOW_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
AGENT_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

Tally = defaultdict[tuple[tuple[str, str | bool], ...], float]
Figures = Callable[[], Mapping[str, float]]
_CALL = (names.OPERATION, names.PROVIDER, names.REQUEST_MODEL, names.ERROR_TYPE)
_WORKFLOW = (names.WORKFLOW_NAME, names.WORKFLOW_NESTED, names.ERROR_TYPE)
_AGENT = (names.AGENT_NAME, names.ERROR_TYPE)
_TOOL = (names.TOOL_NAME, names.TOOL_TYPE, names.ERROR_TYPE)


class Meters:
    """Counts what spans say. `figures` are the server's own (runs that wait, journal lag...), read when collected."""

    def __init__(self, meter: Meter, figures: Figures | None = None) -> None:
        histogram, shape = meter.create_histogram, list
        self._calls = histogram(names.OPERATION_DURATION, "s", explicit_bucket_boundaries_advisory=shape(SECONDS))
        self._tokens = histogram(names.TOKEN_USAGE, "{token}", explicit_bucket_boundaries_advisory=shape(TOKENS))
        self._runs = histogram(
            names.WORKFLOW_DURATION, "s", explicit_bucket_boundaries_advisory=shape(WORKFLOW_SECONDS)
        )
        self._steps = histogram(names.AGENT_DURATION, "s", explicit_bucket_boundaries_advisory=shape(AGENT_SECONDS))
        self._tools = histogram(names.TOOL_DURATION, "s", explicit_bucket_boundaries_advisory=shape(SECONDS))
        self._dollars: Tally = defaultdict(float)
        self._ended: Tally = defaultdict(float)
        self._refused: Tally = defaultdict(float)
        count = meter.create_observable_counter
        count(names.RUNS, [_reading(self._ended)], "{run}", "Runs that have ended or wait, by how")
        count(names.DOLLARS, [_reading(self._dollars)], "USD", "What calls cost, where that is known")
        count(names.REFUSALS, [_reading(self._refused)], "{run}", "Runs that a cap ended, by cap")
        if figures is not None:
            for name in names.FIGURES:
                meter.create_observable_gauge(name, [_looking(figures, name)])

    def take(self, span: Span) -> None:
        """Count a span that has ended."""
        said = span.attributes
        operation = said.get(names.OPERATION)
        if operation == names.CHAT:
            self._call(span)
        elif operation == names.INVOKE_AGENT:
            self._steps.record(span.seconds, _some(said, _AGENT))
        elif operation == names.EXECUTE_TOOL:
            self._tools.record(span.seconds, _some(said, _TOOL))
        elif operation == names.INVOKE_WORKFLOW and names.RUN_STATUS in said:
            self._run(span)
        dollars = said.get(names.COST)
        if isinstance(dollars, float | int) and dollars and names.REASON in said and names.CHILD_RUN not in said:
            self._dollars[(names.WORKER, str(said[names.WORKER])), (names.ROLE, str(said[names.ROLE]))] += dollars

    def _call(self, span: Span) -> None:
        said = span.attributes
        about = _some(said, _CALL)
        self._calls.record(span.seconds, about)
        if names.INPUT_TOKENS in said:
            for kind, name in (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS)):
                count = said[name]
                if isinstance(count, int):
                    self._tokens.record(count, about | {names.TOKEN_TYPE: kind})

    def _run(self, span: Span) -> None:
        said = span.attributes
        self._runs.record(span.seconds, _some(said, _WORKFLOW))
        nested = said.get(names.WORKFLOW_NESTED, False) is True
        self._ended[(names.RUN_STATUS, str(said[names.RUN_STATUS])), (names.WORKFLOW_NESTED, nested)] += 1
        if names.RUN_CAP in said:
            self._refused[((names.RUN_CAP, str(said[names.RUN_CAP])),)] += 1


def _some(said: Mapping[str, Value], wanted: tuple[str, ...]) -> dict[str, AttributeValue]:
    """Return the attributes that a metric has, of those that its span has."""
    return {name: said[name] for name in wanted if name in said}


def _reading(tally: Tally) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Return what reads a tally off when metrics are collected; that happens in a thread, so of a copy."""
    return lambda _: [Observation(count, dict(about)) for about, count in tally.copy().items()]


def _looking(figures: Figures, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def look(_: CallbackOptions) -> Iterable[Observation]:
        seen = figures()
        return [Observation(seen[name])] if name in seen else []

    return look
