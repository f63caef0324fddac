"""What the serving benchmarks share: a server process, an HTTP/1.1 client that costs little, an endpoint that streams.

The client shares the two cores with the server, so it does no more than it must: a connection is a protocol that sends
prepared bytes and looks for the end of the answer. It reads Content-Length and chunked bodies, and nothing else.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import psutil


@dataclass(frozen=True)
class Server:
    """A server process: where it listens, an admin's key, and the process."""

    host: str
    port: int
    key: str
    process: psutil.Process

    def request(self, path: str, body: object) -> bytes:
        """Return the bytes of a POST."""
        payload = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        return head.encode() + payload


@asynccontextmanager
async def server(folder: Path, config: str, journal: str = "", log: Path | None = None) -> AsyncIterator[Server]:
    """Start `shikisha serve` with this configuration, as its users do, and stop it at the end. `log`: not on stderr."""
    file = folder / "shikisha.toml"
    file.write_text(config)
    command = [sys.executable, "-m", "shikisha", "serve", "--json", "--port", "0", "--config", str(file)]
    if journal:
        command += ["--journal", journal]
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(log.open("wb")) if log is not None else None
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=said)
    try:
        assert process.stdout is not None
        told = json.loads(await process.stdout.readline())
        host, _, port = str(told["url"]).removeprefix("http://").rpartition(":")
        yield Server(host, int(port), str(told["key"] or ""), psutil.Process(process.pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@dataclass
class Answer:
    """One answer: its status, bytes, when (perf_counter) it was asked for and whole, and what had come by when."""

    status: int
    data: bytes
    asked: float
    whole: float
    arrived: list[tuple[int, float]]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.whole - self.asked

    def when(self, place: int) -> float:
        """Return when the byte in this place came."""
        return next(at for size, at in self.arrived if size > place)


@dataclass
class _Reading:
    asked: float
    done: asyncio.Future[Answer]
    arrived: list[tuple[int, float]] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)


class Connection(asyncio.Protocol):
    """A keep-alive connection; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reading: _Reading | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer in."""
        reading = self._reading
        if reading is None:
            return
        reading.data += data
        reading.arrived.append((len(reading.data), perf_counter()))
        if _whole(reading.data):
            self._reading = None
            whole = bytes(reading.data)
            reading.done.set_result(Answer(int(whole[9:12]), whole, reading.asked, perf_counter(), reading.arrived))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what was being read."""
        if self._reading is not None and not self._reading.done.done():
            self._reading.done.set_exception(exc or ConnectionError("the server closed the connection"))

    async def ask(self, request: bytes) -> Answer:
        """Send a request and return its answer."""
        assert self._transport is not None
        self._reading = _Reading(perf_counter(), asyncio.get_running_loop().create_future())
        self._transport.write(request)
        return await self._reading.done

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()


def _whole(data: bytearray) -> bool:
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(data[:end]).lower()
    if b"transfer-encoding: chunked" in head:
        return data.endswith(b"0\r\n\r\n")
    place = head.find(b"content-length: ")
    return len(data) >= end + 4 + int(head[place + 16 :].split(b"\r\n", 1)[0])


@asynccontextmanager
async def connections(host: str, port: int, count: int) -> AsyncIterator[list[Connection]]:
    """Open connections and close them at the end."""
    loop = asyncio.get_running_loop()
    opened = [(await loop.create_connection(Connection, host, port))[1] for _ in range(count)]
    try:
        yield opened
    finally:
        for each in opened:
            each.close()


async def paced(pool: Sequence[Connection], request: bytes, rate: float, seconds: float) -> list[Answer]:
    """Send requests at a fixed rate whatever becomes of them (open loop); latency counts from when each was due."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for each in pool:
        free.put_nowait(each)
    answers: list[Answer] = []

    async def one(due: float) -> None:
        connection = await free.get()
        answer = await connection.ask(request)
        answer.asked = due
        answers.append(answer)
        free.put_nowait(connection)

    begun = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            due = begun + number / rate
            if (wait := due - perf_counter()) > 0:
                await asyncio.sleep(wait)
            group.create_task(one(due))
    return answers


async def hammered(pool: Sequence[Connection], request: bytes, seconds: float) -> list[Answer]:
    """Let every connection ask again as soon as it is answered (closed loop)."""
    until = perf_counter() + seconds
    answers: list[Answer] = []

    async def again(connection: Connection) -> None:
        while perf_counter() < until:
            answers.append(await connection.ask(request))

    async with asyncio.TaskGroup() as group:
        for connection in pool:
            group.create_task(again(connection))
    return answers


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
