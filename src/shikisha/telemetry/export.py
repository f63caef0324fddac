"""Spans and metrics handed to OpenTelemetry's SDK, which sends them over OTLP/HTTP. Importing this needs the extra.

Invariants: spans are handed over as they end and sent by the SDK's own thread, which drops what it cannot hold and
gives up what it cannot send: nothing here waits. One decision of the sampler, at the root, holds for a whole run. The
SDK's environment variables hold (samplers, limits, resource attributes, time-outs, compression, certificates).
Deliberately absent: exporting logs, and the SDK's global providers (whoever uses Shikisha as a library has their own).
"""

from threading import Timer

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
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

from shikisha.telemetry import names
from shikisha.telemetry.ids import Place
from shikisha.telemetry.meters import Figures, Meters
from shikisha.telemetry.span import Span, Value
from shikisha.telemetry.wanted import Wanted

_WAIT = 2.0  # seconds for what is left to be sent when a server stops
_SAMPLED, _DROPPED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_FINE = Status()


class Export:
    """The SDK's providers, with what they send to. Made of processors and readers, so that tests bring their own."""

    def __init__(
        self,
        wants: Wanted,
        processor: SpanProcessor | None = None,
        reader: MetricReader | None = None,
        figures: Figures | None = None,
    ) -> None:

        self._exporters: list[OTLPSpanExporter | OTLPMetricExporter] = []
        self.resource = Resource.create({SERVICE_NAME: wants.service} if wants.service else {})
        self._scope = InstrumentationScope(names.SCOPE, schema_url=names.SCHEMA_URL)
        self._longest: int | None = SpanLimits().max_span_attribute_length
        self._tracers = self._tracing(processor) if processor is not None else None
        self._metering = self._measuring(reader) if reader is not None else None
        self.meters: Meters | None = None
        if self._metering is not None:
            self.meters = Meters(self._metering.get_meter(names.SCOPE, schema_url=names.SCHEMA_URL), figures)

    @classmethod
    def over_http(cls, wants: Wanted, figures: Figures | None = None) -> "Export":
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

    def sampled(self, root: Span) -> bool:
        """Ask the sampler (OTEL_TRACES_SAMPLER; by default all are wanted) about a run."""
        if self._tracers is None:
            return False

        above = NonRecordingSpan(_context(root.parent)) if root.parent is not None else INVALID_SPAN
        place, said = root.place, root.attributes
        result = self._tracers.sampler.should_sample(
            set_span_in_context(above), place.trace, root.name, SpanKind.INTERNAL, said
        )
        return result.decision is Decision.RECORD_AND_SAMPLE

    def take(self, span: Span) -> None:
        """Count a span that has ended, and hand it over to be sent if its run is sampled."""
        if self.meters is not None:
            self.meters.take(span)
        if self._tracers is not None and span.place.sampled:
            self._hand_over(self._readable(span))

    def _readable(self, span: Span) -> ReadableSpan:
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

    def _cut(self, said: dict[str, Value]) -> dict[str, Value]:
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


def _context(place: Place) -> SpanContext:
    return SpanContext(place.trace, place.span, place.remote, _SAMPLED if place.sampled else _DROPPED)


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)
