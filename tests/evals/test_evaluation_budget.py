"""Money in an evaluation: nothing is paid twice or counted twice, and a limit spoils no sample."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from evaluated import SPLIT, TWO, Evaluated, accuracies

from shikisha.cli.exit_codes import ExitCode
from shikisha.core.budget import Amount, Price, Usage, upper_bound
from shikisha.core.errors import WorkerError
from shikisha.core.task import Task
from shikisha.core.visibility import request_messages
from shikisha.engine.pool import Member
from shikisha.engine.worker import Card, Reply, Request
from shikisha.evals.response_cache import RUN_ACCOUNT, CachedWorker, EvaluationBudget, ResponseCache, RunAccount

JUDGE = '[workers.judge]\nkind = "scripted"\nanswers = "VERDICT: right"\nprice = { call = 0.5 }\n'
PLANNED = """
[workers.planner]
kind = "scripted"
answers = "model_id = [0]\\nsubtasks = ['Answer.']\\naccess_list = [[]]"
price = { call = 1.0 }
[conductors.led]
kind = "lm"
endpoint = "planner"
fallback = "fixed:single?worker=rash"
"""
JUDGED = [{"id": f"j{n}", "prompt": f"{n}: is it nice?", "checker": "judge", "split": "test"} for n in range(4)]
CARD = Card("ann", kind="chat", price=Price(1.0, 2.0), max_output_tokens=10)
QUESTION = Request(Task("What is it?"), "Answer.")


@dataclass
class Slow:
    """Answers when it is let; `begun` and `done` tell how far it is."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    calls: int = 0

    async def perform(self, request: Request) -> Reply:
        self.calls += 1
        self.begun.set()
        await self.go.wait()
        self.done.set()
        return Reply(f"answer {self.calls} to {request.subtask}", Usage(100_000, 0))


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[ResponseCache]:
    opened = ResponseCache(tmp_path)
    yield opened
    await opened.aclose()


async def ask(worker: Slow, calls: ResponseCache, purse: EvaluationBudget, request: Request = QUESTION) -> str:
    RUN_ACCOUNT.set(RunAccount())
    return (await CachedWorker(Member(CARD, worker), "f", calls, purse).perform(request)).text


def test_what_a_judge_costs_is_counted_once(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, TWO + JUDGE, JUDGED)
    found = evaluated.entries("--judge", "judge")
    assert found["wise"]["paid"] == pytest.approx(4 * (0.25 + 0.5))
    assert found["wise"]["dollars"] == pytest.approx(4 * 0.25)
    assert sum(float(str(entry["paid"])) for entry in found.values()) == pytest.approx(evaluated.dollars)


@pytest.mark.full
def test_a_limit_and_a_journal_make_no_failures_of_runs_that_were_cut_short(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    journal = ("--journal", str(tmp_path / "runs.db"))
    for dollars in ("1.1", "2.2", "3.05"):
        evaluated.run("--dollars", dollars, *journal)
        assert evaluated.code == ExitCode.CAPPED
    found = evaluated.entries("--dollars", "100", *journal)
    assert accuracies(found, "wise", "rash", "oracle") == [1.0, 0.0, 1.0]
    assert all(not entry["failures"] for entry in found.values())


@pytest.mark.full
@pytest.mark.parametrize("journal", [(), ("--journal", "runs.db")])
def test_the_samples_of_a_vote_that_was_cut_short_are_three_different_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    evaluated = Evaluated(tmp_path)
    line = ("--conductor", "three=fixed:vote?workers=wise&n=3&join=vote", *journal)
    evaluated.run(*line, "--dollars", str(12 * 0.26 + 0.6))
    assert evaluated.code == ExitCode.CAPPED
    found = evaluated.entries(*line)
    asked = [json.loads(line) for line in (tmp_path / "kept" / "calls-0.jsonl").read_text().splitlines()]
    kept = [each["key"] for each in asked if each["worker"] == "wise" and each["key"].endswith(("-0", "-1", "-2"))]
    assert len(kept) == len(set(kept))
    assert len([key for key in kept if key.endswith("-2")]) == len(SPLIT)
    assert found["three"]["dollars"] == pytest.approx(12 * 0.75)


def test_a_planner_that_cannot_be_paid_is_not_stood_in_for(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, TWO + PLANNED)
    evaluated.run("--conductor", "led", "--dollars", str(12 * 0.26 + 2.5))
    assert evaluated.code == ExitCode.CAPPED
    found = evaluated.entries("--conductor", "led")
    assert (found["led"]["valid"], found["led"]["workers"]) == (1.0, {"wise": 1.0})


def test_an_answer_whose_judge_cannot_be_paid_is_judged_later(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path, TWO + JUDGE, JUDGED)
    evaluated.run("--judge", "judge", "--dollars", "1.6")
    assert evaluated.code == ExitCode.CAPPED
    found = evaluated.entries("--judge", "judge")
    assert [(found[name]["ungraded"], found[name]["judged"]) for name in ("wise", "rash")] == [(0, 4), (0, 4)]


def test_money_that_is_only_held_is_waited_for(tmp_path: Path) -> None:
    long = '[workers.long]\nkind = "scripted"\nanswers = "4"\noutput_tokens = 1\nmax_output_tokens = 60\n'
    long += "seconds = [0.02]\nprice = { output = 1_000_000.0 }\n"  # a dollar each, and sixty are reserved
    evaluated = Evaluated(tmp_path, TWO + long)
    evaluated.run("--dollars", "200", workers="long")
    assert evaluated.code == ExitCode.OK
    assert 12 <= evaluated.dollars <= 200


async def test_a_call_waits_while_money_is_held_and_is_refused_when_it_does_not_come_back() -> None:
    purse, need = EvaluationBudget(limit=1.0), Amount(0, 0.6)
    await purse.reserve(need, "ann")
    waiting = asyncio.create_task(purse.reserve(need, "bob"))
    await asyncio.sleep(0)
    assert (waiting.done(), purse.empty) == (False, False)
    purse.settle(need, 0.1)
    await waiting
    purse.settle(need, 0.5)
    with pytest.raises(WorkerError, match="spent or reserved"):
        await purse.reserve(need, "ann")
    assert (purse.empty, purse.held, purse.spent) == (True, 0.0, 0.6)


async def test_two_who_ask_the_same_while_the_purse_is_held_pay_once(calls: ResponseCache) -> None:
    need = upper_bound([turn.text for turn in request_messages(QUESTION)], CARD.max_output_tokens, CARD.price).dollars
    purse, first, second = EvaluationBudget(limit=1.5 * (need or 0)), Slow(), Slow()
    other = asyncio.create_task(ask(first, calls, purse, Request(Task("What is he?"), "Answer.")))
    await first.begun.wait()
    same = [asyncio.create_task(ask(second, calls, purse)) for _ in range(2)]
    await asyncio.sleep(0)
    purse.limit = 10.0
    first.go.set()
    second.go.set()
    await other
    assert len(set(await asyncio.gather(*same))) == 1
    assert second.calls == 1


async def test_a_reply_is_found_again_by_whoever_gave_up_while_it_was_being_written(calls: ResponseCache) -> None:
    worker, purse = Slow(), EvaluationBudget()
    asking = asyncio.create_task(ask(worker, calls, purse))
    worker.go.set()
    await worker.done.wait()
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert await ask(worker, calls, purse) == "answer 1 to Answer."
    assert worker.calls == 1


@pytest.mark.full
def test_how_long_a_run_takes_does_not_hang_on_who_paid_for_its_replies(tmp_path: Path) -> None:
    slow = TWO.replace("price = { call = 0.25 }", "price = { call = 0.25 }\nseconds = [0.2]")
    asked = ("--conductor", "again=fixed:single?worker=wise", "--conductor", "twice=fixed:chain?workers=wise,wise")
    found = Evaluated(tmp_path, slow).entries(*asked)
    assert found["again"]["paid"] == 0.0
    assert [float(str(found[name]["seconds_p50"])) >= least for name, least in _LEAST.items()] == [True] * 3


_LEAST = {"wise": 0.2, "again": 0.2, "twice": 0.4}
