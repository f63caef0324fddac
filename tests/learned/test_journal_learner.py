"""Learning in the background: what is new is taken in, scopes stay apart, and what is erased leaves no influence."""

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learning_world import CAPS, TERMS, WORKERS, DrawnPlanner, chance, graded, learning_files, world_pool, world_task
from sqlalchemy import insert

from shikisha.conductors.learned_conductor import LearnedConductor
from shikisha.core.errors import ConfigError, JournalUnavailable
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.run import Run
from shikisha.core.task import OPERATOR, Scope, Task
from shikisha.engine.engine import Engine
from shikisha.journal import Journal, open_journal
from shikisha.journal.schema import SERVED
from shikisha.learned import journal_learner
from shikisha.learned.journal_learner import JournalLearner, runs_between_fits
from shikisha.learned.learned_file import read_learned, write_learned
from shikisha.learned.learning_files import LearningFiles


async def journaled(journal: Journal, task: Task, *, right: bool | None = None, conductor: object = None) -> Run:
    run = await Engine(journal).run(task, world_pool(), conductor or DrawnPlanner(), CAPS)  # type: ignore[arg-type]
    grade = graded(run, right=right).grades[-1]
    journal.add(grade)
    await journal.flush()
    return run


async def test_it_learns_after_25_runs_and_acts_from_the_first_on(tmp_path: Path) -> None:
    files = learning_files(tmp_path / "learning")
    async with open_journal(str(tmp_path / "j.db")) as journal:
        learner, versions = JournalLearner(files, journal, TERMS), []
        assert not await learner.is_due()
        for number in range(60):
            conductor = LearnedConductor("learned:drawn", DrawnPlanner(), files.model, TERMS)
            await journaled(journal, world_task(number, tenant=""), conductor=conductor)
            versions += [model.version for model in await learner.look()]
        assert len(versions) == 2
        assert await learner.look() == []
        assert len(await learner.look(force=True)) == 1
        assert await learner.look(force=True) == []
    model = files.model(OPERATOR)
    assert model is not None
    assert (model.learning.runs, set(model.workers)) == (60, set(WORKERS))
    assert (tmp_path / "learning" / "index.json").stat().st_mode & 0o77 == 0


def test_a_fall_waits_for_25_runs_until_there_are_1000_and_for_100_at_most() -> None:
    assert [runs_between_fits(runs) for runs in (0, 300, 1_000, 2_000, 4_000, 20_000)] == [25, 25, 25, 50, 100, 100]


async def test_a_late_grade_counts_and_one_that_comes_twice_counts_once(tmp_path: Path) -> None:
    files = learning_files(tmp_path / "learning")
    async with open_journal(str(tmp_path / "j.db")) as journal:
        learner = JournalLearner(files, journal, TERMS)
        runs = [
            await Engine(journal).run(world_task(at, tenant=""), world_pool(), DrawnPlanner(), CAPS) for at in range(30)
        ]
        await learner.look(force=True)
        assert files.model(OPERATOR).learning.graded == 0  # type: ignore[union-attr]
        for run in runs[:10]:
            for _ in range(2):
                journal.add(
                    AnswerGraded(run=run.id, at=9e9, checker="late", mark=GradeMark.RIGHT, score=1.0, actor="t")
                )
        await journal.flush()
        await learner.look(force=True)
        assert files.model(OPERATOR).learning.graded == 10  # type: ignore[union-attr]
        assert files.model(OPERATOR).learning.runs == 30  # type: ignore[union-attr]


async def test_tenants_with_opposite_truths_do_not_touch_each_other(tmp_path: Path) -> None:
    files, alone = learning_files(tmp_path / "both"), learning_files(tmp_path / "alone")
    async with open_journal(str(tmp_path / "a.db")) as both, open_journal(str(tmp_path / "b.db")) as only:
        for number in range(40):
            task = world_task(number)
            for tenant, journals in (("a", (both, only)), ("b", (both,))):
                for journal in journals:
                    planned = DrawnPlanner()
                    run = await Engine(journal).run(
                        replace(task, tenant=tenant), world_pool(), planner_of(planned), CAPS
                    )
                    right = (run.answer == "right") == (tenant == "a")
                    journal.add(replace(graded(run, right=right).grades[-1], at=run.started.at))
                    await journal.flush()
        await JournalLearner(files, both, TERMS).look(force=True)
        await JournalLearner(alone, only, TERMS).look(force=True)
    model, own = files.model(Scope("a", frozenset())), alone.model(Scope("a", frozenset()))
    other = files.model(Scope("b", frozenset()))
    assert model is not None
    assert own is not None
    assert other is not None
    for name in ("shared", "own"):
        assert np.array_equal(getattr(model, name), getattr(own, name))  # the other tenant's runs have no influence
    assert chance(model, "adder", "sum") > chance(other, "adder", "sum") + 0.2
    assert files.model(Scope("c", frozenset())).workers == ()  # type: ignore[union-attr]


def planner_of(planner: DrawnPlanner) -> DrawnPlanner:
    """Return a planner whose draws depend on the task alone, so that two journals hold the same runs."""
    return planner


async def test_labeled_runs_teach_only_tasks_that_bear_the_label(tmp_path: Path) -> None:
    files = learning_files(tmp_path / "learning")
    async with open_journal(str(tmp_path / "j.db")) as journal:
        for number in range(60):
            labels = ("secret",) if number % 2 else ()
            await journaled(journal, replace(world_task(number, tenant=""), labels=labels))
        await JournalLearner(files, journal, TERMS).look(force=True)
    plain, secret = files.model(OPERATOR), files.model(Scope("", frozenset({"secret"})))
    more = files.model(Scope("", frozenset({"secret", "other"})))
    assert plain is not None
    assert secret is not None
    assert (plain.learning.runs, secret.learning.runs) == (30, 60)
    assert more is not None
    assert more.version == secret.version


@pytest.mark.parametrize("erased", [slice(20), slice(40, 42)])  # runs of all versions, and of the newest only
async def test_the_model_after_an_erasure_is_the_one_without_the_erased_runs(tmp_path: Path, erased: slice) -> None:
    files, without = learning_files(tmp_path / "erased"), learning_files(tmp_path / "without")
    async with open_journal(str(tmp_path / "a.db")) as journal, open_journal(str(tmp_path / "b.db")) as other:
        learner = JournalLearner(files, journal, TERMS)
        journal.on_erased(learner.forget)
        runs = []
        for number in range(50):
            run = await journaled(journal, world_task(number, tenant=""))
            runs.append(run)
            await learner.look()
        first = files.model(OPERATOR)
        gone = [run.id for run in runs[erased]]
        await journal.erase(gone, actor="me", why="asked")
        after = files.model(OPERATOR)
        for run in runs:
            for event in await journal.read(run.id) if run.id not in gone else ():
                other.add(event)
        await other.flush()
        await JournalLearner(without, other, TERMS).look(force=True)
    same = without.model(OPERATOR)
    assert first is not None
    assert after is not None
    assert same is not None
    assert after.learning.runs == 50 - len(gone)
    for name in ("shared", "own", "root", "roots"):
        assert np.array_equal(getattr(after, name), getattr(same, name))
    left = "".join(file.read_text() for file in (tmp_path / "erased").glob("*.json"))
    assert not any(run in left for run in gone)


async def test_a_server_that_starts_after_an_erasure_learns_without_the_erased_runs(tmp_path: Path) -> None:
    files = learning_files(tmp_path / "learning")
    async with open_journal(str(tmp_path / "j.db")) as journal:
        runs = [await journaled(journal, world_task(number, tenant="")) for number in range(30)]
        await JournalLearner(files, journal, TERMS).look(force=True)
        await journal.erase([run.id for run in runs[:5]], actor="me", why="asked")  # no learner was there
        await JournalLearner(files, journal, TERMS).look()
        left = "".join(file.read_text() for file in (tmp_path / "learning").glob("*.json"))
        assert not any(run.id in left for run in runs[:5])


@pytest.mark.parametrize("bound", ["MOST_RUNS", "MOST_STEPS"])
async def test_of_a_long_journal_the_newest_runs_are_kept_and_none_of_a_small_tenants_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(journal_learner, bound, 20)
    monkeypatch.setattr(journal_learner, "_FOLDED", 4)
    files = learning_files(tmp_path / "learning")
    async with open_journal(str(tmp_path / "j.db")) as journal:
        small = [await journaled(journal, world_task(number, tenant="small")) for number in range(4)]
        runs = [await journaled(journal, world_task(number, tenant="")) for number in range(45)]
        row = {column.name: 0 for column in SERVED.c if not column.nullable} | {"tenant": "small", "state": "ended"}
        rows = [{**row, "run": run.id, "key": "k"} for run in small]
        await journal.write(lambda connection: connection.execute(insert(SERVED), rows))
        learner = JournalLearner(files, journal, TERMS)
        assert [model.learning.runs for model in await learner.look(force=True)] == [16, 4]
        assert set(learner._evidence) == {run.id for run in [*small, *runs[-16:]]}
        late = [await journaled(journal, world_task(number, tenant="")) for number in range(45, 47)]
        assert [model.learning.runs for model in await learner.look(force=True)] == [16]
        assert set(learner._evidence) == {run.id for run in [*small, *runs[-14:], *late]}
        again = JournalLearner(files, journal, TERMS)
        await again.look(force=True)
        assert set(again._evidence) == set(learner._evidence)


def version_count(files: LearningFiles) -> int:
    return len(files.index().scopes[0].versions)


async def test_versions_can_be_pinned_and_switched_off_and_old_ones_go(tmp_path: Path) -> None:
    files = learning_files(tmp_path / "learning")
    async with open_journal(str(tmp_path / "j.db")) as journal:
        learner, made = JournalLearner(files, journal, TERMS), []
        for number in range(14):
            await journaled(journal, world_task(number, tenant=""))
            made += await learner.look(force=True)
            if number == 1:
                files.pin(OPERATOR, made[1].version[:6])
    assert version_count(files) == 11  # ten, and the pinned one
    assert files.model(OPERATOR).version == made[1].version  # type: ignore[union-attr]
    assert len(list((tmp_path / "learning").glob("*-*.json"))) == 11
    assert files.model(OPERATOR, made[-2].version).version == made[-2].version  # type: ignore[union-attr]
    files.pin(OPERATOR, "")
    assert files.model(OPERATOR).version == made[-1].version  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="known are"):
        files.pin(OPERATOR, "nothing")
    files.switch("by me")
    assert learning_files(tmp_path / "learning").model(OPERATOR) is None
    files.switch("")
    assert files.model(OPERATOR) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"format": "shikisha-learning/0"}',
        '{"format": "shikisha-learning/1", "off": "", "scopes": 5}',
        '{"format":"shikisha-learning/1","off":"","scopes":[{"versions":[{"version":"a","made":0,"runs":1e999}]}]}',
    ],
)
def test_an_index_of_another_form_is_an_error_that_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ConfigError, match="shikisha learn"):
        learning_files(tmp_path).index()


async def test_a_model_of_another_version_is_an_error_until_it_is_made_again(tmp_path: Path) -> None:
    files = learning_files(tmp_path / "learning")
    async with open_journal(str(tmp_path / "j.db")) as journal:
        run = await journaled(journal, world_task(0, tenant=""))
        learner = JournalLearner(files, journal, TERMS)
        (model,) = await learner.look(force=True)
        (file,) = (tmp_path / "learning").glob("*-*.json")
        learned = read_learned(file)
        other = json.dumps({**json.loads(file.read_text()), "format": "shikisha-outcome-model/9"})
        for broken in (other, "", "not JSON"):
            file.write_text(broken)
            if not broken:  # of the form that was before this one
                write_learned(file, replace(learned, content={**learned.content, "shares": [0.5, 0.25]}))
            fresh = learning_files(tmp_path / "learning")
            with pytest.raises(ConfigError, match=r"expected|shikisha learn|no learned file") as raised:
                fresh.model(OPERATOR)
            conductor = LearnedConductor("learned:drawn", DrawnPlanner(), fresh.model, TERMS)
            plain = await Engine(journal).run(world_task(0, tenant=""), world_pool(), conductor, CAPS)
            assert plain.answer == run.answer  # no run fails of it, and each says so
            assert str(raised.value) in plain.rounds[0].proposed.note  # type: ignore[union-attr]
            await journal.erase([plain.id], actor="me")
            again = JournalLearner(fresh, journal, TERMS)
            assert await again.is_due()
            assert [one.learning.runs for one in await again.look()] == [1]  # nothing new is needed
            assert fresh.model(OPERATOR).version == model.version  # type: ignore[union-attr]
            assert await again.look(force=True) == []
            (file,) = (tmp_path / "learning").glob(f"*-{fresh.index().scopes[0].live}.json")
        assert not await again.is_due()
        index = (tmp_path / "learning" / "index.json").read_bytes()
        (tmp_path / "learning" / "index.json").write_bytes(index[:-9])
        with pytest.raises(JournalUnavailable, match="no index of what was learned"):
            await JournalLearner(learning_files(tmp_path / "learning"), journal, TERMS).forget()
        (tmp_path / "learning" / "index.json").write_bytes(index)
        file.write_text("not JSON")
        journal.on_erased(JournalLearner(learning_files(tmp_path / "learning"), journal, TERMS).forget)
        await journal.erase([run.id], actor="me", why="asked")
    assert not list((tmp_path / "learning").glob("*-*.json"))


async def test_one_process_learns_at_a_time(tmp_path: Path) -> None:
    files, started, ended = learning_files(tmp_path / "learning"), threading.Event(), threading.Event()

    def hold() -> None:
        with learning_files(tmp_path / "learning").turn() as own:
            assert own
            started.set()
            ended.wait(10)

    async with open_journal(str(tmp_path / "j.db")) as journal:
        await journaled(journal, world_task(0, tenant=""))
        learner = JournalLearner(files, journal, TERMS)
        holding = asyncio.create_task(asyncio.to_thread(hold))
        await asyncio.to_thread(started.wait, 10)
        assert await learner.look(force=True) == []
        ended.set()
        await holding
        assert len(await learner.look(force=True)) == 1
