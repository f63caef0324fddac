"""Logs that are not of one piece: scores without answers beside answers, grades that are missing, other blemishes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from evaluated import Evaluated, accuracies

TASKS = [{"task_id": f"t{n}", "domain": "d", "prompt": f"{n}?"} for n in range(6)]


def log(folder: Path, outcomes: Sequence[Mapping[str, object]]) -> str:
    made = folder / "log"
    made.mkdir()
    (made / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    (made / "outcomes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in outcomes))
    return str(made)


def outcome(number: int, worker: str, score: float | None, answer: str | None) -> dict[str, object]:
    return {"task_id": f"t{number}", "worker": worker, "score": score, "answer": answer}


@pytest.mark.parametrize("workers", ["", "b"])
def test_a_worker_of_whom_only_scores_are_known_keeps_them_beside_one_with_answers(
    tmp_path: Path, workers: str
) -> None:
    outcomes = [outcome(n, "a", 1.0, "4") for n in range(6)]
    outcomes += [outcome(n, "b", float(n < 3), None) for n in range(6)]
    found = Evaluated(tmp_path).entries("--log", log(tmp_path, outcomes), workers=workers)
    assert accuracies(found, "b") == [0.5]


def test_an_answer_that_one_was_graded_for_and_another_was_not_has_its_grade(tmp_path: Path) -> None:
    outcomes = [outcome(n, "a", None, "4") for n in range(6)] + [outcome(n, "b", 1.0, "4") for n in range(6)]
    found = Evaluated(tmp_path).entries("--log", log(tmp_path, outcomes), workers="")
    assert [(found[name]["tasks"], found[name]["accuracy"]) for name in ("a", "b")] == [(6, 1.0), (6, 1.0)]


def test_no_answer_is_wrong_and_an_unknown_pair_is_not(tmp_path: Path) -> None:
    outcomes = [outcome(n, "a", 0.0, None) if n < 2 else outcome(n, "a", 1.0, "4") for n in range(4)]
    outcomes += [outcome(n, "b", 1.0, "4") for n in range(6)]
    found = Evaluated(tmp_path).entries("--log", log(tmp_path, outcomes), workers="")
    assert [found["a"][key] for key in ("tasks", "accuracy", "no_answer", "ungraded")] == [4, 0.5, 2, 2]
