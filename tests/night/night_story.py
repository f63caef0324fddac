"""What the nightly trials of storage share: a served story that writes all that a server writes, and its audit.

The story: background runs of a chain with a child run and a retried call, one ordered twice under one idempotency key,
one that waits for an approval, feedback, a key with a budget and a run under it, a chat, an erasure. Every request is
repeated until it is answered as it should be, as a client would; what was acknowledged is remembered, and the audit
asks afterwards for all of it: no acknowledged run lost or changed, no journaled step performed again, nothing charged
twice (in the endpoint's books and on the key's account), no answer that is neither right nor a 503, the chain whole.
"""

import asyncio
import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeAlias

import httpx2

from kill import attempts_after_end
from shikisha.core.errors import RunErased, ShikishaError
from shikisha.core.events import AttemptFinished, RunStatus
from shikisha.core.run import Attempt, Run
from shikisha.journal import open_journal
from shikisha.server.keys.grants import read_spend
from shikisha.testing import ChargeLedger, InjectedFault, ReceivedChatRequest, ScriptedAnswer

HERE = Path(__file__).parent
CONFIG = """
conductor = "fixed:chain?workers=ledger,team,ledger"
pool = ["ledger", "team"]
[server]
admin_key_env = "NIGHT_ADMIN"
lease = 1.0
drain = 0.2
[workers.ledger]
kind = "chat"
base_url = "{url}"
model = "scripted"
max_output_tokens = 100
[workers.team]
kind = "conductor"
conductor = "fixed:single"
pool = ["ledger"]
[[autonomy.classes]]
domain = "gated"
mode = "review"
"""
PATIENCE = 60.0  # seconds until a request that is repeated must have been answered
_LEAST = 6  # tries of a request
_OFTEN = 40  # refusals of a request, before its disk gets well
Json: TypeAlias = dict[str, object]


# The shim between SQLite and the C library


class Mode(IntEnum):
    """What becomes of an operation, as `night_disk.c` numbers it."""

    FAIL = 1
    KILL_BEFORE = 2
    KILL_AFTER = 3
    TEAR_AND_FAIL = 4  # half of a write is done
    TEAR_AND_KILL = 5


_PAGE = struct.Struct("<QQQIIQQ")  # struct control


@dataclass
class Shim:
    """The page that is shared with the processes whose writing is watched, and the environment that begins it."""

    folder: Path
    library: Path
    record: bool = False

    def __post_init__(self) -> None:
        control = self.folder / "control"
        control.write_bytes(bytes(4096))
        with control.open("r+b") as opened:
            self._page = mmap.mmap(opened.fileno(), 4096)

    @property
    def database(self) -> Path:
        """The file that is watched."""
        return self.folder / "story.db"

    @property
    def log(self) -> Path:
        """What was written, where that is recorded."""
        return self.folder / "writes"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to be watched."""
        told = {
            "LD_PRELOAD": str(self.library),
            "NIGHT_DISK_FILE": str(self.database),
            "NIGHT_DISK_CONTROL": str(self.folder / "control"),
        }
        return told | ({"NIGHT_DISK_LOG": str(self.log)} if self.record else {})

    @property
    def done(self) -> int:
        """How many operations there were."""
        return int(_PAGE.unpack_from(self._page)[0])

    @property
    def acted(self) -> int:
        """How many of them were made to fail, or the last."""
        return int(_PAGE.unpack_from(self._page)[2])

    def arm(self, at: int, mode: Mode, error: int = 0, *, span: int = 1, every: int = 0) -> None:
        """Let something become of so many operations from this number on, and again so many operations later."""
        self.disarm()
        struct.pack_into("<QIIQQ", self._page, 16, 0, mode, error, span, every)
        struct.pack_into("<Q", self._page, 8, at)

    def disarm(self) -> None:
        """Let everything be done."""
        struct.pack_into("<Q", self._page, 8, 0)


def build_shim(folder: Path) -> Path | None:
    """Compile the shim; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    made = folder / "night_disk.so"
    source = str(HERE / "night_disk.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(made), source, "-ldl", "-pthread"], check=True)  # noqa: S603 - our own source
    return made


# The endpoint and the server


@dataclass
class Endpoint:
    """What the endpoint answers: the first call for a part of a flaky task fails, everything else is answered."""

    seen: set[str] = field(default_factory=set)

    def __call__(self, asked: ReceivedChatRequest) -> ScriptedAnswer:
        """Return the answer."""
        first = asked.messages_hash not in self.seen
        self.seen.add(asked.messages_hash)
        if first and "flaky" in asked.last:
            return ScriptedAnswer(mishap=InjectedFault.ERROR_500)
        return ScriptedAnswer(text="an answer")


@dataclass
class House:
    """A server process that is started again whenever it is gone."""

    folder: Path
    endpoint: str
    journal: str
    environment: Mapping[str, str]
    process: asyncio.subprocess.Process | None = None
    url: str = ""
    key: str = ""
    starts: int = 0
    failed_starts: int = 0

    async def __aenter__(self) -> "House":
        """Begin; nothing listens before `up`."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """See that no process is left, whatever happened."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def up(self) -> None:
        """See that a server listens; it may refuse to start while its disk fails, but not for ever."""
        until = monotonic() + PATIENCE
        while self.process is None or self.process.returncode is not None:
            if await self._start():
                return
            self.failed_starts += 1
            if monotonic() > until:
                raise AssertionError("the server does not start")

    async def _start(self) -> bool:
        file = self.folder / "shikisha.toml"
        file.write_text(CONFIG.format(url=self.endpoint))
        command = [sys.executable, "-m", "shikisha", "serve", "--json", "--port", "0", "--config", str(file)]
        with (self.folder / "serve.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                "--journal",
                self.journal,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.environment, "NIGHT_ADMIN": ADMIN},
            )
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        told = json.loads(line or b"{}")
        if "url" not in told:  # it says why it does not start, if it can, and ends
            await self.process.wait()
            return False
        self.url = told["url"]
        self.key = ADMIN
        self.starts += 1
        return True

    async def down(self) -> None:
        """Stop the server, politely."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), 30)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
                raise AssertionError("the server does not stop") from None


def end_when_told() -> None:
    """Let SIGTERM end a trial as Ctrl-C does, so that no server outlives it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


ADMIN = "sk-shikisha-night-admin-0123456789abcdef0123456789abcdef"


# The story


@dataclass
class Acknowledged:
    """What the client was told: runs that were taken, answers, what else must be there."""

    runs: dict[str, str] = field(default_factory=dict)  # run, and the name of the request
    answers: dict[str, str] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)  # or about to be
    judged: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)  # key, and its secret
    accounts: dict[str, str] = field(default_factory=dict)  # key, and its only run
    odd: list[str] = field(default_factory=list)  # answers that are neither right nor a 503
    refused: int = 0
    cut: int = 0
    notes: list[tuple[int, str, str]] = field(default_factory=list)  # how much was written by then, what, which

    def note(self, written: int, what: str, which: str) -> None:
        """Remember that something was acknowledged when so much had been written."""
        self.notes.append((written, what, which))


@dataclass
class Story:
    """A client that goes through the story once, however often it has to ask."""

    service: House
    name: str
    told: Acknowledged
    written: Callable[[], int] = lambda: 0
    relent: Callable[[], None] = lambda: None  # called when a request was refused again and again
    client: httpx2.AsyncClient = field(default_factory=lambda: httpx2.AsyncClient(timeout=20.0))

    async def play(self) -> None:
        """Go through it."""
        once = {"Idempotency-Key": f"{self.name}-once"}
        order: Json = {"prompt": f"{self.name}: a flaky matter", "background": True}
        first = await self._begin("twice", order, once)
        again = await self._begin("twice", order, once)
        if first != again:
            self.told.odd.append(f"one idempotency key made two runs, {first} and {again}")
        gated = await self._begin("gated", {"prompt": f"{self.name}: gated", "domain": "gated", "background": True})
        made = await self._ask("POST", "/keys", {"name": self.name, "caps": {"tokens": 100_000}}, right=(201,))
        secret, key = str(made["secret"]), str(made["id"])
        self.told.keys[key] = secret
        self.told.note(self.written(), "key", key)
        under = await self._begin("budget", {"prompt": f"{self.name}: under a key", "background": True}, key=secret)
        await self._chat()
        await self._ended(first)
        await self._review(gated)
        await self._ended(under)
        judged: Json = {"run": first, "score": 0.5, "remark": "so so"}
        await self._ask("POST", "/feedback", judged, right=(201,))
        self.told.judged.add(first)
        self.told.note(self.written(), "judged", first)
        gone = await self._begin("erased", {"prompt": f"{self.name}: a secret", "background": True})
        await self._ended(gone)
        self.told.erased.add(gone)
        await self._ask("POST", "/admin/erase", {"runs": [gone], "why": "asked"}, right=(200,))
        self.told.note(self.written(), "erased", gone)
        self.told.accounts[key] = under
        await self.client.aclose()

    async def _begin(self, what: str, body: Json, headers: Mapping[str, str] | None = None, key: str = "") -> str:
        headers = headers or {"Idempotency-Key": f"{self.name}-{what}"}
        found = str((await self._ask("POST", "/runs", body, headers, right=(202,), key=key))["id"])
        self.told.runs[found] = what
        self.told.note(self.written(), "run", found)
        return found

    async def _chat(self) -> None:
        body: Json = {"model": "shikisha", "messages": [{"role": "user", "content": f"{self.name}: a chat"}]}
        headers = {"Idempotency-Key": f"{self.name}-chat"}
        said = await self._ask("POST", "/v1/chat/completions", body, headers, right=(200,))
        choices = said["choices"]
        assert isinstance(choices, list)
        if choices[0]["message"]["content"] != "an answer":
            self.told.odd.append(f"a chat was answered {choices}")

    async def _review(self, run: str) -> None:
        await self._state(run, "waiting")
        asked = await self._ask("GET", f"/runs/{run}", right=(200,))
        questions = asked["questions"]
        assert isinstance(questions, list)
        if not questions:
            self.told.odd.append(f"run {run} waits, and nobody knows for what")
            return
        number = questions[0]["question"]
        await self._ask("POST", f"/approvals/{run}_{number}", {"approved": True}, right=(200, 409))
        self.told.note(self.written(), "approved", run)
        await self._ended(run)

    async def _ended(self, run: str) -> None:
        found = await self._state(run, "ended")
        if (found["status"], found["answer"]) != ("done", "an answer"):
            said = f"{found['status']}: {found['why']}, {str(found['answer'])[:60]!r}"
            self.told.odd.append(f"run {self.told.runs[run]} ended {said}")
        self.told.answers[run] = str(found["answer"])
        self.told.note(self.written(), "ended", run)

    async def _state(self, run: str, wanted: str) -> Json:
        until = monotonic() + PATIENCE
        while monotonic() < until:
            found = await self._ask("GET", f"/runs/{run}", right=(200,))
            status = str(found["status"])
            if status not in ("running", "waiting", "suspended") or (wanted == "waiting" and found["questions"]):
                return found
            await asyncio.sleep(0.03)
        raise AssertionError(f"run {run} ({self.told.runs[run]}) does not come to be {wanted}: {status}")

    async def _ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        right: tuple[int, ...],
        key: str = "",
    ) -> Json:
        """Ask until the answer is a right one; a 503 and a connection that breaks are no answers."""
        until = monotonic() + PATIENCE
        last, refusals, tries = "", 0, 0
        while monotonic() < until or tries < _LEAST:  # a machine may stand still, and time goes on
            tries += 1
            await self.service.up()
            try:
                answer = await self.client.request(
                    method,
                    self.service.url + path,
                    json=body,
                    headers={"Authorization": f"Bearer {key or ADMIN}", **(headers or {})},
                )
            except httpx2.HTTPError as error:
                self.told.cut += 1
                last = f"{type(error).__name__}: {error}"
            else:
                if answer.status_code in right:
                    found = answer.json()
                    assert isinstance(found, dict)
                    return found
                last = f"{answer.status_code} {answer.text[:300]}"
                if answer.status_code == 503:
                    self.told.refused += 1
                    refusals += 1
                    if refusals == _OFTEN:
                        self.relent()
                else:
                    said = f"{method} {path.partition('?')[0].rpartition('/')[0] or path}: {last}"
                    if said not in self.told.odd:
                        self.told.odd.append(said)
            await asyncio.sleep(0.05)
        raise AssertionError(f"{method} {path} is not answered: {last}")


# The audit


def _used(attempt: Attempt) -> int:
    """Return the tokens that an answer took; a child run's calls have answers of their own."""
    end = attempt.outcome
    return end.usage.total if isinstance(end, AttemptFinished) and attempt.started.worker != "team" else 0


@dataclass
class Findings:
    """What an audit found wrong, in words."""

    wrong: list[str] = field(default_factory=list)
    runs: int = 0


async def audit(journal_url: str, told: Acknowledged, ledger: ChargeLedger | None) -> Findings:
    """Compare a journal with what was acknowledged and with the endpoint's books."""
    found = Findings()
    try:
        async with open_journal(journal_url) as journal:
            await journal.verify()
            there = {row.id for row in await journal.runs(limit=1_000_000)}
            found.runs = len(there)
            owners: dict[str, tuple[str, int | None]] = {}
            for run in sorted(there):
                try:
                    events = await journal.read(run)
                except RunErased:
                    continue
                folded = Run.fold(events)
                again = attempts_after_end(events)
                if again:
                    found.wrong.append(f"run {run}: {again} attempts of steps whose end was journaled")
                owners |= {a.started.key: (run, a.started.step) for a in folded.attempts}
                right = (RunStatus.DONE, told.answers.get(run))
                if run in told.answers and run not in told.erased and (folded.status, folded.answer) != right:
                    found.wrong.append(f"run {run} was answered, and is {folded.status}, {folded.answer!r}")
            for key, run in told.accounts.items():
                used = [row.used.tokens for row in await journal.query(partial(read_spend, key=key)) if not row.day]
                made = [
                    Run.fold(await journal.read(each)) for each in there if each == run or each.startswith(f"{run}-")
                ]
                least = sum(_used(attempt) for each in made for attempt in each.attempts)
                most = sum(each.counted.tokens for each in made)
                if len(used) != 1 or not least <= used[0] <= most:
                    found.wrong.append(f"a key used {used} tokens, its only run {least}, and at worst {most}")
            lost = set(told.runs) - there
            if lost:
                found.wrong.append(f"{len(lost)} acknowledged runs are not there: {sorted(lost)[:3]}")
            if ledger is not None:
                charged = Counter(owners.get(each.key, (each.key, None)) for each in ledger.entries if each.charged)
                twice = {owner: count for owner, count in charged.items() if count > 1}
                if twice:
                    found.wrong.append(f"charged twice: {twice}")
    except ShikishaError as error:
        found.wrong.append(f"{type(error).__name__}: {error}")
    return found
