"""Learning from partial logs: unknown is not wrong, nothing is promised that the log cannot carry."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from panels import POOL, Made, missing, panel, replay_mix, scores_only, untyped
from partial_logs import asked, each_apart, one_each, untold

from shikisha.core.errors import ConfigError
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import TABLE
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.fit.partial_logs import expected_outcomes, fit_partial_log, table_from_outcomes
from shikisha.routing.policy_data import HeldOutEvidence, Policy, PolicyOrigin, VerdictKind
from shikisha.routing.policy_file import load_policy, save_policy
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingTarget, TargetMetric

HELD, FRESH = panel(tasks=3000), panel(tasks=3000, seed=9)
EVEN = np.full(3, 1 / 3)
ALIKE = {"one": Made(0.65, 0.1), "two": Made(0.65, 0.1), "three": Made(0.7, 1.0)}


def learned(log: OutcomeMatrix, seed: int = 0, about: PolicyOrigin | None = None) -> Policy:
    return fit_partial_log(log, seed, about)[0].policy


@pytest.fixture(scope="module")
def several() -> Policy:
    return learned(each_apart(panel(ALIKE, tasks=2000), np.full(3, 0.8)))


def evidence(policy: Policy, rung: str = TABLE) -> HeldOutEvidence:
    found = policy.rung(rung).evidence
    assert found is not None
    return found


def rule(policy: Policy) -> TableRule:
    part = policy.parts[0]
    assert isinstance(part, TableRule)
    return part


def notes(policy: Policy) -> str:
    return "\n".join(policy.about.notes)


@pytest.mark.parametrize("chances", [EVEN, np.array([0.6, 0.3, 0.1])], ids=["uniform", "skewed"])
def test_the_rule_of_a_partial_log_is_the_one_of_the_full_log(chances: Floats) -> None:
    policy = learned(one_each(HELD, chances))
    best = OperatingTarget(TargetMetric.BEST)
    won = replay_mix(policy.parts, policy.mix(best), FRESH).won.mean()
    assert won == pytest.approx(FRESH.won[:, 2].mean(), abs=0.02)
    assert rule(policy).success[:2] == pytest.approx(np.array([[0.75, 0.6, 0.85], [0.45, 0.7, 0.8]]), abs=0.1)


def test_what_is_promised_is_what_new_tasks_bring() -> None:
    policy = learned(one_each(HELD, EVEN))
    for met in evidence(policy).frontier:
        if met.spent >= policy.rung().dial.points[0].cost:
            mix = policy.mix(OperatingTarget(TargetMetric.COST, met.spent))
            assert met.low - 0.02 <= replay_mix(policy.parts, mix, FRESH).won.mean() <= met.high + 0.02


def test_the_evidence_says_how_it_was_measured_and_on_how_many_tasks() -> None:
    policy = learned(one_each(HELD, EVEN))
    assert evidence(policy).note == "by inverse propensities over 3,000 first asks"


def test_a_worker_that_is_rarely_asked_is_not_taken_for_wrong() -> None:
    policy = learned(one_each(HELD, np.array([0.45, 0.45, 0.1])))
    dear = policy.workers[2]
    assert dear.score == pytest.approx(HELD.won[:, 2].mean(), abs=0.08)
    assert dear.dollars == pytest.approx(HELD.paid[:, 2].mean(), rel=0.05)
    assert dear.tasks < 400


def test_a_worker_is_not_asked_where_nothing_is_known_of_it() -> None:
    law = HELD.batch.types == 1
    policy = learned(one_each(HELD, np.where(law[:, None], [0.5, 0.5, 0.0], EVEN)))
    for part in policy.parts:
        assert not any(replay(part, setting, FRESH).asked[law, 2].any() for setting in range(part.settings))
    assert "too few outcomes on law" in notes(policy)


def test_without_propensities_there_is_a_rule_and_no_promise() -> None:
    policy = learned(untold(one_each(HELD, EVEN)))
    assert [(rung.name, rung.evidence) for rung in policy.rungs] == [(TABLE, None)]
    assert "nothing could be evaluated: the propensities are unknown" in notes(policy)
    assert "promises nothing" in notes(policy)
    assert policy.about.verdict is not None
    assert policy.about.verdict.kind is VerdictKind.UNTOLD
    assert "the propensities are unknown" in policy.about.verdict.text


def test_propensities_that_are_not_how_the_log_came_about_promise_nothing() -> None:
    log = one_each(HELD, EVEN)
    policy = learned(replace(log, propensities=log.propensities / 2))
    assert policy.rung().evidence is None
    assert "nothing could be evaluated" in notes(policy)


def test_a_log_without_chance_supports_what_was_done_and_nothing_else() -> None:
    there = HELD.batch.types[:, None] == np.array([0, 1, -1])
    policy = learned(asked(HELD, there, np.ones(3)))
    mix = policy.mix(OperatingTarget(TargetMetric.BEST))
    assert (replay_mix(policy.parts, mix, HELD).asked == there).all()
    assert mix.accuracy == pytest.approx(HELD.won[there].mean())


@pytest.mark.full
def test_the_log_of_a_cascade_says_nothing_of_those_who_are_asked_where_others_fail() -> None:
    there = np.stack([np.ones(3000, bool), np.zeros(3000, bool), HELD.won[:, 0] == 0], axis=1)
    policy = learned(asked(HELD, there, np.ones(3)))
    for setting in range(rule(policy).settings):
        assert replay(rule(policy), setting, FRESH).asked[:, 0].all()
    assert policy.rung().dial.points[-1].accuracy == pytest.approx(HELD.won[:, 0].mean())


def test_a_policy_of_a_partial_log_is_a_file_like_any_other(several: Policy, tmp_path: Path) -> None:
    save_policy(several, tmp_path / "policy.npz")
    held, _ = load_policy(tmp_path / "policy.npz")
    mix = several.mix(OperatingTarget(TargetMetric.QUALITY, 1.0))
    assert (
        replay_mix(held.parts, mix, FRESH_ALIKE).shipped == replay_mix(several.parts, mix, FRESH_ALIKE).shipped
    ).all()
    assert held.rung().evidence == several.rung().evidence


FRESH_ALIKE = panel(ALIKE, tasks=200, seed=4)


def test_costs_are_counted_in_those_of_the_worker_that_is_named_the_best() -> None:
    for chances in (EVEN, np.array([0.5, 0.3, 0.2])):
        policy = learned(one_each(HELD, chances))
        assert policy.rung().dial.unit == pytest.approx(policy.best_single.dollars, rel=0.02)
        assert policy.rung().dial.best_single == pytest.approx(policy.best_single.score, abs=0.03)


def test_few_tasks_give_the_rule_without_a_promise() -> None:
    policy = learned(one_each(panel(tasks=60), EVEN))
    assert policy.rung().evidence is None
    assert "60 tasks are too few: at least 100 are needed" in notes(policy)


def test_a_log_that_is_too_thin_says_how_many_tasks_are_needed() -> None:
    policy = learned(one_each(panel(tasks=150), EVEN))
    assert policy.rung().evidence is None
    assert "more tasks logged like these are needed" in notes(policy)


def test_a_log_without_scores_teaches_nothing() -> None:
    log = one_each(panel(tasks=60), EVEN)
    with pytest.raises(ConfigError, match="no outcome with a score"):
        fit_partial_log(replace(log, scores=np.full(log.scores.shape, np.nan)))


def test_equal_logs_give_equal_policies() -> None:
    log = one_each(panel(tasks=400), EVEN)
    one, other = (learned(log, seed=3, about=PolicyOrigin("log", "hash", 400)) for _ in range(2))
    assert one.rungs == other.rungs
    assert one.about == other.about
    assert one.about.log_hash == "hash"
    assert (rule(one).success == rule(other).success).all()


def test_a_worker_of_whom_nothing_is_known_is_worth_least_at_any_price() -> None:
    table = expected_outcomes(one_each(HELD, np.where(HELD.batch.types[:, None] == 0, [0.0, 0.5, 0.5], EVEN)))
    part = table_from_outcomes(table, 1.0)
    assert all(part.worth(setting)[0].argmax() != 0 for setting in range(part.settings))
    assert (part.success[1] == table.success[1]).all()


@pytest.mark.parametrize(
    "log",
    [
        one_each(panel(tasks=1), EVEN),
        one_each(untyped(panel(tasks=700)), EVEN),
        one_each(scores_only(panel(tasks=700)), EVEN),
        each_apart(scores_only(panel(tasks=700)), EVEN),
        one_each(panel({"only": POOL["dear"]}, tasks=200), np.ones(1)),
        one_each(panel({name: replace(made, cost=0.0) for name, made in POOL.items()}, tasks=700), EVEN),
        one_each(panel({"a": Made(1.0), "b": Made(1.0)}, tasks=400), np.full(2, 0.5)),
        one_each(panel({"a": Made(0.0), "b": Made(0.0)}, tasks=400), np.full(2, 0.5)),
        missing(panel(tasks=400), np.arange(400)[:, None] % 3 == np.arange(3)),
        panel(tasks=400),
    ],
    ids=["one task", "no types", "scores", "scores apart", "one worker", "free", "right", "wrong", "gaps", "full"],
)
def test_odd_logs_give_a_policy_with_a_dial(log: OutcomeMatrix) -> None:
    policy = learned(log)
    assert policy.rung().dial.points
    assert all(np.isfinite([point.cost, point.accuracy]).all() for point in policy.rung().dial.points)
    assert policy.names == log.workers
