"""Roll a run back: compensating calls undo the effects of its calls, newest first, child runs included.

A call can be undone where its worker has a registered compensating worker: that one is called once for each such call
and told exactly which, under a key of its own that never changes. Invariants: a rollback, every compensating call and
the outcome for every effect are journaled before anything follows from them (4). An effect that is undone is not undone
again, and an interrupted rollback continues where it stopped. It has a budget of its own, inside the shared budget (3).
A fault is recorded, and the rollback goes on to the next effect (6). An effect whose own call has no known result is
kept and named: only a person can look. Deliberately absent: effects of workers without a registered compensation, and
of calls that no plan names (a conductor's or a check's; their texts are not journaled).
"""

import json
from collections.abc import Sequence
from time import time

from shikisha.core.call import Request
from shikisha.core.errors import CapReached, Fault, FaultKind, WorkerError
from shikisha.core.events import (
    EFFECT_ROLES,
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CallRole,
    EffectKept,
    EffectUndone,
    RollbackStarted,
)
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Attempt, Rollback, RoundRecord, Run, StepRecord, child_run_id
from shikisha.core.task import Task
from shikisha.engine.attempt import CallPurpose, call_worker
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import Recorder, read_journaled
from shikisha.engine.run_context import RunContext, StepCalls

_LOST_RESULT = "its call has no known result, so it may or may not have had an effect"


@dataclass(frozen=True, slots=True)
class RollbackOrder:
    """Who orders a rollback, why, and whether to retry the compensating calls that failed in an earlier one."""

    actor: str
    why: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class UndoableCall:
    """A call that can be undone: its key, worker, subtask and answer (None: its result is unknown)."""

    key: str
    member: Member
    task: Task
    subtask: str
    answer: str | None
    labels: frozenset[str]
    at: float

    @property
    def by(self) -> Member:
        """The worker that undoes it."""
        if self.member.undo is None:
            raise ValueError(f"no worker undoes what {self.member.card.name} does")
        return self.member.undo

    def prompt(self) -> str:
        """Return the compensating worker's subtask: the exact call, in words and as one JSON object."""
        name = self.member.card.name
        exact = {"key": self.key, "worker": name, "subtask": self.subtask, "answer": self.answer}
        return (
            f"Undo what this call to {name} did, and nothing else.\n\n"
            f"```json\n{json.dumps(exact, ensure_ascii=False, indent=1)}\n```"
        )


async def undoable_calls(recorder: Recorder, run: Run, pool: Pool) -> list[UndoableCall]:
    """Return what can be undone of a run and of its child runs, newest first."""
    return sorted(await _collect_calls(recorder, run, pool), key=lambda effect: effect.at)[::-1]


async def _collect_calls(recorder: Recorder, run: Run, pool: Pool) -> list[UndoableCall]:
    effects: list[UndoableCall] = []
    for round_ in run.rounds:
        for index, record in round_.steps.items():
            subtask = round_.plan.step_of(index).subtask if round_.plan else ""
            labels = frozenset(record.finished.labels if record.finished else run.task.labels)
            attempts_by_key: dict[str, list[Attempt]] = {}
            for attempt in record.attempts:
                asks_for_tools = isinstance(attempt.outcome, AttemptFinished) and attempt.outcome.calls
                if attempt.started.role in EFFECT_ROLES and not asks_for_tools:
                    attempts_by_key.setdefault(attempt.started.key, []).append(attempt)
            for key, attempts in attempts_by_key.items():
                number = 0
                while events := await read_journaled(recorder, child_run_id(key, number)):
                    effects += await _collect_calls(recorder, Run.fold(events), pool)
                    number += 1
                member = await _undoable_member(pool, attempts[0].started)
                if member is not None and any(map(_may_have_happened, attempts)):
                    told = attempts[0].started.arguments or subtask
                    effects.append(_undoable_call(attempts, member, run.task, told, labels))
    return effects


async def _undoable_member(pool: Pool, started: AttemptStarted) -> Member | None:
    """Return who made a call, if its calls can be undone: a worker of the pool, or a tool of one of its agents."""
    if started.role is CallRole.STEP:
        member = pool.named(started.worker) if started.worker in pool.names else None
        return member if member is not None and member.undo is not None else None
    for source in [source for member in pool if member.agent for source in member.agent.sources]:
        tool = await source.find(started.tool)
        found = None if tool is None else await source.member(tool)
        if found is not None and found.undo is not None and found.card.name == started.worker:
            return found
    return None


def _undoable_call(
    attempts: Sequence[Attempt], member: Member, task: Task, subtask: str, labels: frozenset[str]
) -> UndoableCall:
    last = attempts[-1]
    answers = [attempt.outcome.text for attempt in attempts if isinstance(attempt.outcome, AttemptFinished)]
    at = last.outcome.at if last.outcome else last.started.at
    labels = labels.union(member.card.adds)
    return UndoableCall(last.started.key, member, task, subtask, answers[-1] if answers else None, labels, at)


def _may_have_happened(attempt: Attempt) -> bool:
    return not (isinstance(attempt.outcome, AttemptFailed) and attempt.outcome.fault.free)


async def roll_back(context: RunContext, run: Run, order: RollbackOrder) -> None:
    """Undo what can be undone of the run, within the context's own ledger and deadline.

    JournalError when the journal takes no more. Cancelling leaves a rollback that continues with the next order.
    """
    settled = [event for past in run.rollbacks for event in past.settled.values()]
    undone = {event.effect for event in settled if isinstance(event, EffectUndone)}
    effects = enumerate(await undoable_calls(context.recorder, run, context.pool))
    todo = [(number, effect) for number, effect in effects if effect.key not in undone]
    rollback = run.rollbacks[-1] if run.rollbacks else None
    if rollback is None or all(effect.key in rollback.settled for _, effect in todo):  # the last one was not cut short
        if not _worthwhile(run, todo, order):
            return
        number, (actor, why) = len(run.rollbacks), map(context.clean, (order.actor, order.why))
        begun = RollbackStarted(run=run.id, at=time(), rollback=number, actor=actor, why=why)
        rollback = Rollback(begun, RoundRecord(-1 - number, StepRecord(-1)))
        context.recorder.add(begun)
        await context.recorder.flush()
    for step in rollback.record.steps.values():
        context.ledger.charge(attempt.counted for attempt in step.attempts)
    for number, effect in todo:
        if effect.key not in rollback.settled:
            context.recorder.add(await _undo(context, rollback, number, effect))
            await context.recorder.flush()


def _worthwhile(run: Run, todo: Sequence[tuple[int, UndoableCall]], order: RollbackOrder) -> bool:
    """Whether there is anything to do: something new, or failed compensating calls that the order wants retried."""
    if not run.rollbacks:
        return bool(todo)
    last = [run.rollbacks[-1].settled.get(effect.key) for _, effect in todo]
    return order.again and any(isinstance(event, EffectKept) and event.fault is not None for event in last)


async def _undo(
    context: RunContext, rollback: Rollback, number: int, effect: UndoableCall
) -> EffectUndone | EffectKept:
    """Make the compensating call, and return what became of the effect."""
    if effect.answer is None:
        return _effect_kept(context, rollback, effect, Fault(FaultKind.UNCERTAIN, _LOST_RESULT), known=False)
    calls = StepCalls(context, rollback.record.index, number, rollback.record.steps.get(number))
    calls.fixed_key = f"{effect.key}-undo"
    request = Request(effect.task, effect.prompt(), labels=effect.labels)
    try:
        if calls.journaled() is None:
            context.ledger.open_step()
        await call_worker(calls, effect.by, request, CallPurpose(CallRole.UNDO))
    except CapReached as refusal:
        return _effect_kept(context, rollback, effect, Fault(FaultKind.CAP, str(refusal)))
    except WorkerError as error:
        return _effect_kept(context, rollback, effect, error.fault)
    return EffectUndone(
        run=context.run,
        at=time(),
        rollback=rollback.begun.rollback,
        effect=effect.key,
        worker=effect.member.card.name,
        by=effect.by.card.name,
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
