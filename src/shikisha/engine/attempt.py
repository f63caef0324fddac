"""One call to a worker, made as often as it takes: reserve, journal, wait for a place, call, settle, journal.

The one place that retries, and the one boundary where whatever a worker does becomes a Reply or a Fault. Invariants:
the budget is reserved and the start journaled before a call is made (3, 4). A call whose outcome is in the journal is
never made again; one that was in flight when the process died counts as uncertain, and is repeated under the same key
(4). A definite failure costs nothing; a cost that is unknown counts against caps without being a cost (3). No attempt
runs past its worker's timeout. Whatever comes back is scrubbed of secrets (8), and nothing that an adapter returns or
raises can lower the bill or claim what only the engine can (5). Retries back off exponentially with jitter, or as long
as the worker asked within limits; no retry library fits, since a resumed run continues at the very retry where it
stopped. Deliberately absent: stand-ins (see `step`) and opinions on the answer (`output_checks`).
"""

import asyncio
import json
from hashlib import sha256
from math import isnan
from time import perf_counter, time

from shikisha.core.budget import ZERO, Amount, Usage, byte_length, token_counts
from shikisha.core.errors import (
    PROCESS_STOPS,
    CapReached,
    Fault,
    FaultCause,
    FaultKind,
    JournalError,
    WorkerError,
    describe_error,
)
from shikisha.core.events import (
    EFFECT_ROLES,
    AttemptFailed,
    AttemptFinished,
    AttemptReason,
    AttemptStarted,
    CallRole,
    FinishReason,
    QuestionKind,
)
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.json_schema import read_document
from shikisha.core.messages import (
    MAX_ENVELOPE_BYTES,
    REQUIRED_TOOL,
    ToolCall,
    ToolExchange,
    dump_json,
    dump_records,
    load_tool_calls,
    load_tool_results,
    tool_call_problem,
    tool_choice_problem,
    tool_name,
)
from shikisha.core.run import Attempt
from shikisha.core.task import storage_problem
from shikisha.core.visibility import (
    FINAL_ANSWER,
    adapt_request,
    check_clearance,
    output_limit,
)
from shikisha.engine.pool import Member
from shikisha.engine.questions import ask_about_call, refusal_text, require_approval
from shikisha.engine.run_context import AttemptHandle, RunContext, StepCalls
from shikisha.engine.worker import Card, Reply, Request

_MAX_MESSAGE = 2_000  # characters of a fault: an endpoint's error page would fill the journal
_MAX_EXCHANGES = 32  # with the client's tools, in one step: more is a loop
_MAX_MODEL_NAME = 200
_MAX_NOTE, _MAX_NOTES = 300, 20
_MAX_PARAM = 100
_FORCED_NOTE = "it takes no tools: its calls were asked for as JSON"
_MAX_RETRY_AFTER = 1e9  # seconds; JSON has no infinity
_MAX_AMOUNT = 10**15  # tokens, or dollars: what is more is nonsense, and sums of it would be no numbers any more
_STEP_OVER = "the step that this call was for has ended"
_REPEATED_FAULTS = (FaultKind.UNCERTAIN, FaultKind.CANCELLED)  # in flight at a kill or an interrupt
_ENGINE_FAULTS = frozenset(
    {
        *_REPEATED_FAULTS,
        FaultKind.DENIED,
        FaultKind.NOT_CLEARED,
        FaultKind.BLOCKED,
        FaultKind.CHECK_FAILED,
        FaultKind.NO_PLAN,
        FaultKind.UNREADABLE,
    }
)  # what only a journal, a person, a check or the engine can say


@dataclass(frozen=True, slots=True)
class CallPurpose:
    """What a call is for, and why with this worker."""

    role: CallRole = CallRole.STEP
    reason: AttemptReason = AttemptReason.FIRST
    instead_of: str | None = None


async def call_worker(calls: StepCalls, member: Member, request: Request, why: CallPurpose) -> Reply:
    """Return the worker's reply, after as many attempts as its card allows; WorkerError with the last fault.

    The calls of a step are made one after another, so that each is found again where it was, under its own key.
    """
    async with calls.lock:
        whole = request  # what the call that follows a forced one is asked with
        try:
            while True:
                reply = await call_with_retries(calls, member, await prepare_call(calls, member, whole, why), why)
                if not reply.calls:
                    return reply
                exchange, choice = await exchange_with_client(calls, member, adapt_request(member.card, whole), reply)
                client_options = replace(
                    whole.client_options, tool_choice=choice
                )  # what the client asks for with its results
                whole = replace(whole, exchanges=(*whole.exchanges, exchange), client_options=client_options)
                why = replace(why, reason=AttemptReason.TOOLS)
                calls.exchanges, calls.tool_choice = whole.exchanges, choice
        except WorkerError as error:
            calls.note_waiting(error)
            raise


async def prepare_call(calls: StepCalls, member: Member, request: Request, why: CallPurpose) -> Request:
    """Return the request as this worker gets it, cleared and approved; the caller has the step's lock."""
    if calls.over:
        raise WorkerError(FaultKind.INTERNAL, _STEP_OVER)
    check_clearance(member.card, request.labels.union(request.task.labels), calls.context.guarded_labels)
    request = adapt_request(member.card, request)
    if why.role is not CallRole.UNDO:  # whoever orders a rollback has approved its calls
        await require_approval(calls, member, request)
    return request


async def record_agreed_answer(calls: StepCalls, member: Member, request: Request, text: str) -> Reply:
    """Return the text as this worker's answer, without a call: it is journaled as an attempt that used nothing."""
    async with calls.lock:
        if calls.over:
            raise WorkerError(FaultKind.INTERNAL, _STEP_OVER)
        return await _record_answer(calls, member, request, text, CallPurpose(reason=AttemptReason.AGREED))


async def exchange_with_client(
    calls: StepCalls, member: Member, request: Request, reply: Reply
) -> tuple[ToolExchange, str]:
    """Let the client call its tools, and return what came of it and its tool choice for the call that follows.

    The results are data and change no rule.
    """
    if len(request.exchanges) - len(request.task.exchanges) >= _MAX_EXCHANGES:
        why = f"{member.card.name} wants tools again after {_MAX_EXCHANGES} exchanges with the client in one step"
        raise WorkerError(FaultKind.CAP, why)
    asked = replace(request, exchanges=(*request.exchanges, ToolExchange(reply.calls, (), reply.text, reply.envelope)))
    decision = await ask_about_call(calls, member, asked, QuestionKind.TOOLS, dump_records(reply.calls))
    if not decision.approved:
        raise WorkerError(FaultKind.DENIED, f"the client's tools: {refusal_text(decision)}")
    try:
        results = load_tool_results(decision.text, reply.calls)
        return ToolExchange(reply.calls, results, reply.text, reply.envelope), decision.tool_choice
    except ValueError as error:
        raise WorkerError(FaultKind.BAD_REQUEST, str(error)) from None


async def call_with_retries(calls: StepCalls, member: Member, request: Request, why: CallPurpose) -> Reply:
    """Return the reply after as many attempts as the card allows, each made or taken from the journal."""
    reason, tries, same_key = why.reason, 0, False
    while True:
        key, journaled = calls.key(same=same_key), calls.journaled()
        if journaled is not None:
            outcome = _replay_attempt(calls, journaled, member.card)
        else:
            outcome = await _make_attempt(calls, member, request, CallPurpose(why.role, reason, why.instead_of), key)
        if isinstance(outcome, Reply):
            return outcome
        if not (calls.repeatable or outcome.kind.free):  # it may have had its effect: nobody makes it a second time
            raise WorkerError.of(outcome)
        same_key = outcome.kind.ambiguous or outcome.kind in _REPEATED_FAULTS
        if outcome.kind is FaultKind.WAITING and member.card.kind != "conductor":
            # Let a person answer in the worker's place; the answer is journaled as an attempt of its own.
            prompt = outcome.message
            decision = await ask_about_call(calls, member, request, QuestionKind.ANSWER, prompt or request.subtask)
            if not decision.approved:
                raise WorkerError(FaultKind.DENIED, f"{decision.actor} declined to answer")
            return await _record_answer(
                calls, member, request, decision.text, replace(why, reason=AttemptReason.RESUME)
            )
        if outcome.kind in _REPEATED_FAULTS or (outcome.kind is FaultKind.WAITING and journaled is not None):
            same_key, reason = True, AttemptReason.RESUME  # a child run that waited goes on as the same run
            continue
        tries += 1
        if not outcome.kind.retryable or tries >= member.card.attempts:
            raise WorkerError.of(outcome)
        await _pause(calls, outcome, tries - 1)
        reason = AttemptReason.RETRY


async def _pause(calls: StepCalls, fault: Fault, retry: int) -> None:
    """Wait before a retry; WorkerError with the fault where there is to be none."""
    journaled = calls.journaled()
    if journaled is not None:  # what came next is decided: another attempt, or turning to another worker
        if journaled.started.reason is AttemptReason.RETRY:
            return
        raise WorkerError.of(fault)
    pause = calls.context.retry.pause(retry, fault.retry_after)
    left = calls.context.seconds_left()
    if pause is None or (left is not None and pause >= left):
        raise WorkerError.of(fault)
    await asyncio.sleep(pause)


async def _make_attempt(
    calls: StepCalls, member: Member, request: Request, why: CallPurpose, key: str
) -> Reply | Fault:
    """Reserve what one call may use, journal its start, make it, journal its outcome, and settle what it used."""
    context, card = calls.context, member.card
    if context.cancelled():
        raise asyncio.CancelledError  # a worker that swallowed it buys no further call
    need, view = calls.shown.measure(request, card)
    if why.reason is AttemptReason.AGREED:
        need = ZERO
    async with context.turn(card):
        try:
            await context.reserve(need, card.name)
        except CapReached as refusal:
            return Fault(FaultKind.CAP, str(refusal))
        used, uncertain = ZERO, ZERO
        try:
            calls.count, calls.last = calls.count + 1, next(calls.numbers)
            started = _attempt_started(calls, member, request, why, key, view, need)
            context.recorder.add(started)
            await context.recorder.flush()
            if card.kind != "conductor":  # the calls of a child run are settled each on its own, cut short or not
                uncertain = need  # from here on the worker may have used it all
            begun = perf_counter()
            stream = context.secret_store.listener(request.on_text) if request.on_text else None
            handle = AttemptHandle(key, stream)
            launcher = context.launch_child if why.role in EFFECT_ROLES else None
            launch = launcher(context, handle) if launcher else None
            request = request.under(key, handle.emit if stream else None, launch, handle.narrow)
            try:
                outcome = await _invoke_worker(context, member, request)
            except asyncio.CancelledError:
                fault = Fault(FaultKind.CANCELLED, "cancelled while in flight")
                fault, possible = handle.heard(fault, context.clean), _smaller_bound(need, handle.bound)
                uncertain = uncertain and possible
                context.recorder.add(_attempt_failed(started, fault, (ZERO, possible), perf_counter() - begun))
                raise
            finally:
                handle.closed = True
            seconds = perf_counter() - begun
            if isinstance(outcome, Fault):
                outcome = handle.heard(outcome, context.clean)
                used, uncertain = _failed_usage(outcome, need, card)
                context.recorder.add(_attempt_failed(started, outcome, (used, uncertain), seconds))
                settled = outcome.kind is FaultKind.NO_ANSWER
            else:
                if stream:
                    stream.end()
                used, uncertain = Amount(outcome.usage.total, _dollars(outcome, card)), outcome.uncertain
                context.recorder.add(_attempt_finished(started, outcome, used, seconds))
                settled = outcome.prepaid
            if settled and handle.children:  # its child runs' calls are settled, each on its own
                used, uncertain = ZERO, ZERO
        finally:
            context.settle(need, used, uncertain)
    return outcome


def _smaller_bound(need: Amount, bound: Amount | None) -> Amount:
    """Return what a cancelled call can have used: never more than was reserved, whatever its worker says."""
    if bound is None or not (_countable(bound.tokens) and _payable(bound.dollars)):
        return need
    known = need.dollars is not None and bound.dollars is not None
    dollars = min(need.dollars or 0.0, bound.dollars or 0.0) if known else need.dollars
    return Amount(min(need.tokens, bound.tokens), dollars)


def _replay_attempt(calls: StepCalls, attempt: Attempt, card: Card) -> Reply | Fault:
    """Return what the journal says of the next attempt; one without an outcome is marked uncertain.

    JournalError when the journal has another worker's attempt in this place.
    """
    context, started = calls.context, attempt.started
    calls.adopt(attempt)
    if started.worker != card.name:
        why = f"round {calls.round}, step {calls.step}: the journal has {started.worker}, not {card.name}"
        raise JournalError(f"run {context.run} cannot be resumed: its plan is performed otherwise now ({why})")
    if attempt.outcome is None:
        fault = Fault(FaultKind.UNCERTAIN, "in flight when the process ended")
        lost = _attempt_failed(started, fault, (ZERO, started.reserved), 0.0)
        context.recorder.add(lost)
        attempt.outcome = lost
        if card.kind != "conductor":  # its child run's calls come to be here themselves
            context.shared_budget.settle(ZERO, ZERO, started.reserved)  # in the commit of the event, so once
    match attempt.outcome:
        case AttemptFinished() as end:
            asked, told = load_tool_calls(end.calls), (end.text, end.usage, end.dollars, end.finish, end.model)
            return Reply(*told, calls=asked, confidence=end.confidence, envelope=end.envelope, notes=end.notes)
        case AttemptFailed() as end:
            return Fault(end.fault, end.message, end.retry_after, end.partial, stated=end.cause, param=end.param)


async def _invoke_worker(context: RunContext, member: Member, request: Request) -> Reply | Fault:
    """Return what the worker does as a reply that can be kept and billed, or as a fault."""
    try:
        async with asyncio.timeout(member.card.total):
            reply = await member.worker.perform(request)
        return _validate_reply(context, member.card, request, reply)
    except WorkerError as error:
        return _sanitize_fault(context, error.fault)
    except TimeoutError:
        return Fault(FaultKind.TIMEOUT, f"no answer within {member.card.total:g} s")
    except asyncio.CancelledError:
        if context.cancelled():
            raise
        return Fault(FaultKind.INTERNAL, "the worker cancelled itself")
    except JournalError:
        raise  # a child run's journal is ours
    except PROCESS_STOPS:
        raise
    except BaseException as error:  # noqa: BLE001 - the one boundary: whatever an adapter raises is a recorded fault
        return _sanitize_fault(context, Fault(FaultKind.INTERNAL, describe_error(error)))


def _validate_reply(context: RunContext, card: Card, request: Request, reply: Reply) -> Reply | Fault:
    """Return the reply without secrets, or a fault where no journal can store it or no bill can count it."""
    text = context.secret_store.scrub(reply.text)
    usage, uncertain = reply.usage, reply.uncertain
    countable = all(map(_countable, (*token_counts(usage), uncertain.tokens)))
    countable = countable and usage.cacheable_tokens <= usage.input_tokens
    billable = countable and _payable(reply.dollars) and _payable(uncertain.dollars)
    if not (billable):
        # An int may have more digits than Python will print, so only what has few of them is quoted.
        dollars = repr(reply.dollars) if isinstance(reply.dollars, float) or _payable(reply.dollars) else "absurd"
        return Fault(FaultKind.BAD_USAGE, f"no bill has {reply.usage} and {dollars} dollars")
    if problem := storage_problem(text):
        why = f"the answer holds {problem}"
        return Fault(FaultKind.BAD_REPLY, why, tokens=reply.usage.total, dollars=_dollars(reply, card))
    if reply.finish is not FinishReason.STOP and not _reached_client_limit(card, request, reply):
        kind = FaultKind.TRUNCATED if reply.finish is FinishReason.LENGTH else FaultKind.REFUSED
        why = f"finish reason {reply.finish}"
        return Fault(kind, why, partial=text, tokens=reply.usage.total, dollars=_dollars(reply, card))
    answers = False
    if request.forced:
        made = _forced_calls(request, text)
        answers = bool(made) and FINAL_ANSWER in request.forced and made[0].name == tool_name(FINAL_ANSWER)
        if answers:
            said = json.loads(made[0].arguments).get("text")
            made, text = (), said if isinstance(said, str) else ""
            answers = bool(text)
        elif made:
            text = ""
        reply = replace(reply, calls=made, notes=(_FORCED_NOTE, *reply.notes))
    model = context.clean(str(reply.model))[:_MAX_MODEL_NAME] if reply.model else ""
    calls = reply.calls and tuple([ToolCall(*map(context.clean, (c.id, c.name, c.arguments))) for c in reply.calls])
    client_options, tools = request.client_options, request.forced or request.client_options.tools
    bad = calls and not client_options.lenient and tool_call_problem(calls, tools, parallel=client_options.parallel)
    if bad:
        why = context.clean(bad)
        return Fault(FaultKind.BAD_REPLY, why, partial=text, tokens=reply.usage.total, dollars=_dollars(reply, card))
    choice = "" if answers else REQUIRED_TOOL if request.forced else client_options.tool_choice
    if problem := tool_choice_problem(calls, choice):  # no second try: some endpoints ignore it
        why = context.clean(problem)
        return Fault(FaultKind.REFUSED, why, partial=text, tokens=reply.usage.total, dollars=_dollars(reply, card))
    sure = reply.confidence if isinstance(reply.confidence, float) and 0 <= reply.confidence <= 1 else None
    envelope = context.clean(reply.envelope) if reply.envelope else ""
    if len(envelope) > MAX_ENVELOPE_BYTES or byte_length(envelope) > MAX_ENVELOPE_BYTES:
        why = f"what came with the calls is larger than {MAX_ENVELOPE_BYTES:,} bytes, and has to go back with them"
        return Fault(FaultKind.TOO_LARGE, why, partial=text, tokens=reply.usage.total, dollars=_dollars(reply, card))
    notes = reply.notes and tuple([context.clean(str(note))[:_MAX_NOTE] for note in reply.notes[:_MAX_NOTES]])
    clean = {"text": text, "model": model, "calls": calls, "confidence": sure, "notes": notes}
    clean["envelope"] = envelope if calls else ""
    changed = {name: value for name, value in clean.items() if value != getattr(reply, name)}
    return replace(reply, **changed) if changed else reply  # type: ignore[arg-type]  # fields of a reply


def _forced_calls(request: Request, text: str) -> tuple[ToolCall, ...]:
    """Return the call that a worker wrote as JSON, under an id of its attempt; () where it wrote none."""
    try:
        document = read_document(text)
    except (ValueError, RecursionError):
        return ()
    if len(request.forced) == 1:
        document = {"call": {"name": tool_name(request.forced[0]), "arguments": document}}
    match document:
        case {"call": {"name": str(name), "arguments": dict(arguments)}}:
            return (ToolCall(sha256(request.key.encode()).hexdigest()[:9], name, dump_json(arguments)),)
    return ()


def _reached_client_limit(card: Card, request: Request, reply: Reply) -> bool:
    """Whether the answer ran into a limit that the client itself set: it is an answer then, as short as wished."""
    wished = None if request.forced else request.client_options.options.get("max_completion_tokens")
    return (
        reply.finish is FinishReason.LENGTH
        and wished is not None
        and wished == output_limit(card, request.client_options)
    )


def _countable(tokens: int) -> bool:
    return type(tokens) is int and 0 <= tokens <= _MAX_AMOUNT


def _payable(dollars: float | None) -> bool:
    return dollars is None or (isinstance(dollars, int | float) and 0 <= dollars <= _MAX_AMOUNT)


def _sanitize_fault(context: RunContext, fault: Fault) -> Fault:
    """Return the fault as it can be journaled and billed, whatever an adapter put into it."""
    kind = fault.kind if isinstance(fault.kind, FaultKind) and fault.kind not in _ENGINE_FAULTS else FaultKind.INTERNAL
    message = context.clean(str(fault.message or ""))
    if kind is not FaultKind.WAITING:  # there the message is a person's question
        message = context.secret_store.redact(message[: 2 * _MAX_MESSAGE])[:_MAX_MESSAGE]
    retry_after = fault.retry_after
    if retry_after is not None:
        no_number = not isinstance(retry_after, int | float) or (isinstance(retry_after, float) and isnan(retry_after))
        retry_after = None if no_number else max(-1.0, min(retry_after, _MAX_RETRY_AFTER))
    partial = None if fault.partial is None else context.clean(str(fault.partial))
    known = fault.tokens is not None and _countable(fault.tokens) and _payable(fault.dollars)
    possible = _countable(fault.uncertain_tokens) and _payable(fault.uncertain_dollars)
    used = (fault.tokens, fault.dollars) if known else (None, None)
    uncertain = (fault.uncertain_tokens, fault.uncertain_dollars) if possible else (0, 0.0)
    stated = fault.stated if isinstance(fault.stated, FaultCause) else FaultCause.UNKNOWN
    param = context.secret_store.redact(context.clean(str(fault.param or ""))[:_MAX_PARAM])
    return Fault(kind, message, retry_after, partial, *used, *uncertain, stated, param)


def _dollars(reply: Reply, card: Card) -> float | None:
    if reply.dollars is not None or card.price is None:
        return reply.dollars
    return card.price.of(reply.usage)


def _failed_usage(fault: Fault, reserved: Amount, card: Card) -> tuple[Amount, Amount]:
    """Return what a call that failed is known to have used, and what it may have used besides.

    A definite failure (refused, an error status) used nothing unless the worker says so; a tool that says it failed has
    run, and costs what a call of it costs. Otherwise nobody knows, and it may be all that was reserved.
    """
    if fault.tokens is not None and (fault.dollars is not None or card.price is None):
        return Amount(fault.tokens, fault.dollars), Amount(fault.uncertain_tokens, fault.uncertain_dollars)
    if fault.unbilled:
        return ZERO, ZERO
    if fault.kind is FaultKind.TOOL_ERROR:
        return Amount(0, None if card.price is None else card.price.of(Usage())), ZERO
    return ZERO, reserved


def _attempt_started(
    calls: StepCalls, member: Member, request: Request, why: CallPurpose, key: str, view: str, need: Amount
) -> AttemptStarted:
    return AttemptStarted(
        run=calls.context.run,
        at=time(),
        round=calls.round,
        step=calls.step,
        attempt=calls.last,
        worker=member.card.name,
        key=key,
        role=why.role,
        reason=why.reason,
        instead_of=why.instead_of,
        granted=tuple([granted.index for granted in request.granted]),
        view=view,
        reserved=need,
        call=calls.call,
        tool=calls.tool,
        arguments=calls.arguments,
    )


def _attempt_finished(started: AttemptStarted, reply: Reply, spent: Amount, seconds: float) -> AttemptFinished:
    return AttemptFinished(
        run=started.run,
        at=time(),
        round=started.round,
        step=started.step,
        attempt=started.attempt,
        worker=started.worker,
        text=reply.text,
        usage=reply.usage,
        dollars=spent.dollars,
        finish=reply.finish,
        model=reply.model,
        seconds=seconds,
        calls=dump_records(reply.calls),
        stated=reply.stated,
        uncertain=reply.uncertain,
        confidence=reply.confidence,
        envelope=reply.envelope,
        notes=reply.notes,
    )


def _attempt_failed(
    started: AttemptStarted, fault: Fault, amounts: tuple[Amount, Amount], seconds: float
) -> AttemptFailed:
    charged, uncertain = amounts
    return AttemptFailed(
        run=started.run,
        at=time(),
        round=started.round,
        step=started.step,
        attempt=started.attempt,
        worker=started.worker,
        fault=fault.kind,
        message=fault.message,
        charged=charged,
        retry_after=fault.retry_after,
        partial=fault.partial,
        seconds=seconds,
        uncertain=uncertain,
        cause=fault.stated,
        param=fault.param,
    )


async def _record_answer(calls: StepCalls, member: Member, request: Request, text: str, why: CallPurpose) -> Reply:
    """Record an answer that is there already as the worker's."""
    answered, same_key = replace(member, worker=_FixedAnswer(text)), False
    while True:
        key, journaled = calls.key(same=same_key), calls.journaled()
        if journaled is not None:
            outcome = _replay_attempt(calls, journaled, member.card)
        else:
            outcome = await _make_attempt(calls, answered, request, why, key)
        if isinstance(outcome, Reply):
            return outcome
        if outcome.kind not in _REPEATED_FAULTS:
            raise WorkerError.of(outcome)
        same_key = True  # the process ended while the answer was being recorded


@dataclass(frozen=True, slots=True)
class _FixedAnswer:
    """A worker whose answer is already there."""

    text: str

    async def perform(self, request: Request) -> Reply:  # noqa: ARG002 - the protocol's signature
        return Reply(self.text, dollars=0.0)
