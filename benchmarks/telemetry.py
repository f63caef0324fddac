"""What watching a run costs: microseconds a step, with exporting off, with spans, and with spans and metrics.

The spans go through the SDK's batch processor to an exporter that keeps nothing, as they would on the way to a network;
the run's own events are replayed, so that nothing but the observer is measured, in CPU time of the thread that would
perform runs. `python benchmarks/telemetry.py`.
"""

import asyncio
from collections.abc import Sequence
from time import thread_time

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Card, Reply, Request
from shikisha.core.events import Event
from shikisha.core.plan import Plan, Step
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.telemetry import make_observer
from shikisha.telemetry.attributes import describe_worker
from shikisha.telemetry.export import OTelExporter
from shikisha.telemetry.export_settings import ExportSettings, export_settings
from shikisha.telemetry.observer import TelemetryObserver

STEPS, RUNS, TRIALS = 3, 60, 60  # many short trials, of which the best counts: others work on this machine too
AIM = 60.0  # microseconds a step


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - the SDK's signature
        return SpanExportResult.SUCCESS


class _Instant:
    async def perform(self, request: Request) -> Reply:  # noqa: ARG002 - the protocol's signature
        return Reply("done")


async def _events(runs: int) -> list[Event]:
    pool = Pool([Member(Card("small", kind="chat"), _Instant())])
    plan = Plan(tuple(Step(f"part {i}", 0, tuple(range(i))) for i in range(STEPS)))
    recorder = MemoryRecorder()
    for index in range(runs):
        await Engine(recorder).run(Task("What is it?"), pool, ScriptedConductor([plan]), run_id=f"r{index}")
    return [event for index in range(runs) for event in await recorder.read(f"r{index}")]


def _cost(events: Sequence[Event], watching: TelemetryObserver | None) -> float:
    """Return microseconds a step; what is asked of a server that exports nothing is whether there is an observer."""
    best = float("inf")
    for _ in range(TRIALS):
        began = thread_time()
        for event in events:
            if watching is not None:
                watching.observe(event)
        best = min(best, thread_time() - began)
    return best * 1e6 / (STEPS * RUNS)


def _watching(*, spans: bool, metrics: bool) -> TelemetryObserver:
    secret_store = SecretStore({"A_KEY": "k" * 40, "ANOTHER": "l" * 40})
    for variable in ("A_KEY", "ANOTHER"):
        secret_store.read(variable)
    processor = BatchSpanProcessor(_Nowhere(), max_queue_size=1_000_000) if spans else None
    export = OTelExporter(ExportSettings(service="benchmark"), processor, InMemoryMetricReader() if metrics else None)
    return TelemetryObserver(
        export, secret_store, {"small": describe_worker("small", "chat", model="small-1", url="http://127.0.0.1/v1")}
    )


def main() -> None:
    """Measure and print."""
    events = asyncio.run(_events(RUNS))
    off = make_observer(export_settings({}), SecretStore({}))
    rows = {
        "no endpoint configured": _cost(events, off),
        "metrics": _cost(events, _watching(spans=False, metrics=True)),
        "spans": _cost(events, _watching(spans=True, metrics=False)),
        "spans and metrics": _cost(events, _watching(spans=True, metrics=True)),
    }
    print(f"{STEPS}-step runs, microseconds a step (a share of the run's own spans included; aim: below {AIM:g})")
    for name, cost in rows.items():
        print(f"{name:24} {cost:8.1f}")


if __name__ == "__main__":
    main()
