"""What a run said can be erased: nothing of it is left, the chain holds, and whoever reads is told."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from journals import PLAN, answered, attempt, behind, finished, keep, started, whole
from postgres import Cluster
from sqlalchemy import text

from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.call import Card
from shikisha.core.errors import JournalTampered, RunErased, UnknownRun
from shikisha.core.events import (
    AnswerGraded,
    BodiesErased,
    GradeMark,
    QuestionAsked,
    QuestionKind,
    RunStarted,
    RunStatus,
)
from shikisha.core.messages import load_tool_calls
from shikisha.core.plan import Plan
from shikisha.core.run import Run
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.explain import explain
from shikisha.journal import ErasureResult, Journal, open_journal
from shikisha.journal.store import Eraser
from shikisha.workers.scripted import ScriptedWorker

SECRET = "the patient is Ann Smith"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


def everything(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_an_erased_run_is_listed_and_explained_without_its_words(url: str) -> None:
    async with open_journal(url) as journal:
        await keep(journal, whole("r", answer=SECRET))
        gone = await journal.erase(["r"], actor="ann", why="asked to")
        assert (gone.runs, gone.kept) == (("r",), 0)
        run = Run.fold(await journal.read("r"))
        assert run.erased is not None
        assert (run.erased.actor, run.erased.why, run.erased.removed) == ("ann", "asked to", gone.removed)
        assert str(run.answer).startswith("[erased 20")
        assert [run.prompt for run in await journal.runs()] == [run.answer]
        (told,) = explain(run).rounds[0].steps
        assert (told.subtask, told.worker, told.answer) == (run.answer, "ann", run.answer)
        assert (await journal.verify()).ok
        assert SECRET not in "".join([line async for line in journal.export()])


async def test_a_text_that_another_run_has_stays_until_that_is_erased(url: str) -> None:
    async with open_journal(url) as journal:
        await keep(journal, whole("one", answer=SECRET) + whole("two", answer=SECRET))
        first = await journal.erase(["one"], actor="ann")
        assert first == ErasureResult(("one",), 0, 3)
        assert await journal.read("two") == tuple(whole("two", answer=SECRET))
        assert SECRET not in repr(await journal.read("one"))
        assert await journal.erase(["two"], actor="ann") == ErasureResult(("two",), 3, 0)
        found = await journal.verify()
        assert (found.ok, found.erased) == (True, 8)


async def surveyed(journal: Journal, run: str) -> Eraser:
    """Return the erasure of a run whose survey is over."""
    await journal.flush()
    eraser = Eraser((run,), "ann", "")
    while not await journal.query(eraser.survey):
        pass
    return eraser


async def test_a_text_that_another_run_takes_up_after_the_survey_stays(url: str) -> None:
    async with open_journal(url) as journal:
        await keep(journal, whole("one", answer=SECRET))
        eraser = await surveyed(journal, "one")
        await keep(journal, whole("two", answer=SECRET))
        assert await journal.write(eraser.erase) == ErasureResult(("one",), 0, 3)
        assert await journal.read("two") == tuple(whole("two", answer=SECRET))


async def test_a_text_that_was_shared_before_and_is_taken_up_again_after_the_survey_stays(url: str) -> None:
    async with open_journal(url) as journal:
        await keep(journal, whole("one", answer=SECRET) + whole("two", answer=SECRET))
        await journal.erase(["two"], actor="ann")
        eraser = await surveyed(journal, "one")
        await keep(journal, whole("three", answer=SECRET))
        assert (await journal.write(eraser.erase)).removed == 0
        assert await journal.read("three") == tuple(whole("three", answer=SECRET))


async def test_a_text_that_a_run_says_again_after_its_own_erasure_stays(url: str) -> None:
    async with open_journal(url) as journal:
        await keep(journal, whole("one", answer=SECRET) + whole("two", answer=SECRET))
        await journal.erase(["two"], actor="ann")
        graded = AnswerGraded(run="two", at=20.0, checker="ann", mark=GradeMark.RIGHT, score=1.0, evidence=SECRET)
        await keep(journal, [graded])
        assert (await journal.erase(["one"], actor="ann")).kept == 1
        assert (await journal.read("two"))[-1] == graded
        assert (await journal.verify()).ok


async def test_both_at_once_leave_nothing(url: str) -> None:
    async with open_journal(url) as journal:
        await keep(journal, whole("one") + whole("two"))
        assert await journal.erase(["one", "two", "one"], actor="ann") == ErasureResult(("one", "two"), 3, 0)


async def test_child_runs_go_with_their_parent(url: str) -> None:
    async with open_journal(url) as journal:
        await keep(journal, [started("r"), *whole("r-0-0-0", parent="r", answer=SECRET), finished("r")])
        assert (await journal.erase(["r"], actor="ann")).runs == ("r", "r-0-0-0")
        assert SECRET not in repr(await journal.read("r-0-0-0"))


async def test_what_is_said_after_an_erasure_is_there_until_the_next(url: str) -> None:
    graded = AnswerGraded(run="r", at=20.0, checker="ann", mark=GradeMark.RIGHT, score=1.0, evidence="well said, Ann")
    async with open_journal(url) as journal:
        await keep(journal, whole("r"))
        await journal.erase(["r"], actor="ann")
        await keep(journal, [graded])
        assert (await journal.read("r"))[-1] == graded
        before = Run.fold(await journal.read("r"))
        assert (await journal.erase(["r"], actor="ann")).removed == 1
        after = Run.fold(await journal.read("r"))
        assert after.grades[0].evidence.startswith("[erased ")
        assert after.rounds[0].plan == before.rounds[0].plan
        assert (await journal.verify()).ok


async def test_what_remains_of_a_plan_is_who_was_asked_and_who_saw_what(url: str) -> None:
    async with open_journal(url) as journal:
        await keep(journal, whole("r"))
        await journal.erase(["r"], actor="ann")
        plan = Run.fold(await journal.read("r")).rounds[0].plan
        assert plan is not None
        kept = [(step.worker, step.access) for step in plan.steps]
        assert kept == [(step.worker, step.access) for step in Plan.loads(PLAN).steps]


async def test_a_large_pool_is_stored_once_and_outlives_the_erasure_of_its_runs(url: str) -> None:
    pool = tuple(f"worker-{number}-半" for number in range(5_000))
    runs = [replace(started(name), pool=pool) for name in ("one", "two")]
    async with open_journal(url) as journal:
        await keep(journal, runs)
        assert [await journal.read(run.run) for run in runs] == [(run,) for run in runs]
        sizes = await journal.query(lambda at: at.execute(text("SELECT length(data) FROM events")).scalars().all())
        assert max(sizes) < 500
        await journal.erase(["one"], actor="me")
        await journal.erase(["two"], actor="me")
        first, *_ = await journal.read("one")
        assert isinstance(first, RunStarted)
        assert (first.pool, first.prompt.startswith("[erased")) == (pool, True)
        assert [run.status for run in await journal.runs()] == [RunStatus.RUNNING] * 2
        exported = [json.loads(line) async for line in journal.export("two")]
        assert exported[0]["data"]["pool"] == list(pool)
        assert (await journal.verify()).ok
        await journal.write(lambda at: at.execute(text("DELETE FROM bodies")).close())
        assert "a list of names of it" in str((await journal.verify()).problems[0])
        with pytest.raises(JournalTampered, match="missing"):
            await journal.read("one")


async def test_a_run_that_is_not_there_cannot_be_erased(url: str) -> None:
    async with open_journal(url) as journal:
        with pytest.raises(UnknownRun):
            await journal.erase(["r"], actor="ann")
        await keep(journal, whole("r"))
        with pytest.raises(UnknownRun):
            await journal.erase(["r", "s"], actor="ann")
        assert await journal.read("r") == tuple(whole("r"))


async def test_erased_texts_are_nowhere_in_the_files(tmp_path: Path) -> None:
    long = " ".join(f"{SECRET} {number}" for number in range(3000))  # over several pages
    async with open_journal(str(tmp_path / "journal.db")) as journal:
        await keep(journal, whole("r", answer=SECRET) + whole("s", answer=long) + whole("t"))
        assert SECRET.encode() in everything(tmp_path)
        await journal.erase(["r", "s"], actor="ann")
        assert SECRET.encode() not in everything(tmp_path)
        assert await journal.read("t") == tuple(whole("t"))


async def test_a_text_that_is_gone_without_its_erasure_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("one") + whole("two", answer="That."))
        await journal.erase(["one"], actor="ann")
        with behind(path) as connection:
            connection.execute("DELETE FROM bodies")
        problems = (await journal.verify()).problems
        assert {problem.seq for problem in problems} == {6, 7, 9, 11}
        assert all("is missing" in problem.what for problem in problems)


async def test_texts_of_an_older_journal_are_erased_with_the_last_run_that_has_them(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_journal(str(path)) as journal:
        await keep(journal, whole("one", answer="Yes.") + whole("two") + [started("three"), attempt("three")])
        with behind(path) as connection:
            connection.execute("UPDATE bodies SET run = NULL, shared = 0")
        assert await journal.erase(["one"], actor="ann") == ErasureResult(("one",), 1, 2)
        assert await journal.erase(["two"], actor="ann") == ErasureResult(("two",), 2, 1)
        assert (await journal.erase(["three"], actor="ann")).removed == 1


def test_an_erasure_is_part_of_the_run() -> None:
    erased = BodiesErased(run="r", at=99.0, actor="ann")
    run = Run.fold([*whole("r"), erased])
    assert (run.erased, run.active_seconds) == (erased, Run.fold(whole("r")).active_seconds)


async def test_a_text_that_was_first_said_long_ago_by_another_run_stays(tmp_path: Path) -> None:
    async with open_journal(str(tmp_path / "journal.db")) as journal:
        await keep(journal, whole("first", answer=SECRET))
        await keep(journal, (answered("between", "It.") for _ in range(5000)))
        await keep(journal, [started("between"), *whole("last", answer=SECRET)])
        assert (await journal.erase(["last"], actor="ann")).removed == 0
        assert await journal.read("first") == tuple(whole("first", answer=SECRET))


async def test_nobody_goes_on_with_an_erased_run(tmp_path: Path) -> None:
    async with open_journal(str(tmp_path / "journal.db")) as journal:
        await keep(journal, whole("r")[:2])
        await journal.erase(["r"], actor="bob")
        pool = Pool([Member(Card("ann"), ScriptedWorker({}))])
        with pytest.raises(RunErased, match="run r was erased by bob"):
            await Engine(journal).resume("r", pool, fixed_conductor("single"))


async def test_what_programs_read_of_an_erased_run_stays_readable_to_them(tmp_path: Path) -> None:
    call = '[{"id":"c","name":"look","arguments":"{}"}]'
    said = replace(started("r"), history='[{"role":"user","text":"Ann"}]', config='{"a":1}', options='{"seed":1}')
    asks = QuestionKind.TOOLS
    asked = QuestionAsked(run="r", at=3.5, round=0, step=0, worker="ann", question="q", asks=asks, prompt=call)
    async with open_journal(str(tmp_path / "journal.db")) as journal:
        await keep(journal, [said, *whole("r")[1:3], asked])
        await journal.erase(["r"], actor="ann")
        run = Run.fold(await journal.read("r"))
        assert (run.task.history, run.started.config) == ((), "{}")
        assert run.task.prompt.startswith("[erased ")
        assert [load_tool_calls(question.prompt) for question in run.open_questions] == [()]
