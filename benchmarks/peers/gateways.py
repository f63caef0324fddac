"""The server beside other people's gateways, on this machine, in turns: requests a second, CPU a request, latency.

    python benchmarks/peers/gateways.py [--rounds 3] [--seconds 8] [--only NAME ...] [--json]

Each gateway passes one-step chats to an endpoint that answers at once, in a process of its own; client, gateway and
endpoint share the cores. Shikisha journals every run and syncs it to disk before it answers; the others keep no
journal. LiteLLM (one worker process) and ferrogw (a binary in Go) are installed in `build/gateways`, Portkey by npm in
`build/portkey`. Shown is the median over the rounds, CPU of all processes of a gateway, and the machine's load.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from serving_client import connections, hammered, paced, percentile, server
from serving_load import ASKED, CHAT, ONE_STEP, endpoint

BUILD = Path(__file__).resolve().parents[2] / "build"
LITELLM, PORTKEY, FERROGW = "litellm[proxy]==1.108.7", "@portkey-ai/gateway@1.15.2", "ferrogw==1.5.10"
CONNECTIONS, RATE = 32, 100.0
COLUMNS = {
    "rate": "requests/s",
    "cpu": "ms CPU a request",
    "p50": "added p50 at 100/s, ms",
    "p99": "added p99 at 100/s, ms",
}


@dataclass(frozen=True)
class Gateway:
    """A running gateway: its port, the headers that it needs, and its process."""

    port: int
    headers: Mapping[str, str]
    process: psutil.Process

    def request(self) -> bytes:
        """Return the bytes of a chat request."""
        body = json.dumps({**ASKED, "model": self.headers.get("model", "m")}).encode()
        lines = [f"POST {CHAT} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in self.headers.items() if name != "model"]
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body

    def cpu(self) -> float:
        """Return the processor seconds of the gateway's processes so far."""
        used = [each.cpu_times() for each in (self.process, *self.process.children(recursive=True))]
        return float(sum(each.user + each.system for each in used))


def free_port() -> int:
    """Return a port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running(
    command: list[str],
    folder: Path,
    headers: Mapping[str, str],
    port: int,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Gateway]:
    """Start a gateway's command, wait until its port answers, and stop it at the end."""
    environment = {**os.environ, **(environment or {})}
    with Path(folder, "log").open("wb") as log:  # noqa: ASYNC230  once, before anything is measured
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        for _ in range(600):
            with suppress(OSError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            await asyncio.sleep(0.2)
        yield Gateway(port, headers, psutil.Process(process.pid))
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def install(name: str, package: str) -> Path:
    """Return a command of a Python package, installed at the first call."""
    command = BUILD / "gateways" / "bin" / name
    if not command.exists():
        subprocess.run([sys.executable, "-m", "venv", str(BUILD / "gateways")], check=True)  # noqa: S603  ours
        pip = str(BUILD / "gateways" / "bin" / "pip")
        subprocess.run([pip, "install", "--quiet", package], check=True)  # noqa: S603  a fixed command
    return command


def install_portkey() -> Path:
    """Return Portkey's server script, installed at the first call."""
    home = BUILD / "portkey"
    script = home / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    if not script.exists():
        home.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--silent", "--prefix", str(home), PORTKEY]
        subprocess.run(npm, check=True)  # noqa: S603  a fixed command
    return script


@asynccontextmanager
async def shikisha(folder: Path, upstream: int) -> AsyncIterator[Gateway]:
    """Start this project's server."""
    async with server(folder, ONE_STEP.format(port=upstream), log=folder / "log") as at:
        yield Gateway(at.port, {"Authorization": f"Bearer {at.key}", "model": "shikisha"}, at.process)


@asynccontextmanager
async def litellm(folder: Path, upstream: int) -> AsyncIterator[Gateway]:
    """Start LiteLLM's proxy."""
    told = {"model": "openai/m", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    key = "sk-" + "0123456789abcdef" * 4
    models = [{"model_name": "m", "litellm_params": told}]
    config = json.dumps({"model_list": models, "general_settings": {"master_key": key}})
    Path(folder, "config.yaml").write_text(config)  # noqa: ASYNC240  once, before anything is measured
    port = free_port()
    command = [str(install("litellm", LITELLM)), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    async with running(command, folder, {"Authorization": f"Bearer {key}"}, port) as gateway:
        yield gateway


@asynccontextmanager
async def portkey(folder: Path, upstream: int) -> AsyncIterator[Gateway]:
    """Start Portkey's gateway."""
    headers = {
        "Authorization": "Bearer none",
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"http://127.0.0.1:{upstream}/v1",
    }
    port = free_port()
    command = ["node", str(install_portkey()), f"--port={port}", "--headless"]
    async with running(command, folder, headers, port) as gateway:
        yield gateway


@asynccontextmanager
async def ferrogw(folder: Path, upstream: int) -> AsyncIterator[Gateway]:
    """Start Ferro Labs' gateway, without its limit on requests; it keeps its log of requests in memory."""
    Path(folder, "config.yaml").write_text("strategy: {mode: single}\ntargets: [{virtual_key: openai}]\n")  # noqa: ASYNC240  once
    key, port = "fgw_0123456789abcdef", free_port()
    environment = {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{upstream}/v1",
        "OPENAI_API_KEY": "none",
        "MASTER_KEY": key,
        "GATEWAY_CONFIG": "config.yaml",
        "RATE_LIMIT_RPS": "1000000",
        "RATE_LIMIT_BURST": "1000000",
        "PORT": str(port),
    }
    headers = {"Authorization": f"Bearer {key}", "model": "gpt-4o-mini"}
    async with running([str(install("ferrogw", FERROGW)), "serve"], folder, headers, port, environment) as gateway:
        yield gateway


GATEWAYS: Mapping[str, Callable[[Path, int], AbstractAsyncContextManager[Gateway]]] = {
    "shikisha": shikisha,
    "litellm": litellm,
    "portkey": portkey,
    "ferrogw": ferrogw,
}


async def measure(name: str, seconds: float) -> dict[str, float]:
    """Return the figures of one gateway."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = await stack.enter_async_context(endpoint(0.0))
        gateway = await stack.enter_async_context(GATEWAYS[name](folder, upstream))
        pool = await stack.enter_async_context(connections("127.0.0.1", gateway.port, CONNECTIONS))
        request = gateway.request()
        first = await pool[0].ask(request)
        if first.status != 200:
            raise SystemExit(f"{name}: {first.data[:600]!r}")
        await hammered(pool, request, 2.0)
        used, begun = gateway.cpu(), perf_counter()
        answers = await hammered(pool, request, seconds)
        took, used = perf_counter() - begun, gateway.cpu() - used
        right = [each for each in answers if each.status == 200]
        direct = await stack.enter_async_context(connections("127.0.0.1", upstream, CONNECTIONS))
        straight = await paced(direct, request, RATE, seconds / 2)
        through = await paced(pool, request, RATE, seconds / 2)
    added = {
        share: percentile([each.seconds for each in through], share)
        - percentile([each.seconds for each in straight], share)
        for share in (0.5, 0.99)
    }
    return {
        "rate": len(right) / took,
        "cpu": 1000 * used / max(1, len(right)),
        "p50": 1000 * added[0.5],
        "p99": 1000 * added[0.99],
        "errors": len(answers) - len(right),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", nargs="+", choices=GATEWAYS, default=tuple(GATEWAYS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rounds = [{name: asyncio.run(measure(name, given.seconds)) for name in given.only} for _ in range(given.rounds)]
    found = {name: {key: median(each[name][key] for each in rounds) for key in rounds[0][name]} for name in given.only}
    if given.json:
        print(json.dumps(found))
        return
    print(f"{'':12}" + "".join(f"{title:>26}" for title in (*COLUMNS.values(), "errors")))
    for name, figures in found.items():
        print(f"{name:12}" + "".join(f"{figures[key]:>26,.2f}" for key in (*COLUMNS, "errors")))
    print(f"load of the last minute, and of fifteen: {os.getloadavg()[0]:.1f}, {os.getloadavg()[2]:.1f}")


if __name__ == "__main__":
    main()
