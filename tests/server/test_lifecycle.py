"""What was acknowledged comes to its end, whatever the store, a client, a server or another run does meanwhile."""

import asyncio
import signal
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import time

import pytest
from faulty import Kept, housed, until
from fresh import fresh
from journals import finished
from postgres import Cluster
from responding import FILE
from serving import served_process
from stores import order

from shikisha.cli import session
from shikisha.core.errors import JournalUnavailable, RunStillOpen, ServerFenced
from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
)
from shikisha.core.run import Run
from shikisha.journal import open_journal
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.grants import BudgetAmount, read_spend
from shikisha.server.lifecycle.broadcast import EventUpdate
from shikisha.server.lifecycle.deadlines import ApprovalTimeouts
from shikisha.server.lifecycle.process import maintain_once
from shikisha.server.lifecycle.service import RunService, root_run_id, start_once
from shikisha.server.store import ServedState
from shikisha.testing import InjectedFault, ScriptedAnswer, chat_server

ASKS = 'approval = "always"'


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh journal of either kind."""
    if request.param == "sqlite":
        return fresh(str(tmp_path / "journal.db"))
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


async def ended(service: RunService, run: str) -> Run:
    """The run, once nothing of it goes on here."""
    await until(lambda: run not in service.running and service.idle)
    return await service.read_run(run)


async def left(at: Kept, run: str, first: Event | None = None) -> None:
    """Leave a run with its row and its first event, and nothing else, as a server that dies may."""
    made = at.order()
    await at.service.store.add_run(order(run, key=at.by.key, conductor=made.conductor))
    name = at.service.cast(made.conductor, made.pool)[1].name
    begun = RunStarted(run=run, at=1.0, conductor=name, pool=made.pool, caps=made.caps, prompt="p")
    at.service.journal.add(first or begun)
    await at.service.journal.flush()


def yes(asked: QuestionAsked) -> QuestionAnswered:
    return QuestionAnswered(run=asked.run, at=time(), question=asked.question, approved=True, actor="a", via="tests")


async def question(service: RunService, run: str) -> QuestionAsked:
    return (await service.read_run(run)).open_questions[0]


async def test_an_acknowledged_run_that_waits_for_its_turn_is_not_refused(tmp_path: Path) -> None:
    async with housed(tmp_path, "concurrency = 1\nseconds = [0.2, 0]") as at:
        first, second = [(await at.service.begin(at.order())).run for _ in range(2)]
        at.driver.away = True
        await until(lambda: at.service.idle)
        assert at.service.stuck == {first, second}
        await maintain_once(at.service)
        assert at.service.stuck == {first, second}  # a look that fails loses nobody
        at.driver.away = False
        await maintain_once(at.service)
        assert [(await ended(at.service, run)).status for run in (first, second)] == [RunStatus.DONE, RunStatus.DONE]
        assert not at.service.stuck


async def test_a_run_that_another_server_took_meanwhile_is_left_to_it(tmp_path: Path, url: str) -> None:
    async with housed(tmp_path, ASKS, url=url) as at, housed(tmp_path, ASKS, url=url) as other:
        run = (await at.service.begin(at.order())).run
        asked = await question(at.service, (await ended(at.service, run)).id)
        at.service.stuck.add(run)  # as after a commit whose answer was lost
        assert await other.service.answer(yes(asked)) is not None
        await at.service.retry_stuck(run)
        assert (await ended(other.service, run)).status is RunStatus.DONE
        assert len((await at.service.read_run(run)).attempts) == 1


async def test_an_answer_that_another_server_takes_for_a_run_which_is_still_open_here_counts(
    tmp_path: Path, url: str
) -> None:
    async with housed(tmp_path, ASKS, url=url) as at, housed(tmp_path, ASKS, url=url) as other:

        async def elsewhere() -> None:
            asked = await question(other.service, next(iter(at.service.running)))
            assert await other.service.answer(yes(asked)) is None  # it is open, and so is not taken

        def hold(_: Event) -> None:
            at.driver.before = elsewhere

        at.when(RunPaused, hold)
        run = (await at.service.begin(at.order())).run
        past = await ended(at.service, run)
        assert (past.status, len(past.attempts)) == (RunStatus.DONE, 1)


async def test_an_answer_that_cannot_be_gone_on_with_at_once_is_later_and_ends_no_server(tmp_path: Path) -> None:
    async with housed(tmp_path, ASKS) as at:

        async def leave_after() -> None:
            at.driver.before = away

        async def away() -> None:
            at.driver.away = True

        def answered(event: Event) -> None:
            at.service.running[event.run].answered = True
            at.driver.before = leave_after

        at.when(RunPaused, answered)
        run = (await at.service.begin(at.order())).run
        await until(lambda: at.service.stuck == {run})
        at.driver.away = False
        await at.service.answer(yes(await question(at.service, run)))
        assert (await ended(at.service, run)).status is RunStatus.DONE


async def test_a_run_that_is_cancelled_as_it_comes_to_wait_is_stopped(tmp_path: Path) -> None:
    async with housed(tmp_path, ASKS) as at:
        cancels: list[asyncio.Task[None]] = []

        def cancel(event: Event) -> None:
            cancels.append(asyncio.ensure_future(at.service.cancel(event.run)))

        at.when(RunPaused, cancel)
        run = (await at.service.begin(at.order())).run
        await until(lambda: bool(cancels))
        await cancels[0]
        assert await at.state(run) == ServedState.STOPPED


async def test_a_run_that_comes_to_wait_elsewhere_after_it_was_cancelled_is_stopped(tmp_path: Path, url: str) -> None:
    async with housed(tmp_path, ASKS, url=url) as at, housed(tmp_path, ASKS, url=url) as other:

        def hold(event: Event) -> None:
            at.driver.before = lambda: other.service.cancel(event.run)  # which finds it open here

        at.when(RunPaused, hold)
        run = (await at.service.begin(at.order())).run
        await ended(at.service, run)
        await maintain_once(other.service)
        assert await at.state(run) == ServedState.STOPPED


async def test_a_run_that_was_to_be_stopped_is_not_performed_by_whoever_takes_it_over(tmp_path: Path) -> None:
    async with housed(tmp_path) as at:
        await left(at, "r")
        await at.service.cancel("r")
        at.service.store.drop("r")
        await maintain_once(at.service)
        assert (await at.state("r"), (await at.service.read_run("r")).attempts) == (ServedState.STOPPED, [])


async def test_a_run_that_was_refused_does_not_keep_its_idempotency_key(tmp_path: Path) -> None:
    async with housed(tmp_path) as at:

        def leave(_: Event) -> None:
            at.driver.away = True

        at.when(RunStarted, leave)
        with pytest.raises(ApiError, match="journal cannot be written"):
            await start_once(at.service, at.order(idempotency="once"))
        at.driver.away = False
        again = await start_once(at.service, at.order(idempotency="once"))
        assert again.fresh
        assert (await ended(at.service, again.run)).status is RunStatus.DONE
        assert await start_once(at.service, at.order(idempotency="once")) == replace(again, fresh=False)


async def test_a_task_that_is_cancelled_before_it_began_is_let_go_of(tmp_path: Path) -> None:
    async with housed(tmp_path, "seconds = [60]") as at:
        await left(at, "r")
        live = await at.service.resume("r")
        at.service.expelled()
        assert [heard async for heard in live.listen(0)] == []
        await until(lambda: at.service.idle)
        assert not at.service.running
        await maintain_once(at.service)
        assert not at.service.expulsions


async def test_a_run_that_is_another_members_is_not_performed(tmp_path: Path) -> None:
    async with housed(tmp_path) as at, housed(tmp_path) as other:
        await left(at, "r")
        with pytest.raises(ServerFenced):
            await other.service.resume("r")
        assert other.service.idle


async def test_what_cannot_be_read_as_a_run_is_given_up_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with housed(tmp_path) as at:
        await left(at, "r", finished("r"))  # it never began
        await left(at, "s")
        for run in ("r", "s"):
            at.service.store.drop(run)
        await maintain_once(at.service)
        assert (await ended(at.service, "s")).status is RunStatus.DONE
        assert await at.state("r") == ServedState.STOPPED


async def test_runs_that_cannot_be_read_now_take_none_of_their_keys_room(tmp_path: Path) -> None:
    async with housed(tmp_path, ASKS) as at:
        run = (await at.service.begin(at.order())).run
        await ended(at.service, run)
        await at.service.store.take(run)
        at.service.journal.add(finished("x"))
        at.driver.away = True
        for _ in range(3):
            with pytest.raises(JournalUnavailable):
                await at.service.resume(run)
        assert at.service.key_budgets.budget_of_key(at.by.key).account.runs == 1
        at.driver.away = False


async def test_what_is_answered_while_a_run_is_read_has_its_number(tmp_path: Path) -> None:
    async with housed(tmp_path, ASKS) as at:
        run = (await at.service.begin(at.order())).run
        asked = await question(at.service, (await ended(at.service, run)).id)
        later = QuestionAnswered(run=run, at=time(), question="other", approved=True, actor="b", via="tests")
        await asyncio.gather(at.service.answer(yes(asked)), at.service.answer(later))
        heard = [each async for each in at.service.listen(run) if isinstance(each, EventUpdate)]
        await ended(at.service, run)
        stored = await at.service.journal.read(run)
        assert [stored[each.number] for each in heard] == [each.event for each in heard]


async def test_a_clock_that_is_put_back_keeps_nobody_from_looking_at_what_waits(tmp_path: Path) -> None:
    async with housed(tmp_path, ASKS) as at:
        clock, steady = [time() + 366 * 86400.0], [1000.0]
        expiring = ApprovalTimeouts(root_run_id, lambda: clock[0], lambda: steady[0])
        await expiring.look(at.service)
        run = (await at.service.begin(at.order())).run
        asked = await question(at.service, (await ended(at.service, run)).id)
        at.service.journal.add(yes(asked))  # by somebody who died before the run could go on
        await at.service.journal.flush()
        clock[0], steady[0] = time(), 1301.0
        await expiring.look(at.service)
        assert (await ended(at.service, run)).status is RunStatus.DONE


async def test_nobody_else_performs_what_a_server_performs(tmp_path: Path, url: str) -> None:
    async with housed(tmp_path, "seconds = [60]", url=url) as at:
        run = (await at.service.begin(at.order())).run
        with pytest.raises(RunStillOpen, match="performed by a server"):
            async with open_journal(url) as journal, session.exclusive_run(journal, run, 30.0):
                pass
        await at.service.cancel(run)
        async with open_journal(url) as journal, session.exclusive_run(journal, run, 30.0):
            assert not await at.service.store.claim(9)
        assert await at.state(run) == ServedState.STOPPED


@pytest.mark.full
@pytest.mark.parametrize(("signals", "within"), [(1, 60.0), (2, 5.0)], ids=["once", "twice"])
async def test_a_server_that_is_told_to_stop_releases_its_runs(tmp_path: Path, signals: int, within: float) -> None:
    drain = 0.2 if signals == 1 else 60.0
    async with chat_server([ScriptedAnswer(mishap=InjectedFault.SILENCE)]) as url:
        config = FILE.format(url=url, more="", end=f"drain = {drain}")
        async with served_process(tmp_path, config) as (at, process), at.http() as http:
            run = (await http.post("/runs", json={"prompt": "p", "background": True})).json()["id"]
            for _ in range(signals):
                process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.3)
            assert await asyncio.wait_for(process.wait(), within) == 0
    with sqlite3.connect(tmp_path / "journal.db") as told:
        kinds = [kind for (kind,) in told.execute("SELECT kind FROM events WHERE run = ? ORDER BY seq", (run,))]
        assert kinds[-1] == "run.paused"
        assert told.execute("SELECT state FROM members").fetchall() == [("dead",)]


async def used(at: Kept) -> BudgetAmount:
    """What the key used in all, once everything is stored."""
    await at.service.journal.flush()
    [row] = [row for row in await at.service.journal.query(partial(read_spend, key=at.by.key)) if not row.day]
    return row.used


async def test_a_call_in_flight_is_charged_to_its_key_once_however_often_its_run_is_taken_up(tmp_path: Path) -> None:
    async with housed(tmp_path, "max_output_tokens = 100\nconcurrency = 1\nseconds = [0.2, 0]") as at:
        calls: list[Event] = []

        def leave(event: Event) -> None:
            calls.extend([event] if isinstance(event, AttemptStarted) else [])
            at.driver.away = at.driver.away or (isinstance(event, AttemptStarted) and len(calls) == 2)

        at.service.observers.append(leave)
        first, run = [(await at.service.begin(at.order())).run for _ in range(2)]
        await until(lambda: run in at.service.stuck)
        at.driver.away = False
        for _ in range(3):  # each comes as far as to say that it goes on
            at.when(RunResumed, lambda _: setattr(at.driver, "away", True))
            await at.service.retry_stuck(run)
            await until(lambda: at.service.idle)
            at.driver.away = False
        await at.service.retry_stuck(run)
        past = await ended(at.service, run)
        assert [type(attempt.outcome) for attempt in past.attempts] == [AttemptFailed, AttemptFinished]
        assert past.attempts[0].started.reserved.tokens > 100
        assert (await used(at)).tokens == past.counted.tokens + (await at.service.read_run(first)).counted.tokens


async def test_a_request_that_is_refused_because_its_start_cannot_be_stored_is_not_counted(tmp_path: Path) -> None:
    async with housed(tmp_path) as at:
        at.when(RunStarted, lambda _: setattr(at.driver, "away", True))
        with pytest.raises(ApiError) as refused:
            await at.service.begin(at.order())
        assert refused.value.status == 503
        at.driver.away = False
        await at.service.begin(at.order())
        assert (await used(at)).requests == 1


async def test_what_a_child_run_was_given_is_not_charged_besides_its_calls(tmp_path: Path) -> None:
    team = '[workers.team]\nkind = "conductor"\npool = ["ann"]'
    async with housed(tmp_path, "max_output_tokens = 100", team) as at:
        below: list[str] = []

        def leave(event: Event) -> None:
            if isinstance(event, AttemptStarted) and event.worker == "ann" and not below:
                below.append(event.run)
                at.driver.away = True

        at.service.observers.append(leave)
        chain = at.order(conductor="fixed:chain?workers=team", pool=("ann", "team"))
        run = (await at.service.begin(chain)).run
        await until(lambda: run in at.service.stuck)
        at.driver.away = False
        await at.service.retry_stuck(run)
        assert (await ended(at.service, run)).status is RunStatus.DONE
        child = await at.service.read_run(below[0])
        assert [type(attempt.outcome) for attempt in child.attempts] == [AttemptFailed, AttemptFinished]
        assert (await used(at)).tokens == child.counted.tokens > 100
