"""Turns of a conversation whose tools the client calls: handed over whole, journaled first, and never broken by it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from test_client_tools import TASK, asks_times, calling, reply_to, tooled

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps
from shikisha.core.call import Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import AttemptReason, RunStatus, TurnRouted
from shikisha.core.plan import ANSWER, Plan, Step
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.conductor import Turn, TurnChoice
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import ApprovalMode
from shikisha.explain import explain_text
from shikisha.explain.explanation import explain
from support import AT_ONCE, Answer, AnswerFunction

ONE = Plan((Step(ANSWER, 0),))


@dataclass
class Scripted:
    """A router that names these workers, turn by turn, then whoever has the conversation."""

    workers: tuple[str, ...] = ()
    second: str = ""
    kept: str = ""
    turns: list[Turn] = field(default_factory=list)
    settled: int = 0

    def choose(self, turn: Turn) -> TurnChoice:
        self.turns.append(turn)
        named = self.workers[turn.number] if turn.number < len(self.workers) else turn.worker
        return TurnChoice(named, "as scripted", {"turn": turn.number}, self.second)

    def settle(self, turn: Turn, replies: Mapping[str, Reply]) -> TurnChoice:  # noqa: ARG002 - the port
        self.settled += 1
        return TurnChoice(self.kept or next(iter(replies)), "as scripted")


def chatty(name: str, answer: Answer | AnswerFunction, **card: object) -> Member:
    made = tooled(name, answer)
    return replace(made, card=replace(made.card, **{"passthrough": True, **card}))  # type: ignore[arg-type]


async def play(pool: Pool, router: Scripted | None, task: Task = TASK, *, afresh: bool = False) -> Run:
    """Run a task whose tools are called whenever it waits; `afresh`: each time by an engine that knows nothing."""
    recorder, router = MemoryRecorder(), router
    engine = Engine(recorder, retry=AT_ONCE, turn_router=router)
    run = await engine.run(task, pool, ScriptedConductor([ONE]), Caps(steps=9))
    while run.status is RunStatus.SUSPENDED:
        reply_to(run, recorder)
        engine = Engine(recorder, retry=AT_ONCE, turn_router=router) if afresh else engine
        run = await engine.resume(run.id, pool, ScriptedConductor([ONE]))
    return run


def made_by(run: Run) -> list[str]:
    return [each.started.worker for each in run.attempts]


async def test_turns_go_where_the_router_says_and_carry_the_whole_conversation() -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}

    def answers(name: str) -> AnswerFunction:
        def answer(request: Request) -> Answer:
            seen[name].append(len(request.exchanges))
            return (
                calling(len(request.exchanges)) if len(request.exchanges) < 3 else f"{len(request.exchanges)} results"
            )

        return answer

    router = Scripted(("a", "b", "a", "b"))
    run = await play(Pool([chatty("a", answers("a")), chatty("b", answers("b"))]), router)
    assert run.answer == "3 results"
    assert made_by(run) == ["a", "b", "a", "b"]
    assert seen == {"a": [0, 2], "b": [1, 3]}
    assert [each.started.instead_of for each in run.attempts] == [None, "a", "b", "a"]
    assert [each.started.reason for each in run.attempts[1:]] == [AttemptReason.TOOLS] * 3
    told = explain_text(explain(run))
    assert "b makes this turn, instead of a: as scripted" in told
    assert "the client's tools" in told


async def test_a_resumed_run_goes_on_as_journaled_whatever_the_router_would_say_now() -> None:
    pool = Pool([chatty("a", asks_times(2)), chatty("b", asks_times(2))])
    recorder = MemoryRecorder()
    run = await Engine(recorder, turn_router=Scripted(("b",))).run(TASK, pool, ScriptedConductor([ONE]))
    reply_to(run, recorder)
    other = Scripted(("a", "a"))
    run = await Engine(recorder, turn_router=other).resume(run.id, pool, ScriptedConductor([ONE]))
    assert made_by(run) == ["b", "a"]
    assert [turn.number for turn in other.turns] == [1]  # the first was decided already
    reply_to(run, recorder)
    run = await Engine(recorder).resume(run.id, pool, ScriptedConductor([ONE]))  # without a router
    assert run.status is RunStatus.DONE, run.why


async def test_without_a_router_a_run_is_journaled_as_before() -> None:
    run = await play(Pool([chatty("a", asks_times(1)), chatty("b", "no")]), None)
    assert made_by(run) == ["a", "a"]
    assert not [row for step in run.rounds[0].steps.values() for row in step.tools]


async def test_a_worker_that_fails_at_a_switch_gives_the_conversation_back() -> None:
    def fails(_: Request) -> Answer:
        raise WorkerError(FaultKind.BAD_REQUEST, "another model's calls")

    run = await play(Pool([chatty("a", asks_times(1)), chatty("b", fails)]), Scripted(("a", "b")))
    assert run.answer == "wet: rain 0"
    assert made_by(run) == ["a", "b", "a"]
    assert run.attempts[2].started.reason is AttemptReason.FALLBACK
    assert run.attempts[2].started.instead_of == "b"


BARRED: list[tuple[Callable[[], Member], str]] = [
    (lambda: tooled("b", "no"), "cannot call"),
    (lambda: chatty("b", "no", tools=False), "cannot call"),
    (lambda: chatty("b", "no", approval=ApprovalMode.ALWAYS), "a person is asked"),
    (lambda: chatty("b", "no", foreign_calls=False), "another model made"),
]


@pytest.mark.parametrize(("other", "why"), BARRED)
async def test_a_worker_that_may_not_take_over_does_not(other: Callable[[], Member], why: str) -> None:
    router = Scripted(("a", "b"))
    run = await play(Pool([chatty("a", asks_times(1)), other()]), router)
    assert run.answer == "wet: rain 0"
    assert made_by(run) == ["a", "a"]
    assert why in router.turns[1].excluded["b"]
    (row,) = [each for each in run.rounds[0].steps[0].tools if isinstance(each, TurnRouted) and each.turn == 1]
    assert why in row.note


async def test_labels_that_a_worker_is_not_cleared_for_bar_it() -> None:
    recorder, router = MemoryRecorder(), Scripted(("a", "b"))
    pool = Pool([chatty("a", asks_times(1), sees=("secret",), adds=("secret",)), chatty("b", "no")])
    engine = Engine(recorder, turn_router=router, guarded_labels=frozenset({"secret"}))
    run = await engine.run(TASK, pool, ScriptedConductor([ONE]))
    reply_to(run, recorder)
    run = await engine.resume(run.id, pool, ScriptedConductor([ONE]))
    assert made_by(run) == ["a", "a"]
    assert "not cleared" in router.turns[1].excluded["b"]


@dataclass
class Broken(Scripted):
    """A router that raises, or names nobody."""

    named: str = ""

    def choose(self, turn: Turn) -> TurnChoice:  # noqa: ARG002 - the port
        if self.named:
            return TurnChoice(self.named)
        raise ValueError("no idea")


@pytest.mark.parametrize("router", [Broken(), Broken(named="nobody")])
async def test_a_router_that_breaks_changes_nothing(router: Broken) -> None:
    run = await play(Pool([chatty("a", asks_times(2)), chatty("b", "no")]), router)
    assert run.answer == "wet: rain 0, rain 1"
    assert made_by(run) == ["a", "a", "a"]


@pytest.mark.parametrize("afresh", [False, True])
@pytest.mark.parametrize(("kept", "asked"), [("a", ["a", "b"]), ("b", ["a", "b"]), ("c", ["a", "b", "c"])])
async def test_two_replies_are_compared_and_one_goes_on(kept: str, asked: list[str], *, afresh: bool) -> None:
    def answers(name: str) -> AnswerFunction:
        def answer(request: Request) -> Answer:
            if not request.exchanges:
                return calling(0, arguments=f'{{"city":"{name}"}}')
            assert request.exchanges[0].calls[0].arguments == f'{{"city":"{kept}"}}'
            return f"{name} answers"

        return answer

    @dataclass
    class First(Scripted):
        def choose(self, turn: Turn) -> TurnChoice:
            return replace(super().choose(turn), second="b" if turn.number == 0 else "")

    router = First(kept=kept)
    run = await play(Pool([chatty(name, answers(name)) for name in "abc"]), router, afresh=afresh)
    assert made_by(run) == [*asked, kept]
    assert run.answer == f"{kept} answers"
    assert router.settled == 1
    assert run.attempts[1].started.reason is AttemptReason.COMPARED


async def test_a_second_that_fails_has_no_say() -> None:
    def fails(_: Request) -> Answer:
        raise WorkerError(FaultKind.REFUSED, "no")

    router = Scripted(second="b", kept="b")
    run = await play(Pool([chatty("a", asks_times(0)), chatty("b", fails)]), router)
    assert run.answer == "wet: "
    assert router.settled == 0
