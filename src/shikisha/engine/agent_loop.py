"""A step whose worker is an agent: it is asked, its tools are called, and it is asked again until it needs none.

Invariants: what an agent is offered, every call, every refusal and every guard's decision is journaled before it has an
effect, and a resumed run goes on in the middle of the loop: what the journal has is not decided or called again (4). A
call is made only of a tool that was offered in this step and is still what was offered (1), with arguments that fit its
schema, with a person's yes to these very arguments where one is wanted, and inside the run's caps (3). A tool is shown
its arguments and nothing else (2). Whatever is wrong with a call is told to the agent as its result, in a form that it
can act on: it can mend the call, and it can widen nothing (5). Where nobody knows whether a write was performed, it is
not repeated, and the agent is told so. Deliberately absent: where tools come from (`tools`), what guards look for.

Guards of one call of a tool, put to work: before it is made, and after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from time import time
from typing import TypeAlias, TypeVar

from shikisha.core.call import ClientOptions
from shikisha.core.errors import (
    PROCESS_STOPS,
    CapReached,
    FaultKind,
    JournalError,
    TaskError,
    WorkerError,
    describe_error,
)
from shikisha.core.events import (
    AttemptReason,
    CallRole,
    GuardDecided,
    GuardMoment,
    QuestionKind,
    ToolRefused,
    ToolsOffered,
)
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import (
    NO_TOOL,
    Json,
    ToolCall,
    ToolExchange,
    ToolResult,
    dump_json,
    dump_records,
    load_tool_results,
    tool_name,
)
from shikisha.core.task import Task
from shikisha.core.tools import FIND_TOOLS, OfferedTool, Tool, ToolEffect, dump_offer, load_offer, refusal_content
from shikisha.core.visibility import FINAL_ANSWER, adapt_request, ask_by_schema, check_clearance, missing_clearances
from shikisha.engine.agent_window import AgentWindow, HeldText
from shikisha.engine.attempt import CallPurpose, call_with_retries
from shikisha.engine.guards import Guard, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.engine.pool import Agent, ArgumentChecks, Member, ToolSource
from shikisha.engine.questions import ask_about_call, refusal_text, require_approval, require_tool_approval
from shikisha.engine.run_context import StepCalls
from shikisha.engine.worker import Reply, Request


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


T = TypeVar("T")
_LAST_TURN = "(No tools can be called any more: answer now, with what is known.)"
_FIND_TOOLS = Tool(
    FIND_TOOLS,
    "Search for further tools. Those that fit the query best can be called from your next message on.",
    {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "what the tool should do, in a few words"}},
        "required": ["query"],
        "additionalProperties": False,
    },
)


@dataclass(slots=True)
class _AgentTurns:
    """Where an agent stands in its step: what it is offered now, and everything that it was offered."""

    calls: StepCalls
    member: Member
    agent: Agent
    request: Request
    window: AgentWindow
    offered: tuple[OfferedTool, ...] = ()
    known: dict[str, OfferedTool] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    denied: set[tuple[str, str]] = field(default_factory=set)  # what a person said no to: it is not asked again
    places: dict[str, str] = field(default_factory=dict)  # of calls in the step, by their ids
    answered: list[tuple[ToolCall, ToolResult]] = field(default_factory=list)  # of the reply whose calls are being made
    searchable: bool = False
    spent: bool = False  # no more calls: a cap refused one

    def past(self, kind: type, **where: object) -> object | None:
        """Return the journaled event of this kind with these values, if there is one."""
        found = self.calls.record.tools if self.calls.record else ()
        return next(
            (each for each in found if isinstance(each, kind) and all(getattr(each, k) == v for k, v in where.items())),
            None,
        )


async def call_agent(calls: StepCalls, member: Member, request: Request, why: CallPurpose) -> Reply:
    """Return the agent's answer, after as many calls of tools as it needs; WorkerError with the last fault."""
    agent = member.agent
    if agent is None:
        raise ValueError(f"{member.card.name} is no agent")
    async with calls.lock:
        if calls.over:
            raise WorkerError(FaultKind.INTERNAL, "the step that this call was for has ended")
        try:
            check_clearance(member.card, request.labels.union(request.task.labels), calls.context.guarded_labels)
            window = AgentWindow(member.card, agent.window)
            card = member.card  # an agent's request has tools of its own, and calls by schema where nothing else goes
            own = replace(card, passthrough=False, schemas=card.schemas and card.tools)
            turns = _AgentTurns(calls, member, agent, adapt_request(own, request), window)
            await require_approval(calls, member, request)
            await _offer_first(turns)
            return await _take_turns(turns, why)
        except WorkerError as error:
            calls.note_waiting(error)
            raise


async def _take_turns(turns: _AgentTurns, why: CallPurpose) -> Reply:
    """Ask the agent until it answers without a call."""
    calls = turns.calls
    for turn in range(turns.agent.turns):
        closing = turns.spent or turn == turns.agent.turns - 1
        request = _turn_request(turns, closing=closing)
        heard = HeldText(request.on_text, lambda: calls.last, held=not closing) if request.on_text else None
        if heard is not None:
            request = replace(request, on_text=heard.hear)
        reply = await call_with_retries(calls, turns.member, request, why)
        turns.window.learn(reply.usage)
        number, calls.replies = calls.replies, calls.replies + 1
        if not reply.calls:
            if heard is not None:
                heard.release()
            return reply
        if closing and turn == turns.agent.turns - 1:
            break
        exchange = await _perform_calls(turns, number, reply)
        calls.exchanges = (*turns.request.exchanges, exchange)
        turns.request = replace(turns.request, exchanges=calls.exchanges)
        why = replace(why, reason=AttemptReason.TOOLS)
    message = f"{turns.member.card.name} calls tools again after its {turns.agent.turns} turns"
    raise WorkerError(FaultKind.NO_ANSWER, message)


def _turn_request(turns: _AgentTurns, *, closing: bool) -> Request:
    """Return what the agent is shown in this turn: its tools and the client's, and results as far as they fit."""
    request, client = turns.request, turns.request.client_options
    functions = () if closing else tuple(each.function for each in turns.offered)
    theirs = () if closing or client.tool_choice == NO_TOOL else client.tools
    parallel = None if turns.agent.parallel else False
    client_options = ClientOptions(
        (*functions, *theirs),
        parallel if functions or theirs else None,
        client.options,
        client.tool_choice if theirs else "",
        lenient=True,
    )
    labels = request.labels.union(turns.calls.labels)
    check_clearance(turns.member.card, labels.union(request.task.labels), turns.calls.context.guarded_labels)
    request = turns.window.fit(turns.calls, request, client_options, turns.places)
    if closing and request.exchanges:
        request = replace(request, exchanges=(*request.exchanges[:-1], _with_note(request.exchanges[-1], _LAST_TURN)))
    request = replace(request, client_options=client_options, labels=labels)
    if turns.member.card.tools or not client_options.tools:
        return request
    return ask_by_schema(request, (*client_options.tools, FINAL_ANSWER))


def _with_note(exchange: ToolExchange, note: str) -> ToolExchange:
    *first, last = exchange.results
    return replace(exchange, results=(*first, replace(last, content=f"{last.content}\n\n{note}")))


# What is offered


async def _offer_first(turns: _AgentTurns) -> None:
    """Offer the tools that fit best what the agent is to do, as the journal says or as the sources find them."""
    agent, calls = turns.agent, turns.calls
    counts = [await _ask_source(source.count()) for source in agent.sources]
    turns.searchable = any(count > agent.offer for count in counts)
    past = turns.past(ToolsOffered, worker=turns.member.card.name, turn=calls.replies, call="")
    if isinstance(past, ToolsOffered):
        _take_offer(turns, load_offer(past.tools))
        return
    found, withheld = await _search(turns, turns.request.words)
    await _offer(turns, found, withheld, turns.request.words if turns.searchable else "")


async def _search(turns: _AgentTurns, query: str) -> tuple[list[OfferedTool], dict[str, str]]:
    """Return the tools of each source that fit best, under names of their own, and why others are withheld."""
    card, guarded = turns.member.card, turns.calls.context.guarded_labels
    found, withheld = [], {}
    for source in turns.agent.sources:
        for tool in await _ask_source(source.search(query, turns.agent.offer)):
            name = await _offer_name(turns, source, tool)
            member = await _ask_source(source.member(tool))
            lacking = missing_clearances(card, {*tool.labels, *member.card.adds}, guarded)
            if lacking:
                withheld[name] = f"{card.name} may not see what is labelled {', '.join(lacking)}"
                continue
            if problem := await turns.agent.checks.schema_problem(tool):  # endpoints refuse a whole request for it
                withheld[name] = turns.calls.context.clean(problem)
                continue
            shown = tool.function(name)
            found.append(OfferedTool(name, tool.name, source.name, tool.sha256, tool.effect, shown))
    return found, withheld


async def _ask_source(answer: Awaitable[T]) -> T:
    """Return what a source says; whatever it raises is a fault of the step, or of the call that it is asked for."""
    try:
        return await answer
    except (WorkerError, JournalError, asyncio.CancelledError):
        raise
    except PROCESS_STOPS:
        raise
    except BaseException as error:  # noqa: BLE001 - a source is anyone's code: what it raises ends this call only
        raise WorkerError(FaultKind.INTERNAL, f"a source of tools broke: {describe_error(error)}") from None


async def _offer_name(turns: _AgentTurns, source: ToolSource, tool: Tool) -> str:
    """Return the name under which a tool is offered: its own, unless another source or the client has it too."""
    taken = tool.name in {tool_name(each) for each in turns.request.client_options.tools}
    for other in turns.agent.sources:
        taken = taken or (other is not source and await _ask_source(other.find(tool.name)) is not None)
    if not taken:
        return tool.name
    prefix = "".join(letter if letter.isalnum() else "_" for letter in source.name.strip("@"))
    return f"{prefix}__{tool.name}"[:64]


async def _offer(
    turns: _AgentTurns, found: Sequence[OfferedTool], withheld: Mapping[str, str], query: str, call: str = ""
) -> None:
    """Journal an offer, and let it hold from the next turn on."""
    calls = turns.calls
    earlier = [each for each in turns.offered if each.name != FIND_TOOLS]
    kept = sorted(earlier, key=lambda each: each.name not in turns.used)  # those in use outlast others
    names = {each.name for each in found}
    offer = [*found, *(each for each in kept if each.name not in names)][: 2 * max(turns.agent.offer, len(found))]
    if turns.searchable:
        shown = _FIND_TOOLS.function()
        offer.append(OfferedTool(FIND_TOOLS, FIND_TOOLS, "", _FIND_TOOLS.sha256, _FIND_TOOLS.effect, shown))
    clean = calls.context.clean
    calls.context.recorder.add(
        ToolsOffered(
            run=calls.context.run,
            at=time(),
            round=calls.round,
            step=calls.step or 0,
            turn=calls.replies,
            worker=turns.member.card.name,
            tools=clean(dump_offer(offer)),
            query=clean(query),
            pins={source.name: await _ask_source(source.pin()) for source in turns.agent.sources},
            withheld=withheld,
            call=call,
            found=tuple(each.name for each in found),
        )
    )
    _take_offer(turns, tuple(offer))


def _take_offer(turns: _AgentTurns, offer: tuple[OfferedTool, ...]) -> None:
    turns.offered = offer
    turns.known.update({each.name: each for each in offer})


async def _find_tools(turns: _AgentTurns, place: str, call: ToolCall) -> ToolResult:
    """Search the sources for the agent, and offer what is found from its next turn on."""
    past = turns.past(ToolsOffered, worker=turns.member.card.name, call=place)
    if isinstance(past, ToolsOffered):
        _take_offer(turns, load_offer(past.tools))
        names = past.found
    else:
        arguments = await turns.agent.checks.read(_FIND_TOOLS, call.arguments)
        if isinstance(arguments, str):
            return await _refuse(turns, place, call, FaultKind.BAD_ARGUMENTS, arguments)
        query = str(arguments["query"])
        found, withheld = await _search(turns, query)
        await _offer(turns, found, withheld, query, place)
        names = tuple(each.name for each in found)
    listed: list[Json] = []
    for name in names:
        function = turns.known[name].function["function"]
        described = function.get("description", "") if isinstance(function, Mapping) else ""
        listed.append({"name": name, "description": described})
    return ToolResult(call.id, dump_json({"tools": listed}))


# What is called


async def _perform_calls(turns: _AgentTurns, number: int, reply: Reply) -> ToolExchange:
    """Have every call of a reply made, or refused, and return them with their results, in order.

    Calls that only read are made at once; those that may write one after another, in the order of the reply. The
    client's are asked for when all others are done.
    """
    wanted = _unique_calls(reply.calls, number, turns.places)
    places = {call.id: f"{number}.{index}" for index, call in enumerate(wanted)}
    turns.places.update(places)
    client = {tool_name(tool) for tool in turns.request.client_options.tools}
    results: dict[str, ToolResult | WorkerError] = {}
    turns.answered.clear()
    own = [call for call in wanted if call.name not in client]
    for call in own:
        if call.name == FIND_TOOLS and turns.searchable:
            results[call.id] = await _find_tools(turns, places[call.id], call)
    rest = [call for call in own if call.id not in results]

    async def perform(*some: ToolCall) -> None:
        for call in some:
            try:
                result = results[call.id] = await _perform_call(turns, places[call.id], call)
                turns.answered.append((call, result))
            except WorkerError as waits:  # nothing else is raised: a person has not answered yet
                results[call.id] = waits
                return

    if turns.agent.parallel and len(rest) > 1:
        reads = [call for call in rest if not _may_write(turns, call)]
        writes = [call for call in rest if _may_write(turns, call)]
        await _side_by_side([*(partial(perform, call) for call in reads), partial(perform, *writes)])
    else:
        await perform(*rest)
    for waits in results.values():
        if isinstance(waits, WorkerError):
            raise waits
    theirs = [call for call in wanted if call.name in client]
    results.update(await _ask_client(turns, wanted, reply.text, theirs))
    answered = [result for call in wanted if isinstance(result := results[call.id], ToolResult)]
    return ToolExchange(tuple(map(_presentable, wanted)), tuple(answered), reply.text, reply.envelope)


async def _side_by_side(jobs: Sequence[Callable[[], Coroutine[object, object, None]]]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job())
    except ExceptionGroup as several:
        journal, _ = several.split(JournalError)
        if journal is not None:  # every call met the same closed door: say it once
            raise journal.exceptions[0] from None
        raise


def _may_write(turns: _AgentTurns, call: ToolCall) -> bool:
    offered = turns.known.get(call.name)
    return offered is not None and offered.effect is not ToolEffect.READ


def _unique_calls(calls: Sequence[ToolCall], number: int, taken: Collection[str]) -> tuple[ToolCall, ...]:
    """Return the calls with ids that no call of the step has: some endpoints give one id to all, or none."""
    seen = set(taken)
    unique = []
    for index, call in enumerate(calls):
        name = call.id if call.id and call.id not in seen else f"call_{number}_{index}"
        while name in seen:
            name += "_"
        seen.add(name)
        unique.append(replace(call, id=name))
    return tuple(unique)


def _presentable(call: ToolCall) -> ToolCall:
    """Return the call as every endpoint takes it back: a name of the right letters, arguments that are an object."""
    name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in call.name)
    arguments = call.arguments
    if not isinstance(ArgumentChecks.parse(arguments), dict):
        arguments = dump_json({"not_json": arguments})
    return ToolCall(call.id, name[:64] or "unnamed", arguments)


async def _perform_call(turns: _AgentTurns, place: str, call: ToolCall) -> ToolResult:
    """Make one call, or refuse it; WorkerError (WAITING) alone is raised, where a person has to answer first."""
    past = turns.past(ToolRefused, call=place)
    if isinstance(past, ToolRefused):
        turns.spent = turns.spent or past.fault is FaultKind.CAP
        if past.fault is FaultKind.DENIED:
            turns.denied.add((call.name, call.arguments))
        return ToolResult(call.id, refusal_content(past.fault, call.name, past.message))
    try:
        tool, member = await _offered_tool(turns, call)
        arguments = await turns.agent.checks.read(tool, call.arguments)
        if isinstance(arguments, str):
            raise WorkerError(FaultKind.BAD_ARGUMENTS, arguments)
        return ToolResult(call.id, await _call_tool(turns, place, GuardedTool(tool, member, call, arguments)))
    except WorkerError as error:
        fault = error.fault
        if fault.kind is FaultKind.WAITING:
            raise
        return await _refuse(turns, place, call, fault.kind, fault.message)


async def _offered_tool(turns: _AgentTurns, call: ToolCall) -> tuple[Tool, Member]:
    """Return the tool and who performs it; NOT_OFFERED for one that this agent was not offered, or that changed."""
    offered = turns.known.get(call.name)
    if offered is None:
        names = sorted(turns.known)
        close = get_close_matches(call.name[:200], names, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]}?" if close else ""
        message = f"it was not offered: {', '.join(names) or 'no tool'} {'were' if len(names) > 1 else 'was'}{hint}"
        raise WorkerError(FaultKind.NOT_OFFERED, message)
    (source,) = [each for each in turns.agent.sources if each.name == offered.server]
    tool = await _ask_source(source.find(offered.tool))
    if tool is None or tool.sha256 != offered.sha256:
        what = "is gone" if tool is None else "has changed"
        raise WorkerError(FaultKind.NOT_OFFERED, f"{offered.tool} {what} in {source.name} since it was offered")
    return tool, await _ask_source(source.member(tool))


async def _call_tool(turns: _AgentTurns, place: str, made: GuardedTool) -> str:
    """Let guards, people and caps decide, make the call, and return what the agent is told of it."""
    calls, tool, member = turns.calls, made.tool, made.member
    branch = calls.branch(place, tool.name, made.call.arguments, repeatable=tool.repeatable)
    seen = partial(_situation, turns, branch)
    request = _tool_request(turns, made)
    check_clearance(member.card, request.labels, calls.context.guarded_labels)
    if branch.journaled() is None:  # otherwise all of this was decided
        await decide_before(branch, made, seen)
        denied = (made.call.name, made.call.arguments) in turns.denied
        if await require_tool_approval(branch, member, tool, made.call.arguments, denied=denied):
            await decide_before(branch, made, seen)  # a person may take hours
        try:
            calls.context.ledger.open_tool_call()
        except CapReached as refusal:
            turns.spent = True
            raise WorkerError(FaultKind.CAP, str(refusal)) from None
    turns.used.add(made.call.name)
    reply: Reply | None = None
    try:
        reply = await call_with_retries(branch, member, request, CallPurpose(CallRole.TOOL))
        outcome = ToolOutcome(reply.text)
    except WorkerError as error:
        if error.fault.kind is FaultKind.WAITING:
            raise
        outcome = ToolOutcome(_uncertain_words(tool, error), error.fault.kind)
    calls.labels = calls.labels.union(tool.labels, member.card.adds)
    remarks = await decide_after(branch, made, outcome, seen)
    said = outcome.text if outcome.fault is None else refusal_content(outcome.fault, made.call.name, outcome.text)
    return "\n\n".join([said, *remarks])


def _uncertain_words(tool: Tool, error: WorkerError) -> str:
    fault = error.fault
    if tool.repeatable or fault.kind.free or fault.kind is FaultKind.TOOL_ERROR:
        return fault.message or str(fault.kind)
    return f"{fault.message}; it may or may not have been performed: look before you call it again"


def _tool_request(turns: _AgentTurns, made: GuardedTool) -> Request:
    """Return what the tool is shown: its arguments, and nothing of the task or of what the agent has seen."""
    task, labels = turns.request.task, turns.request.labels.union(turns.request.task.labels, turns.calls.labels)
    text = made.call.arguments
    if made.tool.argument:
        text = str(made.arguments.get(made.tool.argument, ""))
    try:
        shown = Task(text, id=task.id, domain=task.domain, labels=task.labels, tenant=task.tenant)
    except TaskError as error:
        raise WorkerError(FaultKind.BAD_ARGUMENTS, f"{made.tool.argument or 'arguments'}: {error}") from None
    return Request(shown, text, labels=labels)


def _situation(turns: _AgentTurns, branch: StepCalls, guard: str) -> GuardSituation:
    """Return what a guard may look at: what the agent has seen in this step, and probes under this guard's name."""
    request = turns.request
    probes = branch.branch(f"{branch.call}~{guard}", "", "")
    return GuardSituation(
        request.task, request.subtask, request.granted, _seen_exchanges(turns), partial(_probe, turns, probes)
    )


def _seen_exchanges(turns: _AgentTurns) -> tuple[ToolExchange, ...]:
    """Return all calls and results so far, those of the same reply too, each tool under its own name."""
    exchanges = turns.request.exchanges
    if turns.answered:
        calls, results = zip(*turns.answered, strict=True)
        exchanges = (*exchanges, ToolExchange(calls, results))
    if all(name == offered.tool for name, offered in turns.known.items()):
        return exchanges
    own = {name: offered.tool for name, offered in turns.known.items()}
    return tuple(
        replace(each, calls=tuple(replace(call, name=own.get(call.name, call.name)) for call in each.calls))
        for each in exchanges
    )


async def _probe(turns: _AgentTurns, probes: StepCalls, name: str, arguments: Mapping[str, Json]) -> str:
    """Call a tool that only reads, for a guard, inside the run's budget and journal."""
    for source in turns.agent.sources:
        tool = await _ask_source(source.find(name))
        if tool is None:
            continue
        if tool.writes:
            raise WorkerError(FaultKind.BAD_REQUEST, f"{name} may write: a probe only reads")
        member, text = await _ask_source(source.member(tool)), dump_json(arguments)
        probes.tool, probes.arguments = tool.name, text
        request = _tool_request(turns, GuardedTool(tool, member, ToolCall("", name, text), arguments))
        check_clearance(member.card, request.labels, probes.context.guarded_labels)
        return (await call_with_retries(probes, member, request, CallPurpose(CallRole.PROBE))).text
    raise WorkerError(FaultKind.NOT_OFFERED, f"there is no tool {name!r} to probe with")


async def _refuse(turns: _AgentTurns, place: str, call: ToolCall, fault: FaultKind, message: str) -> ToolResult:
    """Journal that a call is not made, and return what the agent is told."""
    context = turns.calls.context
    name, said = context.clean(call.name)[:200], context.clean(message)[:2_000]
    if fault is FaultKind.DENIED:
        turns.denied.add((call.name, call.arguments))
    context.recorder.add(
        ToolRefused(
            run=context.run,
            at=time(),
            round=turns.calls.round,
            step=turns.calls.step or 0,
            call=place,
            tool=name,
            fault=fault,
            message=said,
            arguments=context.clean(call.arguments),
        )
    )
    return ToolResult(call.id, refusal_content(fault, name, said))


async def _ask_client(
    turns: _AgentTurns, wanted: Sequence[ToolCall], text: str, theirs: Sequence[ToolCall]
) -> dict[str, ToolResult]:
    """Let the client make its calls, as far as they can be made, and return their results by id."""
    results: dict[str, ToolResult] = {}
    request, calls = turns.request, turns.calls
    allowed: list[ToolCall] = []
    for call in theirs:
        problem = ""
        if not isinstance(ArgumentChecks.parse(call.arguments), dict):
            problem = "the arguments are no JSON object"
        elif allowed and not request.client_options.parallel:
            problem = "the client takes one call at a time"
        if problem:
            place = turns.places[call.id]
            results[call.id] = await _refuse(turns, place, call, FaultKind.BAD_ARGUMENTS, problem)
        else:
            allowed.append(call)
    if not allowed:
        return results
    asked = replace(request, exchanges=(*request.exchanges, ToolExchange(tuple(wanted), (), text)))
    decision = await ask_about_call(calls, turns.member, asked, QuestionKind.TOOLS, dump_records(allowed))
    if not decision.approved:
        raise WorkerError(FaultKind.DENIED, f"the client's tools: {refusal_text(decision)}")
    try:
        given = load_tool_results(decision.text, allowed)
    except ValueError as error:
        raise WorkerError(FaultKind.BAD_REQUEST, str(error)) from None
    turns.request = replace(request, client_options=replace(request.client_options, tool_choice=decision.tool_choice))
    calls.tool_choice = decision.tool_choice
    return results | {result.tool_call_id: result for result in given}
