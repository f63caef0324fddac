"""Evaluations with agents: the one agent that is their control, and where runs with tools went wrong."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from shikisha.conductors.fixed_conductors import OneWorkerConductor, ScriptedConductor
from shikisha.config.eval_setup import only_reads, unite_agents
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.messages import Json, ToolCall
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.core.tools import Tool, ToolEffect
from shikisha.engine.pool import Agent, Member, Pool, ToolList
from shikisha.evals.baselines import ONE_AGENT
from shikisha.evals.response_cache import ResponseCache
from shikisha.evals.runner import classify_failure
from shikisha.guards.grounded import GroundedGuard
from shikisha.workers.agent import WorkerTool, WorkerTools
from support import Answers, engine, member, plan_of

TASK = Task("Pay order 7.")
NUMBER: Mapping[str, Json] = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}},
    "required": ["order_id"],
}


def payer(*calls: tuple[str, str], tool: object = "paid", final: str = "Done.") -> Member:
    """An agent whose model makes these calls one by one; its one tool pays, behind `grounded`."""

    def model(request: Request) -> Reply:
        place = len(request.exchanges)
        if place >= len(calls):
            return Reply(final)
        return Reply("", calls=(ToolCall(f"c{place}", *calls[place]),))

    pay = Member(Card("pay", attempts=1), Answers(tool), guards=(GroundedGuard(),))  # type: ignore[arg-type]
    sources = (ToolList([(Tool("pay", schema=NUMBER, effect=ToolEffect.WRITE), pay)]),)
    return Member(Card("clerk", kind="agent", tools=True), Answers(model), agent=Agent(sources, turns=4))


async def perform(clerk: Member) -> Run:
    return await engine().run(TASK, Pool([clerk]), ScriptedConductor([plan_of((0, ()))]))


def failing(_request: Request) -> WorkerError:
    return WorkerError(FaultKind.TOOL_ERROR, "no such order")


RIGHT, UNSEEN = ("pay", '{"order_id": "7"}'), ("pay", '{"order_id": "W999"}')


class TestFailureClasses:
    @pytest.mark.parametrize(
        ("calls", "tool", "found"),
        [
            ([UNSEEN], "paid", "navigation"),
            ([UNSEEN, RIGHT], "paid", "content"),  # it mended the call
            ([("pay", "{}")], "paid", "tool use"),
            ([("steal", "{}")], "paid", "tool use"),
            ([RIGHT], failing, "tool use"),
            ([RIGHT], "paid", "content"),
            ([], "paid", "incomplete"),
            ([RIGHT] * 9, "paid", "incomplete"),  # it calls on after its last turn
        ],
    )
    async def test_a_wrong_run_has_one(self, calls: Sequence[tuple[str, str]], tool: object, found: str) -> None:
        run = await perform(payer(*calls, tool=tool))
        assert classify_failure(run, 0.0) == found

    async def test_a_right_one_or_one_without_tools_has_none(self) -> None:
        run = await perform(payer(RIGHT))
        assert classify_failure(run, 1.0) is None
        assert classify_failure(run, None) is None
        plain = await perform(member("w"))
        assert classify_failure(plain, 0.0) is None


async def test_a_reply_that_calls_tools_comes_back_from_the_cache_with_its_calls(tmp_path: Path) -> None:
    reply = Reply("Let me see.", calls=(ToolCall("c1", "pay", '{"order_id": "7"}'),))
    cache = ResponseCache(tmp_path, "0")
    await cache.keep("k", "w", reply)
    await cache.aclose()
    kept = await ResponseCache(tmp_path, "1").find("k")
    assert kept is not None
    assert kept.reply == reply


class TestOneAgent:
    def agent(self, name: str, *tools: str, turns: int) -> Member:
        listed = WorkerTools([WorkerTool(member(tool), ToolEffect.READ) for tool in tools])
        return Member(Card(name, kind="agent", tools=True), Answers(name), agent=Agent((listed,), turns=turns))

    async def test_it_has_the_tools_and_turns_of_all_and_the_model_of_one(self) -> None:
        pool = Pool([self.agent("a", "x", "y", turns=3), member("w"), self.agent("b", "y", "z", turns=4)])
        one = unite_agents(pool, "b")
        assert one.agent is not None
        assert (one.card.name, one.worker, one.agent.turns) == (ONE_AGENT, pool.named("b").worker, 7)
        (source,) = one.agent.sources
        assert [tool.name for tool in await source.search("", 9)] == ["x", "y", "z"]
        with pytest.raises(ConfigError, match="'w' is no agent"):
            unite_agents(pool, "w")

    def test_it_is_asked_again_only_where_every_tool_is_known_to_read(self) -> None:
        reads, writes = self.agent("a", "x", turns=3), payer()
        assert only_reads(Pool([reads, member("w")]))
        assert not only_reads(Pool([reads, writes]))

    async def test_it_plays_all_parts_and_sees_all_that_it_said(self) -> None:
        seen: list[tuple[str, list[int]]] = []

        def say(request: Request) -> Reply:
            seen.append((request.subtask, [granted.index for granted in request.granted]))
            return Reply(f"part {len(seen)}")

        plan = plan_of((0, ()), (1, ()), (0, (0,)))
        pool = Pool([member("a"), member("b"), Member(Card("one"), Answers(say))])
        run = await engine().run(TASK, pool, OneWorkerConductor(ScriptedConductor([plan])))
        assert run.answer == "part 3"
        assert [granted for _, granted in seen] == [[], [0], [0, 1]]
        assert [subtask for subtask, _ in seen] == [step.subtask for step in plan.steps]
