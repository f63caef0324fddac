"""Child runs: deeper by one, with workers of the parent's pool, on what is left of its budget, resumed with it."""

from collections.abc import Sequence
from functools import partial

import pytest
from scripted_people import ScriptedApprover
from test_rounds import Calls

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import Event, RunStarted, RunStatus
from shikisha.core.plan import Plan
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.approvals import Decision
from shikisha.engine.budget_ledger import BudgetLedger, recount_usage
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder, read_journaled
from support import AT_ONCE, TASK, Answers, engine, member, plan_of, pool_of, run_plans, seen

ONE = plan_of((0, ()))


def conducting(names: Sequence[str], plan: Plan = ONE, caps: Caps | None = None) -> Member:
    """A worker that lets a child run answer."""

    async def answer(request: Request) -> Reply:
        assert request.spawn is not None
        child = await request.spawn(Task(request.subtask), ScriptedConductor([plan]), names, caps or Caps())
        if child.answer is None:
            raise WorkerError(FaultKind.NO_ANSWER, child.why)
        return Reply(child.answer, child.usage, child.dollars, prepaid=True)

    return Member(Card("boss", kind="conductor"), Answers(answer))


def fault(run: Run) -> FaultKind | None:
    result = run.rounds[0].results[-1]
    return result.fault.kind if result and result.fault else None


async def runs_of(recorder: MemoryRecorder) -> list[RunStarted]:
    events: list[Event] = [event for stored in recorder._events.values() for event in stored]
    return [event for event in events if isinstance(event, RunStarted)]


async def test_a_child_run_answers_its_parents_step() -> None:
    recorder = MemoryRecorder()
    pool = pool_of(conducting(["w"]), w="from below")
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    child = (await runs_of(recorder))[1]
    assert run.answer == "from below"
    assert (child.parent, child.depth, child.pool) == (run.id, 1, ("w",))


async def test_invariant_1_a_child_runs_pool_is_part_of_its_parents() -> None:
    run = await run_plans(pool_of(conducting(["stranger"]), w="x"), ONE)
    assert fault(run) is FaultKind.BAD_REQUEST


async def test_invariant_3_depth_is_capped() -> None:
    run = await run_plans(pool_of(conducting(["boss"]), w="x"), ONE, caps=Caps(depth=2))
    assert run.status is RunStatus.FAILED
    deep = await run_plans(pool_of(conducting(["w"]), w="x"), ONE, caps=Caps(depth=0))
    assert deep.finished is not None
    assert (fault(deep), deep.finished.cap) == (FaultKind.CAP, "depth")


async def test_invariant_3_a_child_run_can_use_only_what_is_left_above_it() -> None:
    worker = member("w", Reply("x", Usage(1, 100)), max_output_tokens=100)
    greedy = conducting(["w"], plan_of(*[(0, ())] * 4), Caps(tokens=1_000_000))
    run = await run_plans(pool_of(greedy, worker), ONE, caps=Caps(tokens=260))
    assert len(seen(worker)) < 4
    assert run.charged.tokens <= 260


async def test_invariant_3_steps_of_a_child_run_count_above_it() -> None:
    worker = member("w")
    run = await run_plans(pool_of(conducting(["w"], plan_of(*[(0, ())] * 4)), worker), ONE, caps=Caps(steps=3))
    assert len(seen(worker)) == 2
    assert run.status is not RunStatus.DONE


async def test_what_a_child_run_used_is_charged_once() -> None:
    worker = member("w", Reply("x", Usage(30, 10)), price=Price(1.0, 1.0), max_output_tokens=10)
    pool = pool_of(conducting(["w"]), worker)
    run = await run_plans(pool, plan_of((0, ()), (1, ())), caps=Caps(dollars=1.0))
    assert run.charged.tokens == 80
    assert run.charged.dollars == pytest.approx(80e-6)


async def test_invariant_3_a_resumed_run_counts_all_that_it_and_its_child_runs_used() -> None:
    """Its planner, its steps, and the steps of every child run: each once, though a boss states what its child used."""
    recorder, ledger = MemoryRecorder(), BudgetLedger(Caps())
    worker = member("w", Reply("x", Usage(30, 10)), price=Price(1.0, 1.0))
    planner = member("planner", Reply("a plan", Usage(5, 2)), price=Price(1.0, 1.0))

    async def ask(situation: Situation) -> Proposal:
        assert situation.ask is not None
        reply = await situation.ask(planner, Request(situation.task, "write a plan"))
        return Proposal(plan_of((0, ()), (0, ()), (1, ())), reply.text, final=True)

    boss = conducting(["w"], plan_of((0, ()), (0, ())))
    run = await engine(recorder).run(TASK, pool_of(boss, worker), Calls(ask))
    await recount_usage(partial(read_journaled, recorder), run, ledger)
    assert (ledger.steps, ledger.used.tokens) == (3 + 4, 5 * 40 + 7)
    assert ledger.used.dollars == pytest.approx(207e-6)
    assert run.charged.tokens == 207


async def test_invariant_3_what_a_child_run_used_counts_where_its_step_never_ended() -> None:
    recorder, ledger = MemoryRecorder(), BudgetLedger(Caps())
    waiting = member("ann", lambda _: WorkerError(FaultKind.WAITING, "?"), kind="human")
    boss, worker = conducting(["w", "ann"], plan_of((0, ()), (1, (0,)))), member("w", Reply("x", Usage(30, 10)))
    pool = pool_of(boss, worker, waiting)
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    assert run.status is RunStatus.SUSPENDED
    await recount_usage(partial(read_journaled, recorder), run, ledger)
    assert ledger.used.tokens >= 40


async def test_invariant_2_a_child_run_sees_only_what_its_step_was_given() -> None:
    worker = member("w")
    pool = pool_of(conducting(["w"]), worker, other="withheld canary")
    await run_plans(pool, plan_of((2, ()), (0, ())))
    (request,) = seen(worker)
    assert "canary" not in repr(request)


async def test_invariant_4_a_child_run_is_resumed_with_its_parent() -> None:
    recorder = MemoryRecorder()
    waiting = member("ann", lambda _: WorkerError(FaultKind.WAITING, "?"), kind="human")
    worker = member("w", "done below")
    pool: Pool = pool_of(conducting(["w", "ann"], plan_of((0, ()), (1, (0,)))), worker, waiting)
    run = await engine(recorder).run(TASK, pool, ScriptedConductor([ONE]))
    assert run.status is RunStatus.SUSPENDED
    approver = ScriptedApprover({"ann": Decision(approved=True, actor="ann", text="fine")})
    resumed = await Engine(recorder, approver=approver, retry=AT_ONCE).resume(run.id, pool, ScriptedConductor([ONE]))
    assert (resumed.status, resumed.answer) == (RunStatus.DONE, "fine")
    assert len(seen(worker)) == 1, "the child's first step is not performed again"
    assert len(await runs_of(recorder)) == 2
