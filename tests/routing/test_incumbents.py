"""The conductor in force: a journal of its plans is learned from only where what is learned is shown to be as good."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from panels import Made, panel
from partial_logs import one_each, untold
from policies import write
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.container import build_container
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.evals.graders import grade_from_score
from shikisha.evals.reward import grade_events
from shikisha.journal import open_journal
from shikisha.routing.fit.incumbents import MIN_COMPARED_TASKS
from shikisha.routing.policy_file import load_policy

WORKERS = {"ann": Made(0.55, 0.1), "bob": Made(0.8, 1.0)}
TASKS = 90  # few, so that the rule alone is fitted, and enough to compare


def learn(*arguments: str, code: int = 0) -> str:
    """What `shikisha learn` says."""
    result = CliRunner().invoke(app, ["learn", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.stderr)
    return " ".join((result.stdout + result.stderr).split())


async def conducted(file: Path, tasks: int) -> None:
    """Keep graded runs: of plans with two steps, and half as many in which one worker gets the whole task."""
    pool = build_container({"pool": ["simulated"]}, "here", Path()).pool()
    chain = Plan((Step("draft", 0), Step("improve", 1, (0,))))
    async with open_journal(str(file)) as journal:
        for place in range(tasks * 3 // 2):
            plan = chain if place % 3 else Plan((Step(f"question {place}", place % 2),))
            conductor = ScriptedConductor([plan], "fixed:chain")
            run = await Engine(journal).run(Task(f"question {place}"), pool, conductor)
            grade = grade_from_score("feedback", float(place % 2), run.answer, "")
            for event in grade_events(run.id, grade, None):
                journal.add(event)
        await journal.flush()


def test_a_journal_of_plans_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    asyncio.run(conducted(tmp_path / "runs.db", 60))
    out = tmp_path / "new.policy"
    said = learn("--from-journal", str(tmp_path / "runs.db"), "--out", str(out), code=ExitCode.CONFIG)
    assert "90 runs of this journal have plans with several steps by fixed:chain" in said
    assert "cannot be compared with it" in said
    assert "keep the conductor in use, or run and grade the same tasks with each worker alone" in said
    assert not out.exists()

    CliRunner().invoke(
        app, ["import", "outcomes", "journal", str(tmp_path / "runs.db"), "--out", str(tmp_path / "log")]
    )
    assert "plans with several steps by fixed:chain" in learn(
        str(tmp_path / "log"), "--out", str(out), code=ExitCode.CONFIG
    )
    assert not out.exists()


def a_log(folder: Path, scores: Mapping[int, float], parted: int = 1, *, more: float | None = None) -> Path:
    """A full log of two workers, and graded runs of `lm:planner` on its tasks; `more`: another's, with this score."""
    write(panel(WORKERS, TASKS, seed=4), folder)
    ids = [json.loads(line)["task_id"] for line in (folder / "tasks.jsonl").read_text().splitlines()]
    rows = [
        {"conductor": "lm:planner", "task_id": ids[place], "parted": parted, "score": score, "cost_usd": 0.02}
        for place, score in scores.items()
    ]
    if more is not None:
        other = {"conductor": "fixed:single", "parted": 0, "score": more, "cost_usd": 0.01}
        rows += [{**other, "task_id": task} for task in ids]
    (folder / "conducted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_what_is_shown_to_be_as_good_is_written_next_to_the_conductor_in_use(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log", {place: float(place % 3 == 0) for place in range(TASKS)})
    said = learn(str(log), "--out", str(tmp_path / "new.policy"), "--page", str(tmp_path / "page.html"))
    assert "in use: lm:planner" in (tmp_path / "page.html").read_text()
    assert "the conductor in use, lm:planner, was right in 33.3% of 90 tasks; the learned policy in" in said
    policy, _ = load_policy(tmp_path / "new.policy")
    (row,) = (one for one in policy.yardsticks if one.name.startswith("in use"))
    assert (row.name, round(row.area, 3)) == ("in use: lm:planner", 0.333)
    assert "in use: lm:planner" in said


@pytest.mark.full
@pytest.mark.parametrize(
    ("scores", "says"),
    [
        (dict.fromkeys(range(TASKS), 1.0), "the policy is not shown to be as good. Nothing is written"),
        (
            {place: float(place % 5 > 0) for place in range(TASKS)},
            "the policy is not shown to be as good",
        ),  # about the same
        (
            dict.fromkeys(range(MIN_COMPARED_TASKS - 1), 0.0),
            f"{MIN_COMPARED_TASKS - 1} graded tasks of its runs were also done by every",
        ),
    ],
)
def test_what_is_worse_or_too_little_known_is_not_written(
    scores: Mapping[int, float], says: str, tmp_path: Path
) -> None:
    out = tmp_path / "new.policy"
    assert says in learn(str(a_log(tmp_path / "log", scores)), "--out", str(out), code=ExitCode.CONFIG)
    assert not out.exists()


def test_a_conductor_of_one_step_plans_is_compared_with_too(tmp_path: Path) -> None:
    out = tmp_path / "one.policy"
    said = learn(
        str(a_log(tmp_path / "log", dict.fromkeys(range(TASKS), 1.0), parted=0)),
        "--out",
        str(out),
        code=ExitCode.CONFIG,
    )
    assert "lm:planner, was right in 100.0% of 90 tasks" in said
    assert not out.exists()


def test_a_part_of_the_tasks_that_nobody_knows_how_it_was_chosen_is_no_comparison(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log", dict.fromkeys(range(60), 0.0))
    with (log / "conducted.jsonl").open("a") as file:
        elsewhere = {"conductor": "lm:planner", "task_id": None, "parted": 1, "score": 1.0, "cost_usd": 0.02}
        file.write("".join(json.dumps(elsewhere) + "\n" for _ in range(60)))
    said = learn(str(log), "--out", str(tmp_path / "new.policy"), code=ExitCode.CONFIG)
    assert "only 60 of 120 graded tasks of its runs were also done by every worker alone" in said
    assert not (tmp_path / "new.policy").exists()


@pytest.mark.full
def test_a_few_trials_are_no_conductor_in_use(tmp_path: Path) -> None:
    log = a_log(tmp_path / "two", {0: 1.0}, more=0.2)
    learn(str(log), "--out", str(tmp_path / "two.policy"))


def test_workers_that_somebody_chose_for_their_tasks_are_not_taken_for_as_good_elsewhere(tmp_path: Path) -> None:
    held = untold(one_each(panel(WORKERS, TASKS, seed=4), np.array([0.5, 0.5])))
    write(held, tmp_path / "log")
    learn(str(tmp_path / "log"), "--out", str(tmp_path / "old.policy"))  # a log that says nothing of runs: a warning
    row = {"conductor": "rules:triage.toml", "task_id": None, "parted": 0, "score": 1.0, "cost_usd": None}
    (tmp_path / "log" / "conducted.jsonl").write_text(json.dumps(row) + "\n")
    said = learn(str(tmp_path / "log"), "--out", str(tmp_path / "new.policy"), code=ExitCode.CONFIG)
    assert "rules:triage.toml chose whom to ask" in said
    assert not (tmp_path / "new.policy").exists()
