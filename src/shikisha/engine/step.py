"""One step of a plan: the worker that the plan names, and who stands in when that is not enough.

Invariant 9: every substitution is an attempt of its own that says why it is made and instead of whom. After a fault
the worker's `fallback` is asked, then its `escalate`; after a failed check the same worker is told why and asked again,
or its `escalate` is asked, or the run stops, as the check is configured. No worker is asked twice in one of these
roles. Invariant 6: whatever happens, a step ends in a recorded Result. Deliberately absent: retries (`attempt`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import time

from shikisha.core.call import NO_CLIENT_OPTIONS
from shikisha.core.errors import Fault, FaultKind, WorkerError
from shikisha.core.events import AttemptReason, OnCheckFailure, StepFinished
from shikisha.core.run import Result
from shikisha.engine.attempt import CallPurpose, call_worker, record_agreed_answer
from shikisha.engine.output_checks import CheckResults, run_output_checks
from shikisha.engine.pool import Member
from shikisha.engine.run_context import StepCalls
from shikisha.engine.worker import GrantedStep, Reply, Request

_FINAL_FAULTS = frozenset({FaultKind.CAP, FaultKind.DENIED, FaultKind.WAITING})  # no stand-in may get round these


@dataclass(frozen=True, slots=True)
class StepEnd:
    """A step's result, the attempt it came from, and whether a check wants the run to stop."""

    result: Result
    attempt: int | None = None
    stops_run: bool = False

    @property
    def waits(self) -> bool:
        """Whether the step waits for a person and therefore has not ended."""
        return self.result.fault is not None and self.result.fault.kind is FaultKind.WAITING


@dataclass(slots=True)
class _StepProgress:
    """Where a step stands on its way from worker to worker."""

    member: Member
    request: Request
    reason: AttemptReason = AttemptReason.FIRST
    instead_of: str | None = None
    redone: int = 0
    joins: bool = False
    asked: set[str] = field(default_factory=set)

    def hand_over(self, track: StepCalls, to: Member, reason: AttemptReason) -> None:
        """Go on with another worker, who is told what was remarked on the answers and what the client's tools said.

        Both may repeat what the worker so far has said, so they bear its labels.
        """
        said = self.member.card
        if said.adds and (self.request.remarks or track.exchanges):
            self.request = replace(self.request, labels=self.request.labels.union(said.adds))
        self.instead_of = said.name
        self.member, self.reason, self.redone = to, reason, 0


async def perform_step(track: StepCalls, member: Member, request: Request, *, joins: bool = False) -> StepEnd:
    """Perform a step to its end, or to the point where it waits for a person.

    `joins`: it only brings together what it is granted; where that is the same all over, its worker is not called, and
    where a cap refuses the call, what most of it says is the answer.
    """
    course = _StepProgress(
        member, request, joins=joins and request.schema is None and request.wishes == NO_CLIENT_OPTIONS
    )
    while True:
        course.asked.add(course.member.card.name)
        if track.exchanges:  # whoever goes on knows what the client's tools came to: they are not called again
            wishes = replace(course.request.wishes, tool_choice=track.tool_choice)
            course.request = replace(course.request, exchanges=track.exchanges, wishes=wishes)
        try:
            reply = await _reply(track, course)
        except WorkerError as error:
            if error.fault.kind in _FINAL_FAULTS or not _substitute(track, course):
                return _failed_step(track, course, error.fault)
            continue
        attempt = track.count - 1
        try:
            inspected = await run_output_checks(track, course.member, course.request, reply.text)
        except WorkerError as error:  # a person is to judge, or a cap refuses the check: nobody knows whether it holds
            return _failed_step(track, course, error.fault)
        if inspected.failed is None:
            card, labels = course.member.card, course.request.labels.union(course.member.card.adds)
            return StepEnd(Result(card.name, reply.text, None, inspected.verdicts, reply.usage, labels), attempt)
        if not _after_check(track, course, inspected):
            stops = inspected.failed.on_fail is OnCheckFailure.STOP
            return StepEnd(_failed_check_result(course, inspected), attempt, stops)


async def _reply(track: StepCalls, course: _StepProgress) -> Reply:
    """Return the worker's answer, or what it was to bring together where that needs no call or gets none."""
    member, request = course.member, course.request
    shared = _majority_answer(request.granted) if course.joins else None
    if shared is not None and shared[1] == len(request.granted):
        return await record_agreed_answer(track, member, request, shared[0])
    try:
        return await call_worker(
            track, member, request, CallPurpose(reason=course.reason, instead_of=course.instead_of)
        )
    except WorkerError as error:
        if error.fault.kind is not FaultKind.CAP or shared is None or 2 * shared[1] <= len(request.granted):
            raise
        return await record_agreed_answer(track, member, request, shared[0])


def _majority_answer(granted: Sequence[GrantedStep]) -> tuple[str, int] | None:
    """Return the answer that most of several steps gave, but for case and space, and how many did; None without any."""
    texts: dict[str, str] = {}
    votes: Counter[str] = Counter()
    for earlier in granted:
        if earlier.text is not None:
            same = " ".join(earlier.text.casefold().split())
            texts.setdefault(same, earlier.text)
            votes[same] += 1
    if len(granted) < 2 or not votes:
        return None
    ((most, count),) = votes.most_common(1)
    return texts[most], count


def _failed_step(track: StepCalls, course: _StepProgress, fault: Fault) -> StepEnd:
    """End with a fault, as a resumed run would read it from the journal: evidence stays with the attempt."""
    fault, card, labels = Fault(fault.kind, fault.message), course.member.card, course.request.labels
    if track.count:  # a fault may quote what was answered
        labels = labels.union(card.adds)
    return StepEnd(Result(card.name, None, fault, labels=labels))


def _substitute(track: StepCalls, course: _StepProgress) -> bool:
    """Turn to the fallback, then to the dearer worker; False when neither is left."""
    card = course.member.card
    for name, reason in ((card.fallback, AttemptReason.FALLBACK), (card.escalate, AttemptReason.ESCALATION)):
        if name is not None and name not in course.asked:
            course.hand_over(track, track.scope.pool.named(name), reason)
            return True
    return False


def _after_check(track: StepCalls, course: _StepProgress, inspected: CheckResults) -> bool:
    """Redo or escalate as the failed check says; False when the answer stays refused."""
    failed = inspected.failed
    if failed is None or failed.on_fail is OnCheckFailure.STOP:
        return False
    if failed.on_fail is OnCheckFailure.REDO and course.redone < failed.redo:
        course.redone += 1
        course.reason = AttemptReason.REDO
        remarks = (*course.request.remarks, inspected.verdicts[-1].reason or inspected.verdicts[-1].check)
        course.request = replace(course.request, remarks=remarks)
        return True
    escalate = course.member.card.escalate
    if escalate is None or escalate in course.asked:
        return False
    course.hand_over(track, track.scope.pool.named(escalate), AttemptReason.ESCALATION)
    return True


def _failed_check_result(course: _StepProgress, inspected: CheckResults) -> Result:
    verdict = inspected.verdicts[-1]
    fault = Fault(FaultKind.CHECK_FAILED, f"{verdict.check}: {verdict.reason}")
    labels = course.request.labels.union(course.member.card.adds)  # a reason may quote the answer
    return Result(course.member.card.name, None, fault, inspected.verdicts, labels=labels)


def step_finished(track: StepCalls, performed: StepEnd) -> StepFinished:
    """Return the event that records a step's result."""
    fault = performed.result.fault
    return StepFinished(
        run=track.scope.run,
        at=time(),
        round=track.round,
        step=track.step or 0,
        worker=performed.result.worker,
        attempt=performed.attempt,
        fault=fault.kind if fault else None,
        message=fault.message if fault else "",
        labels=tuple(sorted(performed.result.labels)),
    )
