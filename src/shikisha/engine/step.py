"""One step of a plan: the worker that the plan names, and which worker stands in when that is not enough.

Invariant 9: every substitution is an attempt of its own that says why it is made and instead of which worker. After a
fault the worker's `fallback` is called, then its `escalate`. After a failed check the same worker is told why and
called again, or its `escalate` is called, or the run stops, as the check is configured. No worker is called twice in
one of these roles. Invariant 6: whatever happens, a step ends in a recorded Result. Deliberately absent: retries
(`attempt`).
"""

from collections import Counter
from collections.abc import Sequence

from shikisha.core.call import NO_CLIENT_OPTIONS, Card
from shikisha.core.errors import Fault, FaultCause, FaultKind, WorkerError
from shikisha.core.events import AttemptReason, OnCheckFailure
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.run import Result, StepRecord
from shikisha.engine.agent_loop import call_agent
from shikisha.engine.attempt import CallPurpose, call_worker, record_agreed_answer
from shikisha.engine.output_checks import CheckResults, run_output_checks
from shikisha.engine.pool import Member
from shikisha.engine.run_context import StepCalls
from shikisha.engine.worker import GrantedStep, Reply, Request

RUN_STOPPED = "a check stopped the run"
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


def journaled_end(record: StepRecord | None) -> StepEnd | None:
    """Return how a step ended by the journal; None where it has not."""
    if record is None or record.finished is None or record.result is None:
        return None
    attempt = record.finished.attempt
    stops = any(each.attempt == attempt and each.leads_to is OnCheckFailure.STOP for each in record.checks)
    return StepEnd(record.result, attempt, stops or any(_stopped_run(item) for item in record.items or ()))


def _stopped_run(record: StepRecord) -> bool:
    end = journaled_end(record)
    return end is not None and end.stops_run


@dataclass(slots=True)
class _StepProgress:
    """Where a step stands on its way from worker to worker."""

    member: Member
    request: Request
    reason: AttemptReason = AttemptReason.FIRST
    instead_of: str | None = None
    redone: int = 0
    joins: bool = False
    called: set[str] = field(default_factory=set)
    routed: bool = False  # whether the turn is routed that is about to be made
    before: str | None = None  # who made the turn before, where this one is another's

    def hand_over(self, calls: StepCalls, to: Member, reason: AttemptReason) -> None:
        """Go on with another worker, which sees the remarks on earlier answers and what the client's tools returned.

        Both may repeat what the worker so far has answered, so they bear its labels.
        """
        card = self.member.card
        if card.adds and (self.request.remarks or calls.exchanges):
            self.request = replace(self.request, labels=self.request.labels.union(card.adds))
        self.instead_of = card.name
        self.member, self.reason, self.redone = to, reason, 0


async def perform_step(calls: StepCalls, member: Member, request: Request, *, joins: bool = False) -> StepEnd:
    """Perform a step to its end, or to the point where it waits for a person.

    `joins`: the step only brings together the answers that it is granted. Where these all agree, its worker is not
    called; where a cap refuses the call, the majority's answer is the step's.
    """
    progress = _StepProgress(
        member, request, joins=joins and request.schema is None and request.client_options == NO_CLIENT_OPTIONS
    )
    while True:
        if calls.exchanges:  # a stand-in sees what the client's tools returned: they are not called again
            client_options = replace(progress.request.client_options, tool_choice=calls.tool_choice)
            progress.request = replace(progress.request, exchanges=calls.exchanges, client_options=client_options)
        try:
            reply: Reply | None  # None: a further turn is to follow
            if _is_routed(calls, progress.member, progress.request):
                reply = await _routed_reply(calls, progress)
            else:
                progress.called.add(progress.member.card.name)
                reply = await _reply(calls, progress)
            progress.request = _with_labels(calls, progress.request)
            if reply is None:
                continue
        except WorkerError as error:
            progress.request = _with_labels(calls, progress.request)
            if error.fault.kind in _FINAL_FAULTS or not _substitute(calls, progress, error.fault):
                return _failed_step(calls, progress, error.fault)
            continue
        attempt = calls.last
        try:
            checked = await run_output_checks(calls, progress.member, progress.request, reply.text)
        except WorkerError as error:  # the check waits for a person, or a cap refuses it: it has no verdict
            return _failed_step(calls, progress, error.fault)
        if checked.failed is None:
            card, labels = progress.member.card, progress.request.labels.union(progress.member.card.adds)
            return StepEnd(Result(card.name, reply.text, None, checked.verdicts, reply.usage, labels), attempt)
        if not _after_check(calls, progress, checked):
            stops = checked.failed.on_fail is OnCheckFailure.STOP
            return StepEnd(_failed_check_result(progress, checked), attempt, stops)


def _is_routed(calls: StepCalls, member: Member, request: Request) -> bool:
    """Whether a router may choose who makes the turns of this step: its worker gets the client's task and tools."""
    if calls.context.turn_router is None and not (calls.record is not None and calls.record.is_routed):
        return False
    able = member.agent is None and member.card.tools
    return able and bool(request.client_options.tools) and request.own_words


async def _routed_reply(calls: StepCalls, progress: _StepProgress) -> Reply | None:
    """Return the answer of whoever makes the step's turns; None where a further turn is to follow."""
    from shikisha.engine.turns import RoutedTurn, make_turn, route_turn  # what most steps do without

    turn = RoutedTurn(progress.member)  # a stand-in's
    if not progress.routed:
        turn = route_turn(calls, progress.member, progress.request)
        before, progress.before = progress.member.card.name, None
        if turn.member.card.name != before:
            progress.hand_over(calls, turn.member, progress.reason)
            progress.before = before
            progress.called.clear()
        progress.routed = True
    progress.called.add(progress.member.card.name)
    why = CallPurpose(reason=progress.reason, instead_of=progress.instead_of)
    member, reply = await make_turn(calls, turn, progress.request, why)
    if member is not progress.member:
        progress.hand_over(calls, member, progress.reason)
    if reply is None:
        progress.routed, progress.reason, progress.instead_of = False, AttemptReason.TOOLS, None
        progress.called.clear()
    return reply


async def _reply(calls: StepCalls, progress: _StepProgress) -> Reply:
    """Return the worker's answer, or the agreed one where that needs no call or gets none."""
    member, request = progress.member, progress.request
    majority = _majority_answer(request.granted) if progress.joins else None
    if majority is not None and majority[1] == len(request.granted):
        return await record_agreed_answer(calls, member, request, majority[0])
    why = CallPurpose(reason=progress.reason, instead_of=progress.instead_of)
    try:
        return await (call_worker if member.agent is None else call_agent)(calls, member, request, why)
    except WorkerError as error:
        if error.fault.kind is not FaultKind.CAP or majority is None or 2 * majority[1] <= len(request.granted):
            raise
        return await record_agreed_answer(calls, member, request, majority[0])


def _with_labels(calls: StepCalls, request: Request) -> Request:
    """Return the request with the labels of what its worker was shown by tools."""
    return replace(request, labels=request.labels.union(calls.labels)) if calls.labels else request


def _majority_answer(granted: Sequence[GrantedStep]) -> tuple[str, int] | None:
    """Return the most frequent answer of several steps, apart from case and space, and its count; None without any."""
    texts: dict[str, str] = {}
    votes: Counter[str] = Counter()
    for step in granted:
        if step.text is not None:
            same = " ".join(step.text.casefold().split())
            texts.setdefault(same, step.text)
            votes[same] += 1
    if len(granted) < 2 or not votes:
        return None
    ((most, count),) = votes.most_common(1)
    return texts[most], count


def _failed_step(calls: StepCalls, progress: _StepProgress, fault: Fault) -> StepEnd:
    """End with a fault, as a resumed run would read it from the journal: evidence stays with the attempt."""
    fault, card, labels = Fault(fault.kind, fault.message), progress.member.card, progress.request.labels
    if calls.count:  # a fault may quote what was answered
        labels = labels.union(card.adds)
    return StepEnd(Result(card.name, None, fault, labels=labels))


def _substitute(calls: StepCalls, progress: _StepProgress, fault: Fault) -> bool:
    """Turn to the fallback, then to the escalation; False when neither is left.

    What is too long for one window goes to a longer one, past stand-ins whose window is known to be no longer.
    """
    card = progress.member.card
    waiting = [(card.fallback, AttemptReason.FALLBACK), (card.escalate, AttemptReason.ESCALATION)]
    waiting[:0] = [(progress.before, AttemptReason.FALLBACK)]  # whoever had the conversation before it was handed over
    for name, reason in waiting:
        if name is None or name in progress.called:
            continue
        other = calls.context.pool.named(name)
        if fault.cause is FaultCause.TOO_LONG and not _reads_more(other.card, card):
            progress.called.add(name)
            waiting += [(other.card.fallback, reason), (other.card.escalate, AttemptReason.ESCALATION)]
            continue
        progress.hand_over(calls, other, reason)
        return True
    return False


def _reads_more(card: Card, than: Card) -> bool:
    """Whether a window is, or may be, longer than another."""
    return card.context_tokens is None or than.context_tokens is None or card.context_tokens > than.context_tokens


def _after_check(calls: StepCalls, progress: _StepProgress, checked: CheckResults) -> bool:
    """Redo or escalate as the failed check is configured; False when the answer stays refused."""
    failed = checked.failed
    if failed is None or failed.on_fail is OnCheckFailure.STOP:
        return False
    if failed.on_fail is OnCheckFailure.REDO and progress.redone < failed.redo:
        progress.redone += 1
        progress.reason = AttemptReason.REDO
        remarks = (*progress.request.remarks, checked.verdicts[-1].reason or checked.verdicts[-1].check)
        progress.request = replace(progress.request, remarks=remarks)
        return True
    escalate = progress.member.card.escalate
    if escalate is None or escalate in progress.called:
        return False
    progress.hand_over(calls, calls.context.pool.named(escalate), AttemptReason.ESCALATION)
    return True


def _failed_check_result(progress: _StepProgress, checked: CheckResults) -> Result:
    verdict = checked.verdicts[-1]
    fault = Fault(FaultKind.CHECK_FAILED, f"{verdict.check}: {verdict.reason}")
    labels = progress.request.labels.union(progress.member.card.adds)  # a reason may quote the answer
    return Result(progress.member.card.name, None, fault, checked.verdicts, labels=labels)
