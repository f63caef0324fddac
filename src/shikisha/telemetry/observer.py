"""The observer that whoever serves runs calls with every event.

Invariants: whatever happens here, a run does not notice: an error is said once in the log, by its type, and the next
event is taken in all the same (the first of many, then silence: a broken observer must not fill a disk). Keys are
scrubbed from all that leaves, in any case. Deliberately absent: threads of our own.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from shikisha.core.errors import PROCESS_STOPS
from shikisha.core.events import Event
from shikisha.core.secrets import SecretStore
from shikisha.telemetry.run_spans import RunSpans
from shikisha.telemetry.span_model import RunSpan, SpanValue, parse_traceparent
from shikisha.telemetry.worker_facts import WorkerFacts

if TYPE_CHECKING:
    from shikisha.telemetry.export import OTelExporter

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class TelemetryObserver:
    """Runs as spans and metrics. `observe` takes every event; `recall`, what a run had before it goes on here."""

    def __init__(
        self,
        export: "OTelExporter",
        secret_store: SecretStore,
        facts: Mapping[str, WorkerFacts],
        *,
        content: bool = False,
    ) -> None:
        self._export = export
        self._secret_store = secret_store
        self._spans = RunSpans(self._take, facts, sampled=export.sampled, content=content)
        self._failed: set[str] = set()

    def observe(self, event: Event) -> None:
        """Take an event in as it happens."""
        self._safely(self._spans.observe, event)

    def recall(self, events: Sequence[Event]) -> None:
        """Take in a run's journaled events before it goes on here, so that its spans go on too."""
        self._safely(self._spans.recall, events)

    def adopt(self, run: str, traceparent: str | None) -> None:
        """Let a run be part of its client's trace (a W3C `traceparent` header), before it begins or goes on."""
        parent = parse_traceparent(traceparent)
        if parent is not None:
            self._spans.adopt(run, parent)

    def shutdown(self) -> None:
        """Send what is left and stop. It may take seconds: call it in a thread."""
        self._safely(_shut_down, self._export)

    def _take(self, span: RunSpan) -> None:
        if not self._secret_store.empty and self._holds_key(span):
            self._scrub(span)
        self._export.take(span)

    def _holds_key(self, span: RunSpan) -> bool:
        """Look through all texts of a span at once: hardly ever is there anything, and this is on every run's way."""
        texts = [span.name, *_texts(span.attributes)]
        for moment in span.moments:
            texts += _texts(moment.attributes)
        whole = "\n".join(texts)
        return self._secret_store.scrub(whole) is not whole

    def _scrub(self, span: RunSpan) -> None:
        span.name = self._secret_store.scrub(span.name)
        for said in (span.attributes, *[moment.attributes for moment in span.moments]):
            for name, value in said.items():
                if isinstance(value, str):
                    said[name] = self._secret_store.scrub(value)
                elif isinstance(value, tuple):
                    said[name] = tuple(
                        [self._secret_store.scrub(each) if isinstance(each, str) else each for each in value]
                    )

    def _safely(self, do: Callable[[T], None], what: T) -> None:
        try:
            do(what)
        except PROCESS_STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever nobody foresaw is what is looked for
            name = type(error).__name__
            if name not in self._failed:
                self._failed.add(name)
                _LOG.warning("telemetry: %s; spans may be missing (said once)", name)


def _texts(said: Mapping[str, SpanValue]) -> list[str]:
    texts = [value for value in said.values() if isinstance(value, str)]
    return texts + [str(part) for value in said.values() if isinstance(value, tuple) for part in value]


def _shut_down(export: "OTelExporter") -> None:
    export.shutdown()
