"""[telemetry]: where runs are told of, besides the journal; and what telemetry knows of the configured workers.

Invariants: without an endpoint, here or in OpenTelemetry's environment variables, nothing is exported; headers, which
hold keys, come from the environment by name (8). Deliberately absent: everything that OTEL_* variables say already
(samplers, limits, time-outs, intervals); they hold, and go before this table.
"""

import os
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from shikisha.config.table import Table, Variable, checked_url
from shikisha.telemetry import names, observer
from shikisha.telemetry.facts import Facts, facts
from shikisha.telemetry.wanted import Wanted, wanted

if TYPE_CHECKING:
    from shikisha.config.compose import Composition
    from shikisha.config.settings import WorkerTable
    from shikisha.secrets import Vault
    from shikisha.telemetry.watcher import Observer

_SETTLED = {"temperature": names.REQUEST_TEMPERATURE, "top_p": names.REQUEST_TOP_P, "seed": names.REQUEST_SEED}


def _checked_endpoint(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("expected the URL of an OTLP/HTTP receiver: http://... or https://...")
    return checked_url(url)


def _checked_network(network: str) -> str:
    ip_network(network)
    return network


class TelemetryTable(Table):
    """[telemetry]."""

    endpoint: Annotated[str, AfterValidator(_checked_endpoint)] | None = Field(
        default=None,
        description="base URL of an OTLP/HTTP receiver; traces go to its /v1/traces, metrics to /v1/metrics",
    )
    headers_env: Variable | None = Field(
        default=None, description="the environment variable with headers for it: name=value, separated by commas"
    )
    service: str = Field(default="shikisha", min_length=1, description="service.name, unless OTEL_SERVICE_NAME says it")
    scrape: tuple[Annotated[str, AfterValidator(_checked_network)], ...] = Field(
        default=(), description="addresses and networks that may read /metrics without a key"
    )
    log: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least that is logged")

    def wanted(self, vault: "Vault", environment: Mapping[str, str]) -> Wanted | None:
        """Return what is to be exported, and where to; None for nothing."""
        headers = vault.read(self.headers_env) if self.headers_env is not None and self.endpoint is not None else ""
        return wanted(environment, self.endpoint, headers, self.service)


def watch(
    composition: "Composition",
    table: TelemetryTable,
    figures: Callable[[], Mapping[str, float]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> "Observer | None":
    """Return what watches the runs of a composition, if anything is to be exported; shut it down in a thread."""
    settings = table.wanted(composition.vault, os.environ if environment is None else environment)
    return None if settings is None else observer(settings, composition.vault, known(composition), figures)


def known(composition: "Composition") -> dict[str, Facts]:
    """Return what telemetry may say of each worker."""
    if composition.orchestra is not None:
        cards = [member.card for member in composition.orchestra]
        return {card.name: facts(card.name, card.kind, card.description) for card in cards}
    return {name: _facts(name, table) for name, table in composition.workers.items()}


def _facts(name: str, table: "WorkerTable") -> Facts:
    url = str(getattr(table, "base_url", "") or getattr(table, "url", "") or "")
    said = {ours: getattr(table, theirs, None) for theirs, ours in _SETTLED.items()}
    if table.max_output_tokens is not None:
        said[names.REQUEST_MAX_TOKENS] = table.max_output_tokens
    return facts(
        name,
        table.kind,
        table.description,
        model=str(getattr(table, "model", "")),
        url=url,
        request={key: value for key, value in said.items() if value is not None},
    )
