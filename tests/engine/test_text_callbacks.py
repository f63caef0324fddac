"""Whoever hears answers grow can tell which attempt a piece belongs to, and which answer is the run's."""

import asyncio

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import AttemptFailed, AttemptFinished, AttemptStarted, Event, PlanProposed
from shikisha.core.plan import Plan
from shikisha.core.secrets import SecretStore
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import MemoryRecorder
from support import AT_ONCE, TASK, Answer, AnswerFunction, member, plan_of

KEY = "sk-very-secret-key"


def streaming(*turns: tuple[str, FaultKind | None]) -> AnswerFunction:
    """A worker that streams each text in two pieces, and then fails or not."""
    left = iter(turns)

    async def answer(request: Request) -> Answer:
        text, fault = next(left)
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            assert request.on_text is not None
            request.on_text(piece)
            await asyncio.sleep(0)
        return text if fault is None else WorkerError(fault, "no")

    return answer


async def hear(pool: Pool, plan: Plan) -> list[str]:
    """What was observed and heard, in one order, each by its attempt."""
    told: list[str] = []
    under_way: dict[int | None, int] = {}

    def observe(event: Event) -> None:
        match event:
            case AttemptStarted():
                under_way[event.step] = event.attempt
                told.append(f"{event.step}.{event.attempt} starts")
            case AttemptFinished() | AttemptFailed():
                told.append(f"{event.step}.{event.attempt} {event.kind.partition('.')[2]}")
            case PlanProposed():
                told.append("plan")

    def on_text(_round: int, step: int, piece: str) -> None:
        told.append(f"{step}.{under_way[step]} {piece}")

    secret_store = SecretStore({"KEY": KEY})
    secret_store.read("KEY")
    engine = Engine(MemoryRecorder(), secret_store=secret_store, observe=observe, on_text=on_text, retry=AT_ONCE)
    await engine.run(TASK, pool, ScriptedConductor([plan]))
    return told


async def test_every_piece_is_heard_between_its_attempts_start_and_its_end() -> None:
    pool = Pool([member("w", streaming(("abcd", FaultKind.SERVER), ("efgh", FaultKind.CUT_OFF), ("done", None)))])
    assert await hear(pool, plan_of((0, ()))) == [
        "plan",
        "0.0 starts", "0.0 ab", "0.0 cd", "0.0 failed",
        "0.1 starts", "0.1 ef", "0.1 gh", "0.1 failed",
        "0.2 starts", "0.2 do", "0.2 ne", "0.2 finished",
    ]  # fmt: skip


async def test_what_is_held_back_as_the_beginning_of_a_key_is_heard_before_the_end() -> None:
    told = await hear(Pool([member("w", streaming(("it is sk-v", None)))]), plan_of((0, ())))
    assert told[-2:] == ["0.0 sk-v", "0.0 finished"]


async def test_steps_side_by_side_are_told_apart_and_a_stand_in_is_another_attempt() -> None:
    first = member("first", streaming(("abcd", FaultKind.REFUSED)), fallback="second")
    pool = Pool([first, member("second", streaming(("efgh", None), ("ijkl", None)))])
    told = await hear(pool, plan_of((0, ()), (1, ())))
    for step, attempts in {0: 2, 1: 1}.items():
        for attempt in range(attempts):
            own = [each.partition(" ")[2] for each in told if each.startswith(f"{step}.{attempt} ")]
            assert own[0] == "starts"
            assert own[-1] in {"finished", "failed"}
            assert len(own) == 4


async def test_what_comes_after_an_attempts_end_is_not_heard() -> None:
    late: list[Request] = []

    def answer(request: Request) -> Answer:
        late.append(request)
        return "done"

    told = await hear(Pool([member("w", answer)]), plan_of((0, ())))
    assert late[0].on_text is not None
    late[0].on_text("more")
    assert told[-1] == "0.0 finished"
