"""A run that dies anywhere ends like one that never died, and nobody is asked twice."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from shikisha.core.budget import Amount, Caps, Price, Usage
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import ConfigError, FaultKind, UnknownRun, WorkerError
from shikisha.core.events import (
    AttemptFailed,
    AttemptReason,
    AttemptStarted,
    CheckStatus,
    Event,
    OnCheckFailure,
    RunFinished,
    RunStatus,
)
from shikisha.core.plan import Plan, Step
from shikisha.core.run import CheckVerdict, Run
from shikisha.core.task import Task
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Inspection, Member, OutputCheck, Pool
from shikisha.engine.run_context import RetryPolicy

PLAN = Plan(
    (
        Step("find the year", 0),
        Step("find the sum", 1),
        Step("join them", 2, (0, 1)),
        Step("check the join", 1, (2,)),
        Step("say it", 0, (2, 3)),
    )
)
PRICE = Price(input=1.0, output=2.0)


class Died(BaseException):
    """What kill -9 looks like from inside: nothing may handle it."""


@dataclass
class World:
    """What survives a death: the disk and the workers' own books. `fuse` counts the points where one can die."""

    disk: list[Event] = field(default_factory=list)
    books: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    fuse: int | None = None
    points: int = 0

    def point(self) -> None:
        """Die here if this is the point."""
        self.points += 1
        if self.fuse is not None and self.points >= self.fuse:
            raise Died


@dataclass
class Disk:
    """A recorder whose unflushed events die with the process."""

    world: World
    pending: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.pending.append(event)

    def add_bundle(self, events: Sequence[Event]) -> int:
        for event in events:
            self.add(event)
        return len(events)

    async def flush(self) -> None:
        self.world.point()
        self.world.disk += self.pending
        self.pending.clear()
        self.world.point()

    async def read(self, run: str) -> tuple[Event, ...]:
        events = tuple(event for event in self.world.disk if event.run == run)
        if not events:
            raise UnknownRun(run)
        return events


@dataclass
class Bookkeeper:
    """A worker that honours the idempotency key: one charge a key, the same answer again for it."""

    world: World
    fails_first: bool = False

    async def perform(self, request: Request) -> Reply:
        self.world.point()
        self.world.calls[request.key] += 1
        await asyncio.sleep(0)
        if self.fails_first and request.key.endswith("-1-0"):
            raise WorkerError(FaultKind.SERVER, "busy")
        self.world.books[request.key] = 1
        if request.remarks:
            return Reply("earlier was wrong", Usage(10, 5))
        self.world.point()
        seen = "+".join(granted.text or "?" for granted in request.granted)
        return Reply(f"<{request.subtask}|{seen}>", Usage(10, 5))


@dataclass
class OneThenShip:
    """Proposes the plan, and ships in the next round."""

    name: str = "fixed:test"

    async def propose(self, situation: Situation) -> Proposal:
        return Proposal(Plan() if situation.rounds else PLAN)


class Second:
    """A check that asks a worker for a second opinion."""

    name = "second opinion"

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        assert inspection.ask is not None
        said = await inspection.ask("blue", f"Is {inspection.text} good?")
        passed = "sum" not in said or "earlier" in said
        return CheckVerdict(self.name, CheckStatus.PASS if passed else CheckStatus.FAIL, "not good")


def _pool(world: World) -> Pool:
    cards = (Card(name, price=PRICE, max_output_tokens=20, attempts=3) for name in ("red", "green", "blue"))
    checked = (OutputCheck(Second(), OnCheckFailure.REDO),)
    return Pool(
        [
            Member(card, Bookkeeper(world, fails_first=card.name == "green"), checked * (card.name == "green"))
            for card in cards
        ]
    )


async def _live(world: World, caps: Caps | None = None) -> Run | None:
    """Run or resume until the end or the next death."""
    engine = Engine(Disk(world), retry=RetryPolicy(first=0))
    try:
        if any(event.run == "r" for event in world.disk):
            return await engine.resume("r", _pool(world), OneThenShip())
        return await engine.run(Task("why?"), _pool(world), OneThenShip(), caps, run_id="r")
    except BaseException as error:
        if isinstance(error, Died) or "Died" in repr(error):
            return None
        raise


def _state(run: Run) -> object:
    results = [(result.worker, result.text, result.fault) for result in run.rounds[0].results if result]
    return run.status, run.answer, results, run.rounds[0].plan


def _unbroken() -> tuple[Run, World]:
    world = World()
    run = asyncio.run(_live(world))
    assert run is not None
    return run, world


def test_an_unbroken_run_ends_with_the_last_steps_answer() -> None:
    run, _ = _unbroken()
    assert run.status is RunStatus.DONE
    assert run.answer is not None
    assert run.answer.startswith("<say it|")
    assert any(attempt.started.reason is AttemptReason.REDO for attempt in run.attempts)


def test_invariant_4_death_at_every_store_and_network_call_leads_to_the_same_state() -> None:
    whole, reference = _unbroken()
    for fuse in range(1, reference.points + 1):
        world = World(fuse=fuse)
        assert asyncio.run(_live(world)) is None, f"the process should have died at point {fuse}"
        world.fuse = None
        run = asyncio.run(_live(world))
        assert run is not None
        assert _state(run) == _state(whole), f"died at point {fuse}"
        assert _calls_after_their_end(world.disk) == 0, f"died at point {fuse}"
        assert len(world.books) == len(reference.books), f"died at point {fuse}: something was charged twice"


def test_invariant_4_two_deaths_in_a_row_change_nothing() -> None:
    whole, reference = _unbroken()
    for first in range(1, reference.points, 3):
        world = World(fuse=first)
        asyncio.run(_live(world))
        world.fuse = world.points + 4
        asyncio.run(_live(world))
        world.fuse = None
        run = asyncio.run(_live(world))
        assert run is not None
        assert _state(run) == _state(whole)


def _calls_after_their_end(events: Sequence[Event]) -> int:
    """Count attempts that were started for a step after that step's end was journaled."""
    ended: set[int | None] = set()
    again = 0
    for event in events:
        if event.kind == "step.finished":
            ended.add(getattr(event, "step", None))
        again += isinstance(event, AttemptStarted) and event.step in ended
    return again


def _died_in_flight() -> World:
    world = World(fuse=8)
    asyncio.run(_live(world))
    world.fuse = None
    return world


def test_invariant_4_a_call_in_flight_at_the_kill_is_repeated_under_its_key() -> None:
    world = _died_in_flight()
    open_keys = [attempt.started.key for attempt in Run.fold(world.disk).attempts if attempt.in_flight]
    assert open_keys
    run = asyncio.run(_live(world))
    assert run is not None
    resumed = [a.started for a in run.attempts if a.started.reason is AttemptReason.RESUME]
    assert {started.key for started in resumed} == set(open_keys)
    assert all(count == 1 for count in world.books.values())


def test_a_call_in_flight_at_the_kill_is_marked_uncertain_with_its_reservation_and_charged_nothing() -> None:
    world = _died_in_flight()
    run = asyncio.run(_live(world))
    assert run is not None
    lost = [event for event in world.disk if isinstance(event, AttemptFailed) and event.fault is FaultKind.UNCERTAIN]
    assert lost
    assert all(event.charged == Amount() and event.uncertain.tokens > 0 for event in lost)
    assert run.uncertain == sum((event.uncertain for event in lost), Amount())


def test_invariant_3_a_resumed_run_has_only_the_budget_that_is_left() -> None:
    whole, _ = _unbroken()
    tokens = whole.charged.tokens
    world = World(fuse=20)
    asyncio.run(_live(world, Caps(tokens=tokens + 20)))
    world.fuse = None
    run = asyncio.run(_live(world))
    assert run is not None
    assert run.charged.tokens <= tokens + 20


def test_a_run_that_has_ended_is_returned_as_it_is() -> None:
    whole, world = _unbroken()
    calls = world.calls.total()
    again = asyncio.run(_live(world))
    assert again is not None
    assert again.answer == whole.answer
    assert world.calls.total() == calls


def test_a_run_cannot_go_on_with_another_pool() -> None:
    world = World(fuse=8)
    asyncio.run(_live(world))
    world.fuse = None
    with pytest.raises(ConfigError, match="red, green, blue"):
        asyncio.run(Engine(Disk(world)).resume("r", _pool(world).subset(["red"]), OneThenShip()))


async def test_cancelling_leaves_a_run_that_can_be_resumed() -> None:
    world = World()
    running = asyncio.create_task(_live(world))
    while len(world.disk) < 4:  # noqa: ASYNC110 - a disk signals nothing
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(isinstance(event, RunFinished) for event in world.disk)
    assert Run.fold(world.disk).status is RunStatus.INTERRUPTED
    run = await _live(world)
    assert run is not None
    assert run.status is RunStatus.DONE
