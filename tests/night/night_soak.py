"""A long time of everything at once: does a server that serves all its routes keep its memory, files and threads?

    python tests/night/night_soak.py [--minutes 30] [--rate 8] [--json]

One `shikisha serve` process on SQLite gets mixed traffic at a steady rate: runs, chats, streams that are read and
streams that are left, background runs that are cancelled, approvals, feedback, keys that are made, used and revoked,
erasures, idempotent repeats, lists and pages, bodies that are no requests. Sampled are the process's memory,
descriptors and threads and the journal's size. At the end: no answer that was not expected, no run left open, slopes
of memory, descriptors and threads about zero after the first quarter, bytes of journal a request the same in both
halves, and the hash chain whole.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import httpx2
import numpy as np
import psutil

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from common import Figure, report
from night_failpoints import endpoint, scratch
from night_story import ADMIN, House, Json, end_when_told
from shikisha.core.errors import ShikishaError
from shikisha.journal import open_journal

EVERY = 5.0  # seconds between samples
MEMORY = 1.0  # MiB a minute that memory may grow after the first quarter
_BAD: tuple[tuple[str, bytes], ...] = (
    ("/runs", b"{"),
    ("/runs", b'{"prompt": ""}'),
    ("/runs", b'{"prompt": "x", "caps": 7}'),
    ("/v1/chat/completions", b'{"model": "shikisha", "messages": []}'),
    ("/v1/chat/completions", b'{"model": "nobody", "messages": [{"role": "user", "content": "x"}]}'),
    ("/v1/responses", b'{"model": "shikisha", "input": [{"type": "item_reference", "id": "x"}]}'),
    ("/v1/responses", b'{"model": "shikisha", "input": "x", "tools": "web_search"}'),
    ("/feedback", b'{"run": "x", "score": 7}'),
    ("/keys", b'{"name": 5}'),
    ("/admin/erase", b"[]"),
)


@dataclass(frozen=True)
class Sample:
    """How the server stood at a moment."""

    at: float
    memory: float
    descriptors: int
    threads: int
    journal: int
    asked: int


@dataclass
class Traffic:
    """A client of everybody's kinds; what it was told that it did not expect is kept."""

    client: httpx2.AsyncClient
    rng: random.Random
    asked: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    done: list[str] = field(default_factory=list)

    async def one(self) -> None:
        """Do one thing."""
        kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self.run),
            (6, self.chat),
            (4, self.stream),
            (2, self.left),
            (2, self.cancel),
            (2, self.approval),
            (2, self.judge),
            (1, self.key),
            (1, self.erase),
            (2, self.repeat),
            (4, self.look),
            (4, self.bad),
        ]
        [kind] = self.rng.choices([each for _, each in kinds], [weight for weight, _ in kinds])
        name = getattr(kind, "__name__", "?")
        self.kinds[name] += 1
        try:
            await kind()
        except (httpx2.HTTPError, KeyError, AssertionError, json.JSONDecodeError) as error:
            self.odd[f"{name}: {type(error).__name__}: {str(error)[:120]}"] += 1

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        right: tuple[int, ...] = (200,),
        key: str = ADMIN,
        **headers: str,
    ) -> Json:
        """Ask; an answer of another status is odd."""
        self.asked += 1
        told = {"Authorization": f"Bearer {key}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        answer = await self.client.request(method, path, json=body, headers=told)
        if answer.status_code not in right:
            raise AssertionError(f"{method} {path.split('/')[1]}: {answer.status_code} {answer.text[:100]}")
        found = answer.json() if "json" in answer.headers.get("content-type", "") else {}
        return found if isinstance(found, dict) else {}

    def task(self) -> str:
        """Return a task of its own."""
        flaky = "a flaky matter" if self.rng.random() < 0.1 else "a matter"
        return f"{flaky} {self.rng.random()} {'x' * self.rng.randrange(2_000)}"

    async def run(self) -> None:
        """A run of our own kind, waited for."""
        found = await self.ask("POST", "/runs", {"prompt": self.task(), "metadata": {"a": "b"}})
        assert found["answer"] == "an answer", found
        self.done = [*self.done[-200:], str(found["id"])]

    async def chat(self) -> None:
        """A chat completion."""
        body = {"model": "shikisha", "messages": [{"role": "user", "content": self.task()}]}
        await self.ask("POST", "/v1/chat/completions", body)

    async def stream(self, lines: int = 10**6) -> None:
        """A stream, read to its end."""
        body = {"model": "shikisha", "input": self.task(), "stream": True}
        self.asked += 1
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with self.client.stream("POST", "/v1/responses", json=body, headers=headers) as answer:
            assert answer.status_code == 200, answer.status_code
            last = ""
            async for line in answer.aiter_lines():
                last = line if line.startswith("event: ") else last
                lines -= 1
                if lines <= 0:
                    return
        assert last == "event: response.completed", last

    async def left(self) -> None:
        """A stream whose client goes away."""
        await self.stream(self.rng.randrange(1, 8))

    async def cancel(self) -> None:
        """A background run that is cancelled, if it is not over by then."""
        found = await self.ask("POST", "/runs", {"prompt": self.task(), "background": True}, (202,))
        await self.ask("POST", f"/runs/{found['id']}/cancel", {}, (200, 409))

    async def approval(self) -> None:
        """A run that waits for a person, and gets a yes, a no or nothing for a while."""
        found = await self.ask("POST", "/runs", {"prompt": self.task(), "domain": "gated"})
        questions = found["questions"]
        assert isinstance(questions, list)
        assert questions, found["why"]
        said = {"approved": self.rng.random() < 0.7, "remark": "so"}
        await self.ask("POST", f"/approvals/{found['id']}_{questions[0]['question']}", said)

    async def judge(self) -> None:
        """A grade."""
        if self.done:
            await self.ask("POST", "/feedback", {"run": self.rng.choice(self.done), "score": 0.5}, (201, 404, 409))

    async def key(self) -> None:
        """A key that is made, used and revoked."""
        made = await self.ask("POST", "/keys", {"name": "k", "caps": {"tokens": 300}}, (201,))
        for _ in range(2):  # the second run may not fit into the budget
            body = {"prompt": self.task()}
            await self.ask("POST", "/runs", body, (200, 402, 429), key=str(made["secret"]))
        await self.ask("DELETE", f"/keys/{made['id']}")
        await self.ask("GET", "/runs", None, (401,), key=str(made["secret"]))

    async def erase(self) -> None:
        """An erasure."""
        if self.done:
            gone = self.done.pop(self.rng.randrange(len(self.done)))
            await self.ask("POST", "/admin/erase", {"runs": [gone]})

    async def repeat(self) -> None:
        """One request twice under one key, at once."""
        name = f"k{self.rng.random()}"
        body = {"prompt": self.task()}
        both = [self.ask("POST", "/runs", body, Idempotency_Key=name) for _ in range(2)]
        one, other = await asyncio.gather(*both)
        assert one["id"] == other["id"], "one idempotency key made two runs"

    async def look(self) -> None:
        """Lists and pages."""
        places = ("/runs?limit=20", "/healthz", "/v1/models", "/approvals", "/budgets", "/metrics", "/admin/audit")
        await self.ask("GET", self.rng.choice(places))
        if self.done:
            await self.ask("GET", f"/runs/{self.rng.choice(self.done)}", None, (200, 404))

    async def bad(self) -> None:
        """What is no request."""
        path, body = self.rng.choice(_BAD)
        self.asked += 1
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        answer = await self.client.post(path, content=body, headers=headers)
        assert 400 <= answer.status_code < 500, (path, body, answer.status_code)


@dataclass
class Soak:
    """What came of it."""

    traffic: Traffic
    samples: list[Sample] = field(default_factory=list)
    open_runs: int = 0
    wrong: list[str] = field(default_factory=list)

    def slope(self, of: Callable[[Sample], float]) -> float:
        """Return by how much something grows in a minute, after the first quarter."""
        later = [each for each in self.samples if each.at > self.samples[-1].at / 4]
        if len(later) < 3:
            return 0.0
        return float(np.polyfit([each.at / 60 for each in later], [of(each) for each in later], 1)[0])

    def per_request(self, half: int) -> float:
        """Return the journal's bytes for each request in the first or the second half."""
        middle = len(self.samples) // 2
        first, last = (self.samples[0], self.samples[middle]) if half == 0 else (self.samples[middle], self.samples[-1])
        return (last.journal - first.journal) / max(1, last.asked - first.asked)


async def soak(seconds: float, rate: float) -> Soak:
    """Serve for so long."""
    with tempfile.TemporaryDirectory(prefix="night-", dir=scratch()) as place:
        folder = Path(place)
        database = folder / "soak.db"
        async with endpoint() as (url, _), House(folder, url, str(database), {}) as service:
            await service.up()
            assert service.process is not None
            process = psutil.Process(service.process.pid)
            limits = httpx2.Limits(max_connections=40, max_keepalive_connections=20)
            async with httpx2.AsyncClient(base_url=service.url, timeout=60.0, limits=limits) as client:
                found = Soak(Traffic(client, random.Random(5)))
                await _pour(found, process, database, seconds, rate)
                until = monotonic() + 60
                while monotonic() < until:
                    told = await found.traffic.ask("GET", "/runs?state=open&limit=50")
                    data = told["data"]
                    assert isinstance(data, list)
                    found.open_runs = len(data)
                    if not data:
                        break
                    await asyncio.sleep(0.5)
            if process.pid != service.process.pid or service.process.returncode is not None:
                found.wrong.append("the server ended")
            await service.down()
        try:
            async with open_journal(str(database)) as journal:
                await journal.verify()
        except ShikishaError as error:
            found.wrong.append(f"{type(error).__name__}: {error}")
    return found


async def _pour(found: Soak, process: psutil.Process, database: Path, seconds: float, rate: float) -> None:
    """Ask at this rate, and sample."""
    begun, following = monotonic(), 0.0
    gate = asyncio.Semaphore(30)

    async def one() -> None:
        async with gate:
            await found.traffic.one()

    async with asyncio.TaskGroup() as group:
        number = 0
        while (now := monotonic() - begun) < seconds:
            if now >= following:
                following = now + max(EVERY, seconds / 1_000)
                size = sum(each.stat().st_size for each in database.parent.glob("soak.db*") if each.suffix != ".db-shm")
                asked, memory = found.traffic.asked, process.memory_info().rss / 2**20
                found.samples.append(Sample(now, memory, process.num_fds(), process.num_threads(), size, asked))
            if not gate.locked():
                group.create_task(one())
                number += 1
            await asyncio.sleep(max(0.0, min(1 / rate, begun + number / rate - monotonic())))


def findings(found: Soak, seconds: float) -> list[str]:
    """Return what is wrong, in words; slopes are judged where there was time for one."""
    wrong = [*found.wrong, *(f"{count} times: {what}" for what, count in found.traffic.odd.most_common())]
    if found.open_runs:
        wrong.append(f"{found.open_runs} runs are open a minute after the last request")
    if seconds >= 600:
        for what, most, slope in (
            ("MiB of memory", MEMORY, found.slope(lambda each: each.memory)),
            ("descriptors", 0.5, found.slope(lambda each: each.descriptors)),
            ("threads", 0.2, found.slope(lambda each: each.threads)),
        ):
            if slope > most:
                wrong.append(f"{what} grow by {slope:.2f} a minute")
        first, second = found.per_request(0), found.per_request(1)
        if second > 1.25 * first:
            wrong.append(
                f"the journal takes {second:,.0f} bytes a request in the second half, {first:,.0f} in the first"
            )
    return wrong


def figures(found: Soak, wrong: list[str], seconds: float) -> list[Figure]:
    """Return what came of it."""
    last = found.samples[-1]
    return [
        Figure("requests", found.traffic.asked, ""),
        Figure("memory, after a quarter", found.samples[len(found.samples) // 4].memory, "MiB"),
        Figure("memory, at the end", last.memory, "MiB"),
        Figure("memory's slope", found.slope(lambda each: each.memory), "MiB/min", MEMORY),
        Figure("descriptors, at the end", last.descriptors, ""),
        Figure("descriptors' slope", found.slope(lambda each: each.descriptors), "1/min", 0.5),
        Figure("threads, at the end", last.threads, ""),
        Figure("journal, first half", found.per_request(0), "B/req"),
        Figure("journal, second half", found.per_request(1), "B/req"),
        Figure("minutes", seconds / 60, "min"),
        Figure("findings", len(wrong), "", 0),
    ]


def main() -> int:
    """Soak, judge, report; how many findings there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=8)
    options, _ = parser.parse_known_args()
    end_when_told()
    seconds = 60 * options.minutes
    found = asyncio.run(soak(seconds, options.rate))
    wrong = findings(found, seconds)
    for each in wrong:
        print(f"FOUND {each}")
    report("soak", figures(found, wrong, seconds))
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(1, main()))
