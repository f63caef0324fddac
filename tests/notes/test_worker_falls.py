"""Falls of workers: one is noticed and forgotten from the run that shows it, none is invented, order alone decides."""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.cli import app
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Request
from shikisha.core.errors import ConfigError
from shikisha.core.events import AnswerGraded, GradeBasis, GradeMark
from shikisha.core.run import Run
from shikisha.core.task import OPERATOR
from shikisha.journal import open_journal
from shikisha.notes.run_chances import PartForm, PartTrial
from shikisha.notes.step_outcomes import WorkerOutcome, step_outcomes
from shikisha.notes.worker_falls import LEAST_KNOWN, LIMIT, FallWatch
from shikisha.notes.worker_notes import WorkerNotes, load_notes

WORKERS, KINDS = ("ada", "bo", "cy"), ("add", "look", "write")


def outcomes_of(seed: int, runs: int, falls_at: int | None = None, worker: str = "ada") -> list[WorkerOutcome]:
    """Return graded runs of one to three steps by simulated workers, whose levels are .9; at `falls_at` one falls."""
    rng, found = random.Random(seed), list[WorkerOutcome]()
    for run in range(runs):
        steps = [(rng.choice(WORKERS), kind) for kind in rng.sample(KINDS, rng.randint(1, 3))]
        fallen = falls_at is not None and run >= falls_at
        right = all(rng.random() < (0.15 if fallen and name == worker else 0.9) for name, _ in steps)
        found += [
            WorkerOutcome(
                f"r{run}", name, (kind,), float(right), right or len(steps) == 1, GradeBasis.PERSON, 0, 0, OPERATOR,
                run_right=right,
            )
            for name, kind in steps
        ]  # fmt: skip
    return found


def test_a_fall_is_noticed_soon_and_only_later_outcomes_count() -> None:
    lags = list[int]()
    for seed in range(4):
        notes = WorkerNotes.collect(outcomes_of(seed, 320, falls_at=200))
        fall = next(one for one in notes.falls if one.worker == "ada")
        lags.append(int(fall.run[1:]) - 200)
        known = {one.worker: one for one in notes.estimate("", WORKERS, OPERATOR)}
        assert known["ada"].all_right / known["ada"].all_tries < 0.45
        assert min(known[name].all_right / known[name].all_tries for name in ("bo", "cy")) > 0.75
        since = int(fall.since[1:])
        assert all(int(run[1:]) >= since for note in notes.notes if note.worker == "ada" for run in note.runs)
        assert abs(since - 200) <= 15  # where it fell, not where that was noticed
        assert fall.outcomes > 100
        assert fall.right < fall.foretold
        assert fall.probability > LIMIT
        assert fall.run == fall.evidence[-1]
        assert fall.since in fall.evidence
    assert all(0 <= lag < 30 for lag in lags), lags


def test_without_the_key_the_fallen_worker_keeps_its_good_name() -> None:
    outcomes = outcomes_of(0, 260, falls_at=200)
    kept = WorkerNotes.collect(outcomes, forget=False)
    assert kept.falls == ()
    assert (
        kept.estimate("add", ["ada"], OPERATOR)[0].mean
        > WorkerNotes.collect(outcomes).estimate("add", ["ada"], OPERATOR)[0].mean + 0.2
    )


def test_where_nobody_falls_hardly_anybody_is_forgotten() -> None:
    found = [WorkerNotes.collect(outcomes_of(seed, 300)).falls for seed in range(10, 16)]
    assert sum(map(len, found)) <= 2, found  # of 18 workers and 1,800 runs
    quiet = next(seed for seed, falls in enumerate(found, 10) if not falls)
    outcomes = outcomes_of(quiet, 300)
    assert WorkerNotes.collect(outcomes).version == WorkerNotes.collect(outcomes, forget=False).version


def test_order_alone_decides() -> None:
    outcomes = outcomes_of(1, 300, falls_at=200)
    renamed = [replace(one, run=f"x{hash(one.run)}") for one in outcomes]
    one, other = WorkerNotes.collect(outcomes), WorkerNotes.collect(renamed)
    assert [fall.outcomes for fall in one.falls] == [fall.outcomes for fall in other.falls] != []
    assert [(note.tries, note.right) for note in one.notes] == [(note.tries, note.right) for note in other.notes]
    backwards = WorkerNotes.collect(outcomes[::-1])
    assert [fall for fall in backwards.falls if fall.worker == "ada"] == []  # it rose


def test_who_is_hardly_known_is_not_watched_and_a_watch_begins_anew() -> None:
    watch, trials = FallWatch(), [PartTrial("a", 0.97)]
    assert all(watch.observe_run("r", trials, {"a": LEAST_KNOWN - 1}, right=False) is None for _ in range(50))
    seen = [watch.observe_run(f"r{at}", trials, {"a": LEAST_KNOWN}, right=False) is not None for at in range(8)]
    assert seen == [False, False, False, True] * 2  # three wrong runs of one that is nearly always right are no fall


def test_a_fall_clears_whoever_was_only_near_it() -> None:
    """Two workers share most wrong runs; the few that each had without the other say which of them fell."""
    watch, known = FallWatch(), {"a": 100.0, "b": 100.0}
    a, b = PartTrial("a", 0.8), PartTrial("b", 0.8)
    runs = [([a, b], False), ([a, b], False), ([b], True), ([a], False)] * 6
    found = [watch.observe_run(f"r{at}", trials, known, right=right) for at, (trials, right) in enumerate(runs)]
    assert {fall.worker for fall in found if fall is not None} == {"a"}


def test_replaced_results_show_a_fall_that_grades_hide() -> None:
    """Its checker mends what the worker gets wrong: every run is right, and grades alone say nothing."""

    def falls(*, replaced: bool | None) -> int:
        watch = FallWatch()
        trials = [PartTrial("a", 0.8, PartForm.CHECK, replaced)]
        found = [watch.observe_run(f"r{at}", trials, {"a": 100.0}, right=True) for at in range(12)]
        return sum(fall is not None for fall in found)

    assert falls(replaced=True) >= 1
    assert falls(replaced=None) == falls(replaced=False) == 0


def test_what_was_forgotten_is_in_the_file_and_may_not_be_edited(tmp_path: Path) -> None:
    notes, file = WorkerNotes.collect(outcomes_of(0, 260, falls_at=200)), tmp_path / "our.notes"
    notes.save(file)
    assert load_notes(file).falls == notes.falls != ()
    body = json.loads(file.read_text())
    file.write_text(json.dumps(body | {"falls": []}))
    with pytest.raises(ConfigError, match="changed after it was made"):
        load_notes(file)
    older = {**body["falls"][0], "deviations": -2.1}
    broken: list[object] = [1, [1], [{}], [body["falls"][0] | {"probability": "low"}], [older]]
    for bad in broken:
        file.write_text(json.dumps(body | {"falls": bad}))
        with pytest.raises(ConfigError, match=r"our\.notes"):
            load_notes(file)


class Says:
    """Answers with one text."""

    async def perform(self, request: Request) -> Reply:  # noqa: ARG002 - a worker's signature
        return Reply("1")


async def record(database: str, runs: int, falls_at: int) -> None:
    """Journal runs of one step, right until the worker falls."""
    async with open_journal(database) as journal:
        pool, engine = Pool([Member(Card("ada"), Says())]), Engine(journal)
        for at in range(runs):
            plan = Plan((Step("Add the two.", 0),))
            run = await engine.run(Task("Do it."), pool, ScriptedConductor([plan]), Caps(), run_id=f"r{at:03}")
            right = at < falls_at
            mark = GradeMark.RIGHT if right else GradeMark.WRONG
            journal.add(AnswerGraded(run=run.id, at=1, checker="feedback", mark=mark, score=float(right), actor="me"))
        await journal.flush()


def test_the_command_says_what_is_forgotten_unless_the_key_says_no(tmp_path: Path) -> None:
    database, config = tmp_path / "runs.db", tmp_path / "shikisha.toml"
    config.write_text("")
    asyncio.run(record(str(database), 40, 30))

    def call(*words: str) -> str:
        command = ["notes", "--config", str(config), "--journal", str(database), *words]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        return str(done.output)

    said = "ada: 30 outcomes before run r030 are forgotten: of its last 4 runs 0 were right, 3.7 were foretold"
    assert said in call()
    falls = json.loads(call("--json"))["falls"]
    assert [(fall["since"], fall["run"]) for fall in falls] == [("r030", "r033")]
    config.write_text("[notes]\nforget = false\n")
    assert "forgotten" not in call()


async def test_an_erased_run_is_no_evidence(tmp_path: Path) -> None:
    database = str(tmp_path / "runs.db")
    await record(database, 36, 30)
    async with open_journal(database) as journal:
        before = [Run.fold(await journal.read(f"r{at:03}")) for at in range(36)]
        await journal.erase([f"r{at:03}" for at in range(30, 36)], actor="me")
        after = [Run.fold(await journal.read(f"r{at:03}")) for at in range(36)]

    def falls(runs: Sequence[Run]) -> list[str]:
        return [fall.worker for fall in WorkerNotes.collect(step_outcomes(runs)).falls]

    assert falls(before) == ["ada"]
    assert falls(after) == []
