"""One task through one entrant: perform, grade, reward, and write down what came of it as a Sample.

Invariants: what is graded is the answer that the engine's run ended with, and nothing else; a worker of whom nobody
recorded anything on this task leaves the task UNGRADED, because unknown is not wrong; any other end without an answer
is NO_ANSWER, with the fault that led to it; a run that this evaluation's own limit cut short is no sample. With a
journal, a run that had ended is taken from there; one that had not is left as it is and begun anew, since what it paid
for is in the response cache, where its calls find the very replies they had. Deliberately absent: which tasks and
entrants (`evaluation`), and statistics.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from time import perf_counter

from shikisha.budget import Caps
from shikisha.conduct import Engine
from shikisha.errors import FaultKind, UnknownRun
from shikisha.evaluate.calls import TALLY, Purse, Tally
from shikisha.evaluate.samples import Entrant, Sample
from shikisha.evaluate.timing import spared
from shikisha.grade import Grade, no_answer, ungraded
from shikisha.grade.canon import Form, canonical
from shikisha.recorder import MemoryRecorder, Recorder
from shikisha.reward import PAPER, Reward, Weights, events, performers, reward
from shikisha.run import Result, RoundRecord, Run
from shikisha.taskset import Item


@dataclass(slots=True)
class Player:
    """Plays tasks with one engine. `evaluation` is part of every run's id, so that a run goes on where it was."""

    engine: Engine
    recorder: Recorder
    evaluation: str
    caps: Caps = field(default_factory=Caps)
    weights: Weights = PAPER
    purse: Purse = field(default_factory=Purse)
    config: str = "{}"

    async def play(self, entrant: Entrant, item: Item, attempt: int = 0) -> Sample | None:
        """Return the sample; None when the evaluation's limit refused a call. `attempt` counts earlier failed tries."""
        task = asyncio.current_task()
        tally = Tally(attempt, task, kept=entrant.kept)
        token = TALLY.set(tally)
        try:
            return await self._sample(entrant, item, tally)
        except asyncio.CancelledError:
            if not tally.ended or task is None or task.uncancel():
                raise
            return None
        finally:
            TALLY.reset(token)

    async def _sample(self, entrant: Entrant, item: Item, tally: Tally) -> Sample:
        begun = perf_counter()
        run = await self._run(entrant, item, self.run_id(entrant, item, tally.attempt))
        extra = spared(run, tally.spared)
        seconds = perf_counter() - begun + extra
        run.active_seconds += extra  # what a reward for quickness goes by
        grade = await _graded(item, run)
        first = await _first_score(item, run, grade)
        given = reward(run, grade, self.weights)
        await self._keep(run, grade, given)
        return _sample(entrant, item, run, _Finding(grade, first, max(seconds, run.active_seconds), tally.paid, given))

    def run_id(self, entrant: Entrant, item: Item, attempt: int) -> str:
        """Return the id of this run: the same whenever this evaluation is begun again."""
        what = f"{entrant.name}\0{entrant.version}\0{item.task.id}\0{item.task.content_hash}\0{attempt}"
        return f"{self.evaluation}-{sha256(what.encode()).hexdigest()[:20]}"

    async def _run(self, entrant: Entrant, item: Item, run_id: str) -> Run:
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
            for event in events(run.id, grade, given):
                self.recorder.add(event)
            await self.recorder.flush()


@dataclass(frozen=True, slots=True)
class _Finding:
    """What is known of a run besides the run."""

    grade: Grade
    first_score: float | None
    seconds: float
    paid: float
    reward: Reward | None


async def _graded(item: Item, run: Run) -> Grade:
    if run.answer is not None:
        return await item.checker.grade(run.answer)
    faults = _faults(run)
    if FaultKind.NO_RECORD in faults:
        return ungraded(item.checker.name, "nobody recorded this worker on this task")
    why = run.finished.why if run.finished else "the run has not ended"
    return no_answer(item.checker.name, why)


async def _first_score(item: Item, run: Run, grade: Grade) -> float | None:
    """Return what the first round alone came to, where there were more; a judge is not asked again for that."""
    performed = [turn for turn in run.rounds if turn.steps]
    if len(performed) < 2 or grade.judged:
        return None
    text = _final(performed[0])
    return 0.0 if text is None else (await item.checker.grade(text)).score


def _final(turn: RoundRecord) -> str | None:
    results = turn.results
    final = results[-1] if results else None
    return final.text if final is not None and final.ok else None


def _faults(run: Run) -> tuple[FaultKind, ...]:
    """Return why steps, or the planning, came to nothing, each kind once."""
    results = [result for turn in run.rounds for result in turn.results if result is not None]
    found = [result.fault.kind for result in results if result.fault is not None]
    if run.finished is not None and run.finished.fault is not None:
        found.append(run.finished.fault)
    return tuple(dict.fromkeys(found))


def _sample(entrant: Entrant, item: Item, run: Run, finding: _Finding) -> Sample:
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
        workers=performers(run),
        shape=plan.topology() if plan is not None else "",
        access=tuple(step.access for step in plan.steps) if plan is not None else (),
        faults=_faults(run) if run.answer is None else (),
        tokens=charged.tokens,
        dollars=charged.dollars,
        uncertain=run.uncertain.dollars or 0.0,
        paid=finding.paid,
        seconds=finding.seconds,
        confidence=_agreement(item, run),
        reward=finding.reward.total if finding.reward is not None else None,
        version=entrant.version,
        grading=item.grading,
    )


def _valid(run: Run) -> bool | None:
    if not run.rounds:
        return None
    first = run.rounds[0]
    if first.proposed is None:
        return False if first.rejected else None
    return not first.rejected and first.proposed.substituted is None


def _agreement(item: Item, run: Run) -> float | None:
    """Return the share of independent answers that are the run's answer; None with fewer than two of them."""
    form = getattr(item.checker, "form", None)
    if run.answer is None or not isinstance(form, Form) or sum(len(turn.steps) for turn in run.rounds) < 2:
        return None
    results = [result for turn in run.rounds for result in _independent(turn)]
    if len(results) < 2:
        return None
    final = canonical(run.answer, form)
    return sum(canonical(result.text or "", form) == final for result in results) / len(results) if final else None


def _independent(turn: RoundRecord) -> Sequence[Result]:
    """Return the answers of a round's steps that saw nobody else's."""
    if turn.plan is None:
        return ()
    pairs = zip(turn.plan.steps, turn.results, strict=True)
    return [result for step, result in pairs if not step.access and result is not None and result.ok]
