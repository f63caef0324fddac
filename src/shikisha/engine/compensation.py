"""Rolling a run back: the effects of its calls are undone by compensating calls, newest first, child runs included.

What can be undone is what a worker with a registered compensating worker did: that one is called once for each such
call and told exactly which, under a key of its own that never changes. Invariants: a rollback, every compensating call
and what became of every effect are journaled before anything follows from them (4); an effect that is undone is not
undone again, and a rollback that was cut short goes on where it stopped; it has a budget of its own, inside the purse
(3); a fault is recorded and the next effect's turn comes (6). An effect whose own call has no known result is kept and
named: only a person can look. Deliberately absent: effects of workers that nobody registered a compensation for, and
of calls that no plan names (a conductor's or a check's; their texts are not journaled).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import time

from shikisha.core.call import Request
from shikisha.core.errors import CapReached, Fault, FaultKind, WorkerError
from shikisha.core.events import AttemptFailed, AttemptFinished, CallRole, EffectKept, EffectUndone, RollbackStarted
from shikisha.core.run import Attempt, Rollback, RoundRecord, Run, StepRecord, child_run_id
from shikisha.core.task import Task
from shikisha.engine.attempt import CallPurpose, call_worker
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import Recorder, read_journaled
from shikisha.engine.run_context import RunContext, StepCalls

_LOST_RESULT = "its call has no known result, so it may or may not have had an effect"


@dataclass(frozen=True, slots=True)
class RollbackOrder:
    """Whose word a rollback is, why, and whether compensating calls that failed in an earlier one are tried again."""

    actor: str
    why: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class UndoableCall:
    """A call that can be undone: its key, worker, subtask and answer (None: nobody knows what it came to)."""

    key: str
    member: Member
    task: Task
    subtask: str
    answer: str | None
    labels: frozenset[str]
    at: float

    @property
    def by(self) -> Member:
        """Who undoes it."""
        if self.member.undo is None:
            raise ValueError(f"nobody undoes what {self.member.card.name} does")
        return self.member.undo

    def words(self) -> str:
        """Return what the compensating worker is told: the exact call, as words and as one JSON object."""
        name = self.member.card.name
        exact = {"key": self.key, "worker": name, "subtask": self.subtask, "answer": self.answer}
        return (
            f"Undo what this call to {name} did, and nothing else.\n\n"
            f"```json\n{json.dumps(exact, ensure_ascii=False, indent=1)}\n```"
        )


async def undoable_calls(recorder: Recorder, run: Run, pool: Pool) -> list[UndoableCall]:
    """Return what can be undone of a run and of its child runs, newest first."""
    found = await _collect_calls(recorder, run, pool)
    return sorted(found, key=lambda effect: effect.at)[::-1]


async def _collect_calls(recorder: Recorder, run: Run, pool: Pool) -> list[UndoableCall]:
    found: list[UndoableCall] = []
    for round_ in run.rounds:
        for index, record in round_.steps.items():
            subtask = round_.plan.steps[index].subtask if round_.plan else ""
            for key, attempts in _by_key(record.attempts).items():
                found += await _child_calls(recorder, key, pool)
                if any(map(_may_have_happened, attempts)) and (
                    member := _undoable_member(pool, attempts[0].started.worker)
                ):
                    labels = frozenset(record.finished.labels if record.finished else run.task.labels)
                    found.append(_undoable_call(attempts, member, run.task, subtask, labels))
    return found


async def _child_calls(recorder: Recorder, key: str, pool: Pool) -> list[UndoableCall]:
    """Return the effects of the child runs that calls under this key started."""
    found, number = [], 0
    while events := await read_journaled(recorder, child_run_id(key, number)):
        found += await _collect_calls(recorder, Run.fold(events), pool)
        number += 1
    return found


def _undoable_call(
    attempts: Sequence[Attempt], member: Member, task: Task, subtask: str, labels: frozenset[str]
) -> UndoableCall:
    last = attempts[-1]
    given = [attempt.outcome.text for attempt in attempts if isinstance(attempt.outcome, AttemptFinished)]
    at = last.outcome.at if last.outcome else last.started.at
    every = labels.union(member.card.adds)
    return UndoableCall(last.started.key, member, task, subtask, given[-1] if given else None, every, at)


def _by_key(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    calls: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.started.role is CallRole.STEP:
            calls.setdefault(attempt.started.key, []).append(attempt)
    return calls


def _undoable_member(pool: Pool, worker: str) -> Member | None:
    member = pool.named(worker) if worker in pool.names else None
    return member if member is not None and member.undo is not None else None


def _may_have_happened(attempt: Attempt) -> bool:
    return not (isinstance(attempt.outcome, AttemptFailed) and attempt.outcome.fault.free)


async def roll_back(context: RunContext, run: Run, wish: RollbackOrder) -> None:
    """Undo what can be undone of the run, within the scope's own ledger and deadline.

    JournalError when it cannot be written down any more; cancelling leaves a rollback that goes on with the next wish.
    """
    settled = [event for past in run.rollbacks for event in past.settled.values()]
    undone = {event.effect for event in settled if isinstance(event, EffectUndone)}
    known = enumerate(await undoable_calls(context.recorder, run, context.pool))
    todo = [(number, effect) for number, effect in known if effect.key not in undone]
    rollback = _unfinished(run, todo)
    if rollback is None:
        if not _worthwhile(run, todo, wish):
            return
        rollback = Rollback(_rollback_started(context, run, wish), RoundRecord(-1 - len(run.rollbacks), StepRecord(-1)))
        context.recorder.add(rollback.begun)
        await context.recorder.flush()
    for step in rollback.record.steps.values():
        context.ledger.charge(attempt.counted for attempt in step.attempts)
    for number, effect in todo:
        if effect.key not in rollback.settled:
            context.recorder.add(await _undo(context, rollback, number, effect))
            await context.recorder.flush()


def _unfinished(run: Run, todo: Sequence[tuple[int, UndoableCall]]) -> Rollback | None:
    """Return the last rollback if it was cut short."""
    last = run.rollbacks[-1] if run.rollbacks else None
    return last if last and any(effect.key not in last.settled for _, effect in todo) else None


def _worthwhile(run: Run, todo: Sequence[tuple[int, UndoableCall]], wish: RollbackOrder) -> bool:
    """Whether there is anything to do: something new, or compensating calls that failed and are wanted again."""
    if not run.rollbacks:
        return bool(todo)
    last = [run.rollbacks[-1].settled.get(effect.key) for _, effect in todo]
    return wish.again and any(isinstance(event, EffectKept) and event.fault is not None for event in last)


def _rollback_started(context: RunContext, run: Run, wish: RollbackOrder) -> RollbackStarted:
    actor, why = context.clean(wish.actor), context.clean(wish.why)
    return RollbackStarted(run=run.id, at=time(), rollback=len(run.rollbacks), actor=actor, why=why)


async def _undo(
    context: RunContext, rollback: Rollback, number: int, effect: UndoableCall
) -> EffectUndone | EffectKept:
    """Make the compensating call, and return what became of the effect."""
    if effect.answer is None:
        return _effect_kept(context, rollback, effect, Fault(FaultKind.UNCERTAIN, _LOST_RESULT), known=False)
    calls = StepCalls(context, rollback.record.index, number, rollback.record.steps.get(number))
    calls.fixed_key = f"{effect.key}-undo"
    request = Request(effect.task, effect.words(), labels=effect.labels)
    try:
        if calls.journaled() is None:
            context.ledger.open_step()
        await call_worker(calls, effect.by, request, CallPurpose(CallRole.UNDO))
    except CapReached as refusal:
        return _effect_kept(context, rollback, effect, Fault(FaultKind.CAP, str(refusal)))
    except WorkerError as error:
        return _effect_kept(context, rollback, effect, error.fault)
    names = effect.member.card.name, effect.by.card.name
    return EffectUndone(
        run=context.run, at=time(), rollback=rollback.begun.rollback, effect=effect.key, worker=names[0], by=names[1]
    )


def _effect_kept(
    context: RunContext, rollback: Rollback, effect: UndoableCall, fault: Fault, *, known: bool = True
) -> EffectKept:
    return EffectKept(
        run=context.run,
        at=time(),
        rollback=rollback.begun.rollback,
        effect=effect.key,
        worker=effect.member.card.name,
        by=effect.by.card.name,
        fault=fault.kind if known else None,
        message=fault.message,
    )
