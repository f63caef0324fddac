"""Plays tasks through entrants: each missing (entrant, task) pair becomes a run, a grade, a reward and a Sample.

Invariants: only the answer that the engine's run ended with is graded; a worker without a record of this task leaves it
UNGRADED, because unknown is not wrong; any other end without an answer is NO_ANSWER, with the fault that led to it; a
run that the evaluation's own limit cut short is no sample. A pair with a sample is not played again, unless it failed
and failures are to be retried. At a limit nothing new starts and everything done is kept: at a limit of dollars the
calls in flight end, at one of seconds they are canceled and asked again later under their keys. With a journal, a
finished run is read from there; an unfinished one starts again, since its calls find their replies in the cache. An
`Executor` decides where jobs run: this process, several, or a cluster.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from time import perf_counter
from typing import Protocol, TypeAlias

from shikisha.core.budget import Caps
from shikisha.core.errors import FaultKind, ShikishaError, UnknownRun
from shikisha.core.events import (
    AttemptFinished,
    CallRole,
    GradeMark,
    GuardDecided,
    RunStatus,
    ToolRefused,
    ToolsOffered,
)
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.run import Attempt, Result, RoundRecord, Run, StepRecord
from shikisha.core.text import one_line
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder, Recorder
from shikisha.evals.graders import Grade, no_answer_grade, ungraded_grade
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.evals.response_cache import RUN_ACCOUNT, EvaluationBudget, RunAccount
from shikisha.evals.reward import PAPER_WEIGHTS, Reward, RewardWeights, grade_events, run_reward, step_workers
from shikisha.evals.samples import Entrant, Sample, SampleStore, run_digest
from shikisha.evals.taskset import TaskItem


def cached_latency(run: Run, seconds: Mapping[str, float]) -> float:
    """Return how much longer the run would have taken, given what each cached reply took by its request's key."""
    if not seconds:
        return 0.0
    return sum(_round_seconds(turn, seconds) - _round_seconds(turn, {}) for turn in run.rounds)


def _round_seconds(turn: RoundRecord, more: Mapping[str, float]) -> float:
    """Return how long a round's planning took, and after it the longest chain of steps that see one another."""
    ends: list[float] = []
    for index, step in enumerate(turn.plan.steps if turn.plan is not None else ()):
        begun = max((ends[seen] for seen in step.access), default=0.0)
        record = turn.steps.get(index) or StepRecord(index)
        items = max((_call_seconds(item.attempts, more) for item in record.items or ()), default=0.0)
        ends.append(begun + _call_seconds(record.attempts, more) + items)
    return _call_seconds(turn.planning.attempts, more) + max(ends, default=0.0)


def _call_seconds(attempts: Iterable[Attempt], more: Mapping[str, float]) -> float:
    """Return the seconds of a step's calls; a child run's calls begin with the key of the call that it is."""
    total = 0.0
    for attempt in attempts:
        key = attempt.started.key
        total += attempt.outcome.seconds if attempt.outcome is not None else 0.0
        total += sum(took for each, took in more.items() if each == key or each.startswith(f"{key}-"))
    return total


@dataclass(slots=True)
class TaskRunner:
    """Plays tasks with one engine. `evaluation` is part of every run's id, so that a run goes on where it was."""

    engine: Engine
    recorder: Recorder
    evaluation: str
    caps: Caps = field(default_factory=Caps)
    weights: RewardWeights = PAPER_WEIGHTS
    budget: EvaluationBudget = field(default_factory=EvaluationBudget)
    config: str = "{}"

    async def play(self, entrant: Entrant, item: TaskItem, attempt: int = 0) -> Sample | None:
        """Return the sample; None when the evaluation's limit refused a call. `attempt` counts earlier failed tries."""
        task = asyncio.current_task()
        tally = RunAccount(attempt, task, cache_only=entrant.cache_only)
        token = RUN_ACCOUNT.set(tally)
        try:
            return await self._sample(entrant, item, tally)
        except asyncio.CancelledError:
            # Only our own cancellation is swallowed: another one, such as a stopped evaluation, goes on.
            if not tally.ended or task is None or task.uncancel():
                raise
            return None
        finally:
            RUN_ACCOUNT.reset(token)

    async def _sample(self, entrant: Entrant, item: TaskItem, tally: RunAccount) -> Sample:
        begun = perf_counter()
        run = await self._run(entrant, item, self.run_id(entrant, item, tally.attempt))
        extra = cached_latency(run, tally.cached_seconds)
        seconds = perf_counter() - begun + extra
        # The latency reward must not depend on which entrant filled the cache.
        run.active_seconds += extra
        grade = await _grade_run(item, run)
        first = await _first_score(item, run, grade)
        given = run_reward(run, grade, self.weights)
        await self._keep(run, grade, given)
        return _sample(
            entrant, item, run, _GradedRun(grade, first, max(seconds, run.active_seconds), tally.paid, given)
        )

    def run_id(self, entrant: Entrant, item: TaskItem, attempt: int) -> str:
        """Return the id of this run: the same whenever this evaluation is begun again."""
        task = (item.task.id, item.task.content_hash)
        return f"{self.evaluation}-{run_digest((entrant.name, entrant.version), task, attempt)}"

    async def _run(self, entrant: Entrant, item: TaskItem, run_id: str) -> Run:
        own, begun = run_id, 0
        while not isinstance(self.recorder, MemoryRecorder) and (past := await self._journaled(own)) is not None:
            if past.finished is not None:
                return past
            begun += 1
            own = f"{run_id}-{begun}"
        pool = entrant.pool(item)
        return await self.engine.run(item.task, pool, entrant.conductor, self.caps, run_id=own, config=self.config)

    async def _journaled(self, run_id: str) -> Run | None:
        try:
            return Run.fold(await self.recorder.read(run_id))
        except UnknownRun:
            return None

    async def _keep(self, run: Run, grade: Grade, given: Reward | None) -> None:
        if isinstance(self.recorder, MemoryRecorder):
            self.recorder.forget(run.id)
        elif not run.grades:
            for event in grade_events(run.id, grade, given):
                self.recorder.add(event)
            await self.recorder.flush()


@dataclass(frozen=True, slots=True)
class _GradedRun:
    """What is known of a run besides the run."""

    grade: Grade
    first_score: float | None
    seconds: float
    paid: float
    reward: Reward | None


async def _grade_run(item: TaskItem, run: Run) -> Grade:
    if run.answer is not None:
        return await item.grader.grade(run.answer)
    faults = _faults(run)
    if FaultKind.NO_RECORD in faults:
        return ungraded_grade(item.grader.name, "there is no record of this worker on this task")
    why = run.finished.why if run.finished else "the run has not ended"
    return no_answer_grade(item.grader.name, why)


async def _first_score(item: TaskItem, run: Run, grade: Grade) -> float | None:
    """Return the first round's own score, where there were more rounds; a judge is not called again for it."""
    performed = [turn for turn in run.rounds if turn.steps]
    if len(performed) < 2 or grade.judged:
        return None
    text = _final(performed[0])
    return 0.0 if text is None else (await item.grader.grade(text)).score


def _final(turn: RoundRecord) -> str | None:
    results = turn.results
    final = results[-1] if results else None
    return final.text if final is not None and final.ok else None


def _faults(run: Run) -> tuple[FaultKind, ...]:
    """Return the faults of steps and of the planning, each kind once."""
    results = [result for turn in run.rounds for result in turn.results if result is not None]
    found = [result.fault.kind for result in results if result.fault is not None]
    if run.finished is not None and run.finished.fault is not None:
        found.append(run.finished.fault)
    return tuple(dict.fromkeys(found))


def _sample(entrant: Entrant, item: TaskItem, run: Run, finding: _GradedRun) -> Sample:
    grade, task, charged = finding.grade, item.task, run.charged
    first = next((turn for turn in run.rounds if turn.plan is not None), None)
    plan = first.plan if first is not None else None
    return Sample(
        entrant=entrant.name,
        task_id=task.id,
        task_hash=task.content_hash,
        domain=task.domain,
        difficulty=item.difficulty,
        status=run.status,
        mark=grade.mark,
        score=grade.score,
        judged=grade.judged,
        found=grade.found,
        evidence=grade.evidence,
        valid=_valid(run),
        first_score=finding.first_score,
        rounds=sum(bool(turn.steps) for turn in run.rounds),
        workers=step_workers(run),
        shape=plan.topology() if plan is not None else "",
        access=tuple(step.access for step in plan.steps) if plan is not None else (),
        faults=_faults(run) if run.answer is None else (),
        tokens=charged.tokens,
        dollars=charged.dollars,
        uncertain=run.uncertain.dollars or 0.0,
        paid=finding.paid,
        seconds=finding.seconds,
        confidence=_answer_agreement(item, run),
        reward=finding.reward.total if finding.reward is not None else None,
        version=entrant.version,
        grading=item.grading,
        failure=str(classify_failure(run, grade.score) or ""),
    )


def _valid(run: Run) -> bool | None:
    if not run.rounds:
        return None
    first = run.rounds[0]
    if first.proposed is None:
        return False if first.rejected else None
    return not first.rejected and first.proposed.substituted is None


def _answer_agreement(item: TaskItem, run: Run) -> float | None:
    """Return the share of independent answers that are the run's answer; None with fewer than two of them."""
    form = getattr(item.grader, "form", None)
    if run.answer is None or not isinstance(form, AnswerForm) or sum(len(turn.steps) for turn in run.rounds) < 2:
        return None
    results = [result for turn in run.rounds for result in _independent(turn)]
    if len(results) < 2:
        return None
    final = canonicalize(run.answer, form)
    return sum(canonicalize(result.text or "", form) == final for result in results) / len(results) if final else None


def _independent(turn: RoundRecord) -> Sequence[Result]:
    """Return the answers of a round's steps that saw no other step's."""
    if turn.plan is None:
        return ()
    pairs = zip(turn.plan.steps, turn.results, strict=True)
    return [result for step, result in pairs if not step.access and result is not None and result.ok]


SampleCallback: TypeAlias = Callable[[Sample, str], None]
# Seconds between fsyncs: a kill loses at most so much of the samples, whose replies are in the cache anyway.
_SYNC_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """A task for an entrant; `attempt` counts earlier tries that failed."""

    entrant: Entrant
    item: TaskItem
    attempt: int = 0


class Executor(Protocol):
    """Where jobs are played."""

    async def play(self, jobs: Sequence[EvaluationJob], heard: SampleCallback) -> None:
        """Play the jobs and tell of each sample, with its line; return early when the dollars are spent."""
        ...


class EvaluationStop(StrEnum):
    """Why an evaluation ended before its end."""

    DOLLARS = "dollars"  # its limit of dollars is reached
    SECONDS = "seconds"  # its limit of seconds is reached


class LocalExecutor:
    """Plays in this process, `at_once` tasks at a time."""

    def __init__(self, player: TaskRunner, at_once: int) -> None:
        self._player, self._at_once = player, at_once

    async def play(self, jobs: Sequence[EvaluationJob], heard: SampleCallback) -> None:
        """Play the jobs in order."""
        waiting = iter(jobs)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._at_once, len(jobs))):
                group.create_task(self._pull(waiting, heard))

    async def _pull(self, waiting: Iterator[EvaluationJob], heard: SampleCallback) -> None:
        for job in waiting:
            if self._player.budget.empty:
                return
            sample = await self._player.play(job.entrant, job.item, job.attempt)
            if sample is not None:
                heard(sample, sample.dumps())


@dataclass(slots=True)
class Evaluation:
    """A running evaluation: its samples, where jobs run, its limit of seconds, and the callback for samples."""

    store: SampleStore
    executor: Executor
    deadline: float | None = None  # on the event loop's clock
    retry_failed: bool = False
    on_sample: Callable[[Sample], None] | None = None
    stopped: EvaluationStop | None = None

    async def play(self, entrants: Sequence[Entrant], items: Sequence[TaskItem]) -> None:
        """Play every task through every entrant as far as that is not done and the limits allow."""
        if self.stopped is not None:
            return
        jobs = [job for entrant in entrants for item in items if (job := self._job(entrant, item)) is not None]
        syncing = asyncio.create_task(self._sync())
        try:
            async with asyncio.timeout_at(self.deadline):
                await self.executor.play(jobs, self._take)
        except ExceptionGroup as group:
            raise _first_error(group) from None
        except TimeoutError:
            if self.deadline is None or asyncio.get_running_loop().time() < self.deadline:
                raise
            self.stopped = EvaluationStop.SECONDS
        finally:
            syncing.cancel()
            with suppress(asyncio.CancelledError):
                await syncing
            await asyncio.shield(self.store.sync())
        paying = [job for job in jobs if not job.entrant.cache_only]
        if self.stopped is None and any(self.store.find(job.entrant, job.item) is None for job in paying):
            self.stopped = EvaluationStop.DOLLARS

    def missing(self, entrant: Entrant, item: TaskItem) -> bool:
        """Whether this pair is still to be played."""
        return self._job(entrant, item) is not None

    def _job(self, entrant: Entrant, item: TaskItem) -> EvaluationJob | None:
        sample = self.store.find(entrant, item)
        if sample is None or (self.retry_failed and is_failed(sample)):
            return EvaluationJob(entrant, item, self.store.tries(entrant, item))
        return None

    def _take(self, sample: Sample, line: str) -> None:
        self.store.put(sample, line)
        if self.on_sample is not None:
            self.on_sample(sample)

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(_SYNC_EVERY)
            await self.store.sync()


def _first_error(group: ExceptionGroup[Exception]) -> Exception:
    """Return what went wrong in a group of tasks, of several the first that we have words for."""
    leaves = [_first_error(each) if isinstance(each, ExceptionGroup) else each for each in group.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, ShikishaError)), leaves[0])


# What says nothing of the answers: the configuration did not let the worker be called.
_REFUSALS = frozenset({FaultKind.CAP, FaultKind.AUTH, FaultKind.CONNECT, FaultKind.NOT_CLEARED, FaultKind.DENIED})


def refusal_of(samples: Sequence[Sample]) -> str:
    """Return why all of these are refusals, which measure nothing; an empty text where any run came further."""
    if not samples or not all(each.faults and _REFUSALS.issuperset(each.faults) for each in samples):
        return ""
    return one_line(samples[0].evidence, 200)


def is_failed(sample: Sample) -> bool:
    """Whether something other than the answer is to blame: the run ended without one, or the grader failed."""
    return sample.status not in (RunStatus.DONE,) or sample.mark is GradeMark.UNGRADED


# --- the class of failure of a run whose workers use tools


class FailureClass(StrEnum):
    """Where a run with tools went wrong."""

    INCOMPLETE = "incomplete"  # it ended before it was done: a cap, a fault, no answer, or no call at all
    NAVIGATION = "navigation"  # a guard refused a call on something unseen, stale or unfit, and it was never mended
    TOOL_USE = "tool use"  # a call of no tool that was offered, with arguments that do not fit, or that only failed
    CONTENT = "content"  # the calls were made, with wrong values


_MISUSES = frozenset({FaultKind.NOT_OFFERED, FaultKind.BAD_ARGUMENTS, FaultKind.TOOL_ERROR})


def classify_failure(run: Run, score: float | None) -> FailureClass | None:
    """Return where a run with tools went wrong, by its events alone; None for a right or ungraded run, or one without.

    The classes are those of studies of web and tool agents. What no event shows counts as content.
    """
    steps = [step for turn in run.rounds for step in turn.steps.values()]
    used_tools = any(isinstance(event, ToolsOffered) for step in steps for event in step.tools)
    if not used_tools or score is None or score >= 1:
        return None
    made = set(_performed(steps))
    if run.status is not RunStatus.DONE or run.answer is None:
        return FailureClass.INCOMPLETE
    unmended = [event for event in _refusals(steps) if event.tool not in made]
    if any(event.fault is FaultKind.GUARDED for event in unmended):
        return FailureClass.NAVIGATION
    if any(event.fault in _MISUSES for event in unmended) or _failed(steps) - made:
        return FailureClass.TOOL_USE
    if any(isinstance(e, GuardDecided) and not e.passed and e.moment == "after" for s in steps for e in s.tools):
        return FailureClass.CONTENT
    return FailureClass.CONTENT if made else FailureClass.INCOMPLETE


def _refusals(steps: Sequence[StepRecord]) -> Iterator[ToolRefused]:
    for step in steps:
        for event in step.tools:
            if isinstance(event, ToolRefused):
                yield event


def _performed(steps: Sequence[StepRecord]) -> Iterator[str]:
    """Yield the names of the tools that were called and answered."""
    for step in steps:
        for attempt in step.attempts:
            if attempt.started.role is CallRole.TOOL and isinstance(attempt.outcome, AttemptFinished):
                yield attempt.started.tool


def _failed(steps: Sequence[StepRecord]) -> set[str]:
    """Return the names of the tools of which a call failed."""
    return {
        attempt.started.tool
        for step in steps
        for attempt in step.attempts
        if attempt.started.role is CallRole.TOOL and not isinstance(attempt.outcome, AttemptFinished)
    }
