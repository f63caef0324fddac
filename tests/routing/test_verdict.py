"""The verdict: what is advised is shown on held-out tasks, and a loss beyond the tolerance never is."""

from dataclasses import replace

import numpy as np
import pytest
from panels import Made, panel, replay_mix, scores_only

from shikisha.routing.arrays import Floats
from shikisha.routing.fit.cost_frontier import BUDGETS, Frontier
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.verdict import MARGINS, MEASURED_BUDGETS, TOLERANCE, HeldOutTrial, reach_verdict
from shikisha.routing.policy_data import LogVerdict, Policy, VerdictKind
from shikisha.routing.policy_file import parse_policy, serialize_policy
from shikisha.routing.trade_off import OperatingPoint, TradeOff, parse_target


def verdict(
    gain: float,
    spread: float,
    cost: float = 0.4,
    tasks: int = 1_000,
    copies: int = 1,
    alone: dict[float, str] | None = None,
) -> LogVerdict:
    """The verdict where every target gains so much over the best single worker, give or take, from this cost on."""
    dial = TradeOff((OperatingPoint(0, 0, cost, 0.7), OperatingPoint(0, 1, cost + 0.3, 0.8)), 0.01, 0.7)
    random = np.random.default_rng(0)
    noise = random.normal(0, spread, tasks)
    won = np.repeat((noise - noise.mean() + gain)[:, None], len(MARGINS), axis=1)
    rows, contents = np.arange(tasks * copies), [f"task {number}" for number in range(tasks)] * copies
    won = np.tile(won, (copies, 1))
    nothing: Floats = np.zeros((len(rows), 1))
    front = Frontier(np.ones(1), nothing, nothing)
    base = np.stack([np.zeros(len(rows)), np.ones(len(rows))], axis=1)
    trial = HeldOutTrial(front, front, np.zeros((1, 2)), won, won, base, rows, 0.2)
    return reach_verdict(trial, dial, ("large", alone or {}), contents, 3)


def test_a_saving_without_loss_is_advised_with_its_interval() -> None:
    found = verdict(0.0, 0.1)
    assert found.kind is VerdictKind.POLICY
    assert found.text == "use this policy: −60 % of the cost, at no loss (95 %: −0.6 to +0.6 points)"
    assert found.option == "quality=1"
    assert found.low == pytest.approx(-0.0062, abs=2e-4)


def test_a_cheaper_worker_that_is_as_good_is_named() -> None:
    found = verdict(0.0, 0.1, alone={0.0: "small"})
    assert (found.kind, found.worker) == (VerdictKind.SINGLE, "small")
    assert found.text == "ask small for everything: −60 % of the cost, at no loss (95 %: −0.6 to +0.6 points)"


def test_of_workers_that_are_equally_good_the_cheapest_is_advised() -> None:
    found = learned(0, {"small": Made(0.95, 0.05), "large": Made(0.95, 1.0)}, tasks=2_000).about.verdict
    assert found is not None
    assert (found.kind, found.worker) == (VerdictKind.SINGLE, "small")


def test_a_loss_that_is_not_excluded_is_not_advised() -> None:
    found = verdict(0.0, 0.3)
    assert found.kind is VerdictKind.UNTOLD
    assert found.needs is not None
    assert found.text == f"not enough evidence: some {found.needs:,} more graded answers would tell"
    answers = 3 * 1_000 * ((2.33 * 0.3 / 1_000**0.5 / TOLERANCE) ** 2 - 1)
    assert found.needs == pytest.approx(answers, rel=0.1)


@pytest.mark.parametrize(("gain", "cost"), [(-0.02, 0.1), (-0.05, 0.1), (0.0, 1.0), (-0.001, 0.99)])
def test_where_routing_gains_nothing_one_worker_is_advised(gain: float, cost: float) -> None:
    found = verdict(gain, 0.05, cost)
    assert (found.kind, found.worker) == (VerdictKind.SINGLE, "large")
    assert found.text == "ask large for everything: routing gains nothing here"


def test_a_gain_is_advised_where_nothing_is_saved() -> None:
    found = verdict(0.05, 0.2, cost=1.0)
    assert found.kind is VerdictKind.POLICY
    assert found.text == "use this policy: +0 % of the cost, at +5.0 points (95 %: +3.8 to +6.2 points)"


def test_an_option_that_asks_the_best_worker_alone_is_no_policy() -> None:
    assert verdict(0.0, 0.05, alone=dict.fromkeys(MARGINS, "large")).text.endswith("routing gains nothing here")
    workers = {"cheap": Made(0.976, 0.6), "large": Made(0.984, 1.0), "bad": Made(0.9, 0.01)}
    found = select_policy(scores_only(panel(workers, tasks=1_000, seed=4, alike=0.0))).policy.about.verdict
    assert found is not None
    assert found.text == "ask large for everything: routing gains nothing here"


def test_copies_of_a_task_are_one_piece_of_evidence() -> None:
    assert verdict(0.0, 0.2).kind is verdict(0.0, 0.2, copies=9).kind is VerdictKind.UNTOLD


@pytest.mark.parametrize("seed", range(3))
def test_a_log_without_anything_to_route_by_says_so(seed: int) -> None:
    workers = {"small": Made(0.6, 0.05), "middle": Made(0.7, 0.3), "large": Made(0.8, 1.0)}
    found = learned(seed, workers)
    assert found.about.verdict is not None
    assert found.about.verdict.text == "ask large for everything: routing gains nothing here"


def learned(seed: int, workers: dict[str, Made], tasks: int = 500) -> Policy:
    return select_policy(scores_only(panel(workers, tasks=tasks, seed=seed, alike=1.0))).policy


def test_what_is_advised_is_what_new_tasks_bring() -> None:
    workers = {"one": Made((0.95, 0.3), 0.2), "two": Made((0.3, 0.95), 0.2), "large": Made((0.9, 0.9), 1.0)}
    policy, fresh = learned(0, workers), scores_only(panel(workers, tasks=2_000, seed=7, alike=1.0))
    said = policy.about.verdict
    assert said is not None
    assert said.kind is VerdictKind.POLICY
    name, _, value = said.option.partition("=")
    mix = policy.mix(parse_target([(name, value)] if value else []))
    came = replay_mix(policy.parts, mix, fresh)
    assert came.won.mean() > fresh.won[:, 2].mean() - TOLERANCE
    assert came.paid.mean() / fresh.paid[:, 2].mean() == pytest.approx(said.cost, abs=0.03)


def test_a_verdict_survives_the_policy_file_and_files_without_one_are_read() -> None:
    policy = learned(0, {"a": Made(0.9, 1.0), "b": Made(0.5, 0.5)})
    assert parse_policy(serialize_policy(policy), "here").about.verdict == policy.about.verdict
    older = replace(policy, about=replace(policy.about, verdict=None))
    assert b"verdict" not in serialize_policy(older)
    assert parse_policy(serialize_policy(older), "here").about.verdict is None


def test_budgets_are_measured_once_each() -> None:
    assert set(BUDGETS.tolist()) <= set(MEASURED_BUDGETS.tolist())
