"""What the telemetry tests share: an observer that exports into memory through the real SDK; spans as a tree."""

from collections.abc import Iterator, Sequence

from opentelemetry.sdk.metrics.export import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shikisha.core.secrets import SecretStore
from shikisha.engine.approvals import Approver
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder, Recorder
from shikisha.telemetry.attributes import WorkerFacts, describe_worker
from shikisha.telemetry.export import Figures, OTelExporter
from shikisha.telemetry.export_settings import ExportSettings
from shikisha.telemetry.observer import TelemetryObserver
from support import AT_ONCE

Point = NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint
FACTS = (
    describe_worker("cheap", "chat", "quick", model="small-1", url="http://127.0.0.1:9/v1"),
    describe_worker("dear", "chat", "slow", model="large-1", url="https://api.openai.com/v1"),
    describe_worker("sum", "python"),
    describe_worker("kid", "conductor"),
    describe_worker("ann", "human"),
)


class Seen:
    """An observer, and everything that it exported. `spans()` come in the order in which they ended."""

    def __init__(
        self,
        *,
        content: bool = False,
        secret_store: SecretStore | None = None,
        known: Sequence[WorkerFacts] = FACTS,
        figures: Figures | None = None,
    ) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        wants = ExportSettings("memory", "memory", service="tests", content=content)
        self.export = OTelExporter(wants, SimpleSpanProcessor(self._spans), self._metrics, figures)
        known_by_name = {one.name: one for one in known}
        self.observer = TelemetryObserver(self.export, secret_store or SecretStore({}), known_by_name, content=content)

    def engine(
        self,
        recorder: Recorder | None = None,
        approver: Approver | None = None,
        secret_store: SecretStore | None = None,
    ) -> Engine:
        """An engine that this observer watches."""
        watched = self.observer.observe
        return Engine(
            recorder or MemoryRecorder(), approver=approver, secret_store=secret_store, observe=watched, retry=AT_ONCE
        )

    def spans(self) -> Sequence[ReadableSpan]:
        """Every span that was exported."""
        return self._spans.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of this name."""
        return [span for span in self.spans() if span.name == name]

    def points(self) -> dict[str, list[Point]]:
        """The metrics, by name."""
        data = self._metrics.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


def said(span: ReadableSpan) -> dict[str, object]:
    """A span's attributes."""
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[int, int]:
    """A span's trace and its own id."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def tree(spans: Sequence[ReadableSpan]) -> list[str]:
    """The spans as indented lines, each below its parent, in order of time; a word for an error, links by name."""
    by_id = {ids(span)[1]: span for span in spans}
    below: dict[int, list[ReadableSpan]] = {}
    for span in spans:
        below.setdefault(span.parent.span_id if span.parent else 0, []).append(span)

    def told(parent: int, depth: int) -> Iterator[str]:
        for span in sorted(below.get(parent, []), key=lambda one: (one.start_time or 0, ids(one)[1])):
            error = f" !{said(span)['error.type']}" if "error.type" in said(span) else ""
            links = [by_id[link.context.span_id].name if link.context.span_id in by_id else "?" for link in span.links]
            yield "  " * depth + span.name + error + (f" <- {', '.join(links)}" if links else "")
            yield from told(ids(span)[1], depth + 1)

    return list(told(0, 0))
