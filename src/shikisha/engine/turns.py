"""Who makes the next turn of a conversation whose tools the client calls: a router proposes, within what may be.

A turn is one reply: calls for the client, or the answer. Invariants: only a worker of the pool that is cleared for all
that it would see, can be given the whole conversation and asks no person first may be proposed (1, 2); the decision is
journaled before the call, and a resumed run goes on as journaled (4); whatever a router raises or names, the turn is
made by the worker that the plan or the turn before had (6). A switch is visible: the attempt says instead of whom (9).
Deliberately absent: how a router decides (`routing.turn_router`).
"""

from collections.abc import Mapping
from time import time

from shikisha.core.call import Reply, Request
from shikisha.core.errors import PROCESS_STOPS, WorkerError, describe_error
from shikisha.core.events import AttemptReason, TurnRouted
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.messages import dump_json
from shikisha.core.visibility import adapt_request, is_cleared
from shikisha.engine.attempt import CallPurpose, call_with_retries, exchange_with_client, prepare_call
from shikisha.engine.conductor import Turn, TurnChoice
from shikisha.engine.pool import Member
from shikisha.engine.run_context import StepCalls
from shikisha.engine.worker import ApprovalMode


@dataclass(slots=True)
class RoutedTurn:
    """A turn about to be made: by whom, beside whom, and what it was decided from."""

    member: Member
    turn: Turn | None = None  # of a stand-in there is none
    second: Member | None = None
    kept: str = ""  # whose reply goes on, where the journal has it


def route_turn(calls: StepCalls, member: Member, request: Request) -> RoutedTurn:
    """Return the next turn as the journal has it, or as the router decides; the decision is journaled."""
    pool, number = calls.context.pool, len(request.exchanges) - len(request.task.exchanges)
    past = [each for each in (calls.record.tools if calls.record else ()) if isinstance(each, TurnRouted)]
    routed = next((each for each in past if each.turn == number and not each.kept), None)
    kept = next((each.worker for each in past if each.turn == number and each.kept), "")
    turn = _situation(calls, member, request, number)
    if routed is not None:
        other = pool.named(routed.second) if routed.second else None
        return RoutedTurn(pool.named(routed.worker), turn, other, kept)
    journaled, router = calls.journaled(), calls.context.turn_router
    if journaled is not None or router is None:  # made before turns were routed, or they no longer are
        return RoutedTurn(member if journaled is None else pool.named(journaled.started.worker), turn)
    allowed = {card.name for card in turn.cards}
    try:
        choice = router.choose(turn)
    except PROCESS_STOPS:
        raise
    except Exception as error:  # noqa: BLE001 - a router is a wish: the turn is made without it
        choice = TurnChoice(turn.worker, f"the router failed: {describe_error(error)}")
    if choice.worker not in allowed:
        why = turn.excluded.get(choice.worker, "it is not in the pool")
        choice = TurnChoice(turn.worker, f"{choice.worker} may not make it: {why}", choice.facts)
    second = "" if choice.second not in allowed or choice.second == choice.worker else choice.second
    _record(calls, turn, replace(choice, second=second), kept=False)
    return RoutedTurn(pool.named(choice.worker), turn, pool.named(second) if second else None)


def _situation(calls: StepCalls, member: Member, request: Request, number: int) -> Turn:
    cards, excluded = [member.card], dict[str, str]()
    for other in calls.context.pool:
        if other.card.name == member.card.name:
            continue
        if why := _why_excluded(calls, member, other, request):
            excluded[other.card.name] = why
        else:
            cards.append(other.card)
    forced = bool(request.client_options.tool_choice)
    place = (calls.context.run, number, request.task, request.exchanges, member.card.name)
    return Turn(*place, tuple(cards), forced, excluded)


def _why_excluded(calls: StepCalls, member: Member, other: Member, request: Request) -> str:
    """Say why another worker cannot take the conversation over whole; "" where it can."""
    card, context = other.card, calls.context
    labels = request.labels.union(request.task.labels, member.card.adds)
    if not card.tools or not card.passthrough or other.agent is not None:
        return "it cannot call a client's tools"
    if not is_cleared(card, labels, context.guarded_labels):
        return "it is not cleared for the data"
    if card.approval is not ApprovalMode.NEVER or context.autonomy.asks_before(card.name):
        return "a person is asked before each call of it"
    if not card.foreign_calls and any(each.calls for each in request.exchanges):
        return "its provider takes no calls within a question that another model made"
    try:
        adapt_request(card, request)
    except WorkerError as error:
        return str(error.fault.message)
    return ""


def _record(calls: StepCalls, turn: Turn, choice: TurnChoice, *, kept: bool) -> None:
    clean, context = calls.context.clean, calls.context
    other = None if choice.worker == turn.worker else turn.worker
    context.recorder.add(
        TurnRouted(
            run=context.run,
            at=time(),
            round=calls.round,
            step=calls.step or 0,
            turn=turn.number,
            worker=choice.worker,
            instead_of=other,
            second=choice.second,
            kept=kept,
            note=clean(choice.note),
            facts=clean(dump_json(choice.facts)) if choice.facts else "",
        )
    )


async def make_turn(
    calls: StepCalls, routed: RoutedTurn, request: Request, why: CallPurpose
) -> tuple[Member, Reply | None]:
    """Make a turn; return whose reply goes on, and the reply: None where the client called its tools."""
    async with calls.lock:
        try:
            member, turn = routed.member, routed.turn
            if routed.second is not None:
                request = replace(request, on_text=None)  # nothing is streamed that may not be kept
            reply = await call_with_retries(calls, member, await prepare_call(calls, member, request, why), why)
            if routed.second is not None and turn is not None:
                member, reply = await _compare(calls, routed, turn, request, reply)
            if not reply.calls:
                return member, reply
            shown = adapt_request(member.card, request)
            exchange, choice = await exchange_with_client(calls, member, shown, reply)
            calls.exchanges, calls.tool_choice = (*request.exchanges, exchange), choice
            return member, None
        except WorkerError as error:
            calls.note_waiting(error)
            raise


async def _compare(
    calls: StepCalls, routed: RoutedTurn, turn: Turn, request: Request, reply: Reply
) -> tuple[Member, Reply]:
    """Ask the second worker, and a third one where the router wants that; one that fails has no say."""
    first, pool = routed.member, calls.context.pool
    found = {first.card.name: (reply, calls.last)}

    async def ask(member: Member) -> None:
        try:
            why = CallPurpose(reason=AttemptReason.COMPARED)
            said = await call_with_retries(calls, member, await prepare_call(calls, member, request, why), why)
        except WorkerError:
            return
        found[member.card.name] = said, calls.last

    if routed.second is not None:
        await ask(routed.second)
    kept = routed.kept
    if not kept:
        choice = _settle(calls, turn, {name: said for name, (said, _) in found.items()})
        _record(calls, turn, choice, kept=True)
        kept = choice.worker
    if kept not in found:
        await ask(pool.named(kept))
    name = kept if kept in found else first.card.name
    reply, calls.last = found[name]
    return pool.named(name), reply


def _settle(calls: StepCalls, turn: Turn, replies: Mapping[str, Reply]) -> TurnChoice:
    first = next(iter(replies))
    if len(replies) < 2 or calls.context.turn_router is None:
        return TurnChoice(first, "the other gave no reply")
    try:
        choice = calls.context.turn_router.settle(turn, replies)
    except PROCESS_STOPS:
        raise
    except Exception as error:  # noqa: BLE001 - as in `route_turn`
        return TurnChoice(first, f"the router failed: {describe_error(error)}")
    known = {*replies, *(card.name for card in turn.cards)}
    return choice if choice.worker in known else TurnChoice(first, f"{choice.worker} may not make this turn")
