"""Telemetry: runs as OpenTelemetry spans and metrics, sent to the endpoints that the operator names and nowhere else.

Reading order: `conventions` (every name), `span_model` (spans and their ids), `observer` (runs as spans), `export`
(metrics, and sending). Invariants: without an endpoint nothing is made and nothing is sent, and whatever happens here,
a run does not notice. Deliberately absent: any telemetry about Shikisha itself, to anyone.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from shikisha.core.errors import MissingExtra

if TYPE_CHECKING:
    from shikisha.core.secrets import SecretStore
    from shikisha.telemetry.attributes import WorkerFacts
    from shikisha.telemetry.export_settings import ExportSettings
    from shikisha.telemetry.observer import TelemetryObserver


def make_observer(
    settings: "ExportSettings | None",
    secret_store: "SecretStore",
    facts: "Mapping[str, WorkerFacts] | None" = None,
    figures: "Callable[[], Mapping[str, float]] | None" = None,
) -> "TelemetryObserver | None":
    """Return the observer that exports runs; None where nothing is exported.

    `facts` are the workers', by name; `figures` returns the server's, by the names in `conventions.FIGURES`.
    MissingExtra without OpenTelemetry.
    """
    if settings is None:
        return None
    try:
        from shikisha.telemetry import export, observer
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("shikisha"):
            raise
        raise MissingExtra("otel", "exporting telemetry") from error

    exporter = export.OTelExporter.over_http(settings, figures)
    return observer.TelemetryObserver(exporter, secret_store, facts or {}, content=settings.content)
