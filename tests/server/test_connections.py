"""Connections that are slow, silent, greedy or many: real sockets, a real server whose patience is short."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from serving import At, served, served_process

from shikisha.server.http.connections import ConnectionLimiter, ConnectionTimeouts, max_connections, max_runs
from shikisha.server.lifecycle.process import listening_socket

CONFIG = """
conductor = "fixed:single?worker=quick"
[server]
port = 0
max_body_bytes = 2_000_000
max_pending_bytes = 3_000_000
[workers.quick]
kind = "scripted"
answers = "42"
[workers.late]
kind = "scripted"
seconds = [1.5]
answers = "at last"
[workers.long]
kind = "scripted"
answers = "{long}"
[workers.asks]
kind = "scripted"
approval = "always"
answers = "allowed"
[conductors.late]
kind = "fixed"
topology = "single"
roles = {{ worker = "late" }}
[conductors.talking]
kind = "fixed"
topology = "single"
roles = {{ worker = "long" }}
[conductors.asking]
kind = "fixed"
topology = "single"
roles = {{ worker = "asks" }}
""".format(long="x" * 900_000)
SHORT = ConnectionTimeouts(head=0.6, idle=0.6, stall=0.6, crowded=0.2, linger=0.4, look=0.05)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONGEST = 20.0  # seconds: how long a test waits for what it says must happen


class Client:
    """A connection that does what it is told."""

    def __init__(self, at: At, small: bool = False) -> None:
        self.socket = socket.socket()
        if small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.setblocking(False)
        host, _, port = at.url.removeprefix("http://").rpartition(":")
        self._at = (host, int(port))

    async def __aenter__(self) -> "Client":
        await asyncio.get_running_loop().sock_connect(self.socket, self._at)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.socket.close()

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def some(self) -> bytes:
        """What comes next; nothing once the server has closed."""
        async with asyncio.timeout(LONGEST):
            try:
                return await asyncio.get_running_loop().sock_recv(self.socket, 2**16)
            except ConnectionError:
                return b""

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        whole = b""
        while part := await self.some():
            whole += part
        return whole

    async def drip(self, data: bytes, pause: float) -> None:
        """Send byte by byte, until the server has enough."""
        with suppress(ConnectionError):
            for place in range(len(data)):
                await self.send(data[place : place + 1])
                await asyncio.sleep(pause)


@asynccontextmanager
async def crowded(at: At, count: int, small: bool = False) -> AsyncIterator[list[Client]]:
    """So many connections."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(at, small)) for _ in range(count)]


@asynccontextmanager
async def impatient(
    folder: Path, most: int = 1000, patience: ConnectionTimeouts = SHORT
) -> AsyncIterator[tuple[At, ConnectionLimiter]]:
    crowd = ConnectionLimiter(most, patience)
    async with served(folder, CONFIG, crowd=crowd) as at:
        yield at, crowd


def posted(at: At, body: object, path: str = "/v1/chat/completions", close: bool = True) -> bytes:
    written = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {at.key}\r\nContent-Type: application/json"
    )
    return (
        f"{head}\r\n{'Connection: close' if close else 'X-A: b'}\r\nContent-Length: {len(written)}\r\n\r\n".encode()
        + written
    )


def chat(model: str = "shikisha", text: str = "?", **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


async def healthy(at: At) -> None:
    async with Client(at) as prober:
        await prober.send(HEALTH)
        assert (await prober.some()).startswith(b"HTTP/1.1 200")


# time-outs -----------------------------------------------------------------------------------------------------------


async def test_who_says_nothing_is_let_go(tmp_path: Path) -> None:
    async with impatient(tmp_path) as (at, _), Client(at) as silent:
        assert await silent.rest() == b""


@pytest.mark.parametrize(
    "dripped",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 2000,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n" + b"x" * 1000,
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 400,
        b"\r\n" * 1000,
    ],
)
async def test_what_drips_is_not_waited_for_beyond_its_time(tmp_path: Path, dripped: bytes) -> None:
    async with impatient(tmp_path) as (at, _), Client(at) as slow:
        head, _, body = dripped.partition(b"\r\n\r\n")
        if body and head:
            await slow.send(head + b"\r\n\r\n")
            dripped = body
        async with asyncio.timeout(LONGEST), asyncio.TaskGroup() as group:
            dripping = group.create_task(slow.drip(dripped, 0.02))
            told = await slow.rest()
            dripping.cancel()
        assert told == b"" if dripped.startswith(b"\r\n") else told.startswith(b"HTTP/1.1 408")


async def test_a_connection_is_kept_between_requests_and_not_for_ever(tmp_path: Path) -> None:
    async with impatient(tmp_path) as (at, _), Client(at) as client:
        for _ in range(3):
            await client.send(HEALTH)
            assert (await client.some()).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.2)
        assert await client.rest() == b""


async def test_half_a_further_request_does_not_keep_a_connection(tmp_path: Path) -> None:
    async with impatient(tmp_path) as (at, _), Client(at) as client:
        await client.send(HEALTH + b"GET / HT")
        told = await client.rest()
        assert told.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in told


async def test_who_waits_for_a_long_run_is_waited_for_whatever_it_sent_ahead(tmp_path: Path) -> None:
    async with impatient(tmp_path) as (at, _), Client(at) as client:
        await client.send(posted(at, chat("shikisha/late"), close=False) + b"\r\nGET /hea")
        assert b"at last" in await client.rest()


@pytest.mark.full
async def test_a_stream_that_is_silent_for_long_is_alive(tmp_path: Path) -> None:
    async with impatient(tmp_path) as (at, crowd), at.http() as http:
        run = (await http.post("/runs", json={"prompt": "hello", "conductor": "asking"})).json()["id"]
        async with Client(at) as listener:
            await listener.send(
                f"GET /runs/{run}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {at.key}\r\n\r\n".encode()
            )
            while b"run.paused" not in await listener.some():
                pass
            before = crowd.number
            await asyncio.sleep(3 * SHORT.idle)
            assert crowd.number in (before, 1)  # whoever asked over HTTP may have been let go
            (approval,) = (await http.get("/approvals")).json()["data"]
            decided = await http.post(f"/approvals/{approval['id']}", json={"approved": True})
            assert decided.status_code == 200, decided.text
            while b"run.finished" not in (told := await listener.some()):
                assert told, "the stream was cut"


# what is not read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_who_does_not_read_an_answer_is_cut_off(tmp_path: Path, stream: bool) -> None:
    async with impatient(tmp_path) as (at, crowd), Client(at, small=True) as unread:
        await unread.send(posted(at, chat("shikisha/talking", stream=stream)))
        assert await unread.some()
        async with asyncio.timeout(LONGEST):
            while crowd.number:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.02)


async def test_who_reads_slowly_gets_all_of_it(tmp_path: Path) -> None:
    async with impatient(tmp_path) as (at, _), Client(at, small=True) as slow:
        await slow.send(posted(at, chat("shikisha/talking")))
        whole = b""
        while part := await slow.some():
            whole += part
            await asyncio.sleep(0.005)
        assert whole.count(b"x") > 900_000


async def test_requests_sent_ahead_are_answered_and_a_flood_of_them_is_not_kept(tmp_path: Path) -> None:
    async with impatient(tmp_path) as (at, _):
        async with Client(at) as few:
            await few.send(HEALTH * 5)
            told = b""
            while told.count(b"HTTP/1.1 200") < 5:
                told += await few.some()
        async with Client(at) as flood:
            with suppress(ConnectionError):
                await flood.send(HEALTH * 50_000)
            assert (await flood.rest()).count(b"HTTP/1.1 200") <= 20
        await healthy(at)


# what is too large ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begun",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ",
        b"GET /",
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ",
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    ],
)
async def test_a_head_without_end_is_not_read_for_long(tmp_path: Path, begun: bytes) -> None:
    async with impatient(tmp_path, patience=ConnectionTimeouts()) as (at, _), Client(at) as client:
        await client.send(begun)
        sent = 0
        with suppress(ConnectionError):
            while sent < 20_000_000:
                await client.send(b"a" * 2**14)
                sent += 2**14
                await asyncio.sleep(0)
        assert sent < 20_000_000
        await healthy(at)


@pytest.mark.full
async def test_bodies_beyond_what_is_held_at_once_are_told_to_come_again(tmp_path: Path) -> None:
    async with impatient(tmp_path, patience=ConnectionTimeouts()) as (at, _):
        request = posted(at, chat("shikisha/late", "x" * 1_500_000))

        async def answer() -> bytes:
            async with Client(at) as client:
                with suppress(ConnectionError):
                    await client.send(request)
                return await client.rest()

        answers = await asyncio.gather(*(answer() for _ in range(6)))
        statuses = sorted(each[9:12] for each in answers)
        assert set(statuses) == {b"200", b"503"}, statuses
        refused = next(each for each in answers if each[9:12] == b"503")
        assert b"retry-after: " in refused
        assert b"server_full" in refused
        assert (await answer())[9:12] == b"200"  # there is room again


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/ui/login"])
async def test_a_large_body_of_somebody_without_a_key_is_not_kept(tmp_path: Path, path: str) -> None:
    async with impatient(tmp_path, patience=ConnectionTimeouts()) as (at, _), Client(at) as stranger:
        request = posted(At(at.url, "sk-shikisha-none"), chat(text="x" * 1_000_000), path)
        head, _, body = request.partition(b"\r\n\r\n")
        await stranger.send(head + b"\r\n\r\n" + body[:70_000])
        told = b""
        while b"}}" not in told:
            part = await stranger.some()
            assert part, told
            told += part  # though the rest was never sent
        assert told.startswith(b"HTTP/1.1 401")


# too many ------------------------------------------------------------------------------------------------------------


async def test_whoever_was_silent_longest_gives_way(tmp_path: Path) -> None:
    async with impatient(tmp_path, 8, ConnectionTimeouts()) as (at, crowd), crowded(at, 30) as silent:
        for _ in range(5):
            async with Client(at) as client:
                await client.send(posted(at, chat()))
                assert b"42" in await client.rest()
            await healthy(at)
        assert crowd.number <= crowd.most + 2 * crowd.kept
        assert await silent[0].rest() == b""


async def test_half_a_request_gives_way_with_an_answer(tmp_path: Path) -> None:
    async with impatient(tmp_path, 8, ConnectionTimeouts()) as (at, _), crowded(at, 8) as half:
        for each in half:
            await each.send(posted(at, chat())[:-3])
        await asyncio.sleep(0.1)
        async with Client(at) as client:
            await client.send(posted(at, chat()))
            assert b"42" in await client.rest()
        told = await half[0].rest()
        assert told.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in told


async def test_when_all_are_being_answered_probes_are_answered_and_others_come_again(tmp_path: Path) -> None:
    async with impatient(tmp_path, 8, ConnectionTimeouts()) as (at, _), crowded(at, 8) as busy:
        for each in busy:
            await each.send(posted(at, chat("shikisha/late")))
        await asyncio.sleep(0.3)
        await healthy(at)
        async with Client(at) as client:
            await client.send(posted(at, chat()))
            told = await client.rest()
            assert told.startswith(b"HTTP/1.1 503")
            assert b"too_many_connections" in told
        assert all([b"at last" in await each.rest() for each in busy])


async def test_who_reads_nothing_gives_way_too(tmp_path: Path) -> None:
    async with (
        impatient(tmp_path, 8, ConnectionTimeouts(crowded=0.2, linger=60.0)) as (at, _),
        crowded(at, 8, small=True) as unread,
    ):
        for each in unread:
            await each.send(posted(at, chat("shikisha/talking")))
        async with asyncio.timeout(LONGEST):
            while True:
                async with Client(at) as client:
                    await client.send(posted(at, chat()))
                    if b"42" in await client.rest():
                        break
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(("limit", "wanted", "found"), [(256, None, 128), (1024, None, 640), (None, None, 10_000)])
def test_connections_take_two_thirds_of_the_descriptors(limit: int | None, wanted: None, found: int) -> None:
    assert max_connections(limit, wanted) == found


def test_what_is_configured_is_the_most_that_there_may_be() -> None:
    assert max_connections(4096, 50) == 50
    assert max_connections(256, 1000) == 128
    assert max_connections(10) == 8
    assert [max_runs(limit, 1000) for limit in (None, 64, 256, 4096)] == [1000, 8, 64, 1000]


@pytest.mark.skipif(os.name != "posix", reason="limits on descriptors")
async def test_a_server_with_few_descriptors_outlives_a_crowd(tmp_path: Path) -> None:
    command = ["sh", "-c", 'ulimit -n 128; exec "$@"', "sh"]
    async with served_process(tmp_path, CONFIG, before=command) as (at, process), crowded(at, 400):
        for _ in range(3):
            await healthy(at)
            async with Client(at) as client:
                await client.send(posted(at, chat()))
                assert b"42" in await client.rest()
        assert process.returncode is None
        assert b"could not be accepted" not in (tmp_path / "server.log").read_bytes()


def test_what_the_system_keeps_for_somebody_who_does_not_read_is_bounded(tmp_path: Path) -> None:  # noqa: ARG001
    from shikisha.config.settings import ServerTable

    with listening_socket(ServerTable(port=0)) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2**20
