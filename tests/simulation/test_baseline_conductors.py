"""The yardsticks: what the optimum expects is what is measured, and nobody beats it."""

from itertools import product
from math import sqrt

import pytest

from shikisha.core.errors import PlanError
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Result, RoundResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Situation
from shikisha.engine.worker import Card
from shikisha.evals.statistics import wilson
from shikisha.simulation.baseline_conductors import (
    KEYWORD_ROUTER,
    ONLY_GENERALIST,
    OPTIMAL,
    PLANNER_EXECUTOR_VERIFIER,
    RANDOM,
    RULES,
    SELF_CONSISTENCY,
    BaselineConductor,
    BestPlan,
    OptimalConductor,
    best_plan,
    profiles_of,
    read_families,
    vote_success,
)
from shikisha.simulation.baseline_conductors import read_description as offer_in
from shikisha.simulation.demo_run import SimulatedRun, run_tasks, summarize_runs
from shikisha.simulation.plan_templates import PlanBlock, compose_plan
from shikisha.simulation.questions import FAMILIES, parse_question
from shikisha.simulation.task_generator import generate_tasks
from shikisha.simulation.vocabulary import WordingSplit, split_names
from shikisha.simulation.worker_profiles import (
    GENERALIST,
    JUDGE,
    NOVICE,
    PROFILES,
    READER_SKILL,
    SPECIALIST_SKILL,
    TWO_FAMILY_SKILL,
    WorkerProfile,
)

PLACE = split_names()[0][WordingSplit.TRAIN][0]
ONE = f"Find the tally listed for {PLACE}."
GAUGE = f"Find the level on the gauge of {PLACE}."
CHAIN = f"Find 4 times the level on the gauge of {PLACE} plus 12."
TRIPLE = f"Find the gap from 4 times the tally listed for {PLACE} plus 12 to the nearest of 10 or 20 or 90."
EVERY = [OPTIMAL, RULES, KEYWORD_ROUTER, RANDOM, SELF_CONSISTENCY, PLANNER_EXECUTOR_VERIFIER]


def choose(prompt: str, *workers: str, most_steps: int = 5) -> BestPlan:
    question = parse_question(prompt)
    assert question is not None
    return best_plan(question, [PROFILES[name] for name in workers], most_steps)


def workers(choice: BestPlan) -> list[int]:
    return [step.worker for step in choice.plan.steps]


def test_one_part_is_answered_in_one_shot_by_its_specialist() -> None:
    choice = choose(ONE, GENERALIST, "fact", JUDGE, NOVICE)
    assert choice.plan == Plan((Step("answer the question", 1),))
    assert choice.success == SPECIALIST_SKILL


def test_a_missing_specialist_is_replaced_by_the_generalist() -> None:
    assert workers(choose(ONE, "text", NOVICE, GENERALIST)) == [2]
    assert choose(ONE, "text", NOVICE, GENERALIST).success == 0.80


def test_a_gauge_is_read_several_times_and_voted_on() -> None:
    choice = choose(GAUGE, "fact", "gauge", JUDGE)
    assert workers(choice) == [1, 1, 1, 1, 2]
    assert choice.plan.steps[-1].access == (0, 1, 2, 3)
    assert choice.success == vote_success((READER_SKILL,) * 4) * 0.95
    assert workers(choose(GAUGE, "gauge", "fact")) == [0]


def test_a_vote_that_does_not_pay_is_not_held() -> None:
    assert len(choose(GAUGE, "gauge", JUDGE, most_steps=3).plan) == 1


def test_a_chain_with_a_vote_uses_every_step_there_is() -> None:
    choice = choose(CHAIN, "gauge", JUDGE, "arithmetic")
    assert workers(choice) == [0, 0, 0, 1, 2]
    assert choice.plan.steps[-1] == Step("finish with the previous result", 2, (3,))


def test_two_specialists_beat_one_who_does_both_and_one_call_beats_two_of_equal_skill() -> None:
    fact_number = f"Find 4 times the tally listed for {PLACE} plus 12."
    assert workers(choose(fact_number, "fact-arithmetic", "fact", "arithmetic")) == [1, 2]
    alone = choose(fact_number, "fact-arithmetic", NOVICE)
    assert (workers(alone), alone.success) == ([0], TWO_FAMILY_SKILL**2)


def test_the_parts_that_nobody_else_can_do_go_to_the_generalist() -> None:
    choice = choose(TRIPLE, "fact", GENERALIST, "comparison")
    assert workers(choice) == [0, 1, 2]
    assert choice.success == pytest.approx(0.98 * 0.80 * 0.98)


def test_of_equal_plans_the_cheapest_is_taken_and_thrift_forgoes_votes() -> None:
    assert workers(choose(ONE, "fact-text", "text", "fact")) == [2]
    question = parse_question(GAUGE)
    assert question is not None
    pool = [PROFILES["gauge"], PROFILES[JUDGE]]
    assert len(best_plan(question, pool, thrift=1_000.0).plan) == 1


def test_a_vote_of_three_is_what_counting_gives() -> None:
    right = 0.7
    two_or_three = right**3 + 3 * right**2 * 0.3
    one_of_three_different = 3 * right * 0.3**2 * (11 / 12) / 3
    assert vote_success((right,) * 3) == pytest.approx(two_or_three + one_of_three_different)
    assert vote_success((0.7,)) == pytest.approx(0.7)


def test_a_join_is_granted_both_results_and_the_readings_behind_a_vote() -> None:
    blocks = [PlanBlock((0,), (0,)), PlanBlock((1,), (1, 1), judge=2), PlanBlock((2,), (3,))]
    plan = compose_plan(("fact", "gauge", "arithmetic"), [(), (), (0, 1)], blocks)
    assert [step.access for step in plan.steps] == [(), (), (), (1, 2), (0, 1, 2, 3)]
    assert [step.subtask for step in plan.steps[:2]] == ["look up the fact", "read the gauge"]


async def test_the_optimum_reaches_what_was_computed() -> None:
    drawn = list(generate_tasks(WordingSplit.HELDOUT, 21, count=700))
    trials = await run_tasks(drawn, OPTIMAL)
    chances = [best_plan(item.question, profiles_of(item.pool.cards)).success for item in drawn]
    spread = sqrt(sum(chance * (1 - chance) for chance in chances))
    assert abs(sum(trial.right for trial in trials) - sum(chances)) < 4 * spread
    assert summarize_runs(trials).dollars == pytest.approx(sum(trial.dollars for trial in trials) / 700)


async def test_yardsticks_stand_in_their_order() -> None:
    drawn = list(generate_tasks(WordingSplit.HELDOUT, 22, count=300))
    shares = [
        summarize_runs(await run_tasks(drawn, conductor)).share
        for conductor in (RANDOM, KEYWORD_ROUTER, RULES, OPTIMAL)
    ]
    assert shares[0] < 0.15 < shares[1] < 0.6 < shares[2] <= shares[3] + 0.02


async def test_a_rehearsal_repeats_to_the_letter() -> None:
    drawn = list(generate_tasks(WordingSplit.DEV, 5, count=60))

    async def answers() -> list[str | None]:
        return [trial.run.answer for trial in await run_tasks(drawn, RULES)]

    assert await answers() == await answers()


@pytest.mark.parametrize("conductor", EVERY, ids=lambda conductor: conductor.name)
async def test_every_yardstick_plans_for_every_pool_and_keeps_its_answer(
    conductor: BaselineConductor | OptimalConductor,
) -> None:
    for item in generate_tasks(WordingSplit.HELDOUT, 6, count=60):
        situation = Situation(item.task, item.pool.cards)
        proposal = await conductor.propose(situation)
        proposal.plan.check_pool(len(item.pool))
        assert 1 <= len(proposal.plan) <= 5
        after = Situation(item.task, item.pool.cards, (RoundResult(proposal.plan, (Result("any", "5"),)),))
        assert (await conductor.propose(after)).plan.ships


@pytest.mark.parametrize("conductor", [RULES, KEYWORD_ROUTER, RANDOM, SELF_CONSISTENCY, PLANNER_EXECUTOR_VERIFIER])
async def test_rules_have_a_plan_for_any_question_and_worker(conductor: BaselineConductor) -> None:
    plan = (await conductor.propose(Situation(Task("What now?"), (Card("somebody"),)))).plan
    assert {step.worker for step in plan.steps} == {0}


async def test_what_is_not_of_this_world_cannot_be_planned_for() -> None:
    with pytest.raises(PlanError, match="none of the simulation's"):
        await OPTIMAL.propose(Situation(Task("What now?"), (Card("fact"),)))
    with pytest.raises(PlanError, match="not simulated workers: somebody"):
        await OPTIMAL.propose(Situation(Task(ONE), (Card("somebody"),)))
    with pytest.raises(PlanError, match="no worker 'simulated-generalist'"):
        await ONLY_GENERALIST.propose(Situation(Task(ONE), (Card("fact"),)))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_rules_read_every_description(profile: WorkerProfile) -> None:
    for words in product(*(offer.all for offer in profile.descriptions)):
        said = offer_in(" and ".join(words))
        assert said.families == frozenset(profile.skills), words
        assert (said.is_model, said.judges) == (profile.is_model, profile.name == JUDGE)
        assert (said.strong, said.weak) == (profile.name == GENERALIST, profile.name == NOVICE)


def test_rules_read_most_questions_rightly() -> None:
    drawn = list(generate_tasks(WordingSplit.HELDOUT, 8, count=600))
    right = sum(read_families(item.task.prompt) == item.kinds for item in drawn)
    some = sum(set(read_families(item.task.prompt)) <= set(FAMILIES) for item in drawn)
    assert right > 0.8 * len(drawn) == 0.8 * some


@pytest.mark.parametrize(("right", "count"), [(0, 10), (5, 10), (10, 10), (0, 0)])
def test_an_interval_holds_its_share(right: int, count: int) -> None:
    low, high = wilson(right, count)
    assert 0.0 <= low <= (right / count if count else 0.5) <= high <= 1.0
    assert high - low > 0.2


def test_nothing_counted_is_nothing() -> None:
    none: list[SimulatedRun] = []
    assert (summarize_runs(none).share, summarize_runs(none).interval) == (0.0, (0.0, 1.0))
