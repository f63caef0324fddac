"""A response's stream is the same for whoever fetches it, from wherever they go on: nothing lost, nothing twice."""

import asyncio
from collections.abc import Mapping, Sequence
from time import time

import pytest

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import AttemptFailed, QuestionAnswered, QuestionKind, RunPaused
from shikisha.core.messages import Json, ToolCall, ToolResult, dump_records, load_tool_calls
from shikisha.core.plan import Plan
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card, Reply, Request
from shikisha.server.lifecycle.broadcast import EventUpdate, LiveRun, RunUpdate, TextUpdate
from shikisha.server.responses.schema import AnswerMessage, FunctionCallItem, ReasoningItem
from shikisha.server.responses.stored_response import response_turns
from shikisha.server.responses.stream_events import ABANDONED_NUMBERS, ResponseBuilder, ResponseTerms, StreamEvent
from support import TASK, AnswerFunction, Answers, engine, plan_of, pool_of

ONE = plan_of((0, ()))
TWO = plan_of((0, ()), (1, (0,)))
LIVE = ResponseTerms(audible=lambda _: True)


def saying(*takes: str | WorkerError) -> AnswerFunction:
    """A worker that says each take in pieces of three letters; a fault comes after its partial text."""
    left = list(takes)

    def answer(request: Request) -> Reply:
        take = left.pop(0) if len(left) > 1 else left[0]
        text = take if isinstance(take, str) else take.fault.partial or ""
        for start in range(0, len(text), 3):
            if request.on_text is not None:
                request.on_text(text[start : start + 3])
        if isinstance(take, WorkerError):
            raise take
        return Reply(text)

    return answer


async def heard_of(pool: Pool, *plans: Plan, caps: Caps | None = None) -> list[RunUpdate]:
    live, heard = LiveRun("r1"), list[RunUpdate]()

    async def listen() -> None:
        heard.extend([each async for each in live.listen()])

    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        await asyncio.sleep(0)
        await (
            engine().with_observers(live.observe, live.say).run(TASK, pool, ScriptedConductor(plans), caps, run_id="r1")
        )
        live.end()
    return heard


def journaled(heard: Sequence[RunUpdate]) -> list[RunUpdate]:
    return [each for each in heard if isinstance(each, EventUpdate)]


def told(heard: Sequence[RunUpdate], terms: ResponseTerms = LIVE) -> list[StreamEvent]:
    course = ResponseBuilder(terms)
    return [sent for each in heard for sent in course.hear(each)]


def text_of(sents: Sequence[StreamEvent]) -> str:
    return "".join(str(each.fields["delta"]) for each in sents if each.type == "response.output_text.delta")


def kinds(sents: Sequence[StreamEvent]) -> list[str]:
    names = [each.type.removeprefix("response.") for each in sents]
    return [name for place, name in enumerate(names) if name != "output_text.delta" or names[place - 1] != name]


MESSAGE = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
WHOLE = ["created", "in_progress", *MESSAGE, "output_item.done", "completed"]


def consecutive(sents: Sequence[StreamEvent]) -> bool:
    return [each.number for each in sents] == list(range(sents[0].number, sents[0].number + len(sents)))


def events_of(sents: Sequence[StreamEvent]) -> list[tuple[int, str, object]]:
    return [(each.number, each.type, each.fields.get("delta")) for each in sents]


LONG_TEXT = "so it is, at last; " * 600


@pytest.mark.parametrize("text", ["so it is, at last", "so", LONG_TEXT], ids=["short", "shortest", "long"])
@pytest.mark.parametrize("terms", [LIVE, ResponseTerms(), ResponseTerms(progress=True)], ids=["live", "held", "lines"])
async def test_a_stream_is_in_openais_order_and_its_numbers_are_consecutive(text: str, terms: ResponseTerms) -> None:
    sents = told(await heard_of(pool_of(first="a plan", last=saying(text)), TWO), terms)
    assert [name for name in kinds(sents) if "reasoning" not in name][:2] == WHOLE[:2]
    assert kinds(sents)[-len(MESSAGE) - 2 :] == [*MESSAGE, "output_item.done", "completed"]
    assert (sents[0].number, consecutive(sents), text_of(sents)) == (0, True, text)
    assert len(sents) < 40 + len(text) / 8


async def test_a_replay_is_the_same_event_for_event() -> None:
    heard = await heard_of(pool_of(first="a plan", last=saying(LONG_TEXT)), TWO)
    live, replayed = told(heard), told(journaled(heard))
    assert events_of(replayed) == events_of(live)
    assert events_of(told(journaled(heard), ResponseTerms())) == events_of(live)


@pytest.mark.parametrize("plans", [(ONE,), (TWO,), (ONE, TWO)], ids=["one step", "two", "two rounds"])
@pytest.mark.parametrize("progress", [True, False])
async def test_whoever_goes_on_after_any_number_has_all_of_it_once(plans: tuple[Plan, ...], progress: bool) -> None:
    heard = await heard_of(pool_of(first=saying("so it is"), last=saying("no, it is not")), *plans)
    terms = ResponseTerms(progress=progress, audible=lambda _: True)
    live = told(heard, terms)
    for cut in range(len(live)):
        before, after = live[: cut + 1], live[cut].number
        again = told(journaled(heard), ResponseTerms(progress=progress, after=after))
        assert text_of(before) + text_of(again) == text_of(live)
        assert events_of([*before, *again]) == events_of(live)


BROKEN = WorkerError(FaultKind.RESET, partial="so it")


async def test_an_attempt_that_breaks_off_leaves_an_incomplete_item_and_the_next_one_has_its_own() -> None:
    heard = await heard_of(pool_of(only=saying(BROKEN, "no, it is not")), ONE)
    live = told(heard)
    items = [each.fields["item"] for each in live if each.type == "response.output_item.done"]
    assert [item.status for item in items if isinstance(item, AnswerMessage)] == ["incomplete", "completed"]
    assert len({item.id for item in items if isinstance(item, AnswerMessage)}) == 2
    assert consecutive(live)


@pytest.mark.parametrize("partial", [BROKEN, WorkerError(FaultKind.CONNECT)], ids=["broken off", "nothing came"])
async def test_after_a_break_a_listener_is_told_that_what_it_heard_is_not_the_answer(partial: WorkerError) -> None:
    heard = await heard_of(pool_of(only=saying(partial, "no, it is not")), ONE)
    live = told(heard)
    assert consecutive(live)
    assert events_of(told(journaled(heard))) == events_of(live)
    for cut in range(len(live)):
        again = told(journaled(heard), ResponseTerms(audible=lambda _: True, after=live[cut].number))
        assert events_of(again) == events_of(live)[cut + 1 :]
    unheard = told(heard, ResponseTerms())  # where nothing is passed on before its answer stands
    assert (kinds(unheard), text_of(unheard), consecutive(unheard)) == (WHOLE, "no, it is not", True)


async def test_a_worker_that_does_not_say_what_came_leaves_what_was_passed_on() -> None:
    def silent(request: Request) -> Reply:
        if request.on_text is not None:
            request.on_text("so it")
        raise WorkerError(FaultKind.TIMEOUT)

    heard = await heard_of(pool_of(only=silent), ONE)
    events = [each.event for each in heard if isinstance(each, EventUpdate)]
    failed = next(each for each in events if isinstance(each, AttemptFailed))
    assert failed.partial == "so it"
    assert events_of(told(journaled(heard))) == events_of(told(heard))


async def test_after_a_killed_server_numbers_go_on_beyond_any_that_it_used() -> None:
    heard = await heard_of(pool_of(only=saying(BROKEN, "no, it is not")), ONE)
    lost = [_without_partial(each) for each in journaled(heard)]
    middle = next(each for each in told(heard) if each.type == "response.output_text.delta")
    again = told(lost, ResponseTerms(audible=lambda _: True, after=middle.number))
    assert kinds(again) == ["output_item.done", *MESSAGE, "output_item.done", "completed"]
    assert text_of(again) == "no, it is not"
    assert again[0].number == told(heard)[2].number + ABANDONED_NUMBERS
    assert kinds(told(lost)) == WHOLE  # who comes later never hears of it
    assert [each.number for each in told(lost)][2:] == [each.number for each in again[1:]]


def _without_partial(heard: RunUpdate) -> RunUpdate:
    if isinstance(heard, EventUpdate) and isinstance(heard.event, AttemptFailed):
        end = heard.event
        spared = AttemptFailed(
            run=end.run,
            at=end.at,
            round=end.round,
            step=end.step,
            attempt=end.attempt,
            worker=end.worker,
            fault=FaultKind.UNCERTAIN,
        )
        return EventUpdate(heard.number, spared)
    return heard


async def test_steps_are_told_of_as_reasoning_with_their_agents_where_that_is_asked_for() -> None:
    course = ResponseBuilder(ResponseTerms(progress=True))
    for heard in await heard_of(pool_of(planner="a plan", writer="so it is"), TWO):
        course.hear(heard)
    lines = [(item.summary[0].text, item.agent) for item in course.output if isinstance(item, ReasoningItem)]
    assert [text for text, _ in lines] == ["Round 1: planner → writer", "planner: part 0 (done)"]
    assert [agent.agent_name for _, agent in lines if agent] == ["fixed:scripted", "planner"]
    assert isinstance(course.output[-1], AnswerMessage)
    assert course.output[-1].agent is not None
    assert course.output[-1].agent.agent_name == "writer"


@pytest.mark.parametrize(
    ("worker", "caps", "standing"),
    [
        (WorkerError(FaultKind.AUTH), Caps(), "failed"),
        (WorkerError(FaultKind.TRUNCATED, partial="so it"), Caps(), "incomplete"),
        ("so it is", Caps(steps=1), "incomplete"),
        ("so it is", Caps(), "completed"),
    ],
)
async def test_a_response_ends_as_its_run_does(worker: str | WorkerError, caps: Caps, standing: str) -> None:
    course = ResponseBuilder(ResponseTerms())
    last = [sent for heard in await heard_of(pool_of(only=worker), ONE, ONE, caps=caps) for sent in course.hear(heard)][
        -1
    ]
    assert (course.standing, last.type) == (standing, f"response.{standing}")
    assert any(isinstance(item, AnswerMessage) for item in course.output) == (standing != "failed")


async def test_a_worker_that_may_not_be_heard_is_told_when_it_has_ended() -> None:
    heard = await heard_of(pool_of(only=saying("so it is")), ONE)
    assert [each.number for each in told(heard, ResponseTerms())] == [each.number for each in told(journaled(heard))]
    assert any(isinstance(each, TextUpdate) for each in heard)


def at_length(request: Request) -> Reply:
    """Say more than numbers are kept free for."""
    said = "x" * (ABANDONED_NUMBERS + 100)
    if request.on_text is not None:
        request.on_text(said[: ABANDONED_NUMBERS // 2])
        request.on_text(said[ABANDONED_NUMBERS // 2 :])
    return Reply(said)


async def test_a_text_longer_than_numbers_are_kept_free_for_comes_whole_and_in_order() -> None:
    broken = [WorkerError(FaultKind.RESET)]
    heard = await heard_of(pool_of(only=lambda asked: broken.pop() if broken else at_length(asked)), ONE)
    live = told(heard)
    assert len(text_of(live)) == ABANDONED_NUMBERS + 100
    assert consecutive(live)
    assert events_of(told(journaled(heard))) == events_of(live)


def calling(request: Request) -> Reply:
    """Ask for two calls of a tool, then say what they came to."""
    if request.exchanges:
        return Reply(" and ".join(result.content for result in request.exchanges[-1].results))
    return Reply("Let me look.", calls=(ToolCall("one", "look", '{"at":1}'), ToolCall("two", "look", '{"at":2}')))


TOOL: Mapping[str, Json] = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


async def suspended() -> tuple[MemoryRecorder, Pool]:
    recorder, pool = MemoryRecorder(), Pool([Member(Card("only", tools=True), Answers(calling))])
    await engine(recorder).run(Task("Where is it?", tools=(TOOL,)), pool, ScriptedConductor([ONE]), run_id="r1")
    return recorder, pool


async def answered() -> list[RunUpdate]:
    recorder, pool = await suspended()
    (asked,) = Run.fold(await recorder.read("r1")).open_questions
    results = dump_records([ToolResult(call.id, f"at {call.id}") for call in load_tool_calls(asked.prompt)])
    told_so = {"actor": "c", "via": "api", "text": results}
    recorder.add(QuestionAnswered(run="r1", at=time(), question=asked.question, approved=True, **told_so))
    await engine(recorder).resume("r1", pool, ScriptedConductor([ONE]))
    return [EventUpdate(number, event) for number, event in enumerate(await recorder.read("r1"))]


async def test_a_run_that_wants_its_clients_tools_completes_a_response_with_the_calls() -> None:
    recorder, _ = await suspended()
    course = ResponseBuilder(ResponseTerms())
    sents = [sent for n, event in enumerate(await recorder.read("r1")) for sent in course.hear(EventUpdate(n, event))]
    call = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert kinds(sents) == [*WHOLE[:-1], *call, *call, "completed"]
    assert [item.type for item in course.output] == ["message", "function_call", "function_call"]
    assert [item.arguments for item in course.output if isinstance(item, FunctionCallItem)] == ['{"at":1}', '{"at":2}']


async def test_the_response_after_it_begins_with_the_results_and_counts_anew() -> None:
    heard = await answered()
    first, second = told(heard, ResponseTerms()), told(heard, ResponseTerms(leg=1))
    assert (first[-1].type, kinds(second)) == ("response.completed", WHOLE)
    assert second[0].number == 0
    assert text_of(second) == "at one and at two"


async def test_legs_end_where_the_client_is_waited_for_and_only_there() -> None:
    events = [each.event for each in await answered() if isinstance(each, EventUpdate)]
    first, second = response_turns(events, approves=False)
    assert [asked.asks for asked in first.waits] == [QuestionKind.TOOLS]
    assert isinstance(events[first.end - 1], RunPaused)
    assert [answer.actor for answer in second.answers(events)] == ["c"]
    assert second.end == len(events)
