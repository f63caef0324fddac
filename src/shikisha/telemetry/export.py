"""Spans and metrics handed to OpenTelemetry's SDK, which sends them over OTLP/HTTP. Importing this needs the extra.

Invariants: spans are handed over as they end and sent by the SDK's own thread, which drops what it cannot hold and
gives up what it cannot send: nothing here waits. One decision of the sampler, at the root, holds for a whole run. The
SDK's environment variables hold (samplers, limits, resource attributes, time-outs, compression, certificates).
Deliberately absent: exporting logs, and the SDK's global providers (whoever uses Shikisha as a library has their own).

Metrics of runs, made of the spans that have ended: durations and tokens as the conventions have them, and ours.

Invariants: a duration is that of its span; bucket boundaries are the conventions' own. Attributes have few values: no
run, no step, no person (those are on spans). What can be counted without an SDK is (dollars, runs, refusals), and is
read off when metrics are collected. Deliberately absent: Prometheus (`server.watching`), which counts for itself.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from threading import Timer

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.status import Status, StatusCode
from opentelemetry.util.types import AttributeValue

from shikisha.telemetry import conventions
from shikisha.telemetry.export_settings import ExportSettings
from shikisha.telemetry.span_model import RunSpan, SpanRef, SpanValue

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
WORKFLOW_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
AGENT_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

Tally = defaultdict[tuple[tuple[str, str | bool], ...], float]
Figures = Callable[[], Mapping[str, float]]
_CALL = (conventions.OPERATION, conventions.PROVIDER, conventions.REQUEST_MODEL, conventions.ERROR_TYPE)
_WORKFLOW = (conventions.WORKFLOW_NAME, conventions.WORKFLOW_NESTED, conventions.ERROR_TYPE)
_AGENT = (conventions.AGENT_NAME, conventions.ERROR_TYPE)
_TOOL = (conventions.TOOL_NAME, conventions.TOOL_TYPE, conventions.ERROR_TYPE)


class RunMetrics:
    """Counts what spans say. `figures` are the server's own (runs that wait, journal lag...), read when collected."""

    def __init__(self, meter: Meter, figures: Figures | None = None) -> None:
        histogram, shape = meter.create_histogram, list
        self._calls = histogram(conventions.OPERATION_DURATION, "s", explicit_bucket_boundaries_advisory=shape(SECONDS))
        self._tokens = histogram(conventions.TOKEN_USAGE, "{token}", explicit_bucket_boundaries_advisory=shape(TOKENS))
        self._runs = histogram(
            conventions.WORKFLOW_DURATION, "s", explicit_bucket_boundaries_advisory=shape(WORKFLOW_SECONDS)
        )
        self._steps = histogram(
            conventions.AGENT_DURATION, "s", explicit_bucket_boundaries_advisory=shape(AGENT_SECONDS)
        )
        self._tools = histogram(conventions.TOOL_DURATION, "s", explicit_bucket_boundaries_advisory=shape(SECONDS))
        self._dollars: Tally = defaultdict(float)
        self._ended: Tally = defaultdict(float)
        self._refused: Tally = defaultdict(float)
        count = meter.create_observable_counter
        count(conventions.RUNS, [_counter_callback(self._ended)], "{run}", "Runs that have ended or wait, by how")
        count(conventions.DOLLARS, [_counter_callback(self._dollars)], "USD", "What calls cost, where that is known")
        count(conventions.REFUSALS, [_counter_callback(self._refused)], "{run}", "Runs that a cap ended, by cap")
        if figures is not None:
            for name in conventions.FIGURES:
                meter.create_observable_gauge(name, [_gauge_callback(figures, name)])

    def take(self, span: RunSpan) -> None:
        """Count a span that has ended."""
        said = span.attributes
        operation = said.get(conventions.OPERATION)
        if operation == conventions.CHAT:
            self._call(span)
        elif operation == conventions.INVOKE_AGENT:
            self._steps.record(span.seconds, _select(said, _AGENT))
        elif operation == conventions.EXECUTE_TOOL:
            self._tools.record(span.seconds, _select(said, _TOOL))
        elif operation == conventions.INVOKE_WORKFLOW and conventions.RUN_STATUS in said:
            self._run(span)
        dollars = said.get(conventions.COST)
        if (
            isinstance(dollars, float | int)
            and dollars
            and conventions.REASON in said
            and conventions.CHILD_RUN not in said
        ):
            self._dollars[
                (conventions.WORKER, str(said[conventions.WORKER])), (conventions.ROLE, str(said[conventions.ROLE]))
            ] += dollars

    def _call(self, span: RunSpan) -> None:
        said = span.attributes
        about = _select(said, _CALL)
        self._calls.record(span.seconds, about)
        if conventions.INPUT_TOKENS in said:
            for kind, name in (("input", conventions.INPUT_TOKENS), ("output", conventions.OUTPUT_TOKENS)):
                count = said[name]
                if isinstance(count, int):
                    self._tokens.record(count, about | {conventions.TOKEN_TYPE: kind})

    def _run(self, span: RunSpan) -> None:
        said = span.attributes
        self._runs.record(span.seconds, _select(said, _WORKFLOW))
        nested = said.get(conventions.WORKFLOW_NESTED, False) is True
        self._ended[
            (conventions.RUN_STATUS, str(said[conventions.RUN_STATUS])), (conventions.WORKFLOW_NESTED, nested)
        ] += 1
        if conventions.RUN_CAP in said:
            self._refused[((conventions.RUN_CAP, str(said[conventions.RUN_CAP])),)] += 1


def _select(said: Mapping[str, SpanValue], wanted: tuple[str, ...]) -> dict[str, AttributeValue]:
    """Return the attributes that a metric has, of those that its span has."""
    return {name: said[name] for name in wanted if name in said}


def _counter_callback(tally: Tally) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Return what reads a tally off when metrics are collected; that happens in a thread, so of a copy."""
    return lambda _: [Observation(count, dict(about)) for about, count in tally.copy().items()]


def _gauge_callback(figures: Figures, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def look(_: CallbackOptions) -> Iterable[Observation]:
        seen = figures()
        return [Observation(seen[name])] if name in seen else []

    return look


_WAIT = 2.0  # seconds for what is left to be sent when a server stops
_SAMPLED, _DROPPED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_FINE = Status()


class OTelExporter:
    """The SDK's providers, with what they send to. Made of processors and readers, so that tests bring their own."""

    def __init__(
        self,
        wants: ExportSettings,
        processor: SpanProcessor | None = None,
        reader: MetricReader | None = None,
        figures: Figures | None = None,
    ) -> None:

        self._exporters: list[OTLPSpanExporter | OTLPMetricExporter] = []
        self.resource = Resource.create({SERVICE_NAME: wants.service} if wants.service else {})
        self._scope = InstrumentationScope(conventions.SCOPE, schema_url=conventions.SCHEMA_URL)
        self._longest: int | None = SpanLimits().max_span_attribute_length
        self._tracers = self._tracing(processor) if processor is not None else None
        self._metering = self._measuring(reader) if reader is not None else None
        self.meters: RunMetrics | None = None
        if self._metering is not None:
            self.meters = RunMetrics(
                self._metering.get_meter(conventions.SCOPE, schema_url=conventions.SCHEMA_URL), figures
            )

    @classmethod
    def over_http(cls, wants: ExportSettings, figures: Figures | None = None) -> "OTelExporter":
        """Return an export to the endpoints that are wanted."""

        headers = dict(wants.headers) or None
        exporters: list[OTLPSpanExporter | OTLPMetricExporter] = []
        spans = metrics = None
        if wants.traces is not None:
            traces_over = OTLPSpanExporter(endpoint=wants.traces, headers=headers)
            spans = BatchSpanProcessor(traces_over)
            exporters.append(traces_over)
        if wants.metrics is not None:
            metrics_over = OTLPMetricExporter(endpoint=wants.metrics, headers=headers)
            metrics = PeriodicExportingMetricReader(metrics_over)
            exporters.append(metrics_over)
        export = cls(wants, spans, metrics, figures)
        export._exporters = exporters
        return export

    def _tracing(self, processor: SpanProcessor) -> TracerProvider:
        tracers = TracerProvider(resource=self.resource, shutdown_on_exit=False)
        tracers.add_span_processor(processor)
        self._hand_over = processor.on_end
        return tracers

    def _measuring(self, reader: MetricReader) -> MeterProvider:

        return MeterProvider([reader], resource=self.resource, shutdown_on_exit=False)

    def sampled(self, root: RunSpan) -> bool:
        """Ask the sampler (OTEL_TRACES_SAMPLER; by default all are wanted) about a run."""
        if self._tracers is None:
            return False

        above = NonRecordingSpan(_context(root.parent)) if root.parent is not None else INVALID_SPAN
        place, said = root.place, root.attributes
        result = self._tracers.sampler.should_sample(
            set_span_in_context(above), place.trace, root.name, SpanKind.INTERNAL, said
        )
        return result.decision is Decision.RECORD_AND_SAMPLE

    def take(self, span: RunSpan) -> None:
        """Count a span that has ended, and hand it over to be sent if its run is sampled."""
        if self.meters is not None:
            self.meters.take(span)
        if self._tracers is not None and span.place.sampled:
            self._hand_over(self._readable(span))

    def _readable(self, span: RunSpan) -> ReadableSpan:
        """Return the span as the SDK's own, made at once: begun and ended through a tracer it would cost tenfold."""

        return ReadableSpan(
            span.name,
            _context(span.place),
            None if span.parent is None else _context(span.parent),
            self.resource,
            self._cut(span.attributes),
            [Event(moment.name, self._cut(moment.attributes), _nanoseconds(moment.at)) for moment in span.moments],
            [Link(_context(link.place), link.attributes) for link in span.links],
            SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else _FINE,
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=self._scope,
        )

    def _cut(self, said: dict[str, SpanValue]) -> dict[str, SpanValue]:
        """Return attributes no longer than OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT wants them."""
        if self._longest is None:
            return said
        return {name: value[: self._longest] if isinstance(value, str) else value for name, value in said.items()}

    def shutdown(self) -> None:
        """Send what is left, and stop the SDK's threads. May take seconds: not for an event loop."""
        hurry = Timer(_WAIT, self._give_up)
        hurry.start()
        try:
            if self._tracers is not None:
                self._tracers.shutdown()
            if self._metering is not None:
                self._metering.shutdown()
        finally:
            hurry.cancel()

    def _give_up(self) -> None:
        """Stop trying to send: the SDK alone would go on for as long as a receiver may take, which is ten seconds."""
        for exporter in self._exporters:
            exporter.shutdown()


def _context(place: SpanRef) -> SpanContext:
    return SpanContext(place.trace, place.span, place.remote, _SAMPLED if place.sampled else _DROPPED)


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)
