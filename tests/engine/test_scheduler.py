"""Steps as a graph: when each starts, what hinders it, and what a round comes to."""

import asyncio

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps
from shikisha.core.call import Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import AttemptStarted, StepFinished
from shikisha.core.run import Run
from support import Answer, AnswerFunction, member, plan_of, pool_of, run_events, run_plans, seen


def takes(seconds: float) -> AnswerFunction:
    async def answer(request: Request) -> Answer:
        await asyncio.sleep(seconds)
        return f"done: {request.subtask}"

    return answer


def down(_: Request) -> Answer:
    return WorkerError(FaultKind.AUTH, "no key")


def faults(run: Run) -> list[FaultKind | None]:
    return [result.fault.kind if result and result.fault else None for result in run.rounds[0].results]


async def test_a_step_starts_as_soon_as_what_it_may_see_is_there() -> None:
    pool = pool_of(quick=takes(0.0), slow=takes(0.05))
    _, events = await run_events(pool, plan_of((0, ()), (1, ()), (0, (0,)), (0, (2,))))
    order = [(event.kind, event.step) for event in events if isinstance(event, AttemptStarted | StepFinished)]
    assert order.index(("attempt.started", 3)) < order.index(("step.finished", 1))


async def test_no_step_starts_before_all_that_it_may_see_is_there() -> None:
    pool = pool_of(quick=takes(0.0), slow=takes(0.02))
    _, events = await run_events(pool, plan_of((1, ()), (1, (0,)), (0, (0, 1))))
    order = [(event.kind, event.step) for event in events if isinstance(event, AttemptStarted | StepFinished)]
    assert order.index(("step.finished", 1)) < order.index(("attempt.started", 2))


async def test_the_last_steps_result_is_the_answer() -> None:
    run = await run_plans(pool_of(a="first", b="second"), plan_of((1, ()), (0, ())))
    assert run.answer == "first"


async def test_a_step_whose_every_granted_step_failed_is_blocked() -> None:
    after = member("after")
    run = await run_plans(pool_of(member("a", down), after), plan_of((0, ()), (1, (0,))))
    assert faults(run) == [FaultKind.AUTH, FaultKind.BLOCKED]
    assert seen(after) == []


async def test_invariant_6_a_step_is_told_which_granted_step_failed() -> None:
    join = member("join", "joined")
    run = await run_plans(pool_of(member("a", down), join, ok="fine"), plan_of((0, ()), (2, ()), (1, (0, 1))))
    assert run.answer == "joined"
    (request,) = seen(join)
    assert [(granted.text, granted.fault) for granted in request.granted] == [(None, "auth"), ("fine", None)]


async def test_a_failed_step_does_not_end_the_steps_beside_it() -> None:
    run = await run_plans(pool_of(member("a", down), ok=takes(0.01)), plan_of((0, ()), (1, ()), (1, (1,))))
    assert faults(run) == [FaultKind.AUTH, None, None]


async def test_invariant_3_the_steps_cap_holds_within_a_plan() -> None:
    worker = member("w")
    run = await run_plans(pool_of(worker), plan_of((0, ()), (0, (0,)), (0, (1,))), caps=Caps(steps=2))
    assert (len(seen(worker)), faults(run)[-1]) == (2, FaultKind.CAP)
    assert run.finished is not None
    assert run.finished.cap == "steps"


async def test_a_workers_concurrency_holds_over_the_steps_of_a_plan() -> None:
    running, most = 0, 0

    async def counted(_: Request) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        return "done"

    run = await run_plans(pool_of(member("w", counted, concurrency=2)), plan_of(*[(0, ())] * 5))
    assert (most, run.answer) == (2, "done")


async def test_answers_are_heard_while_they_grow() -> None:
    from shikisha.engine.engine import Engine
    from shikisha.engine.recorder import MemoryRecorder

    def stream(request: Request) -> Answer:
        assert request.on_text is not None
        for piece in ("an", "swer"):
            request.on_text(piece)
        return "answer"

    heard: list[tuple[int, int, str]] = []
    engine = Engine(MemoryRecorder(), on_text=lambda turn, step, piece: heard.append((turn, step, piece)))
    await engine.run(
        (await run_plans(pool_of(w="x"), plan_of((0, ())))).task,
        pool_of(w=stream),
        ScriptedConductor([plan_of((0, ()))]),
    )
    assert heard == [(0, 0, "an"), (0, 0, "swer")]
