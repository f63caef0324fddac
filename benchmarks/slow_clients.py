"""A thousand clients that are slow, silent or greedy: are probes and real requests still answered?

    python benchmarks/slow_clients.py [--clients 1000] [--seconds 20] [--descriptors 256,4096] [--kinds both] [--json]

The server is the process that `shikisha serve` starts, with so many open files allowed (hard limit). The clients are a
process of their own; those with a key come over eight seconds (at once they would be a load, and not slow), the others
at once, and whoever is disconnected comes again a second later. Meanwhile a probe asks `/healthz` ten times a second,
and somebody with a key asks for a chat completion twice a second, each on a fresh connection; the figures are seconds
from connecting until the answer is whole. First of all nobody comes: that is what the machine takes. Kinds:

    silent   connects and says nothing               head      a request's head, a byte a second
    body     a body of 1 kB, a byte a second         idle      asks once, and keeps the connection
    headers  a head without end, 64 kB a second      unread    (key) a long streamed answer that is never read
    listen   (key) a run's events, never read        pipeline  requests without pause, no answer is ever read
    slow     a third each of silent, head and body    all       a part of each

Then 24 bodies of 18 MB come at once (`greedy`): how many got an answer, which, and what memory the server took.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

import psutil

from common import Figure, report
from serving_client import Server, percentile

KINDS = ("silent", "head", "body", "idle", "headers", "unread", "listen", "pipeline")
_SETS = {"slow": ("silent", "head", "body"), "all": KINDS}
KEYED = ("unread", "listen")
_SPREAD = 8.0  # seconds over which those with a key come
CONFIG = """
conductor = "fixed:single?worker=quick"
[workers.quick]
kind = "scripted"
answers = "done"
[workers.long]
kind = "scripted"
answers = "{long}"
[workers.asks]
kind = "scripted"
approval = "always"
answers = "allowed"
[conductors.talking]
kind = "fixed"
topology = "single"
roles = {{ worker = "long" }}
[conductors.asking]
kind = "fixed"
topology = "single"
roles = {{ worker = "asks" }}
"""
LONG = "x" * 250_000
PATIENCE = 30.0  # seconds after which a probe or a request counts as unanswered
CHAT = {"model": "shikisha", "messages": [{"role": "user", "content": "What is it?"}]}
GREEDY, GREEDY_BYTES = 24, 18_000_000


@asynccontextmanager
async def server(folder: Path, descriptors: int) -> AsyncIterator[Server]:
    """Start the server with a hard limit on open files."""
    file = folder / "shikisha.toml"
    file.write_text(CONFIG.format(long=LONG))
    command = [sys.executable, "-m", "shikisha", "serve", "--json", "--port", "0", "--config", str(file)]
    limited = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*limited, stdout=asyncio.subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            told = json.loads(await process.stdout.readline())
            assert "url" in told, told
            host, _, port = str(told["url"]).removeprefix("http://").rpartition(":")
            yield Server(host, int(port), str(told["key"]), psutil.Process(process.pid))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


# the clients, in a process of their own ------------------------------------------------------------------------------


async def attack(at: Server, kinds: Sequence[str], count: int, run: str) -> None:
    """Be so many clients, until killed."""
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            kind = kinds[number % len(kinds)]
            group.create_task(_again(at, kind, run, _SPREAD * number / count if kind in KEYED else 0.0))


async def _again(at: Server, kind: str, run: str, late: float) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(late)
    while True:
        with contextlib.suppress(OSError), socket.socket() as connection:
            if kind in {"unread", "listen", "pipeline"}:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            await loop.sock_connect(connection, (at.host, at.port))
            await _be(at, kind, run, connection)
        await asyncio.sleep(1)


async def _be(at: Server, kind: str, run: str, connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    bearer = f"Host: localhost\r\nAuthorization: Bearer {at.key}\r\n"
    slow = {
        "head": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Padding: " + b"a" * 10_000,
        "body": b"x" * 1000,
    }
    if kind == "body":
        head = f"POST /v1/chat/completions HTTP/1.1\r\n{bearer}Content-Length: 1000\r\n\r\n"
        await loop.sock_sendall(connection, head.encode())
    if kind in slow:
        for place in range(len(slow[kind])):
            await loop.sock_sendall(connection, slow[kind][place : place + 1])
            await _gone(connection, 1)
    elif kind == "headers":
        await loop.sock_sendall(connection, b"GET / HTTP/1.1\r\n")
        while True:
            await loop.sock_sendall(connection, b"X-Padding: " + b"a" * 2**16 + b"\r\n")
            await _gone(connection, 1)
    elif kind == "pipeline":
        while True:
            await loop.sock_sendall(connection, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
    elif kind == "unread":
        await loop.sock_sendall(connection, at.request("/v1/chat/completions", _talking()))
        await asyncio.sleep(1e9)
    elif kind == "listen":
        await loop.sock_sendall(connection, f"GET /runs/{run}/events HTTP/1.1\r\n{bearer}\r\n".encode())
        await asyncio.sleep(1e9)
    else:
        if kind == "idle":
            await loop.sock_sendall(connection, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while True:
            await _gone(connection, 60)


async def _gone(connection: socket.socket, seconds: float) -> None:
    """Wait so long; ConnectionError as soon as the server closed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while await asyncio.get_running_loop().sock_recv(connection, 65536):
                pass
            raise ConnectionResetError


def _talking() -> object:
    return {**CHAT, "model": "shikisha/talking", "stream": True}


# those who want to be answered ----------------------------------------------------------------------------------------


async def asked(at: Server, request: bytes, lost: Counter[str]) -> float:
    """Return the seconds from connecting until a whole answer with status 200; `lost` counts what else came."""
    begun = perf_counter()
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(at.host, at.port)
            try:
                writer.write(request)
                data = await reader.read()
            finally:
                writer.close()
        status = data[9:12].decode() or "closed without an answer"
    except TimeoutError:
        status = "none in time"
    except OSError as error:
        status = type(error).__name__
    if status != "200":
        lost[status] += 1
    return perf_counter() - begun


async def every(pause: float, seconds: float, ask: Callable[[], Coroutine[None, None, float]]) -> list[float]:
    """Ask at a fixed rate, whatever becomes of it; return how long each took."""
    until = perf_counter() + seconds
    tasks = []
    while perf_counter() < until:
        tasks.append(asyncio.create_task(ask()))
        await asyncio.sleep(pause)
    return list(await asyncio.gather(*tasks))


async def crowd(folder: Path, descriptors: int, kinds: Sequence[str], clients: int, seconds: float) -> list[Figure]:
    """Let the clients come, and ask meanwhile."""
    async with server(folder, descriptors) as at:
        health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        chat = at.request("/v1/chat/completions", CHAT).replace(
            b"\r\nContent-Type", b"\r\nConnection: close\r\nContent-Type"
        )
        run = await waiting(at)
        await asked(at, chat, Counter())
        told = json.dumps([at.host, at.port, at.key, at.process.pid, list(kinds), clients, run])
        process = await asyncio.create_subprocess_exec(sys.executable, __file__, "--attack", told)
        most = [0, 0]

        async def watch() -> None:
            while True:
                most[0] = max(most[0], at.process.num_fds())
                most[1] = max(most[1], at.process.memory_info().rss)
                await asyncio.sleep(0.5)

        watching = asyncio.create_task(watch())
        lost: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        try:
            probes, chats = await asyncio.gather(
                every(0.1, seconds, lambda: asked(at, health, lost[0])),
                every(0.5, seconds, lambda: asked(at, chat, lost[1])),
            )
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            watching.cancel()
    which = "all kinds" if tuple(kinds) == KINDS else ", ".join(kinds)
    title = f"{clients:,} clients ({which}), {descriptors:,} files" if clients else "nobody"
    for what, counter in zip(("/healthz", "chat"), lost, strict=True):
        if counter:
            print(f"  {title}: {what} not answered with 200: {dict(counter)}", file=sys.stderr)
    return [
        Figure(f"{title}: /healthz, worst", max(probes), "s", 0.2),
        Figure("  p99", percentile(probes, 0.99), "s"),
        Figure("  not answered with 200", lost[0].total(), f"of {len(probes)}", 0),
        Figure("  chat, worst", max(chats), "s"),
        Figure("  p99", percentile(chats, 0.99), "s"),
        Figure("  not answered with 200", lost[1].total(), f"of {len(chats)}", 0),
        Figure("  descriptors that the server had open, most", most[0], ""),
        Figure("  memory, most", most[1] / 2**20, "MB"),
    ]


async def waiting(at: Server) -> str:
    """Return a run that waits for a person."""
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(at.request("/runs", {"prompt": "hello", "conductor": "asking"}))
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    told = json.loads(await reader.readexactly(length))
    writer.close()
    return str(told["id"])


async def greedy(folder: Path) -> list[Figure]:
    """Let 24 bodies of 18 MB come at once."""
    async with server(folder, 4096) as at:
        body = {**CHAT, "messages": [{"role": "user", "content": "x" * GREEDY_BYTES}]}
        request = at.request("/v1/chat/completions", body).replace(
            b"\r\nContent-Type", b"\r\nConnection: close\r\nContent-Type"
        )
        most = [0.0]

        async def watch() -> None:
            while True:
                most[0] = max(most[0], at.process.memory_info().rss / 2**20)
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(watch())
        health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        lost: Counter[str] = Counter()
        unwell: Counter[str] = Counter()
        probing = asyncio.create_task(every(0.1, 5, lambda: asked(at, health, unwell)))
        await asyncio.gather(*(asked(at, request, lost) for _ in range(GREEDY)))
        probes = await probing
        watching.cancel()
    print(f"  {GREEDY} bodies of 18 MB: not answered with 200: {dict(lost)}", file=sys.stderr)
    silent = sum(count for status, count in lost.items() if not status.isdigit())
    return [
        Figure(f"{GREEDY} bodies of 18 MB at once: without any answer", silent, "", 0),
        Figure("  answered with 200", GREEDY - lost.total(), ""),
        Figure("  told to come again (503)", lost["503"], ""),
        Figure("  memory, most", most[0], "MB", 900),
        Figure("  /healthz meanwhile, worst", max(probes), "s"),
    ]


async def main(arguments: argparse.Namespace) -> list[Figure]:
    """Measure everything, one after another."""
    figures: list[Figure] = []
    sets = [_SETS[arguments.kinds]] if arguments.kinds in _SETS else [tuple(arguments.kinds.split(","))]
    sets = list(_SETS.values()) if arguments.kinds == "both" else sets
    with tempfile.TemporaryDirectory() as folder:  # what the machine does when nobody attacks
        figures += await crowd(Path(folder), 4096, (), 0, arguments.seconds / 2)
    for descriptors in arguments.descriptors.split(","):
        for kinds in sets:
            with tempfile.TemporaryDirectory() as folder:
                figures += await crowd(Path(folder), int(descriptors), kinds, arguments.clients, arguments.seconds)
    if not arguments.no_greedy:
        with tempfile.TemporaryDirectory() as folder:
            figures += await greedy(Path(folder))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--descriptors", default="256,4096")
    parser.add_argument("--kinds", default="both")
    parser.add_argument("--no-greedy", action="store_true")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    given = parser.parse_known_args()[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if given.attack:
        host, port, key, pid, chosen, number, name = json.loads(given.attack)
        asyncio.run(attack(Server(host, port, key, psutil.Process(pid)), chosen, number, name))
    else:
        report("slow clients", asyncio.run(main(given)))
