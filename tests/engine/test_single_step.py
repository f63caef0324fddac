"""The narrow path of one step asks, answers, bills and records what the round loop makes of the same run."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fresh import fresh
from hypothesis import given, settings
from hypothesis import strategies as st

from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.budget import ZERO, Amount, Caps, Price, Usage
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import Event, FinishReason, RunFinished, RunStarted, RunStatus
from shikisha.core.messages import ChatMessage, Speaker
from shikisha.core.run import Run, new_run_id
from shikisha.core.task import Task
from shikisha.core.visibility import request_messages
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.run_context import RetryPolicy
from shikisha.journal import open_journal
from shikisha.journal.plain_sqlite import open_reader

SLOW, HANG = "slow", "hang"
OUTCOMES = (
    Reply("done", Usage(5, 2)),
    Reply("gèlé", Usage(5, 2), 0.25, FinishReason.STOP, "m-1", notes=("odd",), confidence=0.5),
    Reply("cut", Usage(5, 2), finish=FinishReason.LENGTH),
    Reply("half \ud800", Usage(1, 1)),
    Reply("much", Usage(-1, 1)),
    WorkerError(FaultKind.SERVER, "down"),
    WorkerError(FaultKind.RATE_LIMITED, "later", retry_after=0.001),
    WorkerError(FaultKind.AUTH, "no"),
    WorkerError(FaultKind.TIMEOUT, "late"),
    WorkerError(FaultKind.WAITING, "what now?"),
    WorkerError(FaultKind.REFUSED, "never", tokens=3, dollars=0.5),
    ValueError("a bug"),
    asyncio.CancelledError(),
    SLOW,
    HANG,
)
TASKS = (
    Task("What is it?"),
    Task("What is it?", context="A box.", domain="boxes", labels=("blue", "red"), tenant="acme"),
    Task("And now?", history=(ChatMessage(Speaker.SYSTEM, "Be brief."), ChatMessage(Speaker.ASSISTANT, "Hello."))),
    Task("Go.", options={"temperature": 0.5, "max_completion_tokens": 7}),
    Task("Say it.", answer_schema={"type": "object"}),
)
CAPS = (
    Caps(),
    Caps(dollars=100.0, tokens=1_000_000),
    Caps(dollars=0.0),
    Caps(tokens=3),
    Caps(rounds=1, steps=1, plan_steps=1),
    Caps(rounds=0),
)


@dataclass
class Told:
    """A worker whose calls come to these, one after another, and that keeps what it was asked."""

    outcomes: Sequence[object]
    asked: list[object] = field(default_factory=list)
    hanging: asyncio.Event = field(default_factory=asyncio.Event)

    async def perform(self, request: Request) -> Reply:
        outcome = self.outcomes[min(len(self.asked), len(self.outcomes) - 1)]
        self.asked.append(
            (request_messages(request), request.key, request.client_options, request.labels, request.schema)
        )
        if request.on_text is not None:
            request.on_text("a piece")
        if outcome in (SLOW, HANG):
            if outcome == HANG:
                self.hanging.set()
            await asyncio.sleep(0.02 if outcome == SLOW else 30)
            return Reply("at last", Usage(2, 2))
        if isinstance(outcome, BaseException):
            raise outcome
        assert isinstance(outcome, Reply)
        return outcome


@dataclass
class Hidden:
    """A conductor of which nobody knows that its proposal is fixed."""

    inner: Conductor

    @property
    def name(self) -> str:
        return self.inner.name

    async def propose(self, situation: Situation) -> Proposal:
        return await self.inner.propose(situation)


@dataclass
class Held:
    """A shared budget that notes what is held and settled."""

    told: list[object] = field(default_factory=list)

    async def hold(self, need: Amount, worker: str) -> None:
        self.told.append((need, worker))

    def settle(self, held: Amount, used: Amount, uncertain: Amount = ZERO) -> None:
        self.told.append((held, used, uncertain))


@dataclass(frozen=True)
class Case:
    first: tuple[object, ...]
    second: tuple[object, ...]
    task: Task
    caps: Caps
    stands_in: bool
    cancelled: bool


def plain(event: Event) -> Event:
    timed: dict[str, Any] = {"at": 0.0} | ({"seconds": 0.0} if hasattr(event, "seconds") else {})
    return replace(event, **timed)


async def performed(case: Case, conductor: Conductor, path: Path) -> tuple[object, ...]:
    card = Card("a", kind="chat", price=Price(1.0, 2.0), max_output_tokens=9, attempts=2, timeout=5.0)
    workers = Told(case.first), Told(case.second)
    cards = replace(card, fallback="b" if case.stands_in else None), replace(card, name="b", adds=("green",))
    pool, pieces, seen, held = Pool([*map(Member, cards, workers)]), list[object](), list[Event](), Held()
    async with open_journal(await asyncio.to_thread(fresh, str(path))) as journal:
        engine = Engine(journal, retry=RetryPolicy(0.001, 0.002)).with_observers(
            seen.append, lambda *piece: pieces.append(piece), held
        )
        running = asyncio.ensure_future(engine.run(case.task, pool, conductor, case.caps, run_id="r", config='{"a":1}'))
        hangs = [asyncio.ensure_future(each.hanging.wait()) for each in workers]
        await asyncio.wait([running, *hangs], return_when=asyncio.FIRST_COMPLETED)
        if case.cancelled and not running.done():
            running.cancel()
        for each in hangs:
            each.cancel()
        run: Run | None = None
        with suppress(asyncio.CancelledError):
            run = await running
        events = await journal.read("r")
        found = await journal.verify()
        assert found.ok, found.problems
    with open_reader(str(path)) as reader:
        assert reader is not None
        assert reader.read("r") == events
    assert list(map(plain, seen)) == list(map(plain, events))
    status = None if run is None else (run.status, run.answer, run.charged, run.uncertain)
    return list(map(plain, events)), status, [each.asked for each in workers], pieces, held.told


CASES = st.builds(
    Case,
    st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=2).map(tuple),
    st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=2).map(tuple),
    st.sampled_from(TASKS),
    st.sampled_from(CAPS),
    st.booleans(),
    st.booleans(),
)


@settings(deadline=None, max_examples=30)
@given(CASES)
def test_invariant_4_both_paths_ask_answer_bill_and_record_the_same(case: Case) -> None:
    if HANG in (*case.first, *case.second) and not case.cancelled:
        case = replace(case, caps=Caps(seconds=0.5))

    async def both() -> None:
        conductor = fixed_conductor("single?worker=a")
        with TemporaryDirectory() as folder:
            narrow = await performed(case, conductor, Path(folder) / "narrow")
            loop = await performed(case, Hidden(conductor), Path(folder) / "loop")
        assert narrow == loop

    asyncio.run(both())


async def test_a_run_of_one_step_is_two_rows(tmp_path: Path) -> None:
    case = Case(OUTCOMES[:1], OUTCOMES[:1], TASKS[0], Caps(), stands_in=False, cancelled=False)
    events = (await performed(case, fixed_conductor("single?worker=a"), tmp_path / "j"))[0]
    with sqlite3.connect(tmp_path / "j") as connection:
        kinds = connection.execute("SELECT kind FROM events WHERE run = 'r' ORDER BY seq").fetchall()
    assert kinds == [(RunStarted.kind,), (RunFinished.kind,)]
    assert isinstance(events, list)
    assert [event.kind for event in events] == [
        *("run.started", "plan.proposed", "attempt.started"),
        *("attempt.finished", "step.finished", "run.finished"),
    ]


async def test_invariant_4_the_first_row_is_durable_before_the_call(tmp_path: Path) -> None:
    path, known = tmp_path / "j", list[int]()

    class Looks:
        async def perform(self, _: Request) -> Reply:
            with sqlite3.connect(path) as connection:
                known.append(connection.execute("SELECT count(*) FROM events").fetchone()[0])
            return Reply("done")

    async with open_journal(f"sqlite:///{path}") as journal:
        pool = Pool([Member(Card("a"), Looks())])
        run = await Engine(journal).run(Task("What?"), pool, fixed_conductor("single"), run_id=new_run_id())
    assert (run.status, known) == (RunStatus.DONE, [1])


@pytest.mark.parametrize("damage", ['"x"', "[[]]", '[["run.started",1.0]]', '[["a",1.0,{}],\n["b",2.0,{}]]'])
async def test_a_damaged_row_of_several_events_is_found(tmp_path: Path, damage: str) -> None:
    case = Case(OUTCOMES[:1], OUTCOMES[:1], TASKS[0], Caps(), stands_in=False, cancelled=False)
    await performed(case, fixed_conductor("single?worker=a"), tmp_path / "j")
    with sqlite3.connect(tmp_path / "j") as connection:
        connection.execute("UPDATE events SET data = ? WHERE seq = 0", [damage])
    async with open_journal(f"sqlite:///{tmp_path / 'j'}") as journal:
        found = await journal.verify()
        assert not found.ok
        with pytest.raises(Exception, match=r"makes no event"):
            await journal.read("r")
