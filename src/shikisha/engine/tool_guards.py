"""Guards of one call of a tool, put to work: before it is made, and after it.

Invariants: a decision is journaled before it has an effect, and one in the journal stands (4); the first guard that
refuses decides; a guard that breaks lets nothing pass. Deliberately absent: the guards themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import time
from typing import TypeAlias

from shikisha.core.errors import PROCESS_STOPS, FaultKind, JournalError, WorkerError, describe_error
from shikisha.core.events import GuardDecided, GuardMoment
from shikisha.core.messages import Json, ToolCall
from shikisha.core.tools import Tool
from shikisha.engine.guards import Guard, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.engine.pool import Member
from shikisha.engine.run_context import StepCalls


@dataclass(frozen=True, slots=True)
class GuardedTool:
    """A call that is to be made: the tool, who performs it, the call as the agent wrote it, and its arguments."""

    tool: Tool
    member: Member
    call: ToolCall
    arguments: Mapping[str, Json]


SituationOf: TypeAlias = Callable[[str], GuardSituation]


async def decide_before(calls: StepCalls, made: GuardedTool, situation: SituationOf) -> None:
    """Let the tool's guards decide whether the call may be made; WorkerError (GUARDED) says which one refuses it."""
    call = GuardedCall(made.tool, made.arguments, calls.call)
    for guard in made.member.guards:
        seen = situation(f"b{calls.decided[GuardMoment.BEFORE]}")
        decided = await _decide(calls, guard, GuardMoment.BEFORE, partial(guard.before, call, seen))
        if not decided.passed:
            raise WorkerError(FaultKind.GUARDED, f"{guard.name}: {decided.reason}")


async def decide_after(calls: StepCalls, made: GuardedTool, outcome: ToolOutcome, situation: SituationOf) -> list[str]:
    """Let the tool's guards look at what the call came to; return what the agent is told of each failure."""
    call, remarks = GuardedCall(made.tool, made.arguments, calls.call), []
    for guard in made.member.guards:
        seen = situation(f"a{calls.decided[GuardMoment.AFTER]}")
        decided = await _decide(calls, guard, GuardMoment.AFTER, partial(guard.after, call, outcome, seen))
        if not decided.passed:
            remarks.append(f"The call was made, and the guard {guard.name} did not pass: {decided.reason}")
    return remarks


async def _decide(
    calls: StepCalls, guard: Guard, moment: GuardMoment, ask: Callable[[], Awaitable[GuardDecision]]
) -> GuardDecision:
    """Return the journaled decision that comes next, or the guard's, journaled."""
    place = calls.decided[moment]
    calls.decided[moment] += 1
    past = [
        each
        for each in (calls.record.tools if calls.record else ())
        if isinstance(each, GuardDecided) and each.call == calls.call and each.moment is moment
    ]
    if place < len(past):
        return GuardDecision(past[place].passed, past[place].reason, past[place].failure)
    decision = await _ask_guard(calls, ask)
    context = calls.context
    context.recorder.add(
        GuardDecided(
            run=context.run,
            at=time(),
            round=calls.round,
            step=calls.step or 0,
            call=calls.call,
            tool=calls.tool,
            guard=context.clean(guard.name),
            moment=moment,
            passed=decision.passed,
            reason=decision.reason,
            failure=decision.failure,
        )
    )
    return decision


async def _ask_guard(calls: StepCalls, ask: Callable[[], Awaitable[GuardDecision]]) -> GuardDecision:
    """Return what the guard says; whatever it raises is a no, but where a probe waits for a person (WorkerError)."""
    context = calls.context
    try:
        given = await ask()
        return GuardDecision(given.passed is True, context.clean(given.reason), context.clean(given.failure))
    except WorkerError as error:
        if error.fault.kind is FaultKind.WAITING:
            raise
        return GuardDecision(passed=False, reason=f"the guard could not look: {error.fault}")
    except JournalError:
        raise
    except asyncio.CancelledError:
        if context.cancelled():
            raise
        return GuardDecision(passed=False, reason="the guard cancelled itself")
    except PROCESS_STOPS:
        raise
    except BaseException as error:  # noqa: BLE001 - a guard is anyone's code, and what breaks must let nothing pass
        return GuardDecision(passed=False, reason=context.clean(f"the guard broke: {describe_error(error)}"))
