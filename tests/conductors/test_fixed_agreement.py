"""The agreement cascade, and plans drawn by lot."""

import pytest

from shikisha.conductors.fixed_conductors import RandomPlanConductor, answers_agree, fixed_conductor
from shikisha.core.errors import ConfigError, Fault, FaultKind, UnknownName, WorkerError
from shikisha.core.run import Result, Run
from shikisha.core.task import Task
from shikisha.engine.conductor import Situation
from shikisha.engine.worker import Card
from support import TASK, AnswerFunction, engine, pool_of

FAILED = Result("ann", None, Fault(FaultKind.EMPTY))


async def conducted(spec: str, **answers: str | WorkerError | AnswerFunction) -> Run:
    return await engine().run(TASK, pool_of(**answers), fixed_conductor(spec))


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("The answer is (C).", "C", True),
        ("It is 1,200.", "1200", True),
        ("Paris", " paris ", True),
        ("A", "B", False),
        ("Paris", "Lyon", False),
    ],
)
def test_answers_agree_by_what_they_say(one: str, two: str, same: bool) -> None:
    assert answers_agree([Result("ann", one), Result("bob", two)]) is same


def test_nothing_agrees_with_a_failure_or_with_itself_alone_not_there() -> None:
    assert not answers_agree([FAILED, Result("bob", "C")])
    assert not answers_agree([])


def test_a_form_that_is_named_counts_alone() -> None:
    results = [Result("ann", "[6]"), Result("bob", "6")]
    assert answers_agree(results)
    assert not answers_agree(results, "text")


async def test_the_third_is_asked_only_where_two_differ() -> None:
    same = await conducted("agreement?workers=ann,bob,cee", ann="4", bob="it is 4", cee="5")
    differ = await conducted("agreement?workers=ann,bob,cee", ann="4", bob="6", cee="5")
    assert (same.answer, len(same.attempts)) == ("it is 4", 2)
    assert (differ.answer, len(differ.attempts), len(differ.rounds)) == ("5", 3, 2)


async def test_when_the_third_fails_the_answer_at_hand_is_kept() -> None:
    run = await conducted("agreement?workers=ann,bob,cee", ann="4", bob="6", cee=WorkerError(FaultKind.REFUSED, "no"))
    assert run.answer == "6"


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ("agreement?workers=ann,bob", ConfigError, "three workers"),
        ("agreement?by=smell", UnknownName, "'smell'"),
        ("agreement?n=3", UnknownName, "'n'"),
    ],
)
def test_what_makes_no_agreement_is_refused(spec: str, error: type[ConfigError], says: str) -> None:
    with pytest.raises(error, match=says):
        fixed_conductor(spec).assign_workers((Card("ann"), Card("bob"), Card("cee")))  # type: ignore[attr-defined]  # it is an Agreement


async def test_random_plans_are_the_same_for_the_same_seed_and_task_and_differ_otherwise() -> None:
    cards = tuple(Card(name) for name in "abcdefgh")
    tasks = [Task(f"Question {number}?") for number in range(200)]
    plans = [(await RandomPlanConductor(1).propose(Situation(task, cards))).plan for task in tasks]
    again = [(await RandomPlanConductor(1).propose(Situation(task, cards))).plan for task in tasks]
    other = [(await RandomPlanConductor(2).propose(Situation(task, cards))).plan for task in tasks]
    assert plans == again != other
    assert {len(plan) for plan in plans} == {1, 2, 3, 4, 5}
    assert {step.worker for plan in plans for step in plan.steps} == set(range(8))
    assert {plan.topology() for plan in plans} >= {"one-shot", "chain", "independent", "mixed"}
