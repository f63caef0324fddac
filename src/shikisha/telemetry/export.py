"""Spans and metrics handed to OpenTelemetry's SDK, which sends them over OTLP/HTTP. Importing this needs the extra.

Invariants: spans are handed over as they end and sent by the SDK's own thread, which drops what it cannot hold and
gives up what it cannot send: nothing here waits. One decision of the sampler, at the root, holds for a whole run. The
SDK's environment variables hold (samplers, limits, resource attributes, time-outs, compression, certificates). Metrics
are made of the spans that have ended, with the conventions' names and bucket boundaries; their attributes have few
values (no run, no step, no person). Dollars, runs and refusals are counted here, and read when metrics are collected.
Deliberately absent: exporting logs, the SDK's global providers (a program that embeds Shikisha has its own), and
Prometheus (`server.ops.metrics` counts for itself).
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
from shikisha.telemetry.attributes import RunSpan, SpanRef, SpanValue
from shikisha.telemetry.export_settings import ExportSettings

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
    """Counts what spans say. `figures` are the server's gauges (waiting runs, journal lag...), read when collected."""

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
        attributes = span.attributes
        operation = attributes.get(conventions.OPERATION)
        if operation == conventions.CHAT:
            self._call(span)
        elif operation == conventions.INVOKE_AGENT:
            self._steps.record(span.seconds, _select(attributes, _AGENT))
        elif operation == conventions.EXECUTE_TOOL:
            self._tools.record(span.seconds, _select(attributes, _TOOL))
        elif operation == conventions.INVOKE_WORKFLOW and conventions.RUN_STATUS in attributes:
            self._run(span)
        dollars = attributes.get(conventions.COST)
        if (
            isinstance(dollars, float | int)
            and dollars
            and conventions.REASON in attributes
            and conventions.CHILD_RUN not in attributes
        ):
            self._dollars[
                (conventions.WORKER, str(attributes[conventions.WORKER])),
                (conventions.ROLE, str(attributes[conventions.ROLE])),
            ] += dollars

    def _call(self, span: RunSpan) -> None:
        attributes = span.attributes
        about = _select(attributes, _CALL)
        self._calls.record(span.seconds, about)
        if conventions.INPUT_TOKENS in attributes:
            for kind, name in (("input", conventions.INPUT_TOKENS), ("output", conventions.OUTPUT_TOKENS)):
                count = attributes[name]
                if isinstance(count, int):
                    self._tokens.record(count, about | {conventions.TOKEN_TYPE: kind})

    def _run(self, span: RunSpan) -> None:
        attributes = span.attributes
        self._runs.record(span.seconds, _select(attributes, _WORKFLOW))
        nested = attributes.get(conventions.WORKFLOW_NESTED, False) is True
        self._ended[
            (conventions.RUN_STATUS, str(attributes[conventions.RUN_STATUS])), (conventions.WORKFLOW_NESTED, nested)
        ] += 1
        if conventions.RUN_CAP in attributes:
            self._refused[((conventions.RUN_CAP, str(attributes[conventions.RUN_CAP])),)] += 1


def _select(attributes: Mapping[str, SpanValue], wanted: tuple[str, ...]) -> dict[str, AttributeValue]:
    """Return the attributes that a metric has, of those that its span has."""
    return {name: attributes[name] for name in wanted if name in attributes}


def _counter_callback(tally: Tally) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Return the callback that reads a tally. It is called in a thread of the SDK's, so it reads a copy."""
    return lambda _: [Observation(count, dict(about)) for about, count in tally.copy().items()]


def _gauge_callback(figures: Figures, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_: CallbackOptions) -> Iterable[Observation]:
        values = figures()
        return [Observation(values[name])] if name in values else []

    return read


_WAIT = 2.0  # seconds for the last spans when a server stops: the SDK alone would try for ten
_SAMPLED, _DROPPED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_FINE = Status()


class OTelExporter:
    """The SDK's providers and exporters. Made of processors and readers, so that tests bring their own."""

    def __init__(
        self,
        settings: ExportSettings,
        processor: SpanProcessor | None = None,
        reader: MetricReader | None = None,
        figures: Figures | None = None,
    ) -> None:
        self._exporters: list[OTLPSpanExporter | OTLPMetricExporter] = []
        self.resource = Resource.create({SERVICE_NAME: settings.service} if settings.service else {})
        self._scope = InstrumentationScope(conventions.SCOPE, schema_url=conventions.SCHEMA_URL)
        self._longest: int | None = SpanLimits().max_span_attribute_length
        self._tracers: TracerProvider | None = None
        if processor is not None:
            self._tracers = TracerProvider(resource=self.resource, shutdown_on_exit=False)
            self._tracers.add_span_processor(processor)
            self._hand_over = processor.on_end
        self._metering: MeterProvider | None = None
        self.meters: RunMetrics | None = None
        if reader is not None:
            self._metering = MeterProvider([reader], resource=self.resource, shutdown_on_exit=False)
            self.meters = RunMetrics(
                self._metering.get_meter(conventions.SCOPE, schema_url=conventions.SCHEMA_URL), figures
            )

    @classmethod
    def over_http(cls, settings: ExportSettings, figures: Figures | None = None) -> "OTelExporter":
        """Return an exporter to the endpoints of these settings."""
        exporters: list[OTLPSpanExporter | OTLPMetricExporter] = []
        spans = metrics = None
        if settings.traces is not None:
            traces_over = OTLPSpanExporter(
                endpoint=settings.traces, headers=settings.headers_of(settings.traces) or None
            )
            spans = BatchSpanProcessor(traces_over)
            exporters.append(traces_over)
        if settings.metrics is not None:
            metrics_over = OTLPMetricExporter(
                endpoint=settings.metrics, headers=settings.headers_of(settings.metrics) or None
            )
            metrics = PeriodicExportingMetricReader(metrics_over)
            exporters.append(metrics_over)
        export = cls(settings, spans, metrics, figures)
        export._exporters = exporters
        return export

    def sampled(self, root: RunSpan) -> bool:
        """Whether the sampler (OTEL_TRACES_SAMPLER; by default every run is) takes a run with this root."""
        if self._tracers is None:
            return False
        above = NonRecordingSpan(_context(root.parent)) if root.parent is not None else INVALID_SPAN
        place, attributes = root.place, root.attributes
        result = self._tracers.sampler.should_sample(
            set_span_in_context(above), place.trace_id, root.name, SpanKind.INTERNAL, attributes
        )
        return result.decision is Decision.RECORD_AND_SAMPLE

    def take(self, span: RunSpan) -> None:
        """Count a span that has ended, and hand it over to be sent if its run is sampled."""
        if self.meters is not None:
            self.meters.take(span)
        if self._tracers is not None and span.place.sampled:
            self._hand_over(self._readable(span))

    def _readable(self, span: RunSpan) -> ReadableSpan:
        """Return the span as the SDK's own, made at once: through a tracer it would cost ten times as much."""
        return ReadableSpan(
            span.name,
            _context(span.place),
            None if span.parent is None else _context(span.parent),
            self.resource,
            self._cut(span.attributes),
            [Event(each.name, self._cut(each.attributes), _nanoseconds(each.at)) for each in span.events],
            [Link(_context(link.place), link.attributes) for link in span.links],
            SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else _FINE,
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=self._scope,
        )

    def _cut(self, attributes: dict[str, SpanValue]) -> dict[str, SpanValue]:
        """Return the attributes cut to OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT."""
        if self._longest is None:
            return attributes
        return {name: value[: self._longest] if isinstance(value, str) else value for name, value in attributes.items()}

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
        """Stop trying to send."""
        for exporter in self._exporters:
            exporter.shutdown()


def _context(place: SpanRef) -> SpanContext:
    return SpanContext(place.trace_id, place.span, place.remote, _SAMPLED if place.sampled else _DROPPED)


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)
