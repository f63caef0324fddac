"""Grade a patch by the tests of a repository's task that a folder holds (`evals.repositories`)."""

from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.kinds import Kind
from shikisha.evals.graders import Grader, GraderTools
from shikisha.evals.repositories.repository_tasks import SnapshotGrader, task_files
from shikisha.evals.tasksets.task_rows import TaskRow, read_rows


class RepositorySettings(BaseModel):
    """`tasks` is the folder of tasks (`shikisha import repository`), `instance` the task's instance_id."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


KIND = Kind(settings=RepositorySettings, build=build_repository_grader)


@lru_cache(maxsize=4)
def _rows(folder: Path, changed: int) -> dict[str, TaskRow]:  # noqa: ARG001 - a changed folder is read again
    return {row.text("instance_id"): row for file in task_files(folder) for row in read_rows(file)}
