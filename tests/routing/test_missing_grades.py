"""Unknown is unknown: answers that nobody graded, costs that nobody recorded."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from panels import Made, panel
from policies import policy, write
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.core.errors import ConfigError
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.fit.log_quality import find_cost_oddities
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix, complete_costs
from shikisha.routing.fit.partial_logs import complete_grades
from shikisha.routing.fit.policy_report import describe_best_single

WORKERS = {"ann": Made(0.55, 0.1), "bob": Made(0.8, 1.0), "cyd": Made(0.65, 0.3)}


def ungraded(held: OutcomeMatrix, share: float, seed: int = 0) -> OutcomeMatrix:
    """Return the log with a share of its grades removed at random; the answers stay."""
    gone = np.random.default_rng(seed).random(held.scores.shape) < share
    return replace(held, scores=np.where(gone, np.nan, held.scores))


def test_means_are_those_of_the_whole_log() -> None:
    held = panel(WORKERS, 3000, seed=4)
    completed, notes = complete_grades(ungraded(held, 0.7))
    assert completed.mean_scores() == pytest.approx(held.scores.mean(axis=0), abs=0.03)
    assert np.abs(completed.mean_scores() - held.scores.mean(axis=0)).mean() < 0.015
    assert completed.scores.mean() == pytest.approx(held.scores.mean(), abs=0.03)  # draws, which fits need
    assert completed.graded is not None
    assert completed.graded.mean() == pytest.approx(0.3, abs=0.02)
    assert "(70" in notes[0]
    assert "count for nothing" in notes[0]


def test_recorded_grades_stay_and_a_whole_log_is_untouched() -> None:
    held = panel(WORKERS, 200, seed=4)
    assert complete_grades(held) == (held, ())
    part = ungraded(held, 0.5)
    known = ~np.isnan(part.scores)
    assert (complete_grades(part)[0].scores[known] == held.scores[known]).all()


def test_a_type_that_nobody_graded_is_left_out_and_named() -> None:
    held = panel(WORKERS, 300, seed=4)
    law = held.batch.types == 0
    completed, notes = complete_grades(replace(held, scores=np.where(law[:, None], np.nan, held.scores)))
    assert len(completed) == (~law).sum()
    assert f"hardly anything is graded of {held.types.names[0]}" in notes[1]


@pytest.mark.full
def test_the_screen_shows_the_same_with_most_grades_missing(tmp_path: Path) -> None:
    held = panel(WORKERS, 90, seed=4)
    write(ungraded(held, 0.3), tmp_path / "log")
    said = CliRunner().invoke(app, ["learn", str(tmp_path / "log"), "--out", str(tmp_path / "our.policy")])
    assert said.exit_code == 0, said.output
    assert "oracle" not in said.output  # nobody knows who is right
    best = float(said.output.split("Best single worker: bob, ")[1].split(" %")[0])
    assert best == pytest.approx(100 * held.scores[:, 1].mean(), abs=6)


def test_a_worker_of_which_no_cost_is_known_is_not_free() -> None:
    held = panel(WORKERS, 50, seed=4)
    dollars = held.dollars.copy()
    dollars[:, 0] = np.nan
    with pytest.raises(ConfigError, match=r"no cost of ann is known, while others' are: add `\[workers.ann\]`"):
        complete_costs(replace(held, dollars=dollars))
    dollars[10:, 0] = 0.25
    completed, notes = complete_costs(replace(held, dollars=dollars))
    assert (completed.dollars[:, 0] == 0.25).all()
    assert "10 of 150 outcomes have no cost: the same worker's mean" in notes[0]


def test_where_the_best_worker_is_free_no_dollars_are_invented() -> None:
    held = panel(WORKERS, 50, seed=4)
    free = replace(held, dollars=held.dollars * np.array([1.0, 0.0, 1.0]))
    assert free.cost_unit() == pytest.approx(np.nanmean(held.dollars[:, 2]))
    learned = policy()
    workers = tuple(replace(one, dollars=0.0) if one is learned.best_single else one for one in learned.workers)
    told = describe_best_single(replace(learned, workers=workers))
    assert ", free. A cost of 100 % is " in told


def a_log(folder: Path, dollars: list[float]) -> OutcomeLog:
    folder.mkdir()
    tasks = [{"task_id": f"t{number}", "domain": "", "prompt": f"{number}?"} for number in range(len(dollars))]
    usage = {"input_tokens": 900, "output_tokens": 100, "score": 1.0, "answer": "A", "cost_kind": "recorded"}
    rows = [{"task_id": f"t{n}", "worker": "ann", "cost_usd": cost, **usage} for n, cost in enumerate(dollars)]
    for stem, held in (("tasks", tasks), ("outcomes", rows)):
        (folder / f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held))
    return OutcomeLog.read(folder)


def test_costs_in_two_units_or_in_none_are_noticed(tmp_path: Path) -> None:
    (said,) = find_cost_oddities(a_log(tmp_path / "two", [0.002, 0.003] * 20 + [2.0, 2.5] * 10))
    assert "the costs of ann are of two sizes, 667 times apart" in said
    (said,) = find_cost_oddities(a_log(tmp_path / "cents", [3.0] * 30))
    assert "ann costs $3,000 for a million tokens: is the column in dollars?" in said
    assert find_cost_oddities(a_log(tmp_path / "fine", [0.002, 0.05, 0.01] * 10)) == ()


def test_a_call_that_was_cut_off_keeps_the_tokens_that_it_cost(tmp_path: Path) -> None:
    tasks = [{"task_id": f"t{n}", "domain": "", "prompt": f"Q{n}"} for n in range(12)]
    rows = [
        {"task_id": f"t{n}", "worker": "ann", "score": 1.0, "answer": "A", "input_tokens": 100 + 7 * n,
         "output_tokens": 10 * n, "cost_usd": (100 + 7 * n) * 1e-6 + 10 * n * 4e-6, "cost_kind": "recorded"}
        for n in range(11)
    ]  # fmt: skip
    rows.append({"task_id": "t11", "worker": "ann", "score": 0.0, "input_tokens": 100, "output_tokens": 4_000})
    for stem, held in (("tasks", tasks), ("outcomes", rows)):
        (tmp_path / f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held))
    matrix = build_outcome_matrix(OutcomeLog.read(tmp_path))
    assert matrix.dollars[11, 0] == pytest.approx(100e-6 + 4_000 * 4e-6)
    note = "1 of 12 outcomes have no cost: computed from tokens at the rates of the same worker's other calls"
    assert complete_costs(matrix) == (matrix, (note,))
