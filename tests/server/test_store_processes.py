"""Servers that die or stand still lose no acknowledged run, and none is performed by two at a time."""

import asyncio
import random
import signal
import sys
from pathlib import Path

import pytest
from fresh import fresh
from paths import SUPPORT
from postgres import Cluster
from store_process import STEPS

from shikisha.core.events import AttemptStarted, RunFinished
from shikisha.journal import open_journal

SERVER = [sys.executable, str(SUPPORT / "store_process.py")]
LEASE = 0.8


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return fresh(str(tmp_path / "journal.db"))
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


async def server(url: str, name: str, runs: int) -> asyncio.subprocess.Process:
    words = [*SERVER, url, name, str(LEASE), str(runs)]
    return await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)


async def listen(process: asyncio.subprocess.Process, begun: asyncio.Event) -> list[str]:
    """Return the runs that the server acknowledged; say as soon as one was."""
    assert process.stdout is not None
    first = await process.stdout.readline()
    begun.set()
    return (first + await process.stdout.read()).decode().split()


async def disturb(process: asyncio.subprocess.Process, how: str) -> None:
    """Kill a server, or have it stand still for longer than its lease."""
    if how == "kill":
        process.kill()
    else:
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.5 * LEASE)
        process.send_signal(signal.SIGCONT)


async def check(url: str, runs: set[str]) -> None:
    """Every run that was acknowledged has ended once, and each of its steps was begun once."""
    async with open_journal(url) as journal:
        assert (await journal.verify()).ok
        for run in runs:
            events = await journal.read(run)
            begun = [event.round for event in events if isinstance(event, AttemptStarted)]
            assert begun == list(range(STEPS))
            assert isinstance(events[-1], RunFinished)
            assert sum(isinstance(event, RunFinished) for event in events) == 1


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
async def test_what_a_server_leaves_is_performed_by_one_other(url: str, how: str, seed: int) -> None:
    chance = random.Random(seed)
    servers = [await server(url, name, 12) for name in ("ann", "bob", "cyd")]
    victim, begun = chance.randrange(3), [asyncio.Event() for _ in servers]
    async with asyncio.TaskGroup() as group:
        listening = [group.create_task(listen(*each)) for each in zip(servers, begun, strict=True)]
        await begun[victim].wait()
        await asyncio.sleep(chance.random() * 0.2)
        await disturb(servers[victim], how)
    assert [await each.wait() for each in servers if each is not servers[victim]] == [0, 0]
    await check(url, {run for heard in listening for run in heard.result()})
