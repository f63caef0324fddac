"""Telemetry on its way out: a real OTLP receiver, what switches it on and off, and that nothing leaves unasked."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from serving import served

from shikisha.config.container import build_observer, known_worker_facts, load_config
from shikisha.core.errors import ConfigError
from shikisha.core.secrets import SecretStore
from shikisha.telemetry import conventions, make_observer
from shikisha.telemetry.attributes import trace_id
from shikisha.telemetry.export_settings import export_settings


@dataclass
class Received:
    """What an OTLP receiver was sent: paths, headers, bodies."""

    url: str = ""
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    status: int = 200

    def spans(self) -> list[str]:
        """The names of the spans, as they came."""
        scopes = [scope for one in self.traces for resource in one.resource_spans for scope in resource.scope_spans]
        return [span.name for scope in scopes for span in scope.spans]


@contextmanager
def receiver(status: int = 200) -> Iterator[Received]:
    """An OTLP/HTTP receiver on loopback."""
    received = Received(status=status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.headers.append(dict(self.headers))
            if self.path.endswith("/v1/traces"):
                received.traces.append(ExportTraceServiceRequest.FromString(body))
            else:
                received.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(received.status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        received.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


async def test_spans_and_metrics_arrive_over_http_as_protobuf(tmp_path: Path) -> None:
    with receiver() as received:
        environment = {"OTLP_HEADERS": "authorization=Bearer planted-0123456789,x-team=ours"}
        config = f'[telemetry]\nendpoint = "{received.url}"\nheaders_env = "OTLP_HEADERS"\nservice = "tests"\n'
        async with served(tmp_path, config, environment) as at, at.http() as client:
            question = {"model": "shikisha", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
            answer = await client.post("/v1/chat/completions", json=question)
            run = answer.headers["x-shikisha-run-id"]
    assert {header["authorization"] for header in received.headers} == {"Bearer planted-0123456789"}
    (resource,) = received.traces[0].resource_spans
    assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "tests"
    spans = resource.scope_spans[0].spans
    assert {int.from_bytes(span.trace_id) for span in spans} == {trace_id(run)}
    assert received.spans()[-1].startswith("invoke_workflow ")
    sent = {m.name for r in received.metrics[-1].resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert {conventions.WORKFLOW_DURATION, conventions.AGENT_DURATION, conventions.RUNS, *conventions.FIGURES} <= sent


async def test_a_client_s_traceparent_reaches_the_spans(tmp_path: Path) -> None:
    with receiver() as received:
        async with served(tmp_path, f'[telemetry]\nendpoint = "{received.url}"\n') as at, at.http() as client:
            question = {"model": "shikisha", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
            header = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
            await client.post("/v1/chat/completions", json=question, headers=header)
    spans = received.traces[0].resource_spans[0].scope_spans[0].spans
    assert {span.trace_id.hex() for span in spans} == {"0af7651916cd43dd8448eb211c80319c"}


@pytest.mark.parametrize("status", [400, 503])
async def test_a_receiver_that_refuses_ends_no_run(tmp_path: Path, status: int) -> None:
    with receiver(status) as received:
        async with served(tmp_path, f'[telemetry]\nendpoint = "{received.url}"\n') as at, at.http() as client:
            question = {"model": "shikisha", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
            answer = await client.post("/v1/chat/completions", json=question)
            assert answer.status_code == 200
    assert received.spans()


UNASKED = """
import asyncio, sys
opened, outward = [], ("socket.connect", "socket.getaddrinfo")
sys.addaudithook(lambda name, args: opened.append(args[1]) if name in outward else None)
from pathlib import Path
from httpx2 import ASGITransport, AsyncClient
from shikisha.config.container import load_config
from shikisha.server.app import create_app
from shikisha.server.lifecycle.process import open_service

async def main():
    container = load_config(Path(sys.argv[1]), {})
    async with open_service(container) as service:
        through = ASGITransport(app=create_app(service))
        key = {"authorization": f"Bearer {service.first_key}"}
        async with AsyncClient(transport=through, base_url="http://localhost", headers=key) as client:
            question = {"model": "shikisha", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
            answer = await client.post("/v1/chat/completions", json=question)
            assert answer.status_code == 200, answer.text

asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
print(opened)
"""


def test_a_server_without_configuration_opens_no_connection(tmp_path: Path) -> None:
    file = tmp_path / "shikisha.toml"
    file.write_text('pool = ["simulated"]\n')
    unset = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", UNASKED, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=unset)  # noqa: S603 - our own
    assert (done.stdout.splitlines(), done.returncode) == (["[]", "[]"], 0), done.stderr[-2000:]


@pytest.mark.parametrize(
    ("environment", "endpoint", "traces", "metrics"),
    [
        ({}, None, None, None),
        ({}, "http://h:1/", "http://h:1/v1/traces", "http://h:1/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://e:2"}, "http://h:1", "http://e:2/v1/traces", "http://e:2/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x"}, None, "http://t/x", None),
        ({"OTEL_METRICS_EXPORTER": "none"}, "http://h:1", "http://h:1/v1/traces", None),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}, "http://h:1", None, None),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://e:2"}, "http://h:1", None, None),
    ],
)
def test_the_environment_goes_before_the_file(
    environment: dict[str, str], endpoint: str | None, traces: str | None, metrics: str | None
) -> None:
    wants = export_settings(environment, endpoint)
    assert (wants.traces if wants else None, wants.metrics if wants else None) == (traces, metrics)


@pytest.mark.parametrize(
    ("environment", "headers", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", "expected http/protobuf"),
        ({}, "planted-0123456789", "expected name=value"),
    ],
)
def test_what_cannot_be_done_is_refused_without_repeating_keys(
    environment: dict[str, str], headers: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        export_settings(environment, "http://h:1", headers)
    assert "planted" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('endpoint = "h:4318"', "http"),
        ('endpoint = "http://me:hunter2@h"', "no password"),
        ('scrape = ["everyone"]', "scrape"),
        ('log = "loud"', "log"),
        ("content = true", "unknown key"),
    ],
)
def test_a_wrong_table_is_an_error_that_says_where(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "shikisha.toml"
    file.write_text(f"[telemetry]\n{line}\n")
    with pytest.raises(ConfigError, match=f"telemetry.*{said}") as error:
        load_config(file, {})
    assert "hunter2" not in str(error.value)


def test_workers_are_known_by_model_and_host_and_nothing_more(tmp_path: Path) -> None:
    file = tmp_path / "shikisha.toml"
    file.write_text(
        '[workers.w]\nkind = "chat"\nmodel = "m"\nbase_url = "https://api.mistral.ai/v1/secret-path"\nseed = 7\n'
        '[workers.t]\nkind = "python"\n'
    )
    facts = known_worker_facts(load_config(file, {}))
    assert (facts["w"].provider, facts["w"].address, facts["w"].port) == ("mistral_ai", "api.mistral.ai", 443)
    assert facts["w"].request == {"gen_ai.request.seed": 7}
    assert facts["t"].tool_type == "function"
    assert "secret-path" not in repr(facts)


def test_nothing_configured_is_no_observer(tmp_path: Path) -> None:
    file = tmp_path / "shikisha.toml"
    file.write_text('pool = ["simulated"]\n')
    composition = load_config(file, {})
    assert build_observer(composition, composition.settings.telemetry, environment={}) is None
    assert make_observer(None, SecretStore({})) is None


ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from shikisha.core.secrets import SecretStore
from shikisha.telemetry import make_observer
from shikisha.telemetry.export_settings import export_settings
try:
    make_observer(export_settings({}, "http://127.0.0.1:9"), SecretStore({}))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def test_without_the_extra_the_error_names_it() -> None:
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "MissingExtra: exporting telemetry needs the extra 'otel': pip install 'shikisha[otel]'\n"
