"""Coverage: whether a log is full or partial, why pairs are missing, and what is said of it in words."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from panels import POOL, Made, missing, panel, scores_only, untyped
from partial_logs import asked, each_apart, one_each, untold
from paths import ROOT

from recorded_pools import MP13
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.fit import log_quality
from shikisha.routing.fit.log_quality import (
    LogKind,
    known_outcomes,
    supported_outcomes,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix, propagate_scores

RECORDED = ROOT.parent / "shared" / "recorded"
HELD = panel(tasks=900)
EVEN = np.full(3, 1 / 3)


def cells(held: OutcomeMatrix, worker: int, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> OutcomeMatrix:
    """Return the panel without this worker's outcomes on these tasks."""
    gone = np.zeros(held.there.shape, bool)
    gone[rows, worker] = True
    return missing(held, gone)


def words(held: OutcomeMatrix) -> str:
    return "\n".join(log_quality.measure_coverage(held).findings)


def test_everything_recorded_is_full_with_propensities_or_without() -> None:
    assert log_quality.measure_coverage(HELD).kind is log_quality.measure_coverage(untold(HELD)).kind is LogKind.FULL
    assert words(HELD) == "2,700 of 2,700 outcomes are recorded (100 %)"


def test_a_newcomer_with_few_outcomes_leaves_a_full_log_full() -> None:
    some = np.random.default_rng(0).random(900) > 0.05
    assert log_quality.measure_coverage(untold(cells(HELD, 2, some))).kind is LogKind.FULL


def test_a_worker_that_is_asked_for_one_type_only_leaves_a_full_log_full() -> None:
    held = untold(cells(HELD, 2, HELD.batch.types == 1))
    assert log_quality.measure_coverage(held).kind is LogKind.FULL
    assert "dear was asked for 50 % of the tasks; too few outcomes on law" in words(held)


def test_a_worker_that_is_asked_where_others_fail_makes_a_log_partial() -> None:
    held = untold(cells(HELD, 2, (HELD.scores[:, 0] > 0) & (HELD.scores[:, 1] > 0)))
    assert log_quality.measure_coverage(held).kind is LogKind.UNTOLD
    assert "dear was asked where the others score 0." in words(held)


def test_a_cascade_of_which_only_the_first_worker_did_everything_is_partial() -> None:
    held = cells(cells(HELD, 1, HELD.scores[:, 0] > 0), 2, HELD.scores[:, 0] > 0)
    assert log_quality.measure_coverage(untold(held)).kind is LogKind.UNTOLD


def test_one_worker_a_task_is_partial_and_its_propensities_decide_which_kind() -> None:
    held = one_each(HELD, np.array([0.9, 0.09, 0.01]))
    found = log_quality.measure_coverage(held)
    assert found.kind is LogKind.DRAWN
    assert found.drawn.all()
    assert log_quality.measure_coverage(untold(held)).kind is LogKind.UNTOLD
    assert "900 of 900 outcomes have no propensity" in words(untold(held))


def test_tasks_without_propensities_are_left_out_of_what_was_drawn() -> None:
    held = one_each(HELD, EVEN)
    early = np.arange(900) < 300
    held = replace(held, propensities=np.where(early[:, None], np.nan, held.propensities))
    found = log_quality.measure_coverage(held)
    assert found.kind is LogKind.DRAWN
    assert (found.drawn == ~early).all()
    assert "300 of 900 outcomes have no propensity" in words(held)


def test_a_task_for_which_nobody_was_drawn_counts_where_several_could_have_been() -> None:
    alone, apart = one_each(HELD, EVEN), each_apart(HELD, EVEN)
    nobody = ~apart.there.any(axis=1)
    assert nobody.any()
    assert log_quality.measure_coverage(apart).drawn[nobody].all()
    assert not log_quality.measure_coverage(missing(alone, np.arange(900)[:, None] < np.full(3, 100))).drawn[:100].any()


def test_answers_that_agree_with_a_scored_one_are_scored() -> None:
    held = replace(HELD, scores=np.where([True, False, False], HELD.scores, np.nan))
    filled = propagate_scores(held)
    same = HELD.codes == HELD.codes[:, [0]]
    assert (filled.scores[same] == HELD.scores[same]).all()
    assert np.isnan(filled.scores[~same]).all()
    assert propagate_scores(HELD) is HELD


def test_what_shipping_brings_is_known_of_scores_and_of_silence() -> None:
    silent = panel({"quiet": Made(0.5, silent=0.5), "loud": Made(0.5)}, tasks=50)
    held = replace(silent, scores=np.full(silent.scores.shape, np.nan))
    assert (known_outcomes(held) == (silent.codes < 0)).all()
    assert known_outcomes(silent).all()
    assert not known_outcomes(missing(silent, np.ones(silent.there.shape, bool))).any()


def test_answers_without_scores_are_told() -> None:
    held = scores_only(HELD)
    held = replace(held, scores=np.where(np.arange(900)[:, None] % 4 == np.zeros(3), np.nan, held.scores))
    found = log_quality.measure_coverage(held)
    assert found.scored == pytest.approx(0.75)
    assert "25 % of the recorded answers have no score and are ignored" in found.findings


def test_outcomes_that_do_not_stand_for_the_tasks_are_not_known() -> None:
    certain = asked(HELD, np.random.default_rng(0).random((900, 3)) < [1.0, 0.5, 0.5], np.ones(3))
    assert (supported_outcomes(certain)[:, 0] > 0).all()
    assert (supported_outcomes(certain)[:, 1:] == 0).all()
    drawn = each_apart(HELD, np.array([1.0, 0.5, 0.05]))
    assert (supported_outcomes(drawn)[-1] == drawn.there.sum(axis=0)).all()


@pytest.mark.parametrize(
    "held",
    [
        panel(tasks=1),
        untyped(panel(tasks=20)),
        scores_only(panel(tasks=20)),
        panel({"only": POOL["dear"]}, tasks=20),
        missing(panel(tasks=20), np.ones((20, 3), bool)),
        missing(panel(tasks=20), np.arange(20)[:, None] % 3 == np.arange(3)),
    ],
    ids=["one task", "no types", "scores only", "one worker", "nothing", "gaps"],
)
def test_odd_logs_are_described(held: OutcomeMatrix) -> None:
    found = log_quality.measure_coverage(held)
    assert found.findings


@pytest.mark.recorded
@pytest.mark.parametrize(("folder", "workers"), [("mmlu-pro", MP13), ("zeroeval", ())])
def test_recorded_logs_are_full(folder: str, workers: tuple[str, ...]) -> None:
    if not (RECORDED / folder).is_dir():
        pytest.skip("the recorded answers are not here")
    held = build_outcome_matrix(OutcomeLog.read(RECORDED / folder), workers)
    assert log_quality.measure_coverage(held).kind is LogKind.FULL


def test_right_answers_of_another_kind_than_most_are_read(tmp_path: Path) -> None:
    tasks, outcomes = [], []
    for number in range(20):
        words = number % 5 == 0
        kind = {"answer_kind": None if words else "number", "answer": "ruby" if words else "7"}
        tasks.append({"task_id": f"t{number}", "domain": "mixed", "prompt": f"{number}?", **kind})
        outcomes += [
            {"task_id": f"t{number}", "worker": name, "score": 1.0, "answer": "Ruby" if words else "7"}
            for name in ("ann", "bob")
        ]
    for name, rows in (("tasks", tasks), ("outcomes", outcomes)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    held = build_outcome_matrix(OutcomeLog.read(tmp_path))
    assert held.types.forms == ("text",)
    assert (held.codes == 0).all()  # all agree, and none has no answer
