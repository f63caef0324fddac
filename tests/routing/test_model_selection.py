"""The ladder: higher rungs are kept only where that can be defended; what is promised was found on held-back tasks."""

from dataclasses import replace

import numpy as np
import pytest
from panels import POOL, Made, missing, panel, scores_only

from shikisha.routing.fit.combined_dial import shrink_gains
from shikisha.routing.fit.cost_frontier import BUDGETS, affordable_share, compute_frontier, paired_gain
from shikisha.routing.fit.log_replay import replay, replay_frontier
from shikisha.routing.fit.model_selection import (
    POLICY,
    POLICY_TASKS,
    TABLE,
    LearningOptions,
    assign_folds,
    fit_candidates,
    measured_rows,
)
from shikisha.routing.fit.model_selection import select_policy as select
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, add_latency_cost
from shikisha.routing.fit.policy_figures import choose_candidate
from shikisha.routing.policy_data import COMBINED, AreaGain, HeldOutEvidence, Policy
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff

ALIKE = {"one": Made(0.65, 0.2), "two": Made(0.65, 0.2), "three": Made(0.65, 0.2), "four": Made(0.7, 1.0)}
POOLED = panel(ALIKE, tasks=900)
UNSURE = {"one": Made(0.65, 0.2), "two": Made(0.65, 0.2), "three": Made(0.7, 1.0)}  # over few tasks


def select_policy(held: OutcomeMatrix, options: LearningOptions | None = None) -> Policy:
    return select(held, options).policy


@pytest.fixture(scope="module")
def climbed() -> Policy:
    return select_policy(POOLED)


def evidence(policy: Policy, rung: str) -> HeldOutEvidence:
    found = policy.rung(rung).evidence
    assert found is not None
    return found


def test_where_agreement_tells_much_the_dial_asks_step_by_step(climbed: Policy) -> None:
    assert climbed.kept == COMBINED
    kinds = {climbed.parts[point.part].kind for point in climbed.rung().dial.points}
    assert StoppingRule.kind in kinds
    assert next(one for one in evidence(climbed, COMBINED).gains if one.over == TABLE).low > 0
    gains = evidence(climbed, POLICY).gains
    assert {one.over for one in gains} >= {TABLE}
    assert next(one for one in gains if one.over == TABLE).low > 0


def test_what_is_promised_is_what_new_tasks_bring(climbed: Policy) -> None:
    fresh = panel(ALIKE, tasks=900, seed=5)
    fitted = fit_candidates(POOLED, LearningOptions(), (TABLE, POLICY))
    front = replay_frontier(fitted.parts, fitted.dials[POLICY], fresh, BUDGETS)
    assert evidence(climbed, POLICY).area == pytest.approx(front.area, abs=0.04)


@pytest.mark.parametrize(
    ("gained", "kept"),
    [
        ((0.02, 0.001, 0.04), POLICY),
        ((0.02, 0.0, 0.04), TABLE),
        ((0.02, -0.001, 0.04), TABLE),  # better in the mean, and harm is not excluded
        ((-0.02, -0.04, -0.001), TABLE),
    ],
)
def test_a_rung_is_kept_only_where_the_interval_of_its_gain_excludes_harm(
    gained: tuple[float, float, float], kept: str
) -> None:
    proofs = {TABLE: HeldOutEvidence(0.7), POLICY: HeldOutEvidence(0.72, gains=(AreaGain(TABLE, *gained),))}
    assert choose_candidate((TABLE, POLICY), proofs) == kept


@pytest.mark.parametrize(
    ("gained", "kept"),
    [((0.01, -0.01, 0.03), COMBINED), ((-0.01, -0.03, 0.01), COMBINED), ((-0.02, -0.03, -0.01), TABLE)],
)
def test_the_combined_dial_is_kept_unless_it_does_harm(gained: tuple[float, float, float], kept: str) -> None:
    proofs = {TABLE: HeldOutEvidence(0.7), COMBINED: HeldOutEvidence(0.7, gains=(AreaGain(TABLE, *gained),))}
    assert choose_candidate((TABLE, COMBINED), proofs) == kept


def test_what_is_measured_of_a_large_log_is_a_sample_by_content() -> None:
    held = panel(tasks=POLICY_TASKS + 500)
    rows = measured_rows(held, (TABLE, POLICY))
    assert len(rows) == POLICY_TASKS
    assert [held.hashes[row] for row in sorted(rows, key=lambda row: held.hashes[row])] == sorted(held.hashes)[
        :POLICY_TASKS
    ]
    assert len(measured_rows(held, (TABLE,))) == len(held)


def test_uncertain_gains_are_shrunk_to_the_usual_one_and_harm_is_not_taken() -> None:
    random = np.random.default_rng(0)
    few, many = (random.normal(-0.03, 0.3, (count, 1)) + random.normal(0, 0.01, (count, 15)) for count in (20, 5000))
    few += 0.1 - few.mean()
    assert -0.005 < shrink_gains(few).mean() < 0.005  # on so few tasks, a more complex candidate usually gains nothing
    assert shrink_gains(many) == pytest.approx(many.mean(axis=0), abs=0.008)
    assert shrink_gains(many).max() < 0


def test_budgets_that_truly_differ_keep_their_difference() -> None:
    random = np.random.default_rng(0)
    slope = np.linspace(-0.05, 0.05, 15)
    shrunk = shrink_gains(slope + random.normal(0, 0.1, (2000, 15)))
    assert (shrunk[:5] < 0).all()
    assert (shrunk[-5:] > 0).all()


def test_settings_that_were_lucky_do_not_join_where_nothing_can_be_learned() -> None:
    equal = {name: Made(0.6, cost) for name, cost in zip("abcdefgh", np.geomspace(0.05, 1.0, 8), strict=True)}
    held, fresh = scores_only(panel(equal, 150)), scores_only(panel(equal, 2_000, seed=3))
    made = fit_candidates(held, LearningOptions(), (TABLE, COMBINED))
    dial = made.dials[COMBINED]
    won = [replay(made.parts[point.part], point.setting, fresh).won.mean() for point in dial.points]
    lucky = held.mean_scores().max() - 0.6
    assert max(point.accuracy for point in dial.points) - max(won) < lucky


def test_the_best_single_worker_stands_on_the_dial_where_nothing_is_better() -> None:
    held = panel({"a": Made(0.9, 1.0), "b": Made(0.5, 0.5)}, tasks=300, alike=1.0)
    dial = select_policy(held).rung(COMBINED).dial
    assert dial.points[-1].cost == pytest.approx(1.0, abs=1e-6)
    assert dial.points[-1].accuracy == pytest.approx(float(held.mean_scores()[0]), abs=0.005)


def test_where_one_answer_says_all_the_rule_is_kept() -> None:
    held = panel({"a": Made((0.95, 0.3), 1.0), "b": Made((0.3, 0.95), 1.0)}, tasks=400, alike=1.0)
    assert select_policy(held).kept == TABLE


def test_a_log_that_is_too_small_gives_the_rule_and_says_so() -> None:
    policy = select_policy(panel(tasks=30))
    assert [rung.name for rung in policy.rungs] == [TABLE]
    assert any("too few" in note for note in policy.about.notes)


def test_waiting_that_costs_is_part_of_the_cost() -> None:
    slow = {name: replace(made, seconds=10.0 if name == "cheap" else 0.1) for name, made in POOL.items()}
    held = panel(slow, tasks=300)
    patient, hasty = select_policy(held), select_policy(add_latency_cost(held, 1.0)[0])
    assert hasty.rung(TABLE).dial.points[0].cost > patient.rung(TABLE).dial.points[0].cost


@pytest.mark.parametrize(
    "held",
    [
        panel(tasks=3),
        panel(tasks=120, kinds=()),
        scores_only(panel(tasks=150)),
        panel({"only": Made(0.5)}, tasks=120),
        panel({name: replace(made, cost=0.0) for name, made in POOL.items()}, tasks=150),
        panel({"a": Made(1.0), "b": Made(1.0)}, tasks=120),
        panel({"a": Made(0.0), "b": Made(0.0)}, tasks=120),
        missing(panel(tasks=150), np.arange(150)[:, None] % 10 == np.arange(3)),
    ],
    ids=["three tasks", "no types", "scores only", "one worker", "free", "always right", "never right", "gaps"],
)
def test_odd_logs_give_a_policy_with_a_dial(held: OutcomeMatrix) -> None:
    policy = select_policy(held)
    assert policy.rung().dial.points
    assert len({rung.name for rung in policy.rungs}) == len(policy.rungs)


def test_copies_of_a_task_are_in_one_fold() -> None:
    hashes = [f"task {number % 50}" for number in range(150)]
    folds = assign_folds(hashes, "salt")
    assert (folds[:50] == folds[50:100]).all()
    assert set(folds.tolist()) == {0, 1, 2, 3, 4}


def test_a_budget_below_the_cheapest_setting_pays_for_a_part_of_the_tasks() -> None:
    dial = TradeOff((OperatingPoint(0, 0, 0.4, 1.0),), 1.0, 1.0)
    front = compute_frontier(dial, np.ones((10, 1)), np.full((10, 1), 0.4), [(0, 0)], np.array([0.1, 0.4]))
    assert front.won.mean(axis=0).tolist() == pytest.approx([0.25, 1.0])
    assert front.cost.mean(axis=0).tolist() == pytest.approx([0.1, 0.4])
    assert affordable_share(dial, 1.0) == 1.0


def test_a_gain_is_paired_by_task() -> None:
    dial = TradeOff((OperatingPoint(0, 0, 0.0, 0.5),), 1.0, 1.0)
    won = np.random.default_rng(0).random((300, 1))
    one, other = (compute_frontier(dial, held, np.zeros((300, 1)), [(0, 0)], BUDGETS) for held in (won + 0.01, won))
    assert paired_gain("other", one, other).low == pytest.approx(0.01)
