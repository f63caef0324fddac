"""`eval --frontier`: the whole curve of a policy on a log's tasks, beside what it must beat."""

import json
from pathlib import Path

import numpy as np
import pytest
from panels import panel
from policies import write
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.config.eval_tasks import EvaluationSetup
from shikisha.config.policy_frontier import policy_frontiers
from shikisha.core.errors import ConfigError
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.policy_file import save_policy

HELD = panel(tasks=240, alike=0.2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made")
    write(HELD, made / "log")
    save_policy(select_policy(panel(tasks=240, alike=0.2, seed=9)).policy, made / "our.policy")
    return made


def test_every_budget_stands_beside_the_best_single_worker_and_the_other_rungs(folder: Path) -> None:
    (told,) = policy_frontiers(
        EvaluationSetup(keep="", log=str(folder / "log")), [f"ours=policy:{folder / 'our.policy'}?max_cost=50%"]
    )
    points = told["points"]
    assert isinstance(points, list)
    assert told["tasks"] == 240
    assert all(point["low"] <= point["accuracy"] <= point["high"] for point in points)
    assert {"best single", "table", "policy", "combined"} - set(points[0]["against"]) == {told["rung"]}
    best = told["best_single"]
    assert isinstance(best, dict)
    assert best["worker"] == "dear"
    assert best["accuracy"] == pytest.approx(float(HELD.won[:, 2].mean()))


def test_the_command_writes_it_for_the_split_that_is_reported(folder: Path) -> None:
    file, keep = folder / "curve.json", folder / "keep"
    command = ["eval", "--log", str(folder / "log"), "--conductor", f"policy:{folder / 'our.policy'}"]
    result = CliRunner().invoke(app, [*command, "--split", "test", "--frontier", str(file), "--keep", str(keep)])
    assert result.exit_code == 0, result.output
    (told,) = json.loads(file.read_text())
    assert 0 < told["tasks"] < 240


@pytest.mark.parametrize("conductors", [["fixed:vote"], []])
def test_without_a_policy_there_is_no_curve(conductors: list[str], folder: Path) -> None:
    with pytest.raises(ConfigError, match="expected --log DIR and a conductor policy:FILE"):
        policy_frontiers(EvaluationSetup(keep="", log=str(folder / "log")), conductors)


def test_a_log_without_one_of_its_workers_is_refused(folder: Path, tmp_path: Path) -> None:
    write(HELD.select_workers(("cheap", "dear")), tmp_path / "log")
    with pytest.raises(ConfigError, match="asks middle, and the log"):
        policy_frontiers(EvaluationSetup(keep="", log=str(tmp_path / "log")), [f"policy:{folder / 'our.policy'}"])


def test_more_budget_is_never_spent_below_what_a_smaller_one_spends(folder: Path) -> None:
    (told,) = policy_frontiers(EvaluationSetup(keep="", log=str(folder / "log")), [f"policy:{folder / 'our.policy'}"])
    points = told["points"]
    assert isinstance(points, list)
    assert (np.diff([point["budget"] for point in points]) > 0).all()
    assert points[-1]["spent"] >= points[0]["spent"]
