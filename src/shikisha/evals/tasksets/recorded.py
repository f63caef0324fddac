"""An outcome log as a Taskset: each task is graded by what the log says of the very answer.

Invariants: a recorded answer has its recorded score; another one is compared with the log's reference answer by its
kind, as far as the log has one, and is otherwise UNGRADED, never wrong. Graders look things up when they are asked, so
that eight thousand of them cost next to nothing.
"""

from shikisha.core.errors import ConfigError
from shikisha.evals.graders import Grade, Grader, GraderTools, grade_from_score, ungraded_grade
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.graders.grader_registry import build_grader
from shikisha.evals.taskset import TaskItem, Taskset
from shikisha.outcomes.log_reader import OutcomeLog, log_hash

_FORMS = frozenset(form.value for form in AnswerForm)


def recorded_taskset(log: OutcomeLog) -> Taskset:
    """Return the log's tasks in its order; splits are by content hash."""
    grading = log_hash(log.folder)
    found = (TaskItem(log.task(task_id), RecordedGrader(log, task_id), grading=grading) for task_id in log.task_ids)
    return Taskset(log.folder.resolve().name, found, log.judge_notes)


class RecordedGrader:
    """Looks up the score of an answer to one task of a log."""

    __slots__ = ("_log", "_task_id")
    name = "recorded"

    def __init__(self, log: OutcomeLog, task_id: str) -> None:
        self._log = log
        self._task_id = task_id

    @property
    def form(self) -> AnswerForm:
        """The canonical form in which answers are compared: what the log says, else text."""
        kind = self._log.gold(self._task_id).kind
        return AnswerForm(kind) if kind in _FORMS else AnswerForm.TEXT

    async def grade(self, answer: str) -> Grade:
        """Return the recorded score, else the comparison with the log's right answer."""
        score = self._log.recorded_score(self._task_id, answer)
        if score is not None:
            return grade_from_score(self.name, score, answer.strip(), "the score that is recorded for this answer")
        gold = self._gold()
        if isinstance(gold, str):
            return ungraded_grade(self.name, f"this answer was not recorded, and {gold}")
        return await gold.grade(answer)

    def _gold(self) -> Grader | str:
        """Return the grader for the log's right answer, or why there is none."""
        gold = self._log.gold(self._task_id)
        if gold.answer is None or gold.kind is None:
            return "the log does not say what would be right"
        try:
            return build_grader(
                gold.kind, {"answer": gold.answer}, GraderTools(), f"{self._log.folder}: task {self._task_id!r}"
            )
        except ConfigError as error:
            return f"the log's right answer cannot be compared with: {error}"
