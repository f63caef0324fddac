"""Gates: no more calls at once, and no faster, than a worker's card allows; over all runs of an engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import pytest

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps
from shikisha.core.events import AttemptFinished, RunStatus
from shikisha.core.fair_work import WORK_OWNER, WorkOwner
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.rate_limits import ConcurrencyLimits
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card, Reply, Request
from support import engine, member, plan_of, pool_of


class Room:
    """Counts who is inside, and who was at most."""

    def __init__(self) -> None:
        self.inside = self.most = self.visits = 0

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[None]:
        self.inside += 1
        self.visits += 1
        self.most = max(self.most, self.inside)
        try:
            await asyncio.sleep(0.001)
            yield
        finally:
            self.inside -= 1


async def call(gates: ConcurrencyLimits, card: Card, room: Room) -> None:
    async with gates.hold(card), room.visit():
        pass


async def visit(card: Card, times: int) -> Room:
    gates, room = ConcurrencyLimits(), Room()
    await asyncio.gather(*(call(gates, card, room) for _ in range(times)))
    return room


@pytest.mark.parametrize("most", [1, 2, 7])
async def test_as_many_calls_at_once_as_the_card_allows_and_no_more(most: int) -> None:
    room = await visit(Card("w", concurrency=most), 20)
    assert (room.most, room.visits) == (most, 20)


async def test_without_a_limit_all_calls_go_at_once() -> None:
    assert (await visit(Card("w"), 20)).most == 20


async def test_each_worker_has_its_own_gate() -> None:
    gates, rooms = ConcurrencyLimits(), [Room(), Room()]
    cards = [Card("a", concurrency=1), Card("b", concurrency=2)]
    pairs = list(zip(cards, rooms, strict=True))
    await asyncio.gather(*(call(gates, card, room) for card, room in pairs for _ in range(5)))
    assert [room.most for room in rooms] == [1, 2]


async def test_calls_come_no_faster_than_the_rate() -> None:
    begun = perf_counter()
    await visit(Card("w", rate=100.0), 6)
    assert perf_counter() - begun >= 0.045  # five pauses of 10 ms, and a little slack for clocks


async def test_loads_count_calls_in_flight_and_waiting_and_shared_limits() -> None:
    gates, card, other = ConcurrencyLimits(), Card("w", concurrency=2), Card("v", concurrency=2, limits="w")
    assert gates.loads([card, other, Card("free")]) == {"w": 0.0, "v": 0.0}
    inside = asyncio.Event()

    async def stay(one: Card) -> None:
        async with gates.hold(one):
            await inside.wait()

    calls = [asyncio.create_task(stay(one)) for one in (card, other, card)]
    await asyncio.sleep(0)
    assert gates.loads([card, other]) == {"w": 1.5, "v": 1.5}
    calls[2].cancel()
    inside.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert gates.loads([card]) == {"w": 0.0}


async def test_announced_calls_count_once_from_the_plan_to_the_end() -> None:
    gates, card = ConcurrencyLimits(), Card("w", concurrency=2)
    with gates.announced([card, card, Card("free")]):
        assert gates.loads([card]) == {"w": 1.0}
        async with gates.hold(card):
            assert gates.loads([card]) == {"w": 1.0}
        assert gates.loads([card]) == {"w": 0.5}
        async with gates.hold(card), gates.hold(card):  # a retry was not announced
            assert gates.loads([card]) == {"w": 1.0}
    assert gates.loads([card]) == {"w": 0.0}


async def test_a_worker_at_its_rate_is_full() -> None:
    gates, card = ConcurrencyLimits(), Card("w", rate=5.0)
    assert gates.loads([card]) == {"w": 0.0}
    await call(gates, card, Room())
    assert gates.loads([card]) == {"w": 1.0}


async def test_a_call_that_fails_leaves_its_place() -> None:
    gates, card = ConcurrencyLimits(), Card("w", concurrency=1)
    with pytest.raises(ValueError, match="broken"):
        async with gates.hold(card):
            raise ValueError("broken")
    async with asyncio.timeout(1), gates.hold(card):
        pass


async def test_a_call_cancelled_inside_or_while_it_waits_leaves_no_trace() -> None:
    gates, card, room = ConcurrencyLimits(), Card("w", concurrency=1, rate=1000.0), Room()
    calls = [asyncio.create_task(call(gates, card, room)) for _ in range(3)]
    await asyncio.sleep(0)
    for each in calls:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    async with asyncio.timeout(1):
        await call(gates, card, room)
    assert room.inside == 0


async def test_an_engine_holds_a_worker_to_its_limit_over_all_runs() -> None:
    room = Room()

    async def answer(request: Request) -> str:
        async with room.visit():
            return request.subtask

    pool = pool_of(member("narrow", answer, concurrency=2))
    one = engine()
    conductor = ScriptedConductor([plan_of((0, []), (0, []), (0, []))])
    await asyncio.gather(*(one.run(Task(f"task {i}"), pool, conductor) for i in range(5)))
    assert (room.most, room.visits) == (2, 15)


@pytest.mark.parametrize("card", [Card("w", concurrency=1), Card("w", rate=200.0)], ids=["places", "pace"])
async def test_the_calls_of_one_owner_of_work_hold_up_no_other_one(card: Card) -> None:
    limits, order = ConcurrencyLimits(), list[str]()

    async def call(owner: str) -> None:
        WORK_OWNER.set(WorkOwner(owner))
        async with limits.hold(card):
            order.append(owner)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for owner in ["x"] * 20 + ["y"]:
            group.create_task(call(owner))
    assert order.index("y") <= 3


async def test_our_own_queue_takes_none_of_a_runs_seconds() -> None:
    """Four runs share one place; the last waits longer than its seconds, and answers all the same."""

    class Slow:
        async def perform(self, _: Request) -> Reply:
            await asyncio.sleep(0.4)
            return Reply("42")

    made, card, caps = Engine(MemoryRecorder()), Card("w", concurrency=1), Caps(seconds=0.9)
    pool, plan = Pool([Member(card, Slow())]), Plan((Step("Answer.", 0),))
    runs = await asyncio.gather(*(made.run(Task("?"), pool, ScriptedConductor([plan]), caps) for _ in range(4)))
    assert [run.answer for run in runs] == ["42"] * 4
    ends = [attempt.outcome for run in runs for attempt in run.attempts]
    assert all(isinstance(end, AttemptFinished) and end.seconds < 0.9 for end in ends)


async def test_and_a_call_takes_them_as_before() -> None:
    class Silent:
        async def perform(self, _: Request) -> Reply:
            await asyncio.sleep(30)
            return Reply("42")

    card, caps = Card("w", concurrency=1), Caps(seconds=0.3)
    plan = ScriptedConductor([Plan((Step("Answer.", 0),))])
    run = await Engine(MemoryRecorder()).run(Task("?"), Pool([Member(card, Silent())]), plan, caps)
    assert run.status is RunStatus.CAPPED
