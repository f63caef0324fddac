"""What tests of figures share: samples made by hand, and reports of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict, Unpack

from shikisha.core.errors import FaultKind
from shikisha.core.events import GradeMark, RunStatus
from shikisha.core.task import Task
from shikisha.evals.entrant_metrics import EntrantInfo, EvaluationReport
from shikisha.evals.graders import grade_from_score
from shikisha.evals.report import EvaluationInfo, build_report
from shikisha.evals.samples import EntrantRole, Sample


class Said(TypedDict, total=False):
    """What a test may say of a sample besides entrant, task and score."""

    domain: str
    difficulty: str
    status: RunStatus
    mark: GradeMark
    judged: bool
    valid: bool | None
    first_score: float | None
    rounds: int
    workers: tuple[str, ...]
    shape: str
    access: tuple[tuple[int, ...], ...]
    faults: tuple[FaultKind, ...]
    tokens: int
    dollars: float | None
    paid: float
    seconds: float
    confidence: float | None
    reward: float | None


def content(task: str) -> str:
    """The content hash of the task of this id."""
    return Task(f"What is {task}?").content_hash


def sample(entrant: str, task: str, score: float | None = 1.0, **said: Unpack[Said]) -> Sample:
    """A sample; without a score it is ungraded."""
    mark = GradeMark.UNGRADED if score is None else grade_from_score("exact", score, None, "").mark
    given: Said = {"domain": "", "difficulty": "", "status": RunStatus.DONE, "mark": mark, **said}
    return Sample(entrant, task, content(task), score=score, **given)


def samples_of(entrant: str, scores: Iterable[float | None], **said: Unpack[Said]) -> list[Sample]:
    """Samples of the tasks t0, t1, ... with these scores."""
    return [sample(entrant, f"t{place}", score, **said) for place, score in enumerate(scores)]


def about(tasks: Iterable[str]) -> EvaluationInfo:
    """What a report on these tasks is about."""
    return EvaluationInfo("made", "v1", {task: content(task) for task in tasks}, ("a", "b"), "2026-11-21T00:00:00Z")


def report_of(
    singles: Mapping[str, Sequence[Sample]], asked: Mapping[str, Sequence[Sample]] | None = None
) -> EvaluationReport:
    """The report of these samples by entrant, on all tasks that occur."""
    samples = {**(asked or {}), **singles}
    who = [EntrantInfo(name) for name in asked or ()] + [
        EntrantInfo(name, EntrantRole.SINGLE, name) for name in singles
    ]
    tasks = dict.fromkeys(each.task_id for held in samples.values() for each in held)
    return build_report(who, samples, about(tasks))
