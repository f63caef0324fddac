"""The learner over a proposer: it assigns, joins and checks by its model, explores within bounds, and stands by."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learning_world import (
    CAPS,
    KINDS,
    TERMS,
    WORKERS,
    DrawnPlanner,
    FirstPlanner,
    drawn_runs,
    fitted,
    learning_files,
    perform,
    world_pool,
    world_task,
)

from shikisha.conductors.learned_conductor import CHOSEN, DRAWN, LearnedConductor, StepTable, is_searchable
from shikisha.core.budget import Price
from shikisha.core.call import Card
from shikisha.core.plan import Plan, Step
from shikisha.core.task import OPERATOR, Scope, Task
from shikisha.engine.conductor import Situation
from shikisha.engine.worker import ApprovalMode
from shikisha.learned.outcome_fit import LearningTerms
from shikisha.learned.outcome_model import OutcomeModel
from shikisha.learned.step_evidence import EXPLORED, PLANNED, STANDS_BY, run_evidence

MODEL = fitted(drawn_runs(240, parts=2))
LITTLE = fitted(drawn_runs(20))
QUIET = LearningTerms(0.05, 0.0, TERMS.phrases)  # explores nothing


def acting(model: OutcomeModel = MODEL, acts: float = 1.0) -> OutcomeModel:
    return replace(model, learning=replace(model.learning, acts=acts))


def conductor_of(model: OutcomeModel | None, terms: LearningTerms = QUIET) -> LearnedConductor:
    return LearnedConductor("learned:planner", FirstPlanner(), lambda *_: model, terms)


def situation(task: Task, cards: tuple[Card, ...] = world_pool().cards) -> Situation:
    return Situation(task, cards, left=CAPS)


async def test_each_step_goes_to_whom_outcomes_favour_and_the_planners_choice_is_kept() -> None:
    right = 0
    for number in range(30):
        task = world_task(number, 3, seed=9)
        proposal = await conductor_of(acting()).propose(situation(task))
        assert proposal.beside[PLANNED].replace("+", ",").split(",").count("0") == 3
        assert proposal.version == "v1"
        assert proposal.beside[CHOSEN]
        kinds = [next(k for k, texts in KINDS.items() if any(t[:8] == text[:8] for t in texts)) for text in
                 task.prompt.split(" | ")]  # fmt: skip
        plain = [step for step in proposal.plan.steps if not step.subtask.startswith("Check")]
        best = [WORKERS[list(KINDS).index(kind)] for kind in kinds]
        right += [WORKERS[step.worker] for step in plain] == best
    assert right >= 28


async def test_the_model_earns_more_than_the_planner_in_runs() -> None:
    async def count(conductor: object) -> int:
        runs = [await perform(world_task(at, 2, seed=11), conductor) for at in range(40)]  # type: ignore[arg-type]
        return sum(run.answer == "right" for run in runs)

    assert await count(conductor_of(acting())) > await count(FirstPlanner()) + 15


async def test_the_same_task_and_model_give_the_same_proposal() -> None:
    task = world_task(3, 2)
    exploring = conductor_of(acting(), TERMS)
    first, second = await exploring.propose(situation(task)), await exploring.propose(situation(task))
    assert first == second


async def test_on_a_share_of_the_tasks_the_plan_is_performed_as_it_is() -> None:
    arms = []
    for number in range(60):
        proposal = await conductor_of(acting(acts=0.5)).propose(situation(world_task(number)))
        arms.append(proposal.beside[PLANNED] == STANDS_BY)
        if arms[-1]:
            assert proposal.plan.steps[0].worker == 0
            assert proposal.propensity == 0.5
    assert 15 < sum(arms) < 45


async def test_exploring_records_what_was_chosen_and_drawn_and_what_it_cost() -> None:
    model = LITTLE
    explored = [
        await conductor_of(acting(model), TERMS).propose(situation(world_task(at, 2, seed=4))) for at in range(40)
    ]
    drawn = [one for one in explored if EXPLORED in one.beside]
    assert len(drawn) > 10
    assert all(one.beside[DRAWN] and one.beside[CHOSEN] and one.propensity is not None for one in drawn)
    run = await perform(world_task(1, 2, seed=4), conductor_of(acting(model), TERMS))
    told = run_evidence(run, TERMS.phrases)
    assert told is not None
    assert told.acted


async def test_after_many_runs_exploring_keeps_within_its_share() -> None:
    learning = replace(MODEL.learning, runs=500, credit=0.0, acts=1.0)
    spent = replace(MODEL, learning=learning)
    for number in range(40):
        proposal = await conductor_of(spent, TERMS).propose(situation(world_task(number, 2, seed=4)))
        assert float(proposal.beside.get(EXPLORED, "0")) == 0.0


async def test_a_worker_that_is_renamed_or_joins_later_has_its_part_of_the_free_runs_and_no_more() -> None:
    """Nothing is left to explore with, and the specialist for sums has another name from now on."""
    spent = replace(MODEL, learning=replace(MODEL.learning, runs=500, credit=0.0, acts=1.0))
    cards = tuple(replace(one, name="summer") if one.name == "adder" else one for one in world_pool().cards)
    often, rare = replace(MODEL.figures["adder"], calls=60, joined=200), replace(MODEL.figures["adder"], calls=1)
    known = [replace(spent, figures={**spent.figures, "summer": one}) for one in (often, rare)]  # rare: from the start
    for model, tried in ((spent, True), *((one, False) for one in known)):
        made = [
            await conductor_of(model, TERMS).propose(situation(world_task(at, 2, seed=4), cards)) for at in range(40)
        ]
        drawn = [one for one in made if float(one.beside.get(EXPLORED, "0")) > 0]
        assert (len(drawn) > 5) is tried
        assert all(any(step.worker == 0 for step in one.plan.steps) for one in drawn)


async def test_nothing_is_explored_where_a_task_bears_labels_or_the_share_is_nothing() -> None:
    model = LITTLE
    for number in range(30):
        task = replace(world_task(number, 2, seed=4), labels=("secret",))
        labeled = await conductor_of(acting(model), TERMS).propose(situation(task))
        assert DRAWN not in labeled.beside
        quiet = await conductor_of(acting(model)).propose(situation(world_task(number, 2)))
        assert DRAWN not in quiet.beside


@pytest.mark.parametrize(
    "card",
    [
        {"kind": "agent"},
        {"kind": "http"},
        {"kind": "human"},
        {"kind": "conductor"},
        {"kind": "tests"},
        {"approval": ApprovalMode.ALWAYS},
        {"adds": ("secret",)},
    ],
)
async def test_who_writes_or_needs_approval_or_labels_data_is_never_assigned(card: dict[str, object]) -> None:
    cards = tuple(replace(one, **card) if one.name == "writer" else one for one in world_pool().cards)  # type: ignore[arg-type]
    model = acting(LITTLE)
    for number in range(30):
        proposal = await conductor_of(model, TERMS).propose(situation(world_task(number, 2, seed=4), cards))
        assert all(step.worker != 1 for step in proposal.plan.steps)


async def test_a_worker_that_may_not_be_assigned_keeps_the_step_that_it_was_planned_for() -> None:
    cards = tuple(replace(one, kind="agent") if one.name == "adder" else one for one in world_pool().cards)
    proposal = await conductor_of(acting()).propose(situation(world_task(5, 2), cards))
    assert [step.worker for step in proposal.plan.steps] == [0, 0]


async def test_only_cleared_workers_get_a_labeled_task() -> None:
    cards = tuple(replace(one, sees=("secret",)) if one.name == "lawyer" else one for one in world_pool().cards)
    cards = (replace(cards[0], sees=("secret",)), *cards[1:])
    for number in range(12):
        task = replace(world_task(number, 2), labels=("secret",))
        proposal = await conductor_of(acting()).propose(situation(task, cards))
        assert all(step.worker != 1 for step in proposal.plan.steps)


async def test_another_tenants_model_and_a_switch_that_is_off_change_nothing() -> None:
    foreign = replace(acting(), scope=Scope("a", frozenset()))
    labeled = replace(acting(), scope=Scope("", frozenset({"secret"})))
    for model in (foreign, labeled, None):
        proposal = await conductor_of(model).propose(situation(world_task(2, 2)))
        assert proposal == await FirstPlanner().propose(situation(world_task(2, 2)))


def test_plans_over_lists_votes_and_empty_ones_are_left_alone() -> None:
    twice = Plan((Step("Add.", 0), Step("Add.", 1)))
    each = Plan((Step("List.", 0), Step("Add.", 1, (0,), 0)))
    assert not any(map(is_searchable, (twice, each, Plan())))


def test_the_search_finds_what_trying_everything_finds() -> None:
    plan = Plan((Step("Add up the invoices of Ada.", 0), Step("Draft a reply to Bo.", 0, (0,))))
    table = StepTable(acting(), situation(Task("?")), plan)
    table.prices = [0.004, 0.001, 0.009]
    for worth in (0.01, 0.05, 0.3):
        best = table.best(worth)
        values = [worth * table.chances[0][a] * table.chances[1][b] - table.prices[a] - table.prices[b]
                  for a in range(3) for b in range(3)]  # fmt: skip
        joined = [worth * float(np.prod(table._joined[:, a])) - table.prices[a] * (1 + table.model.further_share)
                  for a in range(3)]  # fmt: skip
        assert worth * best.chance - best.dollars >= max(*values, *joined) - 1e-12
    assert table.best(0.3).chance >= table.best(0.01).chance


def test_steps_that_others_need_are_not_joined_and_room_bounds_checks() -> None:
    plan = Plan((Step("Add up the invoices of Ada.", 0), Step("Draft a reply to Bo.", 0, (0,)),
                 Step("Cite the rule that holds for Cyd.", 0, (0, 1))))  # fmt: skip
    table = StepTable(acting(), situation(Task("?")), plan)
    assert not table._is_joinable(0, 2)
    table.room = 3
    built = table.build(table.best(5.0))
    assert len(built) <= 3


async def test_a_checked_step_sees_the_result_and_is_told_to_reply_with_it() -> None:
    sure = replace(acting(), keeps=0.999, finds=0.99, check_share=0.01)
    table = StepTable(sure, situation(Task("?")), Plan((Step("Add up the invoices of Ada.", 0),)))
    best = table.best(5.0)
    built = table.build(best)
    assert best.blocks[0].checker is not None
    assert built.steps[1].access == (0,)
    assert built.steps[1].subtask.startswith("Check this result")


async def test_a_renamed_or_new_worker_is_an_unknown_one_and_a_removed_one_is_not_called() -> None:
    cards = (Card("adder", "", "chat", Price(call=0.001)), Card("stranger", "", "chat", Price(call=0.001)))
    for number in range(10):
        proposal = await conductor_of(acting()).propose(situation(world_task(number, 2), cards))
        assert all(step.worker < 2 for step in proposal.plan.steps)


async def test_learning_from_drawn_plans_knows_the_planner_did_not_choose(tmp_path: Path) -> None:
    files = learning_files(tmp_path / "learning")
    conductor = LearnedConductor("learned:drawn", DrawnPlanner(), files.model, TERMS)
    run = await perform(world_task(0, 2), conductor)
    told = run_evidence(run, TERMS.phrases)
    assert told is not None
    assert told.acted is not None
    assert told.scope == OPERATOR or told.scope.tenant is None
