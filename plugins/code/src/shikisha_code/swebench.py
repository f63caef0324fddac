"""SWE-bench Verified: predictions (patches) and what its own harness reported of them (arXiv 2310.06770).

A folder holds predictions (`*predictions*.jsonl` or `.json`, also `preds.json`: rows of instance_id, model_patch,
model_name_or_path) and the harness's reports: its summary (`MODEL.RUN.json`, with resolved_ids and the like) or one
`.../MODEL/INSTANCE/report.json` an instance; in file names a model's `/` is `__`. The leaderboard's own repository
(SWE-bench/experiments), its `evaluation/verified`, or one submission of it is read too: a submission is a folder with
predictions, `logs/INSTANCE/report.json` and `results/results.json` (what is `resolved`, what has `no_generation` or
`no_logs`), and its folder's name is the worker's, since models' names repeat there. A task is an instance, its pool one
worker a model that answers with its patch. Invariants: only a report says whether a patch resolves its instance; a
patch without one, or without a prediction, is UNGRADED; an empty patch is no answer. Deliberately absent: running the
harness.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import ConfigError, FaultKind, UnknownName, WorkerError
from shikisha.core.task import Task
from shikisha.engine.pool import Member, Pool
from shikisha.evals.graders import Grade, grade_from_score, no_answer_grade, ungraded_grade
from shikisha.evals.taskset import GradeRigour, TaskDimensions, TaskEnvironment, TaskItem, Taskset
from shikisha.evals.tasksets.task_rows import TaskRow, is_row_file, read_json, read_rows, rows_of
from shikisha.evals.tasksets.taskset_loader import PATCH, TaskLayout, with_instruction

Key = tuple[str, str]  # instance and model

_VERIFIED = Path("evaluation") / "verified"
_SUBMISSION_FILES = (
    "metadata.yaml",
    "results",
    "results.json",
    "trajs",
)  # of a submission, none of which the harness writes
_PATCH_FILES = (".diff", ".patch")
_LARGEST_PATCH = 4_000_000  # bytes
_VERDICTS = {"resolved_ids": True, "unresolved_ids": False}


@dataclass(slots=True)
class Predictions:
    """Patches by instance and model, and whether they resolved the instance, as far as a report says."""

    patches: dict[str, dict[str, str]] = field(default_factory=dict)
    resolved: dict[Key, bool] = field(default_factory=dict)

    @property
    def models(self) -> tuple[str, ...]:
        """All models, in the order in which they are met."""
        return tuple(dict.fromkeys(model for patches in self.patches.values() for model in patches))

    def model(self, named: str, where: Path) -> str:
        """Return the model whose name, as file names have it, a text begins with."""
        known = {model.replace("/", "__"): model for model in self.models}
        fitting = [name for name in known if named == name or named.startswith(f"{name}.")]
        if not fitting:
            raise UnknownName(f"model of the report {where}", named, known)
        return known[max(fitting, key=len)]

    def grading(self, instance: str) -> str:
        """Return a hash of the patches to this instance and of what reports say of them."""
        known = [
            [model, patch, self.resolved.get((instance, model))] for model, patch in self.patches[instance].items()
        ]
        return sha256(json.dumps(known).encode()).hexdigest()[:12]

    def report(self, key: Key, resolved: bool, where: Path) -> None:
        """Note a verdict; ConfigError when another report says otherwise."""
        if self.resolved.setdefault(key, resolved) is not resolved:
            raise ConfigError(f"{where}: {key[0]} by {key[1]}: resolved in one report and not in another")


def swebench_taskset(folder: Path) -> Taskset:
    """Return the predicted instances of a folder; ConfigError names file, row and field of what is wrong."""
    found = Predictions()
    submissions = _submissions(folder)
    for submission in submissions:
        _take_submission(submission, found)
    if not submissions:
        _take_harness(folder, found)
    workers = (Member(Card(model, kind="predictions", attempts=1), Predictor(model, found)) for model in found.models)
    pool = Pool(tuple(workers))
    return Taskset("swebench-verified", (_item(instance, found, pool) for instance in found.patches))


def _submissions(folder: Path) -> list[Path]:
    """Return the submissions in a folder that is laid out as the leaderboard's repository, or a part of it."""
    inside = folder / _VERIFIED
    if inside.is_dir():
        return _submissions(inside)
    if any((folder / mark).exists() for mark in _SUBMISSION_FILES) and prediction_files(folder):
        return [folder]
    children = sorted(child for child in folder.iterdir() if child.is_dir()) if folder.is_dir() else []
    return [
        child
        for child in children
        if any((child / mark).exists() for mark in _SUBMISSION_FILES) and prediction_files(child)
    ]


def prediction_files(folder: Path) -> list[Path]:
    """Return the files of rows with `pred` in their names."""
    return sorted(file for file in folder.glob("*") if is_row_file(file) and "pred" in file.name.casefold())


def read_predictions(folder: Path) -> Predictions:
    """Return the predictions of a folder, whatever is known of their worth; ConfigError when there are none.

    Rows of instance_id, model_patch and model_name_or_path, and patches as files under `predictions`:
    `MODEL/INSTANCE/patch.diff` as the harness keeps them, or `MODEL/INSTANCE.diff` (also `.patch`).
    """
    found = Predictions()
    for file in prediction_files(folder):
        for row in _predictions(file):
            _take_prediction(row, found)
    for file in sorted((folder / "predictions").rglob("*")):
        if file.suffix in _PATCH_FILES and file.is_file():
            _take_patch_file(file, folder / "predictions", found)
    if not found.patches:
        raise ConfigError(f"{folder}: expected predictions there: rows of them, or predictions/MODEL/INSTANCE.diff")
    return found


def _take_patch_file(file: Path, base: Path, found: Predictions) -> None:
    parts = file.relative_to(base).with_suffix("").parts
    if len(parts) == 3 and parts[2] == "patch":
        parts = parts[:2]
    if len(parts) != 2:
        raise ConfigError(f"{file}: expected MODEL/INSTANCE.diff, or MODEL/INSTANCE/patch.diff")
    if file.is_symlink() or file.stat().st_size > _LARGEST_PATCH:
        raise ConfigError(f"{file}: expected a file of at most {_LARGEST_PATCH:,} bytes, and no link")
    row = {"instance_id": parts[1], "model_name_or_path": parts[0].replace("__", "/")}
    try:
        row["model_patch"] = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: expected a patch in UTF-8: {error}") from None
    _take_prediction(TaskRow(row, str(file), 0), found)


def _take_submission(folder: Path, found: Predictions) -> None:
    """Take a submission's patches and verdicts; what is neither resolved nor without generation or logs is not."""
    model = folder.name
    for file in prediction_files(folder):
        for row in _predictions(file):
            _take_prediction(row, found, model)
    results = next(
        (file for file in (folder / "results" / "results.json", folder / "results.json") if file.exists()), None
    )
    if results is not None:
        value = read_json(results)
        if not isinstance(value, Mapping) or "resolved" not in value:
            raise ConfigError(f"{results}: expected an object with `resolved`, the instances that are")
        row = TaskRow(value, str(results), 0)
        resolved = set(row.texts("resolved", least=0))
        unknown = {one for name in ("no_generation", "no_logs") if name in value for one in row.texts(name, least=0)}
        for instance, patches in found.patches.items():
            if model in patches and instance not in unknown - resolved:
                found.report((instance, model), instance in resolved, results)
    for file in sorted((folder / "logs").glob("*/report.json")):
        _take_report(file, found, model)


def _take_harness(folder: Path, found: Predictions) -> None:
    """Take the predictions and reports of the harness."""
    files = sorted(file for file in folder.glob("*") if is_row_file(file))
    predicted = prediction_files(folder)
    if not predicted:
        raise ConfigError(
            f"{folder}: expected predictions there: a file with 'pred' in its name (.jsonl or .json), or submissions"
            f" as SWE-bench/experiments has them ({_VERIFIED}/SUBMISSION)"
        )
    for file in predicted:
        for row in _predictions(file):
            _take_prediction(row, found)
    for file in files:
        if file not in predicted:
            _take_summary(file, found)
    for file in sorted(folder.rglob("*/*/report.json")):
        _take_report(file, found)


class Predictor:
    """A worker that answers with its patch; EMPTY where that is empty, NO_RECORD where it predicted none."""

    def __init__(self, model: str, found: Predictions) -> None:
        self._model = model
        self._found = found

    async def perform(self, request: Request) -> Reply:
        """Answer the task of the request, whatever its subtask says."""
        patch = self._found.patches.get(request.task.id, {}).get(self._model)
        if not patch:
            kind = FaultKind.NO_RECORD if patch is None else FaultKind.EMPTY
            raise WorkerError(kind, f"{self._model!r} has no patch for {request.task.id}", tokens=0, dollars=0.0)
        return Reply(patch, model=self._model)


class ReportGrader:
    """Grades a patch to one instance by the harness's report of a model that predicted that very patch."""

    name = "swebench"

    def __init__(self, instance: str, found: Predictions) -> None:
        self._instance = instance
        self._found = found

    async def grade(self, answer: str) -> Grade:
        """Look for a report of this patch."""
        patch = answer.strip()
        if not patch:
            return no_answer_grade(self.name, "the patch is empty")
        models = [model for model, known in self._found.patches[self._instance].items() if known.strip() == patch]
        if not models:
            return ungraded_grade(self.name, "there is no prediction of this patch: run the harness on it")
        for model in models:
            resolved = self._found.resolved.get((self._instance, model))
            if resolved is not None:
                said = "resolved" if resolved else "unresolved"
                return grade_from_score(self.name, float(resolved), patch, f"the report of {model} says {said}")
        return ungraded_grade(self.name, f"there is no report of this patch by {', '.join(models)}")


def _item(instance: str, found: Predictions, pool: Pool) -> TaskItem:
    repository = instance.rpartition("-")[0].replace("__", "/")
    prompt = with_instruction(f"Resolve the issue of the instance {instance} in the repository {repository}.", PATCH)
    task = Task(prompt, id=instance, domain=repository)
    said = TaskDimensions(TaskEnvironment.STATEFUL, rigour=GradeRigour.EXECUTED)
    return TaskItem(task, ReportGrader(instance, found), pool=pool, grading=found.grading(instance), said=said)


def _predictions(file: Path) -> Iterable[TaskRow]:
    """Read predictions: rows, or a JSON object of them by instance."""
    value = read_json(file) if file.suffix == ".json" else None
    return rows_of(value.values(), str(file)) if isinstance(value, Mapping) else read_rows(file)


def _take_prediction(row: TaskRow, found: Predictions, model: str = "") -> None:
    instance, model = row.text("instance_id"), model or row.text("model_name_or_path")
    patch = row.string("model_patch") if row.data.get("model_patch", "") is not None else ""
    patches = found.patches.setdefault(instance, {})
    if patches.setdefault(model, patch) != patch:
        raise row.error_at("model_patch", f"{instance} by {model} has another patch before")


def _take_summary(file: Path, found: Predictions) -> None:
    """Take the verdicts of a harness's summary; ids that it lists without one (errors) stay open."""
    value = read_json(file) if file.suffix == ".json" else None
    if not isinstance(value, Mapping) or not set(_VERDICTS) <= set(value):
        raise ConfigError(f"{file}: expected predictions (a name with 'pred') or a report with {', '.join(_VERDICTS)}")
    model, row = found.model(file.name, file), TaskRow(value, str(file), 0)
    for name, resolved in _VERDICTS.items():
        for instance in row.texts(name, least=0):
            found.report((instance, model), resolved, file)


def _take_report(file: Path, found: Predictions, model: str = "") -> None:
    instance, model = file.parent.name, model or found.model(file.parent.parent.name, file)
    value = read_json(file)
    report = value.get(instance) if isinstance(value, Mapping) else None
    resolved = report.get("resolved") if isinstance(report, Mapping) else None
    if not isinstance(resolved, bool):
        raise ConfigError(f"{file}: {instance}.resolved: expected true or false, found {resolved!r}")
    found.report((instance, model), resolved, file)


TASKSET = TaskLayout(read_folder=lambda folder, _: swebench_taskset(folder))
