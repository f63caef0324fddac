"""Tasks of repositories in SWE-bench's own columns, with the base's files beside them, and predictions in its layouts.

A folder holds `tasks.jsonl` (columns: instance_id, repo, base_commit, problem_statement, patch, test_patch,
FAIL_TO_PASS, PASS_TO_PASS, and ours: `snapshot`, a zip archive of the base's files; `files`, the test files that are
run; `needs`, distributions they take; `paths`, where modules are looked for; `seconds`; `apart`, whether all tests can
be judged apart from the package; `context`, text that is shown with the problem). Where it also holds predictions
(`swebench`), each model is a worker that answers with its patch. Invariants: the right patch and the tests
stay out of prompts; every row, archive and test patch is read before the first task is used; an archive holds regular
files only, with names that stay inside, and unpacks to a bounded size.
"""

import json
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from shikisha.context.git_history import LARGEST_FILE, MOST_BYTES, MOST_FILES
from shikisha.core.call import Card
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.kinds import Kind
from shikisha.core.task import Task
from shikisha.core.toml import Table
from shikisha.engine.pool import Member, Pool
from shikisha.evals.graders import Grade, Grader, GraderTools, ScriptedGrader, ungraded_grade
from shikisha.evals.taskset import GradeRigour, TaskDimensions, TaskEnvironment, TaskItem, Taskset
from shikisha.evals.tasksets.task_rows import TaskRow, is_row_file, read_rows
from shikisha.evals.tasksets.taskset_loader import PATCH, TaskLayout, with_instruction
from shikisha.sandbox import Sandbox
from shikisha_code.patch_grader import Executed, PatchGrader, RepositoryTask
from shikisha_code.pytest_run import USUAL_SECONDS, PytestSettings, pack_distributions
from shikisha_code.swebench import Predictor, prediction_files, read_predictions
from shikisha_code.unified_diff import PatchError

MOST_SECONDS = 110  # of one run of tests; sandboxes end everything a little later


class SnapshotGrader:
    """Grades patches to one task, and reads its archive for each answer: all of them at once would fill the memory."""

    name = PatchGrader.name

    def __init__(self, row: TaskRow, folder: Path, sandbox: Sandbox | None) -> None:
        self._row = row
        self._folder = folder
        self._sandbox = sandbox
        self._apart: Mapping[str, Executed] | None = None
        self.shared = row.data.get("apart") is not True
        task = read_task(row, folder)
        self._build(task)
        try:
            task.trusted  # noqa: B018 - it is read here, so that what is wrong with it is said before the first call
        except PatchError as error:
            raise row.error_at("test_patch", f"does not apply to the base: {error}") from None

    async def grade(self, answer: str) -> Grade:
        """Read the base and grade."""
        try:
            grader = self._build(read_task(self._row, self._folder))
            grade = await grader.grade(answer)
            self._apart = grader.apart
            return grade
        except ConfigError as error:
            return ungraded_grade(self.name, str(error))

    def _build(self, task: RepositoryTask) -> PatchGrader:
        return PatchGrader(task, self._sandbox, self._apart)


def repository_taskset(folder: Path, tools: GraderTools) -> Taskset:
    """Return the tasks of a folder; ConfigError names file, row and field of what is wrong."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder with tasks.jsonl and the snapshots that it names")
    files, pool = task_files(folder), None
    if prediction_files(folder) or (folder / "predictions").is_dir():
        found = read_predictions(folder)
        pool = Pool(
            tuple(Member(Card(name, kind="predictions", attempts=1), Predictor(name, found)) for name in found.models)
        )
    items = (_item(row, folder, tools, pool) for file in files for row in read_rows(file))
    return Taskset("repository", items)


def task_files(folder: Path) -> list[Path]:
    """Return the files of rows that hold tasks and not predictions; ConfigError when there are none."""
    predicted = prediction_files(folder)
    files = sorted(file for file in folder.glob("*") if is_row_file(file) and file not in predicted)
    if not files:
        raise ConfigError(f"{folder}: expected rows of tasks there (tasks.jsonl)")
    return files


def _item(row: TaskRow, folder: Path, tools: GraderTools, pool: Pool | None) -> TaskItem:
    grader = SnapshotGrader(row, folder, tools.sandbox)
    prompt = with_instruction(row.text("problem_statement"), PATCH)
    task = Task(prompt, row.optional("context"), id=row.text("instance_id"), domain=row.text("repo"))
    said = TaskDimensions(TaskEnvironment.STATEFUL, rigour=GradeRigour.EXECUTED)
    grading = sha256(json.dumps(dict(row.data), default=repr).encode()).hexdigest()[:12]
    return TaskItem(task, grader, pool=pool, grading=grading, said=said)


def read_task(row: TaskRow, folder: Path) -> RepositoryTask:
    """Return a row's task with the files of its base."""
    must_pass = _tests(row, "FAIL_TO_PASS", least=1)
    settings = PytestSettings(
        row.texts("files"),
        row.texts("needs", least=0) or ("pytest",),
        row.texts("paths", least=0) or (".",),
        float(row.integer("seconds", 1, MOST_SECONDS)) if row.has("seconds") else USUAL_SECONDS,
    )
    for name in (*settings.paths, *settings.files):
        if name.startswith(("/", "-")) or ".." in Path(name).parts:
            raise row.error_at("files", f"{name!r} leads out of the repository")
    pack_distributions(settings.needs)
    name = row.text("snapshot")
    place = folder / name
    if not place.resolve().is_relative_to(folder.resolve()):
        raise row.error_at("snapshot", f"{name!r} leads out of {folder}")
    keep, right = _tests(row, "PASS_TO_PASS", least=0), row.optional("patch")
    return RepositoryTask(read_snapshot(place), row.string("test_patch"), must_pass, keep, settings, right)


def _tests(row: TaskRow, field: str, *, least: int) -> tuple[str, ...]:
    """Return a list of tests, which SWE-bench writes as JSON text."""
    if least and row.data.get(field) in ([], "[]"):
        raise row.error_at(field, "there is no test that a right patch makes pass, so nothing could be graded")
    return row.decode(field, json.loads).texts(field, least=least) if row.has(field) or least else ()


def read_snapshot(place: Path) -> dict[str, bytes]:
    """Return the files of an archive; ConfigError when it is none, or holds more than a snapshot may."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(place) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_FILES or sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise ConfigError(f"{place}: expected at most {MOST_FILES:,} files and {MOST_BYTES:,} bytes")
            for entry in entries:
                parts = Path(entry.filename).parts
                if entry.is_dir():
                    continue
                if not parts or Path(entry.filename).is_absolute() or ".." in parts or entry.file_size > LARGEST_FILE:
                    raise ConfigError(f"{place}: {entry.filename[:100]!r}: expected a file inside, not above 1 MB")
                with archive.open(entry) as opened:
                    found[entry.filename] = opened.read(LARGEST_FILE + 1)[:LARGEST_FILE]
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise ConfigError(f"{place}: expected a zip archive of the base's files: {error}") from None
    return found


def write_snapshot(place: Path, tree: dict[str, bytes]) -> None:
    """Write files as an archive; the same files give the same bytes."""
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(tree):
            archive.writestr(zipfile.ZipInfo(name), tree[name], zipfile.ZIP_DEFLATED)


class RepositorySettings(Table):
    """`tasks` is the folder of tasks (`shikisha import repository`), `instance` the task's instance_id."""

    tasks: Path
    instance: str


def build_repository_grader(settings: RepositorySettings, tools: GraderTools) -> Grader:
    """Return the grader; ConfigError when the folder has no such task."""
    if not settings.tasks.is_dir():
        raise ConfigError(f"tasks: {settings.tasks}: expected a folder with tasks.jsonl and its snapshots")
    rows = _rows(settings.tasks, max(file.stat().st_mtime_ns for file in task_files(settings.tasks)))
    if settings.instance not in rows:
        raise UnknownName(f"instance in {settings.tasks}", settings.instance, rows)
    return SnapshotGrader(rows[settings.instance], settings.tasks, tools.sandbox)


KIND = Kind(settings=RepositorySettings, build=build_repository_grader, double=lambda: ScriptedGrader({}))
TASKSET = TaskLayout(read_folder=repository_taskset)


@lru_cache(maxsize=4)
def _rows(folder: Path, changed: int) -> dict[str, TaskRow]:  # noqa: ARG001 - a changed folder is read again
    return {row.text("instance_id"): row for file in task_files(folder) for row in read_rows(file)}
