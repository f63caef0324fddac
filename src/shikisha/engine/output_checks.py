"""Handoff checks: what must hold of a step's output before anyone downstream sees it.

Invariant: a verdict is journaled before it leads to anything, and a verdict in the journal stands: a resumed run looks
again only to take the check's own calls from the journal too, in their order. The first check that does not pass
decides what happens (`OnFail`); a check that itself fails (its worker is down, its predicate breaks) has not passed,
but one that waits for a person, or that a cap refuses, has no verdict at all. Deliberately absent: the checks
themselves (`checks/*`; the client's schema alone is ours) and what follows (`step`).
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from time import time

from shikisha.core.errors import PROCESS_STOPS, ConfigError, FaultKind, JournalError, WorkerError, describe_error
from shikisha.core.events import CallRole, CheckDecided, CheckStatus, OnCheckFailure
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.json_schema import Schema, SchemaCheck, parse_json, read_document, storable_reason
from shikisha.core.messages import Json
from shikisha.core.run import CheckVerdict
from shikisha.engine.attempt import CallPurpose, call_worker
from shikisha.engine.pool import Inspection, Member, OutputCheck
from shikisha.engine.run_context import StepCalls
from shikisha.engine.worker import Request


@dataclass(frozen=True, slots=True)
class CheckResults:
    """All verdicts on an answer, and the handoff that stands in its way, if one does."""

    verdicts: tuple[CheckVerdict, ...]
    failed: OutputCheck | None = None


async def run_output_checks(calls: StepCalls, member: Member, request: Request, text: str) -> CheckResults:
    """Put the answer of the step's last attempt through the member's checks, in order, up to one that stops it.

    WorkerError when a check waits for a person (WAITING) or may not call the worker that it asks (CAP).
    """
    attempt = calls.last
    verdicts: list[CheckVerdict] = []
    for place, handoff in enumerate((*_schema_checks(member, request), *member.handoffs)):
        ask = partial(_ask_worker, calls, member, request)
        verdict = await _verdict(calls, handoff, Inspection(request.task, request.subtask, text, ask))
        journaled = _journaled_verdict(calls, attempt, place)
        if journaled is None:
            calls.context.recorder.add(_check_decided(calls, attempt, verdict, handoff.on_fail))
        verdict = journaled or verdict
        verdicts.append(verdict)
        if not verdict.passed and handoff.on_fail is not OnCheckFailure.PASS:
            return CheckResults(tuple(verdicts), handoff)
    return CheckResults(tuple(verdicts))


@dataclass(frozen=True, slots=True)
class AnswerSchema:
    """The check that an answer is what was asked for: JSON that fits its schema, as a program reads it.

    `fenced`: the one fenced block of an answer may be the document.
    """

    schema: Mapping[str, Json]
    name: str = "answer_schema"
    fenced: bool = False

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Parse the whole answer and validate it; the reason names the place in it.

        A journal may hold a schema that no longer is taken: nothing passes by it, and nothing breaks on it.
        """
        try:
            document = read_document(inspection.text) if self.fenced else parse_json(inspection.text)
        except (ValueError, RecursionError) as error:
            why = f"it is no JSON document ({error}); write the document alone, without a fence or a word around it"
            return CheckVerdict(self.name, CheckStatus.FAIL, storable_reason(why))
        try:
            check = await SchemaCheck.create(self.schema, self.name)
            problem = await check.problem(document)
        except ConfigError as error:
            problem = storable_reason(str(error))
        except TimeoutError as error:
            problem = f"whether it fits the schema is {error}"
        return CheckVerdict(self.name, CheckStatus.PASS if problem is None else CheckStatus.FAIL, problem or "")


def _schema_checks(member: Member, request: Request) -> tuple[OutputCheck, ...]:
    """Return the check that the request's schema asks for: its worker is asked once more, and then it has failed.

    What a later step reads may stand in a fence, as models like to write it; what the client reads may not.
    """
    if request.schema is None:
        return ()
    check = AnswerSchema(request.schema, fenced=request.schema is member.schema)
    return (OutputCheck(check, OnCheckFailure.REDO, redo=1),)


def _journaled_verdict(calls: StepCalls, attempt: int, place: int) -> CheckVerdict | None:
    """Return the journaled verdict of the check in this place; checks may share a name, but not a place."""
    past = [check for check in calls.record.checks if check.attempt == attempt] if calls.record else []
    if place >= len(past):
        return None
    return CheckVerdict(past[place].check, past[place].status, past[place].reason)


async def _verdict(calls: StepCalls, handoff: OutputCheck, inspection: Inspection) -> CheckVerdict:
    context, name = calls.context, handoff.check.name
    try:
        given = await handoff.check.inspect(inspection)
        verdict = CheckVerdict(context.clean(given.check), CheckStatus(given.status), context.clean(given.reason))
    except WorkerError as error:
        if error.fault.kind is FaultKind.CAP:
            raise
        verdict = CheckVerdict(name, CheckStatus.FAIL, f"the check gave no verdict: {error.fault}")
    except JournalError:
        raise
    except asyncio.CancelledError:
        if context.cancelled():
            raise
        verdict = CheckVerdict(name, CheckStatus.FAIL, "the check cancelled itself")
    except PROCESS_STOPS:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever nobody foresaw is what is looked for
        why = context.clean(f"the check broke: {describe_error(error)}")
        verdict = CheckVerdict(name, CheckStatus.FAIL, why)
    if calls.waiting is not None:
        raise WorkerError.of(calls.waiting)
    return verdict


async def _ask_worker(
    calls: StepCalls, answered: Member, request: Request, worker: str, question: str, schema: Schema | None = None
) -> str:
    """Put a check's question to a worker of the pool, inside the run's budget and journal."""
    member = calls.context.pool.named(worker)
    labels = request.labels.union(answered.card.adds)  # the answer that is judged bears them
    asked = Request(request.task, question, schema=schema if member.card.schemas else None, labels=labels)
    reply = await call_worker(calls, member, asked, CallPurpose(CallRole.CHECK))
    return reply.text


def _check_decided(calls: StepCalls, attempt: int, verdict: CheckVerdict, on_fail: OnCheckFailure) -> CheckDecided:
    return CheckDecided(
        run=calls.context.run,
        at=time(),
        round=calls.round,
        step=calls.step or 0,
        attempt=attempt,
        check=verdict.check,
        status=verdict.status,
        reason=verdict.reason,
        leads_to=None if verdict.passed else on_fail,
    )
