"""What to keep and what to drop, and that it holds on tasks which nobody has seen."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from panels import Made, panel
from policies import write
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.routing.fit.log_replay import replay_mix
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.pool_recommendation import MIN_TASKS, recommend_pool

# bob is as good as ann at a tenth of the price; cyd is bad and expensive.
WORKERS = {"ann": Made(0.8, 1.0), "bob": Made(0.8, 0.1), "cyd": Made(0.4, 1.5)}


def test_what_is_dropped_is_not_missed_on_other_tasks() -> None:
    held, fresh = panel(WORKERS, 400, seed=4), panel(WORKERS, 2000, seed=9)
    policy = select_policy(held)
    told = recommend_pool(policy, held)
    assert told is not None
    assert "bob" in told.keep
    assert "cyd" in told.drop
    assert told.saved is not None
    assert told.saved > 0.5
    mix = policy.rung().dial.for_cost(1.001 - told.saved)
    may_ask = np.array([name in told.keep for name in held.workers])
    played = replay_mix(policy.parts, mix, fresh, may_ask)
    best = held.best_worker()
    change = float((played.won - fresh.won[:, best]).mean())
    assert told.low - 0.02 < change < told.high + 0.02
    saved = 1 - played.paid.sum() / fresh.paid[:, best].sum()
    assert abs(saved - told.saved) < 0.1


def test_no_costs_no_bill_and_few_tasks_no_word() -> None:
    held = panel(WORKERS, MIN_TASKS + 20, seed=4)
    free = replace(held, dollars=np.full(held.dollars.shape, np.nan))
    told = recommend_pool(select_policy(free), free)
    assert told is not None
    assert told.saved is None
    assert "of the bill" not in told.sentence
    few = panel(WORKERS, MIN_TASKS - 1, seed=4)
    assert recommend_pool(select_policy(few), few) is None


def test_the_line_ends_what_learn_says(tmp_path: Path) -> None:
    write(panel(WORKERS, 80, seed=4), tmp_path / "log")
    said = CliRunner().invoke(app, ["learn", str(tmp_path / "log"), "--out", str(tmp_path / "our.policy")])
    assert said.exit_code == 0, said.output
    last = said.output.strip().splitlines()[-1]
    assert last.startswith("Keep ")
    assert " of the bill at " in last
    assert "held-out tasks" in last
