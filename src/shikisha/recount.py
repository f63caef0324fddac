"""What a run used before this process took over.

Invariant 3 across a resume: everything that the journal tells is counted before anything new is reserved, child runs
and their child runs included, each call once: where an attempt's own charge states what its child runs used, their
calls are not counted again. Deliberately absent: seconds (`Run.active_seconds`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from shikisha.budget import Amount, Caps
from shikisha.errors import FaultKind
from shikisha.events import AttemptFailed, AttemptFinished, Event, Role
from shikisha.ledger import Ledger
from shikisha.run import Attempt, Run
from shikisha.scope import child_id

Reading: TypeAlias = Callable[[str], Awaitable[Sequence[Event]]]


async def recount(read: Reading, past: Run, ledger: Ledger) -> None:
    """Count in the ledger what the run used; `read` returns a run's events, none where there is no such run."""
    for turn in past.rounds:
        for planning in turn.planning.attempts:
            ledger.settle(Amount(), planning.counted)
        for step in turn.steps.values():
            if step.attempts:
                ledger.charge(attempt.counted for attempt in step.attempts)
    for key, attempts in _by_key(past).items():
        stated = any(_states_children(attempt) for attempt in attempts)
        number = 0
        while events := await read(child_id(key, number)):
            below = Ledger(Caps())
            await recount(read, Run.fold(events), below)
            ledger.steps += below.steps
            if not stated:
                ledger.settle(Amount(), below.used)
            number += 1


def _by_key(past: Run) -> dict[str, list[Attempt]]:
    """Return the steps' own attempts by idempotency key: those of one key have their child runs in common."""
    calls: dict[str, list[Attempt]] = {}
    for attempt in past.attempts:
        if attempt.started.role is Role.STEP:
            calls.setdefault(attempt.started.key, []).append(attempt)
    return calls


def _states_children(attempt: Attempt) -> bool:
    """Whether this attempt's own charge says what its child runs used."""
    match attempt.outcome:
        case AttemptFinished():
            return True
        case AttemptFailed(fault=fault):
            return fault is FaultKind.NO_ANSWER
        case _:
            return False
