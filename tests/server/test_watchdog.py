"""Served runs that hang or end their server: it is found out from outside, said without keys, and blamed once."""

import asyncio
import io
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread

import httpx2
import pytest
from fresh import fresh
from journals import keep, started
from paths import SUPPORT
from poisoned import CONFIG
from serving import READY, free_port
from stores import order

from shikisha.journal import open_journal
from shikisha.server.keys import KeyManager
from shikisha.server.ops import watchdog_process
from shikisha.server.ops.watchdog_process import WatchdogMemory
from shikisha.server.store import RunStore, open_store
from shikisha.server.store.claims import QUARANTINE_STRIKES, MemberEnd, judge_end
from shikisha.server.store.members import new_member

KEY = "a-key-that-nobody-would-guess-in-here"
PROGRAM = SUPPORT / "poisoned.py"
STALL = 1.5


class Server:
    """A server process that may be poisoned, started again on the same port."""

    def __init__(self, folder: Path, end: str = "") -> None:
        self.folder, self.port = folder, free_port()
        settings = f'admin_key_env = "POISON_ADMIN_KEY"\nwatchdog_timeout = {STALL}\n{end}'
        (folder / "shikisha.toml").write_text(CONFIG.format(seconds=0, lease=30, end=settings))
        fresh(str(folder / "journal.db"))
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *before: str) -> None:
        words = ("serve", "--json", "--port", str(self.port), "--config", str(self.folder / "shikisha.toml"))
        journal = ("--journal", str(self.folder / "journal.db"))
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *before,
                sys.executable,
                str(PROGRAM),
                *words,
                *journal,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "POISON_ADMIN_KEY": KEY},
            )
        assert self.process.stdout is not None
        assert await asyncio.wait_for(self.process.stdout.readline(), READY)

    async def ended(self) -> int:
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), READY)

    def ends(self) -> list[str | None]:
        """How its processes ended."""
        with sqlite3.connect(self.folder / "journal.db") as told:
            return [ended for (ended,) in told.execute("SELECT ended FROM members")]

    @property
    def said(self) -> str:
        return (self.folder / "log").read_text()

    def http(self) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {KEY}"}
        return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=20)

    async def order(self, prompt: str) -> None:
        async with self.http() as http:
            with suppress(httpx2.HTTPError):  # it may be gone before it can say so
                await http.post("/runs", json={"prompt": prompt, "background": True}, timeout=READY)

    async def blamed(self) -> tuple[str, int, int]:
        """The status, ends and strikes of the one run, once the watchdog has said its word."""
        for _ in range(600):
            with sqlite3.connect(self.folder / "journal.db") as told:
                judged = told.execute("SELECT count(*) FROM members WHERE state = 'alive'").fetchone()[0] == 0
                found = told.execute("SELECT status, ends, strikes FROM served").fetchone()
            if judged and found:
                return str(found[0]), int(found[1]), int(found[2])
            await asyncio.sleep(0.05)
        raise AssertionError("nobody judged the end")


@asynccontextmanager
async def poisonable(folder: Path, end: str = "") -> AsyncIterator[Server]:
    server = Server(folder, end)
    await server.start()
    try:
        yield server
    finally:
        assert server.process is not None
        if server.process.returncode is None:
            server.process.kill()
        await server.process.wait()


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("spin", -signal.SIGABRT),
        ("lock", -signal.SIGABRT),
        ("thread_lock", -signal.SIGABRT),
        ("exit", 3),
        ("thread_exit", 4),
        ("segfault", -signal.SIGSEGV),
    ],
)
async def test_what_takes_a_server_down_is_blamed_and_a_process_that_is_gone_only_once_it_was_tried(
    tmp_path: Path, kind: str, status: int
) -> None:
    hangs = status == -signal.SIGABRT
    async with poisonable(tmp_path) as server:
        await server.order(f"POISON {kind}")
        assert await server.ended() == status
        assert (await server.blamed())[2] == int(hangs)  # who is gone may have been killed from outside
        if not hangs:
            await server.start()
            await server.ended()
            assert (await server.blamed())[2] == 1
        if kind in {"spin", "lock"}:
            assert "the event loop has stood still" in server.said
            assert "poisoned.py" in server.said  # where it stands
        assert KEY not in server.said


@pytest.mark.full
async def test_the_second_time_it_is_quarantined_shown_and_released_by_an_admin(tmp_path: Path) -> None:
    async with poisonable(tmp_path) as server:
        await server.order("POISON exit")
        await server.ended()
        for strikes in (0, 1, 2):  # the first end puts it on trial
            assert (await server.blamed())[2] == strikes
            if strikes < 2:
                await server.start()
                await server.ended()
        await server.start()
        async with server.http() as http:
            run = await quarantined(http)
            shown = (await http.get(f"/runs/{run}")).json()
            assert (shown["status"], shown["state"]) == ("quarantined", "stopped")
            assert "2 servers ended uncleanly" in shown["why"]
            assert shown["explanation"]["why"] == shown["why"]
            assert "shikisha_runs_quarantined 1.0" in (await http.get("/metrics")).text
            assert run in (await shikisha(tmp_path, "runs", "--status", "quarantined"))[1]
            assert (await http.post(f"/runs/{run}/release")).status_code == 200
            audit = (await http.get("/admin/audit")).json()["data"]
            assert (audit[0]["action"], audit[0]["target"]) == ("run.released", run)
        assert await server.ended() == 3  # it is as it was, and goes on trial again
        assert (await server.blamed())[2] == 0


async def quarantined(http: httpx2.AsyncClient) -> str:
    """The run that is quarantined, once the journal says so too."""
    for _ in range(200):
        found = (await http.get("/runs?status=quarantined")).json()["data"]
        if found and (await http.get(f"/runs/{found[0]['id']}")).json()["why"]:
            return str(found[0]["id"])
        await asyncio.sleep(0.1)
    raise AssertionError("no run is quarantined")


async def test_the_command_line_releases_a_run_once_and_the_audit_says_who(tmp_path: Path) -> None:
    url = fresh(str(tmp_path / "journal.db"))
    (tmp_path / "shikisha.toml").write_text(CONFIG.format(seconds=0, lease=30, end=""))
    async with open_journal(url) as journal:
        for _ in range(QUARANTINE_STRIKES):
            store = RunStore(journal, new_member(30.0))
            await store.join()
            if not await store.claim(1):
                await store.add_run(order("r"))
                await keep(journal, [started("r")])
            await journal.write(partial(judge_end, member=store.member.id, ended=MemberEnd.STALLED, named=("r",)))
    assert [(await shikisha(tmp_path, "release", "r"))[0] for _ in range(2)] == [0, 2]
    async with open_journal(url) as journal, open_store(journal) as store:
        assert [each.run for each in await store.claim(1)] == ["r"]
        (act,) = await KeyManager(journal).acts()
        assert (act.action, act.target, act.actor.startswith("cli:")) == ("run.released", "r", True)


async def shikisha(folder: Path, *words: str) -> tuple[int, str]:
    place = ("--config", str(folder / "shikisha.toml"), "--journal", str(folder / "journal.db"))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        *words,
        *place,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "POISON_ADMIN_KEY": KEY},
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


CONTAINED = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


@pytest.mark.full
@pytest.mark.parametrize(("kind", "status"), [("exit", 3), ("spin", 128 + signal.SIGABRT)])
async def test_the_first_process_of_a_container_waits_for_the_watchdog(tmp_path: Path, kind: str, status: int) -> None:
    if shutil.which("unshare") is None or subprocess.run([*CONTAINED, "true"], check=False, stderr=-3).returncode:  # noqa: ASYNC221, S603 - a moment, our own words
        pytest.skip("no process may have a process namespace of its own here (unshare)")
    server = Server(tmp_path)
    await server.start(*CONTAINED)
    await server.order(f"POISON {kind}")
    assert await server.ended() == status
    assert (await server.blamed())[2] == int(kind == "spin")  # who is gone goes on trial first


@pytest.mark.full
@pytest.mark.parametrize("kind", ["panic", "system_exit"])
async def test_what_foreign_code_raises_ends_no_server(tmp_path: Path, kind: str) -> None:
    async with poisonable(tmp_path) as server, server.http() as http:
        answer = await http.post("/runs", json={"prompt": f"POISON {kind}"})
        assert (answer.json()["status"], answer.json()["fault"]) == ("failed", "internal")
        assert (await http.get("/healthz")).status_code == 200


@pytest.mark.full
async def test_a_server_that_was_stopped_by_a_signal_or_slept_is_not_ended(tmp_path: Path) -> None:
    async with poisonable(tmp_path) as server, server.http() as http:
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(3 * STALL)
        server.process.send_signal(signal.SIGCONT)
        assert (await http.get("/healthz")).status_code == 200
        await asyncio.sleep(STALL)
        assert server.process.returncode is None


@pytest.mark.full
async def test_kill_9_blames_nobody_and_a_clean_end_says_goodbye(tmp_path: Path) -> None:
    async with poisonable(tmp_path) as server:
        assert server.process is not None
        assert server.ends() == [None]
        server.process.kill()
        await server.ended()
        for _ in range(200):
            if server.ends() == ["crashed"]:
                break
            await asyncio.sleep(0.1)
        assert server.ends() == ["crashed"]
        await server.start()
        server.process.send_signal(signal.SIGTERM)
        assert await server.ended() == 0
        assert sorted(map(str, server.ends())) == ["crashed", "left"]
        assert "watchdog" not in server.said


def test_the_end_is_judged_once_nothing_is_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that import SQLAlchemy at once see modules that are half there, and the watchdog ends of it."""
    importing, imported, order = Event(), Event(), list[str]()

    def slow_import(_: str) -> None:
        importing.set()
        imported.wait(60)
        order.append("imported")

    monkeypatch.setattr(watchdog_process, "import_module", slow_import)
    first = Thread(target=watchdog_process._import_database)
    first.start()
    importing.wait(60)
    memory = os.memfd_create("marks")
    os.ftruncate(memory, watchdog_process.SIZE)
    shared = WatchdogMemory(memory)  # nobody's: there is nothing to judge
    url = f"sqlite:///{tmp_path / 'journal.db'}"

    def judge() -> None:
        watchdog_process._judge_in_database(url, shared, stalled=True)
        order.append("judged")

    second = Thread(target=judge)
    second.start()
    second.join(0.2)
    imported.set()
    first.join()
    second.join()
    assert order == ["imported"] * 3 + ["judged"]


def test_a_server_that_stands_still_is_ended_though_it_cannot_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def broken(*_: object, **__: object) -> bool:
        raise AttributeError("partially initialized module")

    monkeypatch.setattr(watchdog_process, "watch_server", lambda *_: True)
    monkeypatch.setattr(watchdog_process, "_judge_in_database", broken)
    monkeypatch.setattr(watchdog_process, "_end_server", lambda server: ended.append(server.pid))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("sqlite:///journal.db\n"))
    memory = os.memfd_create("marks")
    os.ftruncate(memory, watchdog_process.SIZE)
    monkeypatch.setattr(sys, "argv", ["watchdog", str(memory), str(os.getpid()), "1"])
    with pytest.raises(AttributeError):
        watchdog_process.main()
    assert ended == [os.getpid()]
