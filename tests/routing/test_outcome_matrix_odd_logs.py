"""Learning under a hostile eye: logs that are odd, but legal."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from panels import Made, missing, panel

from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.fit.cost_frontier import Frontier, paired_gain
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.outcome_matrix import build_outcome_matrix


def log(folder: Path, **tables: Sequence[Mapping[str, object]]) -> OutcomeLog:
    """A log of these rows."""
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return OutcomeLog.read(folder)


def frontiers(difference: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[Frontier, Frontier]:
    """Two frontiers that differ by this much on each task."""
    none = np.zeros((len(difference), 1))
    return Frontier(np.ones(1), difference[:, None], none), Frontier(np.ones(1), none, none)


def test_copies_of_a_task_are_no_further_evidence() -> None:
    few = np.random.default_rng(0).normal(0.05, 0.4, 40)
    alone = paired_gain("it", *frontiers(few))
    copied = paired_gain("it", *frontiers(np.tile(few, 25)), [str(place % 40) for place in range(1000)])
    assert copied.mean == pytest.approx(alone.mean)
    assert (copied.low, copied.high) == pytest.approx((alone.low, alone.high), abs=0.02)


def test_a_log_of_twelve_tasks_many_times_over_is_no_proof() -> None:
    held = panel(tasks=130)
    copies = np.arange(130) % 12
    climbed = select_policy(replace(held.at(copies), ids=held.ids)).policy
    gains = [one for rung in climbed.rungs if rung.evidence for one in rung.evidence.gains]
    assert all(one.high - one.low > 0.02 for one in gains if one.mean)


def test_a_worker_with_one_lucky_outcome_is_not_the_best() -> None:
    pool = {"lucky": Made(1.0, 0.001), "cheap": Made(0.6, 0.1), "dear": Made(0.8, 1.0)}
    held = missing(panel(pool, tasks=300), (np.arange(300)[:, None] > 0) & (np.arange(3) == 0))
    assert held.workers[held.best_worker()] == "dear"
    climbed = select_policy(held).policy
    dial = climbed.rung("table").dial
    assert climbed.best_single.name == "dear"
    assert dial.unit == pytest.approx(float(np.nanmean(held.dollars[:, 2])))
    assert dial.best_single == pytest.approx(float(held.mean_scores()[2]))


RECORDED = ("<answer>B</answer>", "one <answer> two", "one </answer>", " spaced ", "plain")


@pytest.mark.parametrize("response", [None, "thought", "I say <answer>Z</answer>"])
@pytest.mark.parametrize("answer", RECORDED)
def test_an_answer_with_marks_in_it_has_its_score(tmp_path: Path, answer: str, response: str | None) -> None:
    tasks = [{"task_id": "a", "domain": "", "prompt": "what?"}]
    outcomes = [{"task_id": "a", "worker": "w", "score": 1.0, "answer": answer}]
    held = log(tmp_path, tasks=tasks, outcomes=outcomes)
    found = held.find("a", "w")
    assert found is not None
    shown = held.response_text(found, response)
    assert shown is not None
    assert held.recorded_score("a", shown) == 1.0


def test_open_answers_agree_by_what_is_marked_in_them(tmp_path: Path) -> None:
    tasks = [{"task_id": "a", "domain": "", "prompt": "what?", "answer_kind": "code"}]
    said = {"v": "x + 1", "w": "x + 1", "u": "x + 2"}
    outcomes = [{"task_id": "a", "worker": name, "score": 1.0, "answer": text} for name, text in said.items()]
    responses = [{"task_id": "a", "worker": name, "response": f"{name} thinks"} for name in said]
    held = log(tmp_path, tasks=tasks, outcomes=outcomes, responses=responses)
    assert (
        build_outcome_matrix(held, whole=True).codes.tolist()
        == build_outcome_matrix(held).codes.tolist()
        == [[0, 0, 1]]
    )
