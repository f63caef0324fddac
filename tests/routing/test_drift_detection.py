"""Drift: workers that fall are noticed, at the stated rate of false alarms, told of, and routed around."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from panels import Made, missing, panel, replay_mix
from partial_logs import one_each
from policies import RUNGS, of_every_kind, write
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.drift_detection import (
    FALSE_ALARM_INTERVAL,
    ExpectedSuccess,
    WorkerDrift,
    detect_drift,
    drop_outdated,
    expected_by_outcomes,
    expected_by_policy,
    find_alarm,
    reroute_policy,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import policy_version, serialize_policy
from shikisha.routing.trade_off import OperatingTarget, TargetMetric

FOUR = {
    "cheap": Made((0.75, 0.45), 0.02),
    "middle": Made((0.6, 0.7), 0.2, tokens=150.0),
    "good": Made((0.8, 0.75), 0.5, tokens=200.0),
    "dear": Made((0.85, 0.8), 1.0, tokens=300.0),
}
GOOD = 2


@cache
def trained() -> OutcomeMatrix:
    return panel(FOUR, tasks=600, alike=0.3)


@cache
def policy() -> Policy:
    return of_every_kind(trained())


def fallen(tasks: int = 1200, begun: int = 400, lost: float = 0.5, seed: int = 1) -> OutcomeMatrix:
    """Traffic in which the good worker is as usual at first, and then loses this share of its right answers."""
    held = panel(FOUR, tasks, alike=0.3, seed=seed)
    random = np.random.default_rng(seed)
    rows = np.flatnonzero((np.arange(tasks) >= begun) & (random.random(tasks) < lost) & (held.won[:, GOOD] > 0))
    codes, scores = held.codes.copy(), held.scores.copy()
    codes[rows, GOOD], scores[rows, GOOD] = held.codes[rows].max(axis=1) + 1, 0.0
    return replace(held, codes=codes, scores=scores)


def drift_of(usual: float, found: float) -> WorkerDrift:
    return WorkerDrift("good", "task-400", "task-430", 800, usual, found, found - 0.03, found + 0.03)


def stream(*parts: tuple[float, int], seed: int = 0) -> Floats:
    """Right (1) and wrong (0) outcomes: so many with each of these chances of being right."""
    random = np.random.default_rng(seed)
    return np.concatenate([(random.random(count) < chance).astype(float) for chance, count in parts])


@pytest.mark.parametrize("every", [50, 500])
@pytest.mark.parametrize("success", [0.2, 0.7, 0.95])
def test_so_many_outcomes_pass_in_the_mean_before_a_false_alarm(every: int, success: float) -> None:
    most = 20 * every
    expected = np.full(most, success)
    runs = [find_alarm(stream((success, most), seed=seed), expected, every) for seed in range(60)]
    passed = np.array([most if place is None else place + 1 for place in runs])
    error = passed.std() / len(runs) ** 0.5
    assert passed.mean() > every - 2 * error
    assert passed.mean() < 2 * every + 2 * error  # nor is the alarm put off for ever


def test_scores_between_right_and_wrong_alarm_no_oftener() -> None:
    random = np.random.default_rng(0)
    runs = [find_alarm(random.beta(3.5, 1.5, 4000), np.full(4000, 0.7), 500) for _ in range(20)]
    assert np.mean([4000 if place is None else place for place in runs]) > 400


@pytest.mark.parametrize(("before", "after", "within"), [(0.8, 0.1, 30), (0.8, 0.5, 130), (0.7, 0.6, 1200)])
def test_a_fall_is_noticed_the_sooner_the_deeper_it_is(before: float, after: float, within: int) -> None:
    places = []
    for seed in range(15):
        scores = stream((before, 300), (after, 4000), seed=seed)
        place = find_alarm(scores, np.full(len(scores), before), FALSE_ALARM_INTERVAL)
        assert place is not None
        places.append(place - 300)
    assert 0 < np.median(places) < within


def test_a_worker_that_gets_better_or_is_asked_harder_tasks_raises_no_alarm() -> None:
    assert find_alarm(stream((0.9, 5000)), np.full(5000, 0.8)) is None
    scores = stream((0.9, 1000), (0.4, 3000))
    assert find_alarm(scores, np.repeat([0.9, 0.4], [1000, 3000])) is None


def test_it_tells_who_fell_since_when_and_how_far() -> None:
    held = fallen()
    (found,) = detect_drift(held, expected_by_policy(policy()))
    assert found.worker == "good"
    assert 370 <= int(found.since.removeprefix("task-")) <= 430
    assert 400 < int(found.noticed.removeprefix("task-")) < 500
    assert found.usual == pytest.approx(0.775, abs=0.04)
    assert found.low <= held.won[400:, GOOD].mean() <= found.high
    assert found.outcomes == 1200 - int(found.since.removeprefix("task-"))


def test_quiet_traffic_raises_no_alarm() -> None:
    usual = expected_by_policy(policy())
    assert detect_drift(panel(FOUR, tasks=3000, alike=0.3, seed=2), usual) == ()


def test_usual_may_be_told_from_an_earlier_stretch_of_the_same_traffic() -> None:
    held = fallen()
    early, late = held.at(np.arange(300)), held.at(np.arange(300, 1200))
    (found,) = detect_drift(late, expected_by_outcomes(early))
    assert found.worker == "good"
    assert found.usual == pytest.approx(held.won[:300, GOOD].mean(), abs=0.03)


def test_a_fall_counts_until_the_latest_outcomes_say_that_it_is_over() -> None:
    def found(*parts: tuple[float, int]) -> list[str]:
        scores = stream(*parts)
        recent = replace(panel({"one": Made(0.8)}, tasks=len(scores)), scores=scores[:, None])
        return [each.since for each in detect_drift(recent, ExpectedSuccess(np.full((3, 1), 0.8), np.array([0.001])))]

    assert found((0.8, 300), (0.3, 100), (0.8, 300)) == []
    assert len(found((0.8, 300), (0.3, 100), (0.8, 5))) == 1
    assert len(found((0.8, 300), (0.3, 100), (0.8, 300), (0.5, 200))) == 1


def test_only_outcomes_that_were_recorded_and_graded_count() -> None:
    held = fallen()
    sparse = missing(held, np.random.default_rng(0).random(held.codes.shape) < 0.5)
    (found,) = detect_drift(sparse, expected_by_policy(policy()))
    assert (found.worker, found.outcomes < 500) == ("good", True)
    assert detect_drift(missing(held, np.ones(held.codes.shape, bool)), expected_by_policy(policy())) == ()


def test_a_worker_that_few_outcomes_are_known_of_is_given_more_room() -> None:
    recent = replace(panel({"one": Made(0.7)}, tasks=3000), scores=stream((0.6, 3000))[:, None])
    success = np.full((3, 1), 0.7)
    assert [found.worker for found in detect_drift(recent, ExpectedSuccess(success, np.array([0.001])))] == ["one"]
    assert detect_drift(recent, ExpectedSuccess(success, np.array([0.08]))) == ()


def test_a_fallen_worker_is_not_asked() -> None:
    found = reroute_policy(policy(), [drift_of(0.775, 0.55)])
    assert policy_version(serialize_policy(found)) != policy_version(serialize_policy(policy()))
    assert found.may_ask(tuple(FOUR)).tolist() == [True, True, False, True]
    assert found.workers[GOOD].shunned


def test_what_was_measured_before_is_not_said_of_what_it_is_now() -> None:
    found = reroute_policy(policy(), [drift_of(0.775, 0.55)])
    assert [rung.evidence for rung in found.rungs] == [None] * len(found.rungs)
    assert found.habits is None
    assert "good fell from 0.775 to 0.550 from task-400 on" in found.about.notes


def test_without_a_fall_nothing_changes() -> None:
    assert reroute_policy(policy(), []) == policy()


def test_what_a_worker_did_before_it_fell_is_left_out_and_nothing_else() -> None:
    held = fallen()
    kept, (note,) = drop_outdated(held)
    begun = int(kept.there[:, GOOD].argmax())
    assert 370 <= begun <= 430
    assert kept.there[begun:].all()
    assert np.delete(kept.there, GOOD, 1).all()
    assert kept.mean_scores()[GOOD] == pytest.approx(held.won[begun:, GOOD].mean())
    assert f"its {begun:,} earlier outcomes are left out" in note


def test_in_quiet_traffic_or_with_few_outcomes_nothing_is_outdated() -> None:
    quiet = panel(FOUR, tasks=3000, alike=0.3, seed=2)
    assert drop_outdated(quiet) == (quiet, ())
    few = fallen().at(np.arange(370, 430))
    assert drop_outdated(few) == (few, ())


def test_learn_drops_the_outdated_if_told(tmp_path: Path) -> None:
    log = one_each(fallen(lost=0.9), np.full(4, 1 / 4))
    write(replace(log, propensities=np.full(log.there.shape, np.nan)), tmp_path / "log")
    options = ["learn", str(tmp_path / "log"), "--json", "-", "--out", str(tmp_path / "our.policy")]
    plain = CliRunner().invoke(app, options)
    told = CliRunner().invoke(app, [*options[:-1], str(tmp_path / "new.policy"), "--drop-outdated"])
    assert (plain.exit_code, told.exit_code) == (0, 0), told.output
    assert "earlier outcomes are left out" in told.stdout
    assert "earlier outcomes are left out" not in plain.stdout


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("lost", [0.35, 0.95])
def test_routing_around_wins_back_what_the_fall_had_lost_for_the_same_money(lost: float, rung: str) -> None:
    held, wish = fallen(2000, 0, lost), OperatingTarget(TargetMetric.COST, 0.5)
    (found,) = detect_drift(held.at(np.arange(500)), expected_by_policy(policy()))
    around = reroute_policy(policy(), [found], trained())
    before, after = (
        replay_mix(each.parts, each.mix(wish, rung), held, each.may_ask(held.workers)) for each in (policy(), around)
    )
    assert after.won.mean() > before.won.mean() + 0.03
    assert after.paid.mean() / around.rung().dial.unit == pytest.approx(0.5, abs=0.05)
