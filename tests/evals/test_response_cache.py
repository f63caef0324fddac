"""The response cache: kept before it is used, found by exact messages and number, shared, and never paid for twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from shikisha.config.container import load_config
from shikisha.core.budget import Price, Usage
from shikisha.core.errors import ConfigError, FaultKind, JournalUnavailable, WorkerError
from shikisha.core.task import Task
from shikisha.engine.pool import Member
from shikisha.engine.worker import Card, Reply, Request
from shikisha.evals.response_cache import (
    RUN_ACCOUNT,
    CachedWorker,
    EvaluationBudget,
    LineAppender,
    ResponseCache,
    RunAccount,
)

CARD = Card("ann", kind="chat", price=Price(1.0, 2.0), max_output_tokens=10)
QUESTION = Request(Task("What is it?"), "Answer.")


@dataclass
class Counted:
    """Answers with how often it was asked; raises what it is told to first."""

    faults: list[WorkerError] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    wait: asyncio.Event | None = None

    async def perform(self, request: Request) -> Reply:
        self.keys.append(request.key)
        number = len(self.keys)
        if self.wait is not None:
            await self.wait.wait()
        if self.faults:
            raise self.faults.pop(0)
        return Reply(f"answer {number}", Usage(1_000_000, 0))


@pytest.fixture(autouse=True)
def tally() -> RunAccount:
    made = RunAccount()
    RUN_ACCOUNT.set(made)
    return made


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[ResponseCache]:
    opened = ResponseCache(tmp_path)
    yield opened
    await opened.aclose()


def cached(
    worker: Counted, calls: ResponseCache, fingerprint: str = "f", purse: EvaluationBudget | None = None
) -> CachedWorker:
    return CachedWorker(Member(CARD, worker), fingerprint, calls, purse or EvaluationBudget())


def another_run() -> RunAccount:
    tally = RunAccount()
    RUN_ACCOUNT.set(tally)
    return tally


async def test_the_same_messages_in_another_run_are_answered_from_what_is_kept(
    calls: ResponseCache, tally: RunAccount
) -> None:
    worker = Counted()
    first = await cached(worker, calls).perform(QUESTION)
    later = another_run()
    again = await cached(worker, calls).perform(QUESTION)
    assert (first.text, again.text, len(worker.keys)) == ("answer 1", "answer 1", 1)
    assert (first.dollars, again.dollars) == (1.0, 1.0)  # charged to both runs, paid once
    assert (tally.paid, later.paid) == (1.0, 0.0)


async def test_the_same_messages_in_the_same_run_are_another_sample(calls: ResponseCache) -> None:
    worker = Counted()
    one = cached(worker, calls)
    assert [(await one.perform(QUESTION)).text for _ in range(3)] == ["answer 1", "answer 2", "answer 3"]
    another_run()
    assert [(await one.perform(QUESTION)).text for _ in range(3)] == ["answer 1", "answer 2", "answer 3"]


@pytest.mark.parametrize(
    ("request_", "fingerprint"),
    [
        (Request(Task("What is it? "), "Answer."), "f"),
        (Request(Task("What is it?"), "Answer!"), "f"),
        (Request(Task("What is it?"), "Answer.", remarks=("too long",)), "f"),
        (Request(Task("What is it?"), "Answer.", schema={"type": "object"}), "f"),
        (QUESTION, "another temperature"),
    ],
)
async def test_anything_that_differs_is_another_call(calls: ResponseCache, request_: Request, fingerprint: str) -> None:
    worker = Counted()
    await cached(worker, calls).perform(QUESTION)
    another_run()
    await cached(worker, calls, fingerprint).perform(request_)
    assert len(worker.keys) == 2


async def test_replies_are_found_again_by_the_next_process_and_by_others_beside_it(tmp_path: Path) -> None:
    made = []
    for own in ("0", "0", "1"):
        opened, worker = ResponseCache(tmp_path, own), Counted()
        another_run()
        assert (await cached(worker, opened).perform(QUESTION)).text == "answer 1"
        made.append(len(worker.keys))
        await opened.aclose()
    assert made == [1, 0, 0]


async def test_two_who_ask_the_same_at_once_pay_once(calls: ResponseCache) -> None:
    worker = Counted(wait=asyncio.Event())

    async def ask() -> str:
        another_run()
        return (await cached(worker, calls).perform(QUESTION)).text

    asking = [asyncio.create_task(ask()) for _ in range(5)]
    await asyncio.sleep(0.01)
    assert worker.wait
    worker.wait.set()
    assert await asyncio.gather(*asking) == ["answer 1"] * 5
    assert len(worker.keys) == 1


async def test_whoever_waits_for_a_call_that_is_cancelled_makes_it(calls: ResponseCache) -> None:
    worker = Counted(wait=asyncio.Event())

    async def ask() -> str:
        another_run()
        return (await cached(worker, calls).perform(QUESTION)).text

    leader, follower = asyncio.create_task(ask()), asyncio.create_task(ask())
    await asyncio.sleep(0.01)
    leader.cancel()
    await asyncio.sleep(0.01)
    assert worker.wait
    worker.wait.set()
    assert await follower == "answer 2"
    assert worker.keys[0] == worker.keys[1]  # nobody knows whether the first was performed: the same key


@pytest.mark.parametrize(("kind", "same"), [(FaultKind.TIMEOUT, True), (FaultKind.SERVER, False)])
async def test_a_failed_call_is_not_kept_and_is_repeated_under_a_fitting_key(
    calls: ResponseCache, kind: FaultKind, same: bool
) -> None:
    worker = Counted(faults=[WorkerError(kind, "not now")])
    one = cached(worker, calls)
    with pytest.raises(WorkerError):
        await one.perform(QUESTION)
    assert (await one.perform(QUESTION)).text == "answer 2"
    assert (worker.keys[0] == worker.keys[1]) is same


async def test_a_purse_refuses_what_might_pass_its_limit_before_anyone_is_called(calls: ResponseCache) -> None:
    worker, purse = Counted(), EvaluationBudget(limit=1.5)
    one = cached(worker, calls, purse=purse)
    await one.perform(QUESTION)  # one dollar
    purse.limit = 1.0000001
    with pytest.raises(WorkerError) as refused:
        await one.perform(QUESTION)
    assert (refused.value.fault.kind, purse.empty, purse.held, len(worker.keys)) == (FaultKind.CAP, True, 0.0, 1)
    another_run()
    assert (await one.perform(QUESTION)).text == "answer 1"  # what is kept costs nothing


async def test_a_worker_without_a_price_is_refused_under_a_limit(calls: ResponseCache) -> None:
    unpriced = Member(Card("ann", kind="chat", price=None), Counted())
    with pytest.raises(WorkerError, match="no price"):
        await CachedWorker(unpriced, "f", calls, EvaluationBudget(limit=1.0)).perform(QUESTION)


def test_a_line_that_is_no_reply_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "calls-7.jsonl").write_text('{"key": "k", "text": "a"}\n["no"]\n')
    with pytest.raises(ConfigError, match=r"calls-7.jsonl: line 2"):
        ResponseCache(tmp_path)


async def test_a_line_that_a_kill_cut_short_is_cut_off_and_whole_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\n{"b": 2}\n{"c": ')
    file = LineAppender(path)
    file.put('{"d": 4}')
    await file.sync()
    await file.aclose()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"a": 1}, {"b": 2}, {"d": 4}]


async def test_lines_of_many_writers_are_all_there_in_order(tmp_path: Path) -> None:
    file = LineAppender(tmp_path / "lines.jsonl")

    async def write(number: int) -> bytes:
        offset, length = file.put(f'{{"n": {number}}}')
        await file.sync()
        return file.read(offset, length)

    found = await asyncio.gather(*(write(number) for number in range(500)))
    await file.aclose()
    assert [json.loads(line)["n"] for line in found] == list(range(500))
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == 500


async def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(JournalUnavailable, match="cannot be opened"):
        LineAppender(tmp_path)  # a folder
    full = LineAppender(Path("/dev/full"))
    full.put("{}")
    with pytest.raises(JournalUnavailable, match="No space left"):
        await full.sync()


async def test_a_tool_is_paid_for_and_asked_every_time(calls: ResponseCache, tally: RunAccount) -> None:
    """It may have changed: a reply kept from before a write would be wrong after it."""
    worker, purse = Counted(), EvaluationBudget(10.0)
    tool = CachedWorker(Member(CARD, worker), "f", calls, purse, keeps=False)
    first = await tool.perform(replace(QUESTION, key="run-a"))
    another_run()
    again = await tool.perform(replace(QUESTION, key="run-b"))
    assert (first.text, again.text) == ("answer 1", "answer 2")
    assert worker.keys == ["run-a", "run-b"]  # two runs' writes are two writes, also for a server that honors keys
    assert (len(calls), purse.spent, tally.paid) == (0, 2.0, 1.0)


async def test_a_run_that_pays_for_nothing_may_call_a_free_tool_only(calls: ResponseCache, tally: RunAccount) -> None:
    tally.cache_only = True
    free = Member(Card("free", kind="http", price=Price()), Counted())
    assert (await CachedWorker(free, "f", calls, EvaluationBudget(), keeps=False).perform(QUESTION)).text == "answer 1"
    paid = CachedWorker(Member(CARD, Counted()), "f", calls, EvaluationBudget(), keeps=False)
    with pytest.raises(WorkerError, match="pays for none"):
        await paid.perform(QUESTION)


async def test_an_evaluation_wraps_a_tool_apart_and_still_shows_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "shikisha.toml").write_text(
        '[workers.model]\nkind = "chat"\nmodel = "m"\nbase_url = "http://localhost:9/v1"\ntools = true\n'
        '[workers.clerk]\nkind = "agent"\nendpoint = "model"\ntools = ["orders", "model"]\n'
        '[workers.orders]\nkind = "http"\nurl = "http://localhost:9/orders"\nmethod = "GET"\n'
        '[workers.orders.arguments]\ntype = "object"\n[workers.orders.arguments.properties]\nid = { type = "string" }\n'
    )
    container = load_config(tmp_path / "shikisha.toml")
    wrapped: list[tuple[str, str]] = []

    def note(how: str) -> Callable[[Member], Member]:
        def wrap(member: Member) -> Member:
            wrapped.append((how, member.card.name))
            return replace(member, worker=Counted())

        return wrap

    container.wrap, container.wrap_tool = note("kept"), note("asked")
    (clerk,) = container.pool(["clerk"])
    assert ("asked", "orders") in wrapped
    assert ("asked", "model") not in wrapped  # a model has no state: its replies are kept as everywhere
    assert clerk.agent is not None
    (source,) = clerk.agent.sources
    tool = await source.find("orders")
    assert tool is not None
    assert tool.schema.get("properties") == {"id": {"type": "string"}}
    await container.aclose()
