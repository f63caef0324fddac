"""Several server processes behind one port: started, started again, told to stop, and refused where that is right."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import sleep

import httpx2
import psutil
import pytest

from shikisha.core.errors import ConfigError
from shikisha.server.lifecycle.supervisor import PROCESS_VARIABLE, ProcessPlace, Supervisor, reserve_port

CONFIG = """
conductor = "fixed:single"
[workers.model]
kind = "scripted"
answers = "done"
"""
ASKED = {"model": "shikisha", "messages": [{"role": "user", "content": "What is it?"}]}


@pytest.mark.full
async def test_two_processes_serve_one_port_and_one_journal_and_survive_each_other(tmp_path: Path) -> None:
    (tmp_path / "shikisha.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "shikisha", "serve", "--json", "--port", "0", "--processes", "2"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        told = json.loads(await process.stdout.readline())
        assert told["key"]

        async def ask() -> None:
            async with httpx2.AsyncClient(
                base_url=told["url"], headers={"Authorization": f"Bearer {told['key']}"}
            ) as one:
                assert (await one.post("/v1/chat/completions", json=ASKED)).json()["choices"][0]["message"]

        async def asked_until(two_alive: bool) -> list[psutil.Process]:
            while True:
                # The kernel hands some connections to the process that was killed until it closes its port.
                with contextlib.nullcontext() if two_alive else contextlib.suppress(httpx2.TransportError):
                    await ask()
                serving = [each for each in psutil.Process(process.pid).children() if each.status() != "zombie"]
                listening = [each for each in serving if any(c.status == "LISTEN" for c in each.net_connections())]
                if (len(listening) == 2) is two_alive:
                    return listening
                await asyncio.sleep(0.2)

        async with asyncio.timeout(60):
            listening = await asked_until(two_alive=True)
            for _ in range(10):
                await ask()
            listening[0].kill()
            assert listening[1] in await asked_until(two_alive=False)
            again = await asked_until(two_alive=True)
        assert listening[1] in again
        assert listening[0] not in again
        runs = await asyncio.to_thread(subprocess.check_output, [*command[:3], "runs", "--json"], cwd=tmp_path)
        assert len(json.loads(runs)) >= 10
    finally:
        process.terminate()
        assert await process.wait() == 0
    assert not [each for each in psutil.process_iter() if each.pid in {each.pid for each in again}]


def supervised(script: str, count: int = 2) -> Supervisor:
    """A supervisor of shell scripts instead of servers."""

    def start(told: Mapping[str, str], pipe: Sequence[int]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["/bin/sh", "-c", script], env={**os.environ, **told}, pass_fds=pipe)  # noqa: S603

    return Supervisor(8123, count, start)


@pytest.mark.parametrize("status", [2, 3])
def test_a_process_that_cannot_serve_ends_them_all_with_its_status(status: int) -> None:
    assert supervised(f"exit {status}").run() == status


def test_a_process_that_ends_is_started_again_and_signals_end_them_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = f'echo "${PROCESS_VARIABLE}" >> {log}; [ $(wc -l < {log}) -ge 4 ] || exit 1; exec sleep 60'

    def stop_when_seen() -> None:
        while not (log.exists() and len(log.read_text().splitlines()) >= 4):
            sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_when_seen, daemon=True).start()
    assert supervised(first).run() == 0
    told = log.read_text().splitlines()
    assert len(told) >= 4  # the first, the second, and both again
    assert [len(line.split()) for line in told] == [2] + [1] * (len(told) - 1)  # a pipe for the first only


def test_a_process_is_told_its_port_and_only_the_first_announces() -> None:
    hears, tells = os.pipe()
    first = ProcessPlace.of({PROCESS_VARIABLE: f"8123 {tells}"})
    assert first == ProcessPlace(8123, tells)
    assert first.announce()
    assert os.read(hears, 2) == b"1"
    os.close(hears)
    assert ProcessPlace.of({}) is None
    assert ProcessPlace.of({PROCESS_VARIABLE: "words"}) is None
    other = ProcessPlace.of({PROCESS_VARIABLE: "8123"})
    assert other is not None
    assert not other.announce()


def test_a_port_on_which_another_server_listens_is_refused_and_a_held_one_is_shared() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot listen on 127"):
            reserve_port("127.0.0.1", taken.getsockname()[1])
    with reserve_port("127.0.0.1", 0) as held, socket.socket() as sharing:
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sharing.bind(("127.0.0.1", held.getsockname()[1]))
        sharing.listen()
