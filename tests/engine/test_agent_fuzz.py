"""Whatever an agent writes: each call has a result, only offered tools are called, a cut journal ends the same."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from test_agent_loop import CITY, ONE, TASK, agent, says

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import CallRole, Event, RunFinished, RunStatus
from shikisha.core.messages import ToolCall
from shikisha.core.run import Run
from shikisha.core.tools import Tool, ToolEffect
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from support import AT_ONCE, Answers

NAMES = st.sampled_from(["look", "pay", "pay", "lok", "", "find_tools", "a b", "look\x00", "é" * 70])
ARGUMENTS = st.sampled_from(
    [
        '{"order": 1}',
        '{"order": 2}',
        "{}",
        "",
        "[]",
        "{",
        "null",
        '{"order": 1e999}',
        '{"order": "1"}',
        "\ud800",
        "[" * 9999,
    ]
)
CALLS = st.builds(ToolCall, st.sampled_from(["", "x", "y"]), NAMES, ARGUMENTS)
REPLIES = st.lists(st.lists(CALLS, min_size=1, max_size=4), max_size=4)
FAULTS = st.sampled_from([None, None, FaultKind.RESET, FaultKind.TOOL_ERROR, FaultKind.CONNECT, FaultKind.SERVER])


@dataclass
class Clerk:
    """A pool of one agent, and what its tools were called with, by idempotency key."""

    replies: list[list[ToolCall]]
    fault: FaultKind | None
    keys: Counter[str] = field(default_factory=Counter)
    called: set[str] = field(default_factory=set)

    def tool(self, name: str) -> Member:
        def answer(request: Request) -> Reply | WorkerError:
            self.keys[request.key] += name == "pay"
            self.called.add(request.subtask)
            return Reply("paid") if self.fault is None else WorkerError(self.fault, "broken")

        return Member(Card(name, attempts=2), Answers(answer))

    def pool(self) -> Pool:
        replies = [Reply("", calls=tuple(calls)) for calls in self.replies]
        look = Tool("look", schema=CITY, effect=ToolEffect.READ)
        tools = [(look, self.tool("look")), (Tool("pay", schema=CITY, effect=ToolEffect.WRITE), self.tool("pay"))]
        return Pool([agent(says(*replies, "done"), tools)])


async def run(clerk: Clerk) -> tuple[Run, tuple[Event, ...]]:
    recorder = MemoryRecorder()
    done = await Engine(recorder, retry=AT_ONCE).run(TASK, clerk.pool(), ScriptedConductor([ONE]))
    return done, await recorder.read(done.id)


async def resume(clerk: Clerk, events: tuple[Event, ...]) -> Run:
    recorder = MemoryRecorder()
    for event in events:
        recorder.add(event)
    return await Engine(recorder, retry=AT_ONCE).resume(events[0].run, clerk.pool(), ScriptedConductor([ONE]))


@given(REPLIES, FAULTS, st.integers(1, 10**6))
@settings(max_examples=60, deadline=None)
def test_a_loop_ends_and_goes_on_wherever_its_journal_ends(
    replies: list[list[ToolCall]], fault: FaultKind | None, cut: int
) -> None:
    clerk = Clerk(replies, fault)
    done, events = asyncio.run(run(clerk))
    assert (done.status, done.answer) == (RunStatus.DONE, "done")
    assert clerk.called <= {'{"order": 1}', '{"order": 2}'}
    step = done.rounds[0].steps[0]
    places = {each.started.call for each in step.attempts if each.started.role is CallRole.TOOL}
    refused = {getattr(each, "call", "") for each in step.tools} - {""}
    assert {f"{turn}.{place}" for turn, calls in enumerate(replies) for place in range(len(calls))} <= places | refused
    assert all(count == 1 or fault is FaultKind.CONNECT for count in clerk.keys.values() if count)
    before = tuple(each for each in events if not isinstance(each, RunFinished))[: 1 + cut % len(events)]
    again = Clerk(replies, fault)
    resumed = asyncio.run(resume(again, before))
    assert resumed.answer == "done"
    numbers = [each.started.attempt for each in resumed.rounds[0].steps[0].attempts]
    assert sorted(numbers) == list(range(len(numbers)))
    known = Run.fold(before)
    begun = {each.started.key for each in known.attempts if each.started.tool == "pay"}
    assert fault is FaultKind.CONNECT or not begun & {key for key, count in again.keys.items() if count}
