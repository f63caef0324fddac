"""`shikisha run` exports its spans like a server does, and a receiver that is away holds up no run for long."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from shikisha.testing.chat_script import closed_port
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
QUESTION = "What is 9 times 939?"


async def run_command(folder: Path, endpoint: str) -> int:
    """Run a task with the simulated workers; return the exit status."""
    config = folder / "shikisha.toml"
    config.write_text(f'pool = ["simulated"]\n[telemetry]\nendpoint = "{endpoint}"\n')
    command = [sys.executable, "-m", "shikisha", "run", QUESTION, "--quiet", "--config", str(config)]
    command += ["--journal", str(folder / "runs.db")]
    environment = {**os.environ, "TRACEPARENT": f"00-{TRACE}-00f067aa0ba902b7-01"}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.DEVNULL)
    return await process.wait()


@pytest.mark.full
async def test_a_run_of_the_command_line_is_exported_as_part_of_its_callers_trace(tmp_path: Path) -> None:
    taken = ExportTraceServiceRequest()

    async def answer(incoming: HttpRequest, exchange: HttpExchange) -> bool:
        if incoming.path.endswith("/v1/traces"):
            taken.MergeFromString(incoming.body)
        await exchange.send(200, b"", "application/x-protobuf")
        return True

    async with serve_http(answer) as url:
        assert await run_command(tmp_path, url) == 0
    spans = [span for each in taken.resource_spans for scope in each.scope_spans for span in scope.spans]
    names = {span.name.partition(" ")[0] for span in spans}
    assert {"invoke_workflow", "plan", "invoke_agent"} <= names
    assert {span.trace_id.hex() for span in spans} == {TRACE}


@pytest.mark.full
async def test_a_receiver_that_is_away_holds_up_no_run_for_long(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        assert await run_command(tmp_path, closed_port().removesuffix("/v1")) == 0
