"""Python functions as tools: what a model is told of them, and what their calls come to."""

import json
from typing import Literal

import pytest

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import ConfigError
from shikisha.core.messages import ToolCall
from shikisha.core.task import Task
from shikisha.core.tools import ToolEffect
from shikisha.engine.pool import Agent, Member, Pool, ToolList
from shikisha.workers.function_tools import function_tools, reads
from support import Answers, engine, plan_of

PAID: dict[str, int] = {}


@reads
def look_up(order: int, detail: Literal["short", "long"] = "short") -> dict[str, object]:
    """Look an order up."""
    return {"order": order, "detail": detail}


async def pay(order: int, idempotency_key: str) -> str:
    """Pay an order."""
    PAID[idempotency_key] = order
    return "paid"


def explode(reason: str) -> str:
    raise RuntimeError(reason)


async def results(tools: ToolList, *calls: ToolCall) -> list[str]:
    """What an agent is told when it makes these calls in one reply."""
    told: list[str] = []

    def answer(request: Request) -> Reply:
        if not request.exchanges:
            return Reply("", calls=calls)
        told.extend(result.content for result in request.exchanges[0].results)
        return Reply("done")

    clerk = Member(Card("clerk", tools=True), Answers(answer), agent=Agent((tools,)))
    run = await engine().run(Task("Do it."), Pool([clerk]), ScriptedConductor([plan_of((0, ()))]))
    assert run.answer == "done"
    return told


async def test_a_function_is_told_by_its_signature_and_called_with_what_fits_it() -> None:
    tools = function_tools([look_up, pay, explode])
    found = {tool.name: tool for tool in await tools.search("", 9)}
    assert found["look_up"].description == "Look an order up."
    assert found["look_up"].schema["required"] == ["order"]
    assert found["look_up"].schema["additionalProperties"] is False
    assert found["pay"].schema["properties"] == {"order": {"title": "Order", "type": "integer"}}
    assert [tool.effect for tool in found.values()] == [ToolEffect.READ, ToolEffect.WRITE, ToolEffect.WRITE]
    assert [tool.repeatable for tool in found.values()] == [True, True, False]
    told = await results(
        tools,
        ToolCall("1", "look_up", '{"order": 7, "detail": "long"}'),
        ToolCall("2", "look_up", '{"order": 7, "detail": "huge"}'),
        ToolCall("3", "pay", '{"order": 7}'),
        ToolCall("4", "pay", '{"order": 7, "idempotency_key": "mine"}'),
        ToolCall("5", "explode", '{"reason": "no such order"}'),
    )
    assert json.loads(told[0]) == {"order": 7, "detail": "long"}
    assert json.loads(told[1])["error"] == json.loads(told[3])["error"] == "bad_arguments"
    assert told[2] == "paid"
    assert [key.rpartition("-0-0-")[2] for key in PAID] == ["0.2-0"]
    assert json.loads(told[4])["message"] == "RuntimeError: no such order"


async def test_a_function_that_cannot_be_told_is_refused() -> None:
    def untyped(order) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001 - what is tested
        return str(order)

    def many(*orders: int) -> str:
        return str(orders)

    def odd(where: Card) -> str:
        return str(where)

    with pytest.raises(ConfigError, match="function untyped: parameter order: expected a type"):
        function_tools([untyped])
    with pytest.raises(ConfigError, match="parameter orders: expected one that can be given by name"):
        function_tools([many])
    with pytest.raises(ConfigError, match="tool '<lambda>'"):
        function_tools([lambda: "x"])
    with pytest.raises(ConfigError, match="names of tools must be unique"):
        function_tools([look_up, look_up])
    assert function_tools([odd])  # a dataclass is no more than an object with fields


async def test_what_is_no_json_is_a_fault_of_the_call() -> None:
    def stream() -> object:
        return object()

    (told,) = await results(function_tools([stream]), ToolCall("1", "stream", "{}"))
    assert json.loads(told)["error"] == "bad_reply"
