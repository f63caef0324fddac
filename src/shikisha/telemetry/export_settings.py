"""Whether anything is exported, and where to: OpenTelemetry's own environment variables, then the configuration.

Invariants: without a named endpoint nothing is exported. The environment takes precedence over the file: endpoints,
headers, `none` as an exporter, OTEL_SDK_DISABLED. Deliberately absent: gRPC, and any default endpoint.
"""

from collections.abc import Mapping

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.telemetry import conventions

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """What is exported, and where to. `headers` may hold secrets; they go below `endpoint` and nowhere else."""

    traces: str | None = None  # URLs
    metrics: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    service: str | None = None
    content: bool = False
    endpoint: str | None = None

    def headers_of(self, url: str) -> dict[str, str]:
        """Return the headers for a URL: none where the environment sends this signal elsewhere."""
        return dict(self.headers) if url.startswith(f"{(self.endpoint or '').rstrip('/')}/v1/") else {}


def export_settings(
    environment: Mapping[str, str], endpoint: str | None = None, headers: str = "", service: str = "shikisha"
) -> ExportSettings | None:
    """Return what the environment, or else the configuration, exports; None for nothing, ConfigError for gRPC.

    `endpoint` is the base URL of an OTLP receiver, `headers` its headers as OTEL_EXPORTER_OTLP_HEADERS has them.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    urls: dict[str, str] = {}
    for signal in ("TRACES", "METRICS"):  # as the specification of OTLP exporters says
        own = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "").strip()
        base = environment.get(_ENDPOINT, "").strip() or endpoint
        if environment.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() in {"otlp", ""} and (own or base):
            urls[signal] = own or f"{(base or '').rstrip('/')}/v1/{signal.lower()}"
    if not urls:
        return None
    for name, protocol in environment.items():
        if name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("PROTOCOL") and protocol.strip() != "http/protobuf":
            raise ConfigError(f"environment variable {name}: expected http/protobuf, found {protocol!r}")
    ours = {} if "OTEL_EXPORTER_OTLP_HEADERS" in environment else _headers(headers)
    named = bool(environment.get("OTEL_SERVICE_NAME"))
    return ExportSettings(
        urls.get("TRACES"),
        urls.get("METRICS"),
        ours,
        None if named else service,
        capture_content(environment),
        endpoint,
    )


def capture_content(environment: Mapping[str, str]) -> bool:
    """Return whether prompts and answers may be part of spans."""
    return environment.get(conventions.CONTENT_VARIABLE, "").strip().lower() == "true"


def _headers(text: str) -> dict[str, str]:
    """Return `a=b,c=d` as headers; ConfigError for any other text, without repeating it."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise ConfigError("telemetry headers: expected name=value, separated by commas")
    return {name.strip(): value.strip() for name, _, value in pairs}
