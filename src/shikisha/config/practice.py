"""Practice: tasks of a set, the most instructive first, performed and graded within a budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from shikisha.config.container import Container
from shikisha.core.events import AnswerGraded, GradeMark, RunStatus
from shikisha.core.run import Run
from shikisha.core.task import Scope
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import Recorder, read_journaled
from shikisha.evals.taskset import TaskItem
from shikisha.learned.step_value import StepValue
from shikisha.retrieval.terms import split_clauses

_TARGET = 0.5
_MOST_ATTEMPTS = 10


def estimated_success(prompt: str, model: StepValue, workers: Sequence[str]) -> float:
    """Return how likely the best workers for a task's clauses do all of them right."""
    clauses = list(split_clauses(prompt)) or [prompt]
    return float(np.prod(model.chances(clauses, workers).max(axis=1)))


def order_by_need(items: Sequence[TaskItem], model: StepValue, workers: Sequence[str]) -> list[TaskItem]:
    """Return the tasks, those whose estimated success is nearest one half from below first, then the easier ones."""

    def need(item: TaskItem) -> tuple[bool, float, str]:
        chance = estimated_success(item.task.prompt, model, workers)
        return chance > _TARGET, abs(chance - _TARGET), item.task.content_hash

    return sorted(items, key=need)


@dataclass
class Practice:
    """Performs tasks with a conductor until the budget is spent."""

    container: Container
    journal: Recorder
    pool: Pool
    conductor: Conductor
    budget: float
    scope: Scope  # of the step values that chose the tasks: what is practised is learned from for the same tenant
    tasks: int = 0
    right: int = 0
    spent: float = 0.0
    why: str = "all tasks are done"

    async def perform(self, items: Sequence[TaskItem], now: Callable[[], float]) -> None:
        """Perform and grade tasks in their order; what the journal has already is left out."""
        engine = Engine(
            self.journal,
            secret_store=self.container.secret_store,
            guarded_labels=self.container.guarded_labels,
        )
        for item in items:
            run_id = await self._free_id(item)
            if run_id is None:
                continue
            left = self.budget - self.spent
            if left <= 0:
                self.why = "the budget is spent"
                return
            caps = self.container.caps
            dollars = left if caps.dollars is None else min(left, caps.dollars)
            pool = item.pool or self.pool
            labels = tuple(sorted(self.scope.labels.union(item.task.labels)))
            task = replace(item.task, labels=labels, tenant=self.scope.tenant)
            run = await engine.run(task, pool, self.conductor, replace(caps, dollars=dollars), run_id=run_id)
            self.spent += run.counted.dollars or 0.0
            if run.status is RunStatus.CAPPED and dollars == left:
                self.why = "the budget is spent"
                return
            self.tasks += 1
            self.right += await self._grade(run, item, now())

    async def _free_id(self, item: TaskItem) -> str | None:
        """Return the id for a task's run; None where the journal has it already. A run that a cap ended is repeated."""
        for attempt in range(_MOST_ATTEMPTS):
            whole = f"{self.conductor.name} {item.task.content_hash} {attempt}"
            run_id = f"practise-{sha256(self.conductor.name.encode()).hexdigest()[:8]}-{_short(whole)}"
            events = await read_journaled(self.journal, run_id)
            if not events:
                return run_id
            if Run.fold(events).status is not RunStatus.CAPPED:
                return None
        return None

    async def _grade(self, run: Run, item: TaskItem, at: float) -> bool:
        score = 0.0
        if run.answer is not None:
            grade = await item.grader.grade(run.answer)
            if grade.score is None:
                return False  # what could not be graded counts neither way
            score = grade.score
        mark = GradeMark.RIGHT if score >= 1 else GradeMark.WRONG
        name = item.grader.name
        self.journal.add(AnswerGraded(run=run.id, at=at, checker=name, mark=mark, score=score, actor="practise"))
        await self.journal.flush()
        return score >= 1


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:20]
