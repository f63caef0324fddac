"""The observer that a command or server passes to the engine, and what it scrubs before anything is exported.

Invariants: whatever happens here, a run does not notice. An error is logged once, by its type, and the next event is
observed all the same (a broken observer must not fill a disk). Secrets are scrubbed from all that leaves. Deliberately
absent: threads of our own.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from shikisha.core.errors import PROCESS_STOPS
from shikisha.core.events import Event
from shikisha.core.secrets import SecretStore
from shikisha.telemetry.attributes import RunSpan, SpanValue, WorkerFacts, parse_traceparent
from shikisha.telemetry.run_spans import RunSpans

if TYPE_CHECKING:
    from shikisha.telemetry.export import OTelExporter

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class TelemetryObserver:
    """Exports runs as spans and metrics. `observe` takes every event; `recall`, those from before a run is resumed."""

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
        """Observe an event as it happens."""
        self._safely(self._spans.observe, event)

    def recall(self, events: Sequence[Event]) -> None:
        """Read a run's journaled events before it is resumed here, so that its trace continues."""
        self._safely(self._spans.recall, events)

    def adopt(self, run: str, traceparent: str | None) -> None:
        """Make a run part of its client's trace (a W3C `traceparent` header), before it begins or is resumed."""
        parent = parse_traceparent(traceparent)
        if parent is not None:
            self._spans.adopt(run, parent)

    def shutdown(self) -> None:
        """Send what is left and stop. It may take seconds: call it in a thread."""
        self._safely(lambda export: export.shutdown(), self._export)

    def _take(self, span: RunSpan) -> None:
        if not self._secret_store.empty and self._holds_key(span):
            self._scrub(span)
        self._export.take(span)

    def _holds_key(self, span: RunSpan) -> bool:
        """Whether any text of a span holds a secret. All texts are searched as one, since every run pays for this."""
        texts = [span.name, *_texts(span.attributes)]
        for event in span.events:
            texts += _texts(event.attributes)
        whole = "\n".join(texts)
        return self._secret_store.scrub(whole) is not whole

    def _scrub(self, span: RunSpan) -> None:
        span.name = self._secret_store.scrub(span.name)
        for attributes in (span.attributes, *[event.attributes for event in span.events]):
            for name, value in attributes.items():
                if isinstance(value, str):
                    attributes[name] = self._secret_store.scrub(value)
                elif isinstance(value, tuple):
                    attributes[name] = tuple(
                        [self._secret_store.scrub(each) if isinstance(each, str) else each for each in value]
                    )

    def _safely(self, do: Callable[[T], None], what: T) -> None:
        try:
            do(what)
        except PROCESS_STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - telemetry must not end a run, whatever it raises
            name = type(error).__name__
            if name not in self._failed:
                self._failed.add(name)
                _LOG.warning("telemetry: %s; spans may be missing (logged once)", name)


def _texts(attributes: Mapping[str, SpanValue]) -> list[str]:
    texts = [value for value in attributes.values() if isinstance(value, str)]
    return texts + [str(part) for value in attributes.values() if isinstance(value, tuple) for part in value]
