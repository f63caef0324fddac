"""Exploring: who is asked besides, how often, for how much; chances are told; decisions stay pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shikisha.conductors.learned_policy import PolicyConductor, policy_conductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.errors import ConfigError
from shikisha.core.events import RunStatus
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Result, RoundResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.routing.exploration import (
    MAX_CHANCE,
    ExplorationBudget,
    ExplorationChance,
    draw_worker,
    parse_enough,
    parse_share,
    potential_gain,
)
from shikisha.routing.policy_data import Candidate, KnownWorker, Policy, PolicyOrigin
from shikisha.routing.policy_file import CascadeRule, save_policy
from shikisha.routing.state import LengthScales, TaskTypes
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingMix, OperatingPoint, TradeOff
from support import TASK, engine, pool_of

DOLLARS = 0.01  # what a run costs in the mean
KNOWN = (KnownWorker("ann", 0.5, 0.005, 1000, tokens=100.0), KnownWorker("bob", 0.8, DOLLARS, 1000, tokens=100.0))
HARDLY = KnownWorker("cyd", 0.9, 0.006, 9, tokens=100.0)
NEW = Card("new", price=Price(0.0, 50.0))  # 100 tokens cost .005 dollars
POINT = OperatingPoint(0, 0, 1.0, 0.8)


def policy(*workers: KnownWorker, first: str = "bob", then: str = "") -> Policy:
    """A policy that asks `first`, and `then` whatever it said."""
    names = [worker.name for worker in workers]
    shape = (1, len(names))
    success = np.array([[float(name == first) for name in names]])
    table = TableRule(success, np.ones(shape), np.zeros(shape), np.ones(1))
    order = np.array([[[names.index(name) for name in (first, then) if name]]])
    scales = LengthScales(np.zeros(shape), np.ones(len(names)))
    cascade = CascadeRule(order, np.full(order.shape, 2.0), {}, scales, np.arange(len(names)))
    rung = Candidate("rule", TradeOff((POINT,), DOLLARS, 0.8))
    types = TaskTypes((), (), AnswerForm.CHOICE)
    return Policy(PolicyOrigin("made", "0", 1000), workers, types, (cascade if then else table,), (rung,), "rule")


def conductor(held: Policy, share: float = 0.05) -> PolicyConductor:
    return PolicyConductor("policy:made", held, "1", OperatingMix(POINT, POINT, 0.0), ExplorationBudget(share, DOLLARS))


def cards(held: Policy, *others: Card) -> tuple[Card, ...]:
    return (*(Card(name) for name in held.names), *others)


def tasks(count: int) -> list[Task]:
    return [Task(f"What is {number}?") for number in range(count)]


async def opened(made: PolicyConductor, pool: tuple[Card, ...], task: Task) -> Proposal:
    return await made.propose(Situation(task, pool))


def asked(proposal: Proposal, pool: Sequence[Card]) -> list[str]:
    return [pool[step.worker].name for step in proposal.plan.steps]


def performed(pool: Sequence[Card], **answers: str) -> tuple[RoundResult, ...]:
    """Rounds in which these workers answered, each alone."""
    names = [card.name for card in pool]
    return tuple(
        RoundResult(Plan((Step("do", names.index(name)),)), (Result(name, text),)) for name, text in answers.items()
    )


async def test_a_worker_that_the_policy_does_not_know_is_explored_on_its_share_of_the_tasks() -> None:
    held, made = policy(*KNOWN), conductor(policy(*KNOWN))
    pool = cards(held, NEW)
    found = [asked(await opened(made, pool, task), pool) for task in tasks(3000)]
    share = found.count(["new"]) / len(found)
    (lot,) = ExplorationBudget(0.05, DOLLARS).chances(held, pool, "What is 1?")
    assert share == pytest.approx(lot.chance, abs=0.015)
    assert lot.chance == pytest.approx(0.05 * DOLLARS / lot.dollars)
    assert found.count(["bob"]) == len(found) - found.count(["new"])


@pytest.mark.parametrize("prompt", ["What?", "What? " * 5000])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_what_exploring_should_cost_is_within_its_share_of_what_a_run_costs(share: float, prompt: str) -> None:
    held = policy(*KNOWN, HARDLY)
    pool = cards(held, NEW, Card("dear", price=Price(10.0, 500.0)), Card("free"), Card("second", price=Price(1.0)))
    lots = ExplorationBudget(share, DOLLARS).chances(held, pool, prompt)
    assert 0 < sum(lot.chance * lot.dollars for lot in lots) <= share * DOLLARS * (1 + 1e-9)
    assert sum(lot.chance for lot in lots) <= MAX_CHANCE + 1e-9


async def test_the_chance_of_the_plan_is_told_whether_or_not_the_lot_explores() -> None:
    held = policy(*KNOWN)
    pool, made = cards(held, NEW), conductor(held, share=0.3)
    (lot,) = ExplorationBudget(0.3, DOLLARS).chances(held, pool, "What is 1?")
    found = {asked(each, pool)[0]: each.propensity for each in [await opened(made, pool, one) for one in tasks(100)]}
    assert found == {"new": pytest.approx(lot.chance), "bob": pytest.approx(1 - lot.chance)}
    weights = sum(1 / (each.propensity or 0.0) for each in [await opened(made, pool, one) for one in tasks(2000)])
    assert weights / 2000 == pytest.approx(2, abs=0.1)  # two plans, each counted for what it stands for


async def test_without_anybody_to_explore_no_chance_is_told() -> None:
    held = policy(*KNOWN)
    proposal = await opened(conductor(held), cards(held), Task("What?"))
    assert (asked(proposal, cards(held)), proposal.propensity) == (["bob"], None)


async def test_the_usual_course_goes_on_as_if_nobody_had_been_explored() -> None:
    held = policy(*KNOWN, HARDLY, first="ann", then="bob")
    pool, made = cards(held), conductor(held, share=0.9)
    task = next(task for task in tasks(100) if draw_worker(task.content_hash, made._lots(Situation(task, pool))))
    first = await opened(made, pool, task)
    assert asked(first, pool) == ["cyd"]
    past: Mapping[str, str] = {"cyd": "C"}
    for usual, answer in (("ann", "A"), ("bob", "B")):
        then = await made.propose(Situation(task, pool, performed(pool, **past)))
        assert (asked(then, pool), then.propensity) == ([usual], None)
        past = {**past, usual: answer}
    last = await made.propose(Situation(task, pool, performed(pool, **past)))
    assert (last.plan.ships, last.keeps) == (True, 2)


async def test_a_worker_that_was_explored_and_is_then_wanted_is_not_asked_twice() -> None:
    held = policy(*KNOWN, HARDLY, first="ann", then="cyd")
    pool, made = cards(held), conductor(held, share=0.9)
    task = next(task for task in tasks(100) if draw_worker(task.content_hash, made._lots(Situation(task, pool))))
    assert asked(await opened(made, pool, task), pool) == ["cyd"]
    last = await made.propose(Situation(task, pool, performed(pool, cyd="C", ann="A")))
    assert (last.plan.ships, last.keeps) == (True, 0)


async def test_decisions_hang_on_the_situation_alone() -> None:
    held = policy(*KNOWN, HARDLY)
    pool = cards(held, NEW)
    one = [await opened(conductor(held), pool, task) for task in tasks(50)]
    other = [await opened(conductor(held), pool, task) for task in reversed(tasks(50))]
    assert one == other[::-1]


@pytest.mark.parametrize("left", [Caps(rounds=2), Caps(steps=2), Caps(dollars=0.01)])
async def test_a_run_without_room_is_not_explored(left: Caps) -> None:
    held = policy(*KNOWN)
    pool, made = cards(held, NEW), conductor(held, share=1.0)
    found = [await made.propose(Situation(task, pool, left=left)) for task in tasks(50)]
    assert {(asked(each, pool)[0], each.propensity) for each in found} == {("bob", None)}


@pytest.mark.parametrize(
    "card",
    [
        Card("new", price=None),
        Card("new", kind="vote"),
        Card("new", kind="human"),
        Card("new", kind="mcp"),
        Card("new", approval=ApprovalMode.ALWAYS),
    ],
)
def test_nobody_is_explored_who_has_no_price_or_needs_a_person_or_does_not_answer_tasks(card: Card) -> None:
    held = policy(*KNOWN)
    assert ExplorationBudget(0.5, DOLLARS).chances(held, cards(held, card), "What?") == ()


@pytest.mark.parametrize(
    ("score", "count", "explored"),
    [(0.9, 1, True), (0.9, 99, True), (0.9, 100, False), (0.3, 3, True), (0.3, 60, False)],
)
def test_exploring_ends_with_enough_outcomes_or_without_a_chance(score: float, count: int, explored: bool) -> None:
    held = policy(*KNOWN, KnownWorker("new", score, 0.006, count))
    assert bool(ExplorationBudget(0.05, DOLLARS).chances(held, cards(held), "What?")) is explored


def test_hope_is_capped_half_way_from_the_best_that_is_known_to_perfect() -> None:
    held = policy(*KNOWN, KnownWorker("new", 1.0, 0.006, 50))
    assert potential_gain(held, "new", 0.006) == pytest.approx(0.9 - 0.5)
    assert potential_gain(held, "stranger", 0.006) == pytest.approx(0.9 - 0.5)
    assert potential_gain(held, "stranger", 0.02) == pytest.approx(0.9 - 0.8)  # what it costs buys the best already


def test_who_costs_nothing_is_explored_on_that_share_of_the_tasks() -> None:
    held = policy(*KNOWN)
    assert [
        lot.chance for lot in ExplorationBudget(0.05, DOLLARS).chances(held, cards(held, Card("free")), "What?")
    ] == [0.05]


def test_an_unknown_worker_costs_what_its_price_says_of_the_prompt_and_what_others_write() -> None:
    held = policy(*KNOWN)
    (lot,) = ExplorationBudget(0.05, DOLLARS).chances(
        held, cards(held, Card("new", price=Price(2.0, 8.0))), "What?" * 80
    )
    assert lot.dollars == pytest.approx(Price(2.0, 8.0).of(Usage(100, 100)))


def test_workers_that_are_shown_more_than_the_prompt_cost_more() -> None:
    held = policy(*KNOWN)
    pool = (Card("ann", price=Price(10.0, 20.0)), Card("bob"), Card("new", price=Price(2.0, 8.0)))
    (lot,) = ExplorationBudget(0.05, DOLLARS).chances(held, pool, "What?")
    shown = (0.005 * 1e6 - 100 * 20.0) / 10.0  # by what ann costs and writes
    assert lot.dollars == pytest.approx(Price(2.0, 8.0).of(Usage(int(shown), 100)))


def test_lots_are_drawn_by_content() -> None:
    lots = (ExplorationChance("ann", 0.2, 1.0), ExplorationChance("bob", 0.1, 1.0))
    found = [draw_worker(task.content_hash, lots) for task in tasks(3000)]
    assert found.count(lots[0]) / 3000 == pytest.approx(0.2, abs=0.03)
    assert found.count(lots[1]) / 3000 == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize(("text", "share"), [("0.05", 0.05), ("5%", 0.05), ("0", 0.0), ("1", 1.0)])
def test_shares_are_read(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "much", "-1", "101%", "nan", "inf"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"explore: expected a share"):
        parse_share(text)


def test_the_option_stands_beside_the_others(tmp_path: Path) -> None:
    save_policy(policy(*KNOWN), tmp_path / "it.policy")
    made = policy_conductor(f"{tmp_path}/it.policy?max_cost=100%&explore=5%")
    assert made.exploring == ExplorationBudget(0.05, DOLLARS)
    assert policy_conductor(f"{tmp_path}/it.policy").exploring is None
    with pytest.raises(ConfigError, match=r"known are .*explore"):
        policy_conductor(f"{tmp_path}/it.policy?explored=1")


async def test_a_run_explores_and_ships_what_it_would_have_shipped() -> None:
    held = policy(*KNOWN)
    made, pool = conductor(held, share=1.0), pool_of(ann="A", bob="B", new="N")
    runs = [await engine().run(task, pool, made) for task in tasks(40)]
    assert {(run.status, run.answer) for run in runs} == {(RunStatus.DONE, "B")}
    first = [run.rounds[0].proposed for run in runs if len(run.attempts) == 2]
    assert 0 < len(first) < len(runs)
    (lot,) = ExplorationBudget(1.0, DOLLARS).chances(held, pool.cards, TASK.prompt)
    assert {made and made.propensity for made in first} == {lot.chance}


async def test_an_explored_answer_is_better_than_none() -> None:
    held = policy(*KNOWN)
    made, pool = conductor(held, share=1.0), cards(held, NEW)
    task = next(task for task in tasks(100) if draw_worker(task.content_hash, made._lots(Situation(task, pool))))
    silent = replace(performed(pool, bob="")[0], results=(Result("bob", None),))
    last = await made.propose(Situation(task, pool, (*performed(pool, new="N"), silent)))
    assert (last.plan.ships, last.keeps) == (True, None)


def test_a_worker_that_was_unlucky_is_asked_on_while_it_may_be_better() -> None:
    unlucky, hopeless = KnownWorker("cyd", 0.75, 0.006, 150, tokens=100.0), KnownWorker("cyd", 0.3, 0.006, 150)
    rules = ExplorationBudget(0.05, DOLLARS, enough=300)
    cards = [Card(name, price=Price(0.0, 50.0)) for name in ("ann", "bob", "cyd")]
    assert [each.worker for each in rules.chances(policy(*KNOWN, unlucky), cards, "x")] == ["cyd"]
    assert rules.chances(policy(*KNOWN, hopeless), cards, "x") == ()
    assert replace(rules, enough=100).chances(policy(*KNOWN, unlucky), cards, "x") == ()


def test_how_many_outcomes_end_exploring_may_be_told(tmp_path: Path) -> None:
    save_policy(policy(*KNOWN), tmp_path / "it.policy")
    made = policy_conductor(f"{tmp_path}/it.policy?max_cost=100%&explore=5%&explore_until=600")
    assert made.exploring == ExplorationBudget(0.05, DOLLARS, enough=600)


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1.5", "9999999", "٣"])
def test_a_number_of_outcomes_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="explore_until: expected a number of outcomes from 1 to 999,999"):
        parse_enough(text)


def test_a_shunned_worker_is_not_explored() -> None:
    lots = [
        ExplorationBudget(0.05, DOLLARS).chances(held, cards(held), "What is 1?")
        for held in (policy(*KNOWN, HARDLY), policy(*KNOWN, replace(HARDLY, shunned="it fell")))
    ]
    assert [[lot.worker for lot in each] for each in lots] == [["cyd"], []]
