"""The workers without a network: scripted, human, vote and conductor."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

import pytest
from scripted_people import ScriptedApprover

from shikisha.conductors.fixed_conductors import ScriptedConductor, fixed_conductor
from shikisha.core.budget import Caps, Usage
from shikisha.core.call import Card, ChildRunResult, GrantedStep, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import RunStatus
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.approvals import Decision
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Member, Pool
from shikisha.workers import human, scripted, vote
from shikisha.workers.conductor import ConductorWorker
from shikisha.workers.human import HumanWorker
from shikisha.workers.scripted import ScriptedWorker
from shikisha.workers.vote import VoteForm, VoteWorker
from support import member, plan_of, run_plans, seen

TASK = Task("Who wrote it?", "A novel.", id="t/1", domain="books", labels=("old",))


def asked(subtask: str = "part", *granted: str | None, key: str = "") -> Request:
    shown = tuple(GrantedStep(i, f"part {i}", text, None if text else "empty") for i, text in enumerate(granted))
    return Request(TASK, subtask, shown, key=key)


async def fault(worker: ScriptedWorker | HumanWorker | VoteWorker | ConductorWorker, request: Request) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        await worker.perform(request)
    return caught.value


async def texts(worker: ScriptedWorker, count: int) -> list[str]:
    return [(await worker.perform(asked())).text for _ in range(count)]


async def test_scripted_answers_in_turn_and_the_last_one_stays() -> None:
    assert await texts(ScriptedWorker(["a", "b"]), 4) == ["a", "b", "b", "b"]


async def test_scripted_answers_by_subtask_or_by_function() -> None:
    by_subtask = ScriptedWorker({"part": "mine"})
    assert (await by_subtask.perform(asked())).text == "mine"
    assert (await fault(by_subtask, asked("other"))).fault.kind is FaultKind.NO_RECORD
    by_function = ScriptedWorker(lambda request: Reply(request.subtask * 2, Usage(1, 2)))
    assert await by_function.perform(asked()) == Reply("partpart", Usage(1, 2))


async def test_scripted_chance_is_the_same_for_the_same_seed() -> None:
    one, other, third = [await texts(ScriptedWorker(list("abcdefgh"), seed=seed), 20) for seed in (1, 1, 2)]
    assert one == other != third
    assert len(set(one)) > 3


async def test_scripted_fails_as_told_before_it_answers() -> None:
    wish = WorkerError(FaultKind.RATE_LIMITED, "slow down", retry_after=2.0)
    worker = ScriptedWorker("fine", faults=[FaultKind.RESET, None, wish])
    assert (await fault(worker, asked())).fault.kind is FaultKind.RESET
    assert (await worker.perform(asked())).text == "fine"
    assert (await fault(worker, asked())) is wish
    assert (await worker.perform(asked())).text == "fine"


async def test_scripted_pauses_as_told() -> None:
    worker = ScriptedWorker(seconds=[0.0, 0.1])
    await worker.perform(asked())
    begun = monotonic()
    await asyncio.gather(*(worker.perform(asked()) for _ in range(100)))
    assert 0.09 <= monotonic() - begun < 9  # side by side: one after another takes ten seconds


async def test_scripted_keeps_what_it_was_asked_and_counts_by_key() -> None:
    worker = ScriptedWorker()
    for key in ("k1", "k2", "k1"):
        await worker.perform(asked(key=key))
    assert worker.calls == {"k1": 2, "k2": 1}
    assert [request.key for request in worker.requests] == ["k1", "k2", "k1"]


async def test_scripted_from_a_configuration_keeps_nothing() -> None:
    settings = scripted.ScriptedSettings(answers=("a", "b"), faults=(None, FaultKind.SERVER), output_tokens=3)
    worker = scripted.build(settings, Card("double"), SecretStore({}))
    assert await worker.perform(asked(key="k")) == Reply("a", Usage(0, 3))
    assert (await fault(worker, asked(key="k"))).fault.kind is FaultKind.SERVER
    assert not worker.requests
    assert not worker.calls


async def test_scripted_lets_its_answer_be_heard() -> None:
    heard: list[str] = []
    await ScriptedWorker("hello").perform(Request(TASK, "part", on_text=heard.append))
    assert heard == ["hello"]


async def test_human_waits_and_shows_the_question_and_what_is_granted_only() -> None:
    worker = human.build(
        human.HumanSettings(instruction="You are the editor."), Card("me", kind="human"), SecretStore({})
    )
    error = await fault(worker, asked("Shorten it.", "A long text.", None))
    assert error.fault.kind is FaultKind.WAITING
    expected = ["You are the editor.", TASK.prompt, TASK.context, "Earlier: part 0\nA long text."]
    expected += ["Earlier: part 1\n(no answer: empty)", "Your part: Shorten it."]
    assert error.fault.message.split("\n\n") == expected


async def test_a_run_takes_the_answer_of_a_person_at_the_desk() -> None:
    pool = Pool([Member(Card("me", kind="human"), HumanWorker())])
    approver = ScriptedApprover({"me": Decision(approved=True, actor="Ada", text="Murasaki")})
    run = await run_plans(pool, plan_of((0, ())), approver=approver)
    assert (run.status, run.answer) == (RunStatus.DONE, "Murasaki")
    assert [answered.actor for answered in run.answers.values()] == ["Ada"]


async def test_a_run_waits_when_nobody_is_there_to_answer() -> None:
    run = await run_plans(Pool([Member(Card("me", kind="human"), HumanWorker())]), plan_of((0, ())))
    assert run.status is RunStatus.SUSPENDED


async def voted(worker: VoteWorker, *granted: str | None) -> str:
    return (await worker.perform(asked("Count.", *granted))).text


@pytest.mark.parametrize(
    ("granted", "winner"),
    [
        (("a", "b", "B "), "b"),
        (("a", "b"), "a"),
        (("b", "a", "a", "b"), "b"),
        ((None, "a", None, " "), "a"),
        (("Two\n words", "x", "two words"), "Two\n words"),
    ],
)
async def test_vote_returns_the_earliest_of_the_most_given_answers(
    granted: tuple[str | None, ...], winner: str
) -> None:
    assert await voted(VoteWorker(), *granted) == winner


@pytest.mark.parametrize(
    ("by", "granted", "winner"),
    [
        (VoteForm.CHOICE, ("C", "The answer is (B).", "b", "I cannot say."), "The answer is (B)."),
        (VoteForm.CHOICE, ("(A) is wrong, so the answer is (D)", "A", "D"), "(A) is wrong, so the answer is (D)"),
        (VoteForm.NUMBER, ("7", "The sum is $1,000.00", "1000"), "The sum is $1,000.00"),
        (VoteForm.NUMBER, ("0.50", ".5 or 0.5", "00.5"), "0.50"),
        (VoteForm.NUMBER, ("3", "3 less 6 is -3", "-3.0"), "3 less 6 is -3"),
        (VoteForm.NUMBER, ("3", "From 3 to -3", "-3.0"), "3"),  # a range is no vote
        (VoteForm.NUMBER, ("1/2", "1", "2", "it is 1/2"), "1/2"),
    ],
)
async def test_vote_compares_by_choice_or_by_number(by: VoteForm, granted: tuple[str, ...], winner: str) -> None:
    assert await voted(VoteWorker(by), *granted) == winner


async def test_vote_weighs_by_place() -> None:
    settings = vote.VoteSettings(weights=(0.5, 3.0))
    worker = vote.build(settings, Card("vote"), SecretStore({}))
    assert await voted(worker, "a", "b", "a") == "b"
    assert await voted(worker, "a", "b", "c", "c", "c", "c") == "c"


@pytest.mark.parametrize("granted", [(), (None,), ("  ",)])
async def test_vote_without_a_vote_is_a_fault(granted: tuple[str | None, ...]) -> None:
    assert (await fault(VoteWorker(), asked("Count.", *granted))).fault.kind is FaultKind.BAD_ARGUMENTS


async def test_a_run_ends_with_the_answer_of_the_majority() -> None:
    pool = Pool([member("a", "x"), member("b", "y"), member("c", "Y"), Member(Card("vote"), VoteWorker())])
    run = await run_plans(pool, plan_of((0, ()), (1, ()), (2, ()), (3, (0, 1, 2))))
    assert run.answer == "y"


@dataclass
class Nursery:
    """Spawns nothing; keeps what was asked of it."""

    child: ChildRunResult
    seen: list[tuple[Task, str, Sequence[str], Caps]] = field(default_factory=list)

    async def spawn(self, task: Task, conductor: Conductor, names: Sequence[str], caps: Caps) -> ChildRunResult:
        self.seen.append((task, conductor.name, names, caps))
        return self.child


async def test_conductor_hands_down_the_subtask_and_what_is_granted_and_nothing_else() -> None:
    nursery = Nursery(ChildRunResult("run-1", "Murasaki", "done", Usage(10, 5), 0.25))
    worker = ConductorWorker(ScriptedConductor((), "fixed:mine"), ["a", "b"], Caps(steps=3))
    granted = (GrantedStep(0, "Find the title.", "Genji"), GrantedStep(1, "Find the year.", None, "empty"))
    reply = await worker.perform(Request(TASK, "Name the author.", granted, spawn=nursery.spawn))
    assert reply == Reply("Murasaki", Usage(10, 5), 0.25, model="fixed:mine", prepaid=True)
    task, conductor, names, caps = nursery.seen[0]
    assert (conductor, names, caps) == ("fixed:mine", ("a", "b"), Caps(steps=3))
    assert (task.prompt, task.id, task.domain, task.labels) == ("Name the author.", "t/1", "books", ("old",))
    assert task.context == (
        "The question that this is a part of:\nWho wrote it?\n\nIts context:\nA novel.\n\n"
        "Already done: Find the title.\nGenji\n\nAlready done: Find the year.\n(no answer: empty)"
    )


async def test_a_child_run_without_an_answer_is_a_fault_that_says_why() -> None:
    nursery = Nursery(ChildRunResult("run-1", None, "the pool was asleep", Usage(10, 5), 0.25))
    request = Request(TASK, "part", spawn=nursery.spawn)
    error = await fault(ConductorWorker(ScriptedConductor(()), ["a"]), request)
    assert error.fault.kind is FaultKind.NO_ANSWER
    assert "run-1 has no answer: the pool was asleep" in error.fault.message
    assert (error.fault.tokens, error.fault.dollars) == (15, 0.25)


async def test_where_no_child_run_can_be_started_it_is_a_refusal() -> None:
    assert (await fault(ConductorWorker(ScriptedConductor(()), ["a"]), asked())).fault.kind is FaultKind.CAP


def with_child(*, depth: int = 2, **answers: str) -> tuple[Pool, Caps]:
    child = ConductorWorker(fixed_conductor("single"), tuple(answers))
    members = [member(name, answer) for name, answer in answers.items()]
    return Pool([Member(Card("team", kind="conductor"), child), *members]), Caps(depth=depth)


async def run_child(pool: Pool, caps: Caps) -> tuple[RunStatus, str | None]:
    run = await run_plans(pool, plan_of((0, ())), caps=caps)
    return run.status, run.answer


async def test_a_conductor_in_the_pool_answers_by_a_child_run() -> None:
    pool, caps = with_child(a="from below")
    assert await run_child(pool, caps) == (RunStatus.DONE, "from below")
    (request,) = seen(pool.named("a"))
    assert request.task.prompt == "part 0"
    assert "What is it?" in request.task.context


async def test_invariant_3_depth_holds_for_conductors_that_are_workers() -> None:
    pool, caps = with_child(depth=0, a="from below")
    status, answer = await run_child(pool, caps)
    assert (status, answer) == (RunStatus.CAPPED, None)
    assert not seen(pool.named("a"))


async def test_invariant_2_a_child_run_does_not_see_what_its_step_was_not_granted() -> None:
    pool, caps = with_child(a="from below")
    everyone = Pool([*pool, member("writer", "the withheld words")])
    await run_plans(everyone, plan_of((2, ()), (0, ())), caps=caps)
    (request,) = seen(pool.named("a"))
    assert "withheld" not in request.task.prompt + request.task.context + request.subtask
