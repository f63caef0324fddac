"""Turns from runs to policies: what the journal says of who was asked when, and what is learned from it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from panels import CHOICES, Made, folds, panel
from policies import lines
from test_importers_journal import Asking, Kept, performed
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.conductors.learned_policy import PolicyConductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.task import Task
from shikisha.engine.pool import Pool
from shikisha.engine.worker import Reply, Request
from shikisha.evals.graders import grade_from_score
from shikisha.evals.reward import grade_events
from shikisha.journal import open_journal
from shikisha.outcomes.importers.journal_runs import FURTHER
from shikisha.outcomes.log_reader import OutcomeLog, ignored_columns
from shikisha.routing.exploration import ExplorationBudget
from shikisha.routing.fit.fit_stopping_rule import StoppingData, fit_stopping
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import POLICY, TABLE, known_workers
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.policy_data import Candidate, Policy, PolicyOrigin
from shikisha.routing.policy_file import load_policy
from shikisha.routing.state import TaskBatch
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingPoint, OperatingTarget, TargetMetric, TradeOff, upper_hull
from support import engine, member, pool_of, whole_plan

WORKERS = {"ann": Made((0.75, 0.6), 0.1), "bob": Made(0.99, 1.0), "new": Made((0.97, 0.2), 0.2)}
TASKS = 500
PRICE = Price(0.0, 2000.0)  # 100 tokens cost 0.2 dollars


def world(tasks: int, seed: int) -> OutcomeMatrix:
    """What three workers would say; ann writes more where it is wrong."""
    held = panel(WORKERS, tasks, seed=seed)
    much = np.where(held.won[:, 0] > 0, 40.0, 160.0) * np.random.default_rng(seed).lognormal(0, 0.3, tasks)
    return replace(held, tokens=np.column_stack([np.round(much), held.tokens[:, 1:]]))


def before() -> Policy:
    """The policy of those who knew ann and bob: it asks ann, and bob where ann wrote much."""
    held = world(500, 1).select_workers(["ann", "bob"])
    induced = fit_stopping(StoppingData.of(held, folds(held)), range(2))
    means = zip(induced.cost.mean(axis=0), induced.won.mean(axis=0), strict=True)
    points = [OperatingPoint(0, place, float(cost), float(won)) for place, (cost, won) in enumerate(means)]
    rung = Candidate(POLICY, TradeOff(upper_hull(points), held.cost_unit(), 0.99))
    return Policy(PolicyOrigin("before", "0", 500), known_workers(held), held.types, (induced.part,), (rung,), POLICY)


def pool(held: OutcomeMatrix) -> Pool:
    """Workers that say what the panel has."""
    rows = {prompt: row for row, prompt in enumerate(held.batch.prompts)}

    def says(column: int) -> "Says":
        return Says(held, rows, column)

    return Pool([member(name, says(column), price=PRICE) for column, name in enumerate(held.workers)])


@dataclass(frozen=True)
class Says:
    """Answers as one worker of the panel does."""

    held: OutcomeMatrix
    rows: Mapping[str, int]
    column: int

    def __call__(self, request: Request) -> Reply:
        cell = self.rows[request.task.prompt], self.column
        usage = Usage(10, int(self.held.tokens[cell]))
        return Reply(CHOICES[self.held.codes[cell]], usage, float(self.held.dollars[cell]))


async def conducted(file: Path, held: OutcomeMatrix) -> None:
    """Let the policy conduct every task, exploring, through the engine, and grade what it ships."""
    policy, workers = before(), pool(held)
    mix = policy.mix(OperatingTarget(TargetMetric.BEST))
    conductor = PolicyConductor(
        "policy:before", policy, "1", mix, ExplorationBudget(1.0, mix.cost * policy.rung().dial.unit)
    )
    async with open_journal(str(file)) as journal:
        for row, (prompt, kind) in enumerate(zip(held.batch.prompts, held.batch.types.tolist(), strict=True)):
            task = Task(prompt, id=held.ids[row], domain=held.types.names[kind])
            run = await engine(journal).run(task, workers, conductor, Caps())
            right = held.scores[row][held.codes[row] == CHOICES.index(run.answer or "")].max()
            for event in grade_events(run.id, grade_from_score("choice", float(right), run.answer, ""), None):
                journal.add(event)
        await journal.flush()


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, str]:
    """What is learned from the outcomes of these runs, whoever conducted them, and what is said of it."""
    folder = tmp_path_factory.mktemp("journal")
    asyncio.run(conducted(folder / "runs.db", world(TASKS, 2)))
    said = invoke("learn", "--from-journal", str(folder / "runs.db"), "--out", str(folder / "no.policy"), code=3)
    assert "the conductor in use, policy:before, was right in 99" in said  # which asks bob, too
    assert not (folder / "no.policy").exists()
    invoke("import", "outcomes", "journal", str(folder / "runs.db"), "--out", str(folder / "log"))
    for runs in (folder / "log").glob("conducted.*"):
        runs.unlink()
    said = invoke("learn", str(folder / "log"), "--out", str(folder / "our.policy"))
    return load_policy(folder / "our.policy")[0], said


def invoke(*command: str, code: int = 0) -> str:
    """What a command says."""
    result = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.stderr)
    return result.output + result.stderr


def test_what_a_worker_is_worth_is_learned_from_the_runs_that_explored_it(learned: tuple[Policy, str]) -> None:
    policy, _ = learned
    rule = policy.parts[0]
    assert isinstance(rule, TableRule)
    ann, new = (rule.success[:2, policy.names.index(name)] for name in ("ann", "new"))
    assert policy.types.names == ("law", "maths")
    assert ann == pytest.approx([0.6, 0.75], abs=0.12)
    assert new == pytest.approx([0.2, 0.97], abs=0.12)
    assert policy.about.tasks == TASKS
    assert policy.rung().evidence is not None


def test_the_rule_asks_the_explored_worker_where_it_is_better_and_keeps_its_promise(
    learned: tuple[Policy, str],
) -> None:
    policy = learned[0]
    fresh = world(2000, 7).select_workers(policy.names)
    asked = np.where(fresh.batch.types == 0, policy.names.index("new"), policy.names.index("ann"))
    domains = [fresh.types.names[kind] for kind in fresh.batch.types]
    seen = replace(fresh, batch=TaskBatch(fresh.batch.prompts, policy.types.of(domains, fresh.batch.prompts)))
    best = policy.rung(TABLE).dial.points[-1]
    found = replay(policy.parts[best.part], best.setting, seen)
    assert (found.asked == np.eye(3, dtype=bool)[asked]).all()
    assert found.won.mean() == pytest.approx(best.accuracy, abs=4 * best.error)


def test_who_was_asked_only_because_of_an_answer_is_not_known_alone(learned: tuple[Policy, str]) -> None:
    policy, said = learned
    tasks = {worker.name: worker.tasks for worker in policy.workers}
    assert tasks["bob"] == 0
    assert 0.98 * TASKS < tasks["ann"] + tasks["new"] <= TASKS
    assert "bob was asked first for 0 % of the tasks: too few outcomes on any type" in said
    assert "are not of the first ask of a task" in said


def turns(folder: Path, *runs: Kept) -> dict[str, tuple[int | None, float | None]]:
    """The turn and the propensity of each worker, once the journal of these runs of one task is a log."""
    log = performed(folder, *runs).log
    return {each.worker: (each.turn, each.propensity) for name in log.workers for each in log.outcomes_of(name)}


def test_a_turn_counts_the_asks_before(tmp_path: Path) -> None:
    found = turns(tmp_path, Kept(pool_of(ann="41", bob="41", cyd="42"), conductor=Asking([0.25, None, 0.5])))
    assert found == {"ann": (0, 0.25), "bob": (1, 1.0), "cyd": (2, 0.5)}


def test_of_several_runs_of_a_task_the_first_that_was_drawn_is_its_sequence(tmp_path: Path) -> None:
    drawn = Kept(pool_of(ann="41", bob="42"), conductor=Asking([0.25, 0.5]))
    other = Kept(pool_of(bob="42", cyd="42"), conductor=Asking([0.75, 0.5]))
    log = performed(tmp_path, Kept(pool_of(dan="42")), drawn, other)
    found = {
        each.worker: (each.turn, each.propensity) for name in log.log.workers for each in log.log.outcomes_of(name)
    }
    assert found == {"dan": (None, None), "ann": (0, 0.25), "bob": (1, 0.5), "cyd": (None, None)}
    assert log.more("samples") == [1, 1, 2, 1]
    remarks = log.told["remarks"]
    assert isinstance(remarks, dict)
    assert remarks[FURTHER] == 1


def test_who_stood_in_has_no_turn(tmp_path: Path) -> None:
    down = WorkerError(FaultKind.AUTH, "no key")
    pool = pool_of(member("ann", down, fallback="cyd"), bob="42", cyd="41")
    assert turns(tmp_path, Kept(pool, conductor=Asking([0.5, 1.0]))) == {
        "ann": (0, 0.5),
        "cyd": (None, None),
        "bob": (1, 1.0),
    }


def test_without_a_chance_of_the_first_ask_there_is_no_sequence(tmp_path: Path) -> None:
    assert turns(tmp_path, Kept(pool_of(ann="42", bob="42"), whole_plan((0, ()), (1, ())))) == {
        "ann": (None, None),
        "bob": (None, None),
    }


@pytest.mark.parametrize(("turn", "told"), [(-1, "expected a number from 0"), (0.5, "expected a whole number")])
def test_a_turn_that_is_none_is_refused(tmp_path: Path, turn: float, told: str) -> None:
    lines(tmp_path / "tasks.jsonl", [{"task_id": "t", "domain": "", "prompt": "What?"}])
    lines(tmp_path / "outcomes.jsonl", [{"task_id": "t", "worker": "ann", "score": 1, "turn": turn}])
    with pytest.raises(ConfigError, match=rf"outcomes.jsonl: line 1: turn: {told}"):
        OutcomeLog.read(tmp_path)


def test_a_log_tells_turns_to_whoever_learns(tmp_path: Path) -> None:
    lines(tmp_path / "tasks.jsonl", [{"task_id": "t", "domain": "", "prompt": "What?"}])
    rows = [{"task_id": "t", "worker": name, "score": 1} for name in ("ann", "bob")]
    lines(tmp_path / "outcomes.jsonl", [rows[0] | {"turn": 0}, rows[1]])
    told = build_outcome_matrix(OutcomeLog.read(tmp_path)).turns
    assert told is not None
    assert told.tolist() == [[0, -1]]
    assert ignored_columns(tmp_path) == ()
    lines(tmp_path / "outcomes.jsonl", rows)
    assert build_outcome_matrix(OutcomeLog.read(tmp_path)).turns is None
