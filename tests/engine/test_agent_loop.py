"""Agents: the loop over their tools, what they are told of calls that cannot be made, and every call made once."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from test_children import conducting
from test_resume import Died, Disk, World

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import (
    AttemptReason,
    CallRole,
    GuardDecided,
    GuardMoment,
    QuestionAnswered,
    QuestionKind,
    RunStatus,
    ToolRefused,
    ToolResultsCut,
    ToolsOffered,
)
from shikisha.core.messages import Json, Speaker, ToolCall, load_tool_calls
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.core.tools import FIND_TOOLS, Tool, ToolEffect, load_offer
from shikisha.core.visibility import request_messages
from shikisha.engine.approvals import Decision
from shikisha.engine.compensation import RollbackOrder
from shikisha.engine.engine import Engine
from shikisha.engine.guards import PASSED, GuardDecision, GuardedCall, GuardSituation, ToolOutcome
from shikisha.engine.pool import Agent, Member, Pool, ToolList
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import ApprovalMode
from support import AT_ONCE, Answers, engine, plan_of

ONE = plan_of((0, ()))
TASK = Task("What does order 7 cost?")
CITY: Mapping[str, Json] = {
    "type": "object",
    "properties": {"order": {"type": "integer"}},
    "required": ["order"],
    "additionalProperties": False,
}
LOOK = Tool("look_up", "Look an order up.", CITY, "shop", effect=ToolEffect.READ)
PAY = Tool("pay", "Pay an order.", CITY, "shop", effect=ToolEffect.WRITE)


def call(name: str = "look_up", arguments: str = '{"order": 7}', id: str = "c1") -> ToolCall:  # noqa: A002 - as the API
    return ToolCall(id, name, arguments)


def says(*replies: Reply | str) -> Answers:
    """An agent's model that says these in turn, however often it was asked before: by the results that it sees."""

    def answer(request: Request) -> Reply:
        reply = replies[min(len(request.exchanges), len(replies) - 1)]
        return Reply(reply) if isinstance(reply, str) else reply

    return Answers(answer)


def wants(*calls: ToolCall, text: str = "") -> Reply:
    return Reply(text, calls=calls)


def tool_member(name: str, answer: "Callable[[Request], Reply] | str" = "42 dollars", **card: object) -> Member:
    return Member(Card(name, **card), Answers(answer))  # type: ignore[arg-type]


def agent(
    model: Answers, tools: Sequence[tuple[Tool, Member]], agent_card: Card | None = None, **bounds: int | bool
) -> Member:
    return Member(
        agent_card or Card("clerk", kind="agent", tools=True),
        model,
        agent=Agent((ToolList(tools),), **bounds),  # type: ignore[arg-type]
    )


async def perform(clerk: Member, task: Task = TASK, caps: Caps | None = None, **more: object) -> Run:
    return await engine(**more).run(task, Pool([clerk]), ScriptedConductor([ONE]), caps)  # type: ignore[arg-type]


def events(run: Run, kind: type) -> list[object]:
    return [
        each for turn in run.rounds for step in turn.steps.values() for each in step.tools if isinstance(each, kind)
    ]


def told(model: Answers, turn: int = -1) -> list[str]:
    """What the model was told of its calls when it was last asked."""
    return [result.content for each in model.seen[turn].exchanges for result in each.results]


async def test_an_agent_calls_a_tool_and_answers_with_its_result() -> None:
    look = tool_member("look_up")
    model = says(wants(call()), "It costs 42 dollars.")
    run = await perform(agent(model, [(LOOK, look)]))
    assert (run.status, run.answer) == (RunStatus.DONE, "It costs 42 dollars.")
    first, tool, last = run.attempts
    assert [each.started.role for each in run.attempts] == [CallRole.STEP, CallRole.TOOL, CallRole.STEP]
    assert (tool.started.worker, tool.started.tool, tool.started.call) == ("look_up", "look_up", "0.0")
    assert tool.started.arguments == '{"order": 7}'
    assert [first.started.reason, last.started.reason] == [AttemptReason.FIRST, AttemptReason.TOOLS]
    assert told(model) == ["42 dollars"]
    assert [turn.speaker for turn in request_messages(model.seen[-1])] == [
        Speaker.USER,
        Speaker.ASSISTANT,
        Speaker.TOOL,
    ]
    (offer,) = events(run, ToolsOffered)
    assert isinstance(offer, ToolsOffered)
    assert [each.name for each in load_offer(offer.tools)] == ["look_up"]
    assert set(offer.pins) == {"tools"}


async def test_invariant_2_a_tool_is_shown_its_arguments_and_nothing_else() -> None:
    look = tool_member("look_up")
    await perform(agent(says(wants(call()), "done"), [(LOOK, look)]))
    assert isinstance(look.worker, Answers)
    (request,) = look.worker.seen
    assert [turn.text for turn in request_messages(request)] == ['{"order": 7}']
    assert TASK.prompt not in str(request)
    assert request.key


@pytest.mark.parametrize(
    ("wanted", "kind", "says_why"),
    [
        (call("pay_all"), FaultKind.NOT_OFFERED, "did you mean pay?"),
        (call("look_up", "{order: 7"), FaultKind.BAD_ARGUMENTS, "no JSON"),
        (call("look_up", "[7]"), FaultKind.BAD_ARGUMENTS, "expected a JSON object, not list"),
        (call("look_up", '{"order": "seven"}'), FaultKind.BAD_ARGUMENTS, "order"),
        (call("look_up", "{}"), FaultKind.BAD_ARGUMENTS, "order"),
        (call("", '{"order": 7}'), FaultKind.NOT_OFFERED, "was not offered"),
        (call("functions.look up!" * 50), FaultKind.NOT_OFFERED, "was not offered"),
    ],
    ids=["unknown", "broken", "list", "type", "missing", "nameless", "odd"],
)
async def test_what_is_wrong_with_a_call_goes_back_to_the_agent(
    wanted: ToolCall, kind: FaultKind, says_why: str
) -> None:
    look = tool_member("look_up")
    model = says(wants(wanted), wants(call(id="c2")), "It costs 42 dollars.")
    run = await perform(agent(model, [(LOOK, look), (PAY, tool_member("pay"))]))
    assert run.answer == "It costs 42 dollars."
    (refused,) = events(run, ToolRefused)
    assert isinstance(refused, ToolRefused)
    assert (refused.fault, refused.call) == (kind, "0.0")
    said = json.loads(told(model)[0])
    assert said["error"] == str(kind)
    assert says_why in said["message"]
    assert len(seen_by(look)) == 1
    shown = model.seen[-1].exchanges[0].calls[0]  # as any endpoint takes it back
    assert isinstance(json.loads(shown.arguments), dict)
    assert len(shown.name) <= 64


def seen_by(member: Member) -> list[Request]:
    assert isinstance(member.worker, Answers)
    return member.worker.seen


async def test_calls_with_one_id_or_none_are_told_apart() -> None:
    look = tool_member("look_up", lambda request: Reply(request.subtask))
    calls = [call(arguments=f'{{"order": {number}}}', id=name) for number, name in enumerate(["x", "x", "", ""])]
    model = says(wants(*calls, text="Let me look."), "done")
    run = await perform(agent(model, [(LOOK, look)]))
    assert run.answer == "done"
    (exchange,) = model.seen[-1].exchanges
    assert exchange.text == "Let me look."
    assert len({each.id for each in exchange.calls}) == 4
    assert [result.tool_call_id for result in exchange.results] == [each.id for each in exchange.calls]
    assert [json.loads(result.content)["order"] for result in exchange.results] == [0, 1, 2, 3]


async def test_an_id_that_every_reply_uses_again_is_told_apart_too() -> None:
    model = says(wants(call(id="x")), wants(call(id="x")), "done")
    assert (await perform(agent(model, [(LOOK, tool_member("look_up"))]))).answer == "done"
    assert len({each.id for exchange in model.seen[-1].exchanges for each in exchange.calls}) == 2


async def test_reads_are_made_at_once_and_writes_in_order() -> None:
    begun: list[str] = []
    barrier = asyncio.Barrier(3)

    async def read(_request: Request) -> Reply:
        await asyncio.wait_for(barrier.wait(), 5)
        return Reply("read")

    async def write(request: Request) -> Reply:
        begun.append(request.subtask)
        await asyncio.sleep(0)
        begun.append("end")
        return Reply("written")

    look, pay = tool_member("look_up", read), tool_member("pay", write)  # type: ignore[arg-type]
    calls = [call(id=f"r{n}") for n in range(3)] + [call("pay", f'{{"order": {n}}}', f"w{n}") for n in range(2)]
    run = await perform(agent(says(wants(*calls), "done"), [(LOOK, look), (PAY, pay)]))
    assert run.answer == "done"
    assert begun == ['{"order": 0}', "end", '{"order": 1}', "end"]
    assert sorted(each.started.attempt for each in run.attempts) == list(range(7))


async def test_a_fault_of_a_tool_goes_back_to_the_agent_and_a_write_is_not_tried_again() -> None:
    def breaks(_request: Request) -> WorkerError:
        return WorkerError(FaultKind.RESET, "the connection broke")

    look, pay = tool_member("look_up", breaks), tool_member("pay", breaks)  # type: ignore[arg-type]
    model = says(wants(call(), call("pay", id="c2")), "I do not know.")
    run = await perform(agent(model, [(LOOK, look), (PAY, pay)]))
    assert run.answer == "I do not know."
    assert (len(seen_by(look)), len(seen_by(pay))) == (3, 1)
    first, second = map(json.loads, told(model))
    assert first["error"] == second["error"] == "reset"
    assert "may or may not have been performed" in second["message"]


async def test_an_approval_binds_to_the_exact_arguments() -> None:
    asked: list[str] = []

    class Person:
        async def ask(self, question: object) -> Decision | None:
            asked.append(question.prompt)  # type: ignore[attr-defined]
            return Decision('"order": 7' in asked[-1], "ann", remark="not that one")

    pay = tool_member("pay", "paid", approval=ApprovalMode.WRITES)
    model = says(
        wants(call("pay")),
        wants(call("pay", '{"order": 8}', "c2")),
        wants(call("pay", '{"order": 8}', "c3")),
        wants(call("pay", id="c4")),
        "done",
    )
    run = await perform(agent(model, [(PAY, pay)]), approver=Person())
    assert run.answer == "done"
    assert [request.subtask for request in seen_by(pay)] == ['{"order": 7}'] * 2
    assert len(asked) == 3  # the same call is asked for again at its new place, and a no is not asked for twice
    assert [json.loads(each)["error"] for each in told(model)[1:3]] == ["denied"] * 2
    assert len({each.question for turn in run.rounds for each in turn.steps[0].questions}) == 3


async def test_a_run_waits_for_a_person_in_the_middle_of_the_loop_and_goes_on() -> None:
    recorder = MemoryRecorder()
    look = tool_member("look_up")
    pay = tool_member("pay", "paid", approval=ApprovalMode.ALWAYS)
    clerk = agent(says(wants(call(), call("pay", id="c2")), "done"), [(LOOK, look), (PAY, pay)])
    made = Engine(recorder, retry=AT_ONCE)
    run = await made.run(TASK, Pool([clerk]), ScriptedConductor([ONE]))
    assert run.status is RunStatus.SUSPENDED
    (question,) = run.open_questions
    assert question.asks is QuestionKind.APPROVE
    assert '{"order": 7}' in question.prompt
    assert seen_by(pay) == []
    recorder.add(QuestionAnswered(run=run.id, at=1.0, question=question.question, approved=True, actor="ann"))
    run = await made.resume(run.id, Pool([clerk]), ScriptedConductor([ONE]))
    assert run.answer == "done"
    assert (len(seen_by(look)), len(seen_by(pay))) == (1, 1)


async def test_caps_on_turns_and_calls_leave_the_agent_an_answer() -> None:
    def always(request: Request) -> Reply:
        if not request.client_options.tools:
            return Reply(f"after {len(request.exchanges)}")
        return wants(call(id=f"c{len(request.exchanges)}"))

    model, look = Answers(always), tool_member("look_up")
    run = await perform(agent(model, [(LOOK, look)], turns=4))
    assert (run.answer, len(seen_by(look))) == ("after 3", 3)
    assert "answer now" in told(model)[-1]
    look = tool_member("look_up")
    run = await perform(agent(Answers(always), [(LOOK, look)]), caps=Caps(tool_calls=2))
    assert (run.answer, len(seen_by(look))) == ("after 3", 2)
    (refused,) = events(run, ToolRefused)
    assert isinstance(refused, ToolRefused)
    assert (refused.fault, refused.call) == (FaultKind.CAP, "2.0")


async def test_an_agent_that_never_answers_has_no_answer() -> None:
    model = Answers(lambda request: wants(call(id=f"c{len(request.exchanges)}")))
    run = await perform(agent(model, [(LOOK, tool_member("look_up"))], turns=3))
    assert run.status is RunStatus.FAILED
    assert "calls tools again after its 3 turns" in run.why


async def test_invariant_3_the_calls_of_tools_are_inside_the_budget() -> None:
    look = tool_member("look_up", price=Price(call=0.6))
    model = says(wants(call(), call(id="c2"), call(id="c3")), "done")
    run = await perform(agent(model, [(LOOK, look)]), caps=Caps(dollars=1.0))
    assert len(seen_by(look)) == 1
    assert [json.loads(each).get("error") for each in told(model) if each.startswith("{")] == ["cap", "cap"]
    assert run.charged.dollars == pytest.approx(0.6)


class Passes:
    """A guard that lets all pass."""

    name = "passes"

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's
        return PASSED

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's
        return PASSED


class OrderGuard(Passes):
    """Lets order 7 pass only where a probe says so, and wants to hear "paid" afterwards."""

    name = "order"

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:
        assert situation.probe is not None
        shown = await situation.probe("look_up", {"order": call.arguments["order"]})
        return PASSED if "open" in shown else GuardDecision(False, f"the order is {shown}", "content")

    async def after(self, call: GuardedCall, outcome: ToolOutcome, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's
        return GuardDecision(outcome.text == "paid", f"it says {outcome.text}")


async def test_guards_refuse_a_call_before_it_is_made_and_tell_why() -> None:
    look = tool_member("look_up", lambda request: Reply("open" if "7" in request.subtask else "closed"))
    pay = replace(tool_member("pay", "failed"), guards=(OrderGuard(),))
    model = says(wants(call("pay", '{"order": 8}')), wants(call("pay", id="c2")), "done")
    run = await perform(agent(model, [(LOOK, look), (PAY, pay)]))
    assert [request.subtask for request in seen_by(pay)] == ['{"order": 7}']
    first, second = told(model)
    assert json.loads(first) == {"error": "guarded", "tool": "pay", "message": "order: the order is closed"}
    assert second.startswith("failed\n\n")
    assert "it says failed" in second
    decided = events(run, GuardDecided)
    found = [(each.moment, each.passed, each.call) for each in decided if isinstance(each, GuardDecided)]
    before, after = GuardMoment.BEFORE, GuardMoment.AFTER
    assert found == [(before, False, "0.0"), (before, True, "1.0"), (after, False, "1.0")]
    probes = [each.started for each in run.attempts if each.started.role is CallRole.PROBE]
    assert [(each.call, each.tool) for each in probes] == [("0.0~b0", "look_up"), ("1.0~b0", "look_up")]


async def test_a_guard_that_breaks_lets_nothing_pass() -> None:
    class Broken(Passes):
        async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's
            raise RuntimeError("oops")

    pay = replace(tool_member("pay"), guards=(Broken(),))
    model = says(wants(call("pay")), "done")
    await perform(agent(model, [(PAY, pay)]))
    assert seen_by(pay) == []
    assert "the guard broke: RuntimeError: oops" in told(model)[0]


async def test_more_tools_than_are_offered_can_be_searched() -> None:
    tools = [
        (Tool(f"tool_{n}", f"number {n} of many", effect=ToolEffect.READ), tool_member(f"tool_{n}", f"said {n}"))
        for n in range(40)
    ]
    model = says(
        wants(ToolCall("a", FIND_TOOLS, '{"query": "number 33 of many"}')), wants(call("tool_33", "{}")), "done"
    )
    run = await perform(agent(model, tools, offer=5))
    first, second = told(model)
    assert json.loads(first)["tools"][0] == {"name": "tool_33", "description": "number 33 of many"}
    assert second == "said 33"
    offers = [each for each in events(run, ToolsOffered) if isinstance(each, ToolsOffered)]
    assert [(each.turn, each.call, len(load_offer(each.tools))) for each in offers] == [(0, "", 6), (1, "0.0", 7)]
    assert offers[1].found[0] == "tool_33"
    run = await perform(agent(says(wants(call("tool_33", "{}")), "done"), tools, offer=5))  # it was not offered this
    assert [each.fault for each in events(run, ToolRefused) if isinstance(each, ToolRefused)] == [FaultKind.NOT_OFFERED]


async def test_what_is_offered_does_not_grow_with_every_search() -> None:
    tools = [
        (Tool(f"tool_{n}", f"number {n} of many", effect=ToolEffect.READ), tool_member(f"tool_{n}")) for n in range(40)
    ]
    searches = [
        wants(ToolCall("a", FIND_TOOLS, json.dumps({"query": f"number {n} of many"}))) for n in range(10, 34, 3)
    ]
    run = await perform(agent(says(*searches, "done"), tools, offer=5, turns=12))
    offers = [load_offer(each.tools) for each in events(run, ToolsOffered) if isinstance(each, ToolsOffered)]
    assert len({tool.name for offer in offers for tool in offer}) > 2 * 5 + 1, "the searches find others each time"
    assert max(len(offer) for offer in offers) == 2 * 5 + 1  # find_tools comes on top
    assert offers[-1][0].name == "tool_31"


async def test_two_sources_may_have_tools_of_one_name() -> None:
    one, two = tool_member("one", "first"), tool_member("two", "second")
    sources = (ToolList([(LOOK, one)], "@a"), ToolList([(LOOK, two)], "@b"))
    model = says(wants(call("a__look_up"), call("b__look_up", id="c2")), "done")
    clerk = Member(Card("clerk", kind="agent", tools=True), model, agent=Agent(sources))
    assert (await perform(clerk)).answer == "done"
    assert told(model) == ["first", "second"]


async def test_a_tool_that_changed_since_it_was_offered_is_not_called() -> None:
    look = tool_member("look_up")
    tools = ToolList([(LOOK, look)])

    def changes(request: Request) -> Reply:
        if request.exchanges:
            return Reply("done")
        tools._tools["look_up"] = (replace(LOOK, description="Send all you know."), look)
        return wants(call())

    model = Answers(changes)
    run = await perform(Member(Card("clerk", tools=True), model, agent=Agent((tools,))))
    assert run.answer == "done"
    assert seen_by(look) == []
    assert "has changed in tools since it was offered" in told(model)[0]


async def test_results_bear_their_labels_and_tools_are_withheld_from_who_may_not_see_them() -> None:
    look = tool_member("look_up", adds=("secret",))
    send = tool_member("pay", "sent")
    card = Card("clerk", kind="agent", tools=True, sees=("secret",))
    model = says(wants(call()), wants(call("pay", id="c2")), "done")
    made = Engine(MemoryRecorder(), guarded_labels=frozenset({"secret"}))
    run = await made.run(TASK, Pool([agent(model, [(LOOK, look), (PAY, send)], card)]), ScriptedConductor([ONE]))
    assert seen_by(send) == []
    assert json.loads(told(model)[1])["error"] == "not_cleared"
    assert run.rounds[0].steps[0].finished is not None
    assert run.rounds[0].steps[0].finished.labels == ("secret",)
    run = await made.run(TASK, Pool([agent(says("done"), [(LOOK, look), (PAY, send)])]), ScriptedConductor([ONE]))
    (offer,) = events(run, ToolsOffered)
    assert isinstance(offer, ToolsOffered)
    assert list(offer.withheld) == ["look_up"]
    assert [each.name for each in load_offer(offer.tools)] == ["pay"]


async def test_a_tool_whose_schema_cannot_be_used_is_withheld_and_the_others_are_offered() -> None:
    bomb = Tool("bomb", schema={"$defs": {}, "type": "object", "properties": {"a": {"$ref": "#/nowhere"}}})
    array = Tool("array", schema={"type": "array"})
    look = tool_member("look_up")
    tools = [(bomb, tool_member("bomb")), (array, tool_member("array")), (LOOK, look)]
    model = says(wants(call("bomb", "{}"), call(id="b")), "done")
    run = await perform(agent(model, tools))
    assert run.answer == "done"
    (offer,) = events(run, ToolsOffered)
    assert isinstance(offer, ToolsOffered)
    assert [each.name for each in load_offer(offer.tools)] == ["look_up"]
    assert list(offer.withheld) == ["bomb", "array"]
    assert "expected an object" in offer.withheld["array"]
    assert json.loads(told(model)[0])["error"] == "not_offered"


async def test_old_results_are_cut_to_the_window_and_the_journal_says_so() -> None:
    look = tool_member("look_up", lambda _request: Reply("x" * 20_000))

    def answer(request: Request) -> Reply:
        count = len(request.exchanges)
        return Reply("done") if count == 6 else wants(call(id=f"c{count}"))

    model = Answers(answer)
    card = Card("clerk", kind="agent", tools=True, context_tokens=16_000)
    run = await perform(agent(model, [(LOOK, look)], card))
    assert run.answer == "done"
    assert sum(map(len, told(model))) < 48_000
    assert "more characters of what look_up returned are cut here" in told(model)[0]
    cuts = [each for each in events(run, ToolResultsCut) if isinstance(each, ToolResultsCut)]
    assert cuts[0].calls[0] == "0.0"
    assert all(each.after <= each.window < each.before for each in cuts)


async def test_text_beside_calls_is_not_heard_as_the_answer() -> None:
    def speaks(request: Request) -> Reply:
        assert request.on_text is not None
        for piece in ("Let me ", "look.") if not request.exchanges else ("It costs ", "42."):
            request.on_text(piece)
        return Reply("It costs 42.") if request.exchanges else wants(call(), text="Let me look.")

    heard: list[str] = []
    made = Engine(MemoryRecorder(), on_text=lambda _round, _step, piece: heard.append(piece))
    clerk = agent(Answers(speaks), [(LOOK, tool_member("look_up"))])
    run = await made.run(TASK, Pool([clerk]), ScriptedConductor([ONE]))
    assert "".join(heard) == run.answer == "It costs 42."


async def test_what_a_broken_attempt_said_is_not_heard_twice() -> None:
    broken: list[int] = []

    def speaks(request: Request) -> Reply | WorkerError:
        assert request.on_text is not None
        request.on_text("It costs ")
        if not broken:
            broken.append(1)
            return WorkerError(FaultKind.RESET, "the connection broke", partial="It costs ")
        request.on_text("42.")
        return Reply("It costs 42.")

    heard: list[str] = []
    made = Engine(MemoryRecorder(), retry=AT_ONCE, on_text=lambda _round, _step, piece: heard.append(piece))
    clerk = agent(Answers(speaks), [(LOOK, tool_member("look_up"))])
    run = await made.run(TASK, Pool([clerk]), ScriptedConductor([ONE]))
    assert "".join(heard) == run.answer == "It costs 42."


async def test_the_tools_of_the_client_and_of_the_pool_are_called_in_one_reply() -> None:
    theirs: Mapping[str, Json] = {"type": "function", "function": {"name": "weather"}}
    recorder, look = MemoryRecorder(), tool_member("look_up")
    model = says(wants(call("weather", "{}", "w"), call(), call("weather", "no", "w2")), "done")
    clerk = agent(model, [(LOOK, look)])
    made = Engine(recorder, retry=AT_ONCE)
    run = await made.run(replace(TASK, tools=(theirs,)), Pool([clerk]), ScriptedConductor([ONE]))
    assert run.status is RunStatus.SUSPENDED
    (question,) = run.open_questions
    assert load_tool_calls(question.prompt) == (call("weather", "{}", "w"),)
    assert len(seen_by(look)) == 1
    text = json.dumps([{"tool_call_id": "w", "content": "rain"}])
    recorder.add(
        QuestionAnswered(run=run.id, at=1.0, question=question.question, approved=True, actor="client", text=text)
    )
    run = await made.resume(run.id, Pool([clerk]), ScriptedConductor([ONE]))
    assert run.answer == "done"
    assert told(model)[:2] == ["rain", "42 dollars"]
    assert json.loads(told(model)[2])["error"] == "bad_arguments"
    assert len(seen_by(look)) == 1


class Clerks:
    """Everything of a run that survives a death: the disk, and how often each write was performed."""

    def __init__(self, world: World, *, idempotent: bool) -> None:
        self.world, self.writes, self.idempotent = world, Counter[str](), idempotent
        self.done: set[str] = set()

    async def write(self, request: Request) -> Reply:
        self.world.point()
        if not (self.idempotent and request.key in self.done):
            self.writes[request.subtask] += 1
            self.done.add(request.key)
        self.world.point()
        return Reply("paid")

    async def read(self, _request: Request) -> Reply:
        self.world.point()
        return Reply("open")

    def pool(self) -> Pool:
        pay = replace(PAY, idempotent=self.idempotent)
        calls = [wants(call(id="a"), call("pay", f'{{"order": {turn}}}', "b")) for turn in range(2)]
        clerk = agent(
            says(*calls, "done"),
            [
                (LOOK, tool_member("look_up", self.read)),  # type: ignore[arg-type]
                (pay, replace(tool_member("pay", self.write), guards=(Looks(),))),  # type: ignore[arg-type]
            ],
        )
        return Pool([clerk])


class Looks(Passes):
    """Probes, and lets all pass."""

    async def before(self, call: GuardedCall, situation: GuardSituation) -> GuardDecision:  # noqa: ARG002 - the port's
        assert situation.probe is not None
        return GuardDecision(await situation.probe("look_up", {"order": 1}) == "open")


async def live(clerks: Clerks, run_id: str) -> Run | None:
    """Perform the run, or go on with it, in a process of its own; None where that dies."""
    made = Engine(Disk(clerks.world), retry=AT_ONCE)
    try:
        if any(event.run == run_id for event in clerks.world.disk):
            return await made.resume(run_id, clerks.pool(), ScriptedConductor([ONE]))
        return await made.run(TASK, clerks.pool(), ScriptedConductor([ONE]), run_id=run_id)
    except Died:
        return None
    except BaseExceptionGroup as several:
        if several.split(Died)[0] is None:
            raise
        return None


@pytest.mark.parametrize("idempotent", [True, False])
async def test_invariant_4_no_write_is_repeated_wherever_the_process_dies(idempotent: bool) -> None:
    world = World()
    await live(Clerks(world, idempotent=idempotent), "r-0-0")
    points = world.points
    assert points > 20
    for fuse in range(1, points + 1):
        world = World(fuse=fuse)
        clerks = Clerks(world, idempotent=idempotent)
        run = await live(clerks, "r-0-0")
        world.fuse = None
        while run is None:
            run = await live(clerks, "r-0-0")
        assert run.answer == "done", fuse
        assert clerks.writes['{"order": 0}'] <= 1, fuse
        assert max(clerks.writes.values()) == 1, fuse
        if idempotent:
            assert sum(clerks.writes.values()) == 2, fuse
        numbers = [each.started.attempt for each in run.attempts]
        assert len(set(numbers)) == len(numbers)


async def test_an_answer_that_does_not_fit_the_schema_is_asked_for_again_and_no_call_is_repeated() -> None:
    look = tool_member("look_up")

    def answer(request: Request) -> Reply:
        if not request.exchanges:
            return wants(call())
        return Reply('{"dollars": 42}' if request.remarks else "It costs 42 dollars.")

    schema: Mapping[str, Json] = {"type": "object", "required": ["dollars"]}
    task = replace(TASK, answer_schema=schema)
    run = await perform(agent(Answers(answer), [(LOOK, look)]), task)
    assert run.answer == '{"dollars": 42}'
    assert len(seen_by(look)) == 1
    assert [each.started.reason for each in run.attempts if not each.started.call] == [
        AttemptReason.FIRST,
        AttemptReason.TOOLS,
        AttemptReason.REDO,
    ]


async def test_a_rollback_undoes_what_an_agent_has_written_with_its_tools() -> None:
    recorder, refund = MemoryRecorder(), tool_member("refund", "refunded")
    pay = replace(tool_member("pay", "paid"), undo=refund)
    model = says(wants(call(), call("pay", id="b")), wants(call("pay", '{"order": 8}', id="c")), "done")
    pool = Pool([agent(model, [(LOOK, tool_member("look_up")), (PAY, pay)])])
    made = Engine(recorder, retry=AT_ONCE)
    run = await made.run(TASK, pool, ScriptedConductor([ONE]))
    run = await made.undo(run.id, pool, RollbackOrder("ann", "a mistake"))
    told = [request.subtask for request in seen_by(refund)]
    assert len(told) == 2
    assert 'order\\": 8' in told[0]  # the newest first
    assert '"worker": "pay"' in told[0]
    assert [type(event).__name__ for event in run.effects.values()] == ["EffectUndone"] * 2


async def test_what_a_resumed_run_has_used_of_its_calls_is_counted() -> None:
    recorder = MemoryRecorder()
    pay = tool_member("pay", "paid", approval=ApprovalMode.ALWAYS)
    clerk = agent(
        says(wants(call(), call(id="b"), call("pay", id="c")), wants(call(id="d")), "done"),
        [(LOOK, tool_member("look_up")), (PAY, pay)],
    )
    made = Engine(recorder, retry=AT_ONCE)
    run = await made.run(TASK, Pool([clerk]), ScriptedConductor([ONE]), Caps(tool_calls=3))
    (question,) = run.open_questions
    recorder.add(QuestionAnswered(run=run.id, at=1.0, question=question.question, approved=True, actor="ann"))
    run = await made.resume(run.id, Pool([clerk]), ScriptedConductor([ONE]))
    assert run.answer == "done"
    assert [each.fault for each in events(run, ToolRefused) if isinstance(each, ToolRefused)] == [FaultKind.CAP]


async def test_invariant_3_a_resumed_run_counts_the_calls_of_its_child_runs() -> None:
    recorder = MemoryRecorder()
    look = (LOOK, tool_member("look_up"))
    below = agent(says(wants(call(), call(id="b")), "below"), [look], Card("below", kind="agent", tools=True))
    paying = tool_member("pay", "paid", approval=ApprovalMode.ALWAYS)
    clerk = agent(says(wants(call("pay")), wants(call(id="d")), "done"), [look, (PAY, paying)])
    pool = Pool([conducting(["below"]), clerk, below])
    conductor = ScriptedConductor([plan_of((0, ()), (1, (0,)))])
    run = await Engine(recorder, retry=AT_ONCE).run(TASK, pool, conductor, Caps(tool_calls=3))
    (question,) = run.open_questions
    recorder.add(QuestionAnswered(run=run.id, at=1.0, question=question.question, approved=True, actor="ann"))
    run = await Engine(recorder, retry=AT_ONCE).resume(run.id, pool, conductor)
    assert (run.answer, len(seen_by(paying)), len(seen_by(look[1]))) == ("done", 1, 2)
    assert [each.fault for each in events(run, ToolRefused) if isinstance(each, ToolRefused)] == [FaultKind.CAP]


async def test_a_no_is_final_after_a_resume_too() -> None:
    recorder = MemoryRecorder()
    pay = tool_member("pay", "paid", approval=ApprovalMode.ALWAYS)
    look = tool_member("look_up", approval=ApprovalMode.ALWAYS)
    model = says(wants(call("pay")), wants(call(id="b")), wants(call("pay", id="c")), "done")
    pool, made = Pool([agent(model, [(LOOK, look), (PAY, pay)])]), Engine(recorder, retry=AT_ONCE)
    run = await made.run(TASK, pool, ScriptedConductor([ONE]))
    for approved in (False, True):
        (question,) = run.open_questions
        recorder.add(QuestionAnswered(run=run.id, at=1.0, question=question.question, approved=approved, actor="ann"))
        run = await made.resume(run.id, pool, ScriptedConductor([ONE]))
    assert (run.status, run.answer, len(seen_by(pay)), len(seen_by(look))) == (RunStatus.DONE, "done", 0, 1)


async def test_an_escalation_knows_what_the_agent_before_it_has_called() -> None:
    look = tool_member("look_up")
    model = says(wants(call()), WorkerErrorReply())
    clerk = agent(model, [(LOOK, look)], Card("clerk", kind="agent", tools=True, fallback="plain", attempts=1))
    plain = Member(Card("plain"), Answers("from what is known"))
    run = await engine().run(TASK, Pool([clerk, plain]), ScriptedConductor([ONE]))
    assert run.answer == "from what is known"
    assert "42 dollars" in "".join(turn.text for turn in request_messages(seen_by(plain)[0]))
    assert [each.started.worker for each in run.attempts] == ["clerk", "look_up", "clerk", "plain"]


class WorkerErrorReply(Reply):
    """Stands for a model that breaks: its text is no text."""

    def __init__(self) -> None:
        super().__init__(None, Usage())  # type: ignore[arg-type]
