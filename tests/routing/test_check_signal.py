"""A test signal: the next worker is asked exactly where a test fails, offline as in the engine."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from panels import Made, missing, panel, scores_only
from policies import write
from typer.testing import CliRunner

from shikisha.checks.text_checks import PatternCheckSettings, build_pattern
from shikisha.cli import app
from shikisha.conductors.learned_policy import PolicyConductor
from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import (
    POLICY,
    TABLE,
    LearningOptions,
    fit_candidates,
    known_workers,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.fit.partial_logs import apply_test_signal
from shikisha.routing.policy_data import Candidate, Policy, PolicyOrigin
from shikisha.routing.trade_off import OperatingTarget, TargetMetric
from shikisha.workers.scripted import ScriptedWorker

WORKERS = {"cheap": Made(0.6, 0.05), "middle": Made(0.6, 0.2), "best": Made(0.75, 1.0)}
SCORES = scores_only(panel(WORKERS, 300))


@pytest.fixture(scope="module")
def policy() -> Policy:
    held, _ = apply_test_signal(SCORES)
    made = fit_candidates(held, LearningOptions(), (TABLE, POLICY))
    rungs = tuple(Candidate(name, dial) for name, dial in made.dials.items())
    return Policy(PolicyOrigin("log", "", len(held)), known_workers(held), held.types, made.parts, rungs, POLICY)


def test_the_next_worker_is_asked_where_the_test_fails_and_nowhere_else(policy: Policy) -> None:
    fresh, _ = apply_test_signal(scores_only(panel(WORKERS, 500, seed=2)))
    point = policy.mix(OperatingTarget(TargetMetric.BEST)).high
    played = replay(policy.parts[point.part], point.setting, fresh)
    unit = fresh.cost_unit()
    assert played.won.mean() > fresh.mean_scores().max() + 0.1
    assert played.paid.mean() / unit < 0.7
    passed = (played.asked & (fresh.won > 0.5)).any(axis=1)
    assert (played.won > 0.5).tolist() == passed.tolist()
    assert (played.asked & (fresh.won > 0.5)).sum(axis=1).max() == 1


@pytest.mark.parametrize("passes", [True, False])
async def test_the_engine_does_what_was_learned_with_the_check_behind_the_scores(policy: Policy, passes: bool) -> None:
    check = OutputCheck(build_pattern(PatternCheckSettings(pattern="tests pass"), "tests"), redo=0)
    answers = {"cheap": "tests pass" if passes else "tests fail", "middle": "tests pass", "best": "tests pass"}
    pool = Pool([Member(Card(name), ScriptedWorker(text), handoffs=(check,)) for name, text in answers.items()])
    task, target = Task(SCORES.batch.prompts[0], domain="maths"), OperatingTarget(TargetMetric.BEST)
    conductor = PolicyConductor("policy", policy, "1", policy.mix(target))
    run = await Engine(MemoryRecorder()).run(task, pool, conductor, Caps())
    asked = [step.worker for one in run.rounds if one.plan for step in one.plan.steps]
    assert run.answer == "tests pass"
    assert asked[0] == 0
    assert (len(asked) == 1) == passes


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (replace(SCORES, scores=np.ones_like(SCORES.scores)), "all answers pass"),
        (replace(SCORES, scores=np.zeros_like(SCORES.scores)), "all answers fail"),
        (replace(SCORES, scores=np.full_like(SCORES.scores, np.nan)), "have no score"),
    ],
)
def test_scores_that_tell_nothing_are_refused(held: OutcomeMatrix, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        apply_test_signal(held)


def test_what_was_not_graded_is_left_out_and_part_scores_are_named() -> None:
    gaps = replace(SCORES, scores=np.where(np.arange(300)[:, None] == 7, np.nan, SCORES.scores))
    found, notes = apply_test_signal(gaps)
    assert not found.there[7].any()
    assert any("3 answers without a score left out" in note for note in notes)
    part = replace(SCORES, scores=SCORES.scores * 0.8)
    assert any("between 0 and 1" in note for note in apply_test_signal(part)[1])
    absent, _ = apply_test_signal(missing(SCORES, np.arange(300)[:, None] == 7))
    assert not absent.there[7].any()


def test_learn_says_which_check_service_needs(tmp_path: Path) -> None:
    write(scores_only(panel(WORKERS, 60)), tmp_path / "log")
    options = ["learn", str(tmp_path / "log"), "--test-signal", "--out", str(tmp_path / "our.policy")]
    said = CliRunner().invoke(app, options)
    assert said.exit_code == 0, said.output
    assert "give each worker the check behind it" in said.stderr
