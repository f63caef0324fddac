"""Tasksets that are made of more than rows: an outcome log, SWE-bench predictions with their report."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from paths import ROOT

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps
from shikisha.core.call import Request
from shikisha.core.errors import ConfigError, FaultKind, UnknownName, WorkerError
from shikisha.core.events import RunStatus
from shikisha.engine.pool import Pool
from shikisha.evals.graders import Grade, GradeMark
from shikisha.evals.taskset import TaskItem, Taskset, TaskSplit
from shikisha.evals.tasksets import recorded
from shikisha.evals.tasksets.taskset_loader import TaskSelection, load_taskset
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha_code import swebench
from support import engine, plan_of

RECORDED = ROOT.parent / "shared" / "recorded"


def only(items: Taskset, task_id: str) -> TaskItem:
    return next(item for item in items if item.task.id == task_id)


async def mark(item: TaskItem, answer: str) -> tuple[GradeMark, float | None]:
    grade: Grade = await item.grader.grade(answer)
    return grade.mark, grade.score


TASKS = [
    {"task_id": "t/0", "domain": "d", "prompt": "Which?", "answer": "B", "answer_kind": "choice"},
    {"task_id": "t/1", "domain": "d", "prompt": "What?", "answer": None, "answer_kind": None},
    {"task_id": "t/2", "domain": "d", "prompt": "How many?", "answer": "many", "answer_kind": "number"},
]
OUTCOMES = [
    {"task_id": "t/0", "worker": "w", "answer": "C", "score": 1.0},  # the log's word, right or not
    {"task_id": "t/0", "worker": "v", "answer": "D", "score": None},
    {"task_id": "t/1", "worker": "w", "answer": "that", "score": 0.25},
    {"task_id": "t/2", "worker": "w", "answer": "3", "score": 0.0},
]


@pytest.fixture
def log(tmp_path: Path) -> OutcomeLog:
    for stem, rows in (("tasks", TASKS), ("outcomes", OUTCOMES)):
        (tmp_path / f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return OutcomeLog.read(tmp_path)


@pytest.mark.parametrize(
    ("task_id", "answer", "expected"),
    [
        ("t/0", "C", (GradeMark.RIGHT, 1.0)),  # as recorded
        ("t/1", "that", (GradeMark.PARTIAL, 0.25)),
        ("t/2", "3", (GradeMark.WRONG, 0.0)),
        ("t/0", "B", (GradeMark.RIGHT, 1.0)),  # nobody said so: compared with the right answer
        ("t/0", "The answer is (A).", (GradeMark.WRONG, 0.0)),
        ("t/0", "D", (GradeMark.WRONG, 0.0)),  # said by somebody, but nobody graded it
        ("t/0", "no idea", (GradeMark.NO_ANSWER, 0.0)),
        ("t/1", "this", (GradeMark.UNGRADED, None)),  # nobody said so, and there is no right answer
        ("t/2", "4", (GradeMark.UNGRADED, None)),  # the right answer is no number
    ],
)
async def test_a_log_grades_as_recorded_else_by_its_right_answer(
    log: OutcomeLog, task_id: str, answer: str, expected: tuple[GradeMark, float | None]
) -> None:
    assert await mark(only(recorded.recorded_taskset(log), task_id), answer) == expected


async def test_what_a_log_cannot_grade_says_why(log: OutcomeLog) -> None:
    found = recorded.recorded_taskset(log)
    without = await only(found, "t/1").grader.grade("this")
    assert without.evidence == "this answer was not recorded, and the log does not say what would be right"
    unfit = await only(found, "t/2").grader.grade("4")
    assert f"cannot be compared with: {log.folder}: task 't/2': number" in unfit.evidence


def test_a_log_by_name(log: OutcomeLog) -> None:
    found = load_taskset(f"recorded:{log.folder}")
    assert (found.name, [item.task for item in found]) == (log.folder.name, [log.task(one) for one in log.task_ids])
    assert (
        load_taskset(f"recorded:{log.folder}", wanted=TaskSelection(TaskSplit.DEV, shares={TaskSplit.DEV: 1.0})).version
        == found.version
    )


@pytest.mark.recorded
async def test_every_recorded_answer_has_its_recorded_score() -> None:
    if not RECORDED.exists():
        pytest.skip("the recorded sets are not here")
    log = OutcomeLog.read(RECORDED / "zeroeval")
    found = recorded.recorded_taskset(log)
    assert [item.task.id for item in found] == list(log.task_ids)
    assert not any("# 18" in str(item.task) for item in found)
    for item in list(found)[::40]:
        for worker in log.workers[::4]:
            outcome = log.find(item.task.id, worker)
            if outcome is not None and (said := log.answer_text(outcome)) is not None:
                grade = await item.grader.grade(said)
                assert grade.score == log.recorded_score(item.task.id, said)


PATCH = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-1\n+2\n"
ONE, TWO, THREE = "some__repo-1", "some__repo-2", "other__thing-lib-3"
MINE, YOURS = "vendor/mine", "yours"


def prediction(instance: str, model: str, patch: str | None = PATCH) -> dict[str, object]:
    return {"instance_id": instance, "model_name_or_path": model, "model_patch": patch}


PREDICTIONS = [
    prediction(ONE, MINE),
    prediction(TWO, MINE, f"{PATCH}\n+3\n"),
    prediction(THREE, MINE),
    prediction(ONE, YOURS, ""),
    prediction(TWO, YOURS),
]


def summary(resolved: list[str], unresolved: list[str]) -> str:
    return json.dumps({"schema_version": 2, "resolved_ids": resolved, "unresolved_ids": unresolved, "error_ids": []})


def written(folder: Path, predictions: list[dict[str, object]]) -> Path:
    (folder / "all_preds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in predictions))
    (folder / "vendor__mine.first.json").write_text(summary([ONE], [TWO]))
    report = folder / "logs" / "run_evaluation" / "first" / YOURS / TWO / "report.json"
    report.parent.mkdir(parents=True)
    report.write_text(json.dumps({TWO: {"patch_exists": True, "resolved": True, "tests_status": {}}}))
    return folder


@pytest.mark.parametrize(
    ("instance", "answer", "expected"),
    [
        (ONE, PATCH, (GradeMark.RIGHT, 1.0)),
        (TWO, f"{PATCH}\n+3", (GradeMark.WRONG, 0.0)),
        (TWO, PATCH, (GradeMark.RIGHT, 1.0)),  # the other model's
        (THREE, PATCH, (GradeMark.UNGRADED, None)),  # no report has it
        (ONE, "--- a/y.py", (GradeMark.UNGRADED, None)),  # nobody predicted it
        (ONE, " \n", (GradeMark.NO_ANSWER, 0.0)),
    ],
)
async def test_a_patch_is_worth_what_its_report_says(
    tmp_path: Path, instance: str, answer: str, expected: tuple[GradeMark, float | None]
) -> None:
    found = load_taskset(f"swebench-verified:{written(tmp_path, PREDICTIONS)}")
    assert await mark(only(found, instance), answer) == expected


async def test_predictions_by_instance_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "preds.json").write_text(json.dumps({ONE: prediction(ONE, YOURS)}))
    (tmp_path / f"{YOURS}.json").write_text(summary([], [ONE]))
    assert await mark(only(swebench.swebench_taskset(tmp_path), ONE), PATCH) == (GradeMark.WRONG, 0.0)


async def test_an_instance_brings_one_worker_a_model_that_answers_with_its_patch(tmp_path: Path) -> None:
    item = only(swebench.swebench_taskset(written(tmp_path, PREDICTIONS)), TWO)
    assert isinstance(item.pool, Pool)
    assert (item.pool.names, item.task.domain) == ((MINE, YOURS), "some/repo")
    run = await engine().run(item.task, item.pool, ScriptedConductor([plan_of((1, ()))]), Caps(dollars=1.0))
    assert (run.status, run.answer) == (RunStatus.DONE, PATCH)


@pytest.mark.parametrize(("instance", "kind"), [(ONE, FaultKind.EMPTY), (THREE, FaultKind.NO_RECORD)])
async def test_a_model_without_a_patch_says_so(tmp_path: Path, instance: str, kind: FaultKind) -> None:
    item = only(swebench.swebench_taskset(written(tmp_path, PREDICTIONS)), instance)
    assert isinstance(item.pool, Pool)
    with pytest.raises(WorkerError) as caught:
        await item.pool.named(YOURS).worker.perform(Request(item.task, "Patch it."))
    assert caught.value.fault.kind is kind


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"instance_id": None}, "instance_id: expected text, found null"),
        ({"model_name_or_path": 3}, "model_name_or_path: expected text, found '3'"),
        ({"model_patch": 3}, "model_patch: expected text, found '3'"),
        ({"model_patch": "else"}, f"model_patch: {ONE} by {MINE} has another patch before"),
    ],
)
def test_a_prediction_that_is_none_is_named(tmp_path: Path, row: dict[str, object], problem: str) -> None:
    written(tmp_path, [*PREDICTIONS, prediction(ONE, MINE) | row])
    with pytest.raises(ConfigError) as caught:
        swebench.swebench_taskset(tmp_path)
    assert str(caught.value) == f"{tmp_path}/all_preds.jsonl: line 6: {problem}"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("vendor__mine.second.json", summary([TWO], []), f"{TWO} by {MINE}: resolved in one report and not in another"),
        ("vendor__mine.second.json", "[]", "expected predictions (a name with 'pred') or a report with resolved_ids"),
        (
            "vendor__mine.second.json",
            '{"resolved_ids": [1], "unresolved_ids": []}',
            "row 0: resolved_ids[0]: expected text",
        ),
        ("vendor__mine.second.json", "{", "not JSON"),
        ("notes.jsonl", "{}", "expected predictions"),
    ],
)
def test_a_report_that_is_none_is_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (written(tmp_path, PREDICTIONS) / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        swebench.swebench_taskset(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/{name}: {problem}")


def test_a_report_of_nobody_lists_the_models(tmp_path: Path) -> None:
    (written(tmp_path, PREDICTIONS) / "theirs.first.json").write_text(summary([], []))
    with pytest.raises(UnknownName, match=r"theirs\.first\.json'?: known are vendor__mine, yours"):
        swebench.swebench_taskset(tmp_path)


@pytest.mark.parametrize("told", [{}, {TWO: {}}, {TWO: {"resolved": "yes"}}, []])
def test_an_instance_report_without_a_verdict_is_named(tmp_path: Path, told: object) -> None:
    report = written(tmp_path, PREDICTIONS) / "logs/run_evaluation/first" / YOURS / TWO / "report.json"
    report.write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=rf"report\.json: {TWO}\.resolved: expected true or false, found"):
        swebench.swebench_taskset(tmp_path)


def test_a_folder_without_predictions_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected predictions there"):
        swebench.swebench_taskset(tmp_path)


def submission(folder: Path, patches: dict[str, str], results: object = None, reports: Mapping[str, bool] = {}) -> Path:
    """Write a submission as SWE-bench/experiments lays it out; every submission names its model the same."""
    (folder / "logs").mkdir(parents=True)
    rows = [prediction(instance, "model", patch) for instance, patch in patches.items()]
    (folder / "all_preds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "metadata.yaml").write_text("info:\n  name: a model\n")
    if results is not None:
        (folder / "results").mkdir()
        (folder / "results" / "results.json").write_text(json.dumps(results))
    for instance, resolved in reports.items():
        (folder / "logs" / instance).mkdir()
        (folder / "logs" / instance / "report.json").write_text(json.dumps({instance: {"resolved": resolved}}))
    return folder


@pytest.mark.parametrize("part", ["", "evaluation/verified"])
async def test_the_leaderboards_repository_is_read_with_a_worker_a_submission(tmp_path: Path, part: str) -> None:
    base = tmp_path / "evaluation" / "verified"
    submission(
        base / "20240620_first", {ONE: PATCH, TWO: PATCH}, {"resolved": [ONE], "no_generation": [], "no_logs": []}
    )
    submission(base / "20241007_second", {ONE: "another"}, reports={ONE: False})
    (tmp_path / "validation").mkdir()
    found = swebench.swebench_taskset(tmp_path / part)
    one, two = only(found, ONE), only(found, TWO)
    assert one.pool is not None
    assert one.pool.names == ("20240620_first", "20241007_second")
    assert await mark(one, PATCH) == (GradeMark.RIGHT, 1.0)
    assert await mark(one, "another") == (GradeMark.WRONG, 0.0)
    assert await mark(two, PATCH) == (GradeMark.WRONG, 0.0)


async def test_one_submission_is_read_alone_and_what_has_no_logs_stays_open(tmp_path: Path) -> None:
    folder = submission(tmp_path / "s", {ONE: PATCH, TWO: PATCH}, {"resolved": [], "no_logs": [ONE]})
    found = swebench.swebench_taskset(folder)
    assert (await mark(only(found, ONE), PATCH))[0] is GradeMark.UNGRADED
    assert await mark(only(found, TWO), PATCH) == (GradeMark.WRONG, 0.0)


def test_results_that_contradict_a_report_are_refused(tmp_path: Path) -> None:
    folder = submission(tmp_path / "s", {ONE: PATCH}, {"resolved": [ONE]}, {ONE: False})
    with pytest.raises(ConfigError, match="resolved in one report and not in another"):
        swebench.swebench_taskset(folder)


def test_results_without_resolved_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"results\.json: expected an object with `resolved`"):
        swebench.swebench_taskset(submission(tmp_path / "s", {ONE: PATCH}, {"solved": []}))
