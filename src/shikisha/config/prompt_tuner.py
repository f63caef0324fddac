"""Performs what a search for advice asks for: tasks and reflections, as runs of the journal under ids of their own.

Invariant: a run's id follows from the search, the advice and the task, so a search that was killed finds what it has
paid for in the journal and goes on; a run that was in flight is resumed under its own keys. A run gets what is left of
the search's dollars as its cap.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from shikisha.conductors.advised import AdvisedConductor
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.conductors.noted import NotedConductor
from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError
from shikisha.core.events import AnswerGraded, GradeMark, RunStatus
from shikisha.core.run import Run
from shikisha.core.task import Scope, Task
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import Recorder, read_journaled
from shikisha.evals.graders import Grade, Grader, grade_from_score
from shikisha.evals.taskset import TaskItem
from shikisha.learned.prompt_search import CapSpent, Reflection, TunedRun
from shikisha.learned.run_feedback import describe_run

_RIGHT = 0.999
_ENDED_BY_CAP = frozenset({RunStatus.CAPPED})


@dataclass(frozen=True, slots=True)
class KnownAnswerGrader:
    """Right when an answer says what the journal's right answer to the same task said, up to case and spaces."""

    expected: str
    name: str = "known_answer"

    async def grade(self, answer: str) -> Grade:
        """Return 1.0 or 0.0."""
        same = " ".join(answer.split()).casefold() == " ".join(self.expected.split()).casefold()
        return grade_from_score(self.name, float(same), answer, "expected the answer that was right before")


def items_from_runs(runs: Sequence[Run]) -> list[TaskItem]:
    """Return the tasks of these runs whose right answer is known, each once."""
    found: dict[str, TaskItem] = {}
    for run in runs:
        grade = run.grade
        if run.erased is not None or run.answer is None or grade is None or grade.score is None:
            continue
        if grade.score >= _RIGHT and not run.id.startswith("tune-"):
            found[run.task.content_hash] = TaskItem(run.task, KnownAnswerGrader(run.answer))
    return list(found.values())


def mean_run_cost(runs: Sequence[Run], conductor: str, least: int = 5) -> float | None:
    """Return the mean dollars of this conductor's runs; None where there are too few."""
    paid = [run.charged.dollars or 0.0 for run in runs if run.started.conductor == conductor and run.finished]
    return sum(paid) / len(paid) if len(paid) >= least else None


def prompted_part(conductor: Conductor) -> LanguageModelConductor:
    """Return the prompted conductor inside; ConfigError where there is none: only a prompt can be tuned."""
    inner = conductor
    while isinstance(inner, NotedConductor | AdvisedConductor):
        inner = inner.inner
    if not isinstance(inner, LanguageModelConductor):
        raise ConfigError(f"{conductor.name}: expected a prompted conductor (lm:WORKER): only its prompt can be tuned")
    return inner


@dataclass(frozen=True)
class JournaledTuner:
    """Performs tasks with a prompted conductor, and asks a reflector, through one journal."""

    name: str
    engine: Engine
    journal: Recorder
    pool: Pool
    conductor: LanguageModelConductor
    items: Sequence[TaskItem]
    reflector: Pool
    caps: Caps
    scope: Scope
    pools: Sequence[Pool] = ()  # one for each task, where tasks bring their own
    labels: set[str] = field(default_factory=set)  # of all that its runs brought, which the advice bears

    async def perform(self, advice: str, place: int, left: float) -> TunedRun:
        """Return what came of a task with this advice."""
        item = self.items[place]
        pool = self.pools[place] if self.pools else self.pool
        conductor = replace(self.conductor, advice=advice)
        run = await self._run(self._id("task", advice, item.task.content_hash), item.task, pool, conductor, left)
        if run.grade is None:
            await self._grade(run, item.grader)
        self.labels.update(run.scope.labels)
        score = 0.0 if run.grade is None or run.grade.score is None else run.grade.score
        expected = getattr(item.grader, "expected", "")
        return TunedRun(score, _paid(run), run.id, describe_run(run, score, str(expected)))

    async def reflect(self, prompt: str, number: int, left: float) -> Reflection:
        """Return what the reflector says."""
        conductor = fixed_conductor(f"single?worker={self.reflector[0].card.name}")
        run_id = self._id("reflection", prompt, str(number))
        task = Task(prompt, domain="reflection", labels=tuple(sorted(self.labels)), tenant=self.scope.tenant)
        run = await self._run(run_id, task, self.reflector, conductor, left)
        return Reflection(run.answer or "", _paid(run))

    async def _run(self, run_id: str, task: Task, pool: Pool, conductor: Conductor, left: float) -> Run:
        events = await read_journaled(self.journal, run_id)
        if events:
            past = Run.fold(events)
            run = past if past.finished is not None else await self.engine.resume(run_id, pool, conductor)
        else:
            dollars = left if self.caps.dollars is None else min(left, self.caps.dollars)
            run = await self.engine.run(task, pool, conductor, replace(self.caps, dollars=dollars), run_id=run_id)
        if run.status in _ENDED_BY_CAP and (self.caps.dollars is None or left < self.caps.dollars):
            raise CapSpent
        return run

    async def _grade(self, run: Run, grader: Grader) -> None:
        if run.answer is None:
            score, mark = 0.0, GradeMark.WRONG
        else:
            grade = await grader.grade(run.answer)
            if grade.score is None:
                score, mark = 0.0, GradeMark.WRONG
            else:
                score = grade.score
                mark = GradeMark.RIGHT if score >= _RIGHT else GradeMark.WRONG
        graded = AnswerGraded(run=run.id, at=time.time(), checker=grader.name, mark=mark, score=score, actor="tune")
        self.journal.add(graded)
        await self.journal.flush()
        run.grades.append(graded)

    def _id(self, *parts: str) -> str:
        """Return an id of three parts: a child run's id begins with that of its root."""
        whole = "\0".join((self.name, self.conductor.name, *parts))
        return f"tune-{sha256(self.name.encode()).hexdigest()[:8]}-{sha256(whole.encode()).hexdigest()[:20]}"


def _paid(run: Run) -> float:
    """Return what a run has used, with what nobody knows counted as used."""
    return (run.counted.dollars or 0.0) if run.counted else 0.0
