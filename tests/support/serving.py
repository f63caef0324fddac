"""A server for tests: in this process on loopback (`served`), or as the process that people start."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx2
import uvicorn
from fresh import fresh
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from shikisha.config.container import load_config
from shikisha.journal import SegmentFindings
from shikisha.server.http.connections import ConnectionLimiter
from shikisha.server.keys import IssuedKey, KeySpec
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.process import HttpServer, listening_socket, open_service, uvicorn_config
from shikisha.server.lifecycle.service import RunService

READY = 60.0  # seconds that a server process gets to start on a busy machine


@dataclass(frozen=True, slots=True)
class At:
    """Where a server is, with an admin's key; `service` only where it is in this process."""

    url: str
    key: str
    service: RunService | None = None

    def openai(self, key: str = "") -> AsyncOpenAI:
        """Return the SDK's client; close it with `async with`."""
        http = DefaultAsyncHttpxClient(verify=trusted())
        return AsyncOpenAI(api_key=key or self.key, base_url=f"{self.url}/v1", max_retries=0, http_client=http)

    def http(self, key: str | None = "") -> httpx2.AsyncClient:
        """Return a plain client; key None: without any."""
        headers = {} if key is None else {"Authorization": f"Bearer {key or self.key}"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30.0, verify=trusted())

    async def issue(self, *scopes: KeyScope, tenant: str = "other", expires: float | None = None) -> IssuedKey:
        """Issue a further key (of a server in this process only)."""
        assert self.service is not None
        return await self.service.keys.issue(KeySpec("further", tenant, frozenset(scopes), expires=expires), "tests")


@cache
def trusted() -> ssl.SSLContext:
    """The certificates that clients trust, read once: that takes longer than most tests."""
    return httpx2.create_ssl_context()


class _Quiet(HttpServer):
    """A server that leaves signals to the test runner, and is told of its end instead of looking every 0.1 s."""

    def __init__(self, config: uvicorn.Config, crowd: ConnectionLimiter) -> None:
        super().__init__(config, crowd)
        self.ending = asyncio.Event()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ending.wait(), 1.0)
                self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
            await server.wait_closed()
        for each in sockets or ():
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.002)


NOTHING = "[server]\nport = 0\n"


def with_workers(config: str) -> str:
    """Return the configuration, with the simulated workers where it names none."""
    return config if "[workers." in config else f'pool = ["simulated"]\n{config or NOTHING}'


@asynccontextmanager
async def served(
    folder: Path, config: str = "", environment: Mapping[str, str] | None = None, crowd: ConnectionLimiter | None = None
) -> AsyncIterator[At]:
    """Serve this configuration (the embedded orchestra without one) with its journal in a folder."""
    file = folder / "shikisha.toml"
    file.write_text(with_workers(config))
    composition = load_config(file, environment or {})
    settings = composition.settings.server.model_copy(update={"port": 0, "drain": 0.5})
    composition.settings = composition.settings.model_copy(update={"server": settings})
    fresh(composition.journal_url())
    with listening_socket(settings.model_copy(update={"host": "127.0.0.1"})) as listening:  # whatever it is told
        async with open_service(composition) as service:
            server = _Quiet(uvicorn_config(service), crowd or ConnectionLimiter(1000))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            async with asyncio.timeout(READY):
                while not server.started:  # noqa: ASYNC110 - uvicorn tells it so, and in no other way
                    await asyncio.sleep(0.005)
            try:
                yield At(f"http://127.0.0.1:{listening.getsockname()[1]}", service.first_key or "", service)
            finally:
                server.ending.set()
                await serving
                records = await service.journal.conclude([SegmentFindings(0, "")])
                assert records.ok, records.problems  # whatever the test did, every change of a record was chained
        await composition.aclose()


@asynccontextmanager
async def served_process(
    folder: Path,
    config: str = "",
    journal: str = "",
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> AsyncIterator[tuple[At, asyncio.subprocess.Process]]:
    """Serve as `shikisha serve` does, in a process of its own, which the test may kill; `before` starts the command."""
    file = folder / "shikisha.toml"
    if not file.exists() or config:
        file.write_text(with_workers(config))
    command = [*before, sys.executable, "-m", "shikisha", "serve", "--json", "--port", "0", "--config", str(file)]
    journal = journal or str(folder / "journal.db")
    fresh(journal)
    command += ["--journal", journal]
    log = (folder / "server.log").open("ab")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=log, env={**os.environ, **(environment or {})}
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), READY)
        if not line:
            raise AssertionError(f"the server did not start: {(folder / 'server.log').read_text()[-2000:]}")
        told = json.loads(line)
        yield At(told["url"], told["key"] or ""), process
    finally:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 20)
        if process.returncode is None:
            process.kill()
            await process.wait()
        log.close()


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
