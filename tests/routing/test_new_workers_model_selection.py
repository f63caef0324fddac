"""Learning with workers that joined late: they are fitted and dialled, marked and doubted, and never evidence."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from panels import Made, missing, panel, scores_only
from partial_logs import each_apart, untold
from policies import write
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.routing.arrays import Flags
from shikisha.routing.fit import log_quality
from shikisha.routing.fit.fit_stopping_rule import StoppingConfig
from shikisha.routing.fit.fit_table import RoutingPreference
from shikisha.routing.fit.log_quality import LogKind, new_worker_notes
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import (
    CASCADE,
    POLICY,
    TABLE,
    LearningOptions,
    PolicyFit,
    fit_candidates,
    known_workers,
    replay_settings,
    select_policy,
    widen_errors,
)
from shikisha.routing.fit.new_workers import (
    excluded_types,
    find_new_workers,
    impute_outcomes,
    num_imputations,
    without_new_workers,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import COMBINED, Candidate, Policy, PolicyOrigin
from shikisha.routing.policy_file import serialize_policy
from shikisha.routing.state import NO_ANSWER
from shikisha.routing.trade_off import OperatingPoint

FOUR = {
    "cheap": Made((0.7, 0.45), 0.02),
    "middle": Made((0.6, 0.7), 0.2),
    "good": Made((0.75, 0.72), 0.5),
    "late": Made((0.97, 0.95), 5.0),
}
NEW, LATE = "late", 3
RUNGS = (TABLE, CASCADE, POLICY, COMBINED)
WANTS = LearningOptions(config=StoppingConfig(prices=np.geomspace(0.004, 30.0, 12)))


@cache
def whole(seed: int = 0) -> OutcomeMatrix:
    return panel(FOUR, 500, alike=0.3, seed=seed)


def only_at(held: OutcomeMatrix, rows: Flags, *workers: int) -> OutcomeMatrix:
    """The panel in which these workers were asked for these tasks only."""
    gone = np.zeros(held.codes.shape, bool)
    gone[:, list(workers or (LATE,))] = ~rows[:, None]
    return missing(held, gone)


def some(count: int, of: int = 500) -> Flags:
    return np.isin(np.arange(of), np.random.default_rng(1).choice(of, count, replace=False))


@cache
def few(count: int = 60) -> OutcomeMatrix:
    return only_at(whole(), some(count))


@cache
def fitted(count: int = 60) -> tuple[PolicyFit, PolicyFit]:
    """What is fitted on the panel as it was filled in, before and after it is doubted."""
    held = few(count)
    made = fit_candidates(held, WANTS, RUNGS, impute_outcomes(held, copies=num_imputations(held)))
    return made, widen_errors(made, held)


@pytest.fixture(scope="module")
def climbed() -> Policy:
    return select_policy(few(), WANTS)


def asks(made: PolicyFit, point: OperatingPoint, held: OutcomeMatrix) -> float:
    """The share of the tasks for which the late worker is asked."""
    return float(replay(made.parts[point.part], point.setting, held).asked[:, LATE].mean())


def bytes_of(made: PolicyFit, held: OutcomeMatrix) -> bytes:
    rungs = tuple(Candidate(name, dial) for name, dial in made.dials.items())
    return serialize_policy(
        Policy(PolicyOrigin("log", "", len(held)), known_workers(held), held.types, made.parts, rungs, TABLE)
    )


def test_without_newcomers_nothing_is_different_to_the_bit() -> None:
    held = panel(tasks=200)
    plain, filled = fit_candidates(held, WANTS, RUNGS), fit_candidates(held, WANTS, RUNGS, impute_outcomes(held))
    assert bytes_of(plain, held) == bytes_of(filled, held)
    assert widen_errors(plain, held) is plain
    assert without_new_workers(held) is held
    policy = select_policy(held, WANTS)
    assert bytes_of(PolicyFit(policy.parts, {rung.name: rung.dial for rung in policy.rungs}), held) == bytes_of(
        plain, held
    )
    assert policy.about.notes == ()
    assert all(rung.evidence and not rung.evidence.note for rung in policy.rungs)


def test_evidence_is_what_it_would_be_without_newcomers(climbed: Policy) -> None:
    without = select_policy(few().select_workers(few().workers[:LATE]), WANTS)
    assert climbed.kept == without.kept
    for rung, other in zip(climbed.rungs, without.rungs, strict=True):
        assert rung.evidence is not None
        assert replace(rung.evidence, note="") == other.evidence
        assert rung.evidence.note.startswith("measured without late,")


def test_units_and_what_is_known_of_workers_are_of_what_was_recorded(climbed: Policy) -> None:
    assert climbed.workers == known_workers(few())
    assert climbed.workers[LATE].tasks == 60
    assert climbed.best_single.name == "good"
    assert climbed.rung().dial.unit == without_new_workers(few()).cost_unit()
    assert climbed.about.tasks == 500


def test_a_newcomer_that_is_better_and_dearer_than_all_known_is_at_the_end_of_the_dial(climbed: Policy) -> None:
    for rung in climbed.rungs:
        dearest = rung.dial.points[-1]
        assert dearest.cost > 5
        assert dearest.accuracy > climbed.best_single.score + 0.1
        assert asks(PolicyFit(climbed.parts, {}), dearest, whole()) > 0.3


def test_errors_are_of_as_many_tasks_as_there_are_and_hold_how_little_is_known_of_newcomers() -> None:
    before, after = fitted()
    assert num_imputations(few()) > 1
    for rung in (TABLE, CASCADE, POLICY):  # the combined dial promises less than it was seen to reach
        for point, doubt in zip(before.dials[rung].points, after.dials[rung].points, strict=True):
            spread = (point.accuracy * (1 - point.accuracy) / 500) ** 0.5
            # The table promises what it estimates, and errs as its scores do.
            assert point.error == pytest.approx(spread, rel=0.05 if rung == TABLE else 0.02)
            if asks(before, point, impute_outcomes(few())) == 0:
                assert doubt == point
            else:
                assert doubt.error > point.error


def test_a_setting_that_always_asks_a_newcomer_is_as_unsure_as_its_few_outcomes_are() -> None:
    errors = []
    for count in (30, 60, 200):
        made = widen_errors(fit_candidates(few(count), WANTS, (TABLE,), impute_outcomes(few(count))), few(count))
        errors.append(made.dials[TABLE].points[-1].error)
    assert errors[0] > 1.2 * errors[1] > 1.2 * errors[2]
    assert errors[1] == pytest.approx((0.95 * 0.05 / 60) ** 0.5, rel=0.6)


def test_what_the_dial_promises_comes_to_pass_within_its_errors() -> None:
    fresh, (_, made) = whole(7), fitted(120)
    for rung in RUNGS:
        trial = replay_settings(made, made.dials[rung].points, fresh, without_new_workers(few()).cost_unit())
        for point in made.dials[rung].points:
            won = trial.won[:, trial.places.index((point.part, point.setting))]
            assert abs(won.mean() - point.accuracy) < 3.5 * np.hypot(point.error, won.std() / len(fresh) ** 0.5)


def test_who_was_kept_away_from_a_type_is_hardly_asked_there() -> None:
    law = whole().batch.types == 1
    held = only_at(whole(), some(240) & ~law)
    filled = impute_outcomes(held)
    assert (excluded_types(held, LATE).tolist(), excluded_types(few(), LATE).tolist()) == ([1], [])
    assert (filled.codes[law, LATE] == NO_ANSWER).all()
    assert (filled.won[law, LATE] == 0).all()
    assert "late was never asked for law: it counts as not answering there" in new_worker_notes(held)
    made = fit_candidates(held, WANTS, RUNGS, filled)
    for rung, most in ((TABLE, 0.0), (CASCADE, 0.0), (POLICY, 0.5)):  # an induction leans over from type to type
        dearest = made.dials[rung].points[-1]
        asked = replay(made.parts[dearest.part], dearest.setting, filled).asked[:, LATE]
        assert asked[~law].mean() > 0.3
        assert asked[law].mean() <= most * asked[~law].mean()


def test_a_worker_whose_outcomes_nobody_graded_is_no_newcomer() -> None:
    held = whole()
    ungraded = (np.arange(4) == LATE) & ~some(60)[:, None]
    assert find_new_workers(replace(held, scores=np.where(ungraded, np.nan, held.scores))) == ()


@pytest.mark.parametrize("limits", [{"late": 0.1}, pytest.param(dict.fromkeys(FOUR, 0.3), marks=pytest.mark.slow)])
def test_load_limits_hold_for_newcomers_too(limits: dict[str, float]) -> None:
    held = few(200).at(np.arange(50))
    policy = select_policy(held, LearningOptions(preference=RoutingPreference(limits=limits)))
    for point in policy.rung().dial.points:
        share = replay(policy.parts[point.part], point.setting, held).asked.mean(axis=0)
        assert all(share[held.workers.index(name)] <= most + 0.01 for name, most in limits.items())


@pytest.mark.parametrize(
    "held",
    [
        scores_only(few().at(np.arange(200))),
        few().at(np.arange(90)),
        only_at(whole(), some(60), 2, LATE),
    ],
    ids=["scores only", "90 tasks", "two"],
)
def test_odd_logs_with_newcomers_give_a_policy_with_a_dial(held: OutcomeMatrix) -> None:
    assert find_new_workers(held)
    policy = select_policy(held, WANTS)
    assert policy.rung().dial.points
    assert any(note.startswith("new in the pool: ") for note in policy.about.notes)


def test_newcomers_leave_a_full_log_full_however_many_they_are_and_whatever_they_were_asked_for() -> None:
    five = {**FOUR, "last": Made(0.6)}
    hard = (whole().scores[:, :2] == 0).all(axis=1)
    assert log_quality.measure_coverage(untold(only_at(panel(five, 500), some(60), 2, 3, 4))).kind is LogKind.FULL
    assert log_quality.measure_coverage(untold(only_at(whole(), hard & some(250)))).kind is LogKind.FULL


def test_workers_that_were_drawn_often_enough_are_judged_by_their_propensities() -> None:
    held = panel({**FOUR, "last": Made(0.6)}, 2000)
    often, rarely = (each_apart(held, np.array([1, 1, share, share, share])) for share in (0.3, 0.05))
    assert len(find_new_workers(often)) == len(find_new_workers(rarely)) == 3
    assert log_quality.measure_coverage(often).kind is LogKind.DRAWN
    assert log_quality.measure_coverage(rarely).kind is LogKind.FULL


def test_all_that_people_are_shown_names_the_newcomers(tmp_path: Path) -> None:
    write(few().at(np.arange(150)), tmp_path / "log")
    made = tmp_path / "our.policy"
    files = ["--page", str(tmp_path / "page.html"), "--json", str(tmp_path / "report.json")]
    learned = CliRunner().invoke(app, ["learn", str(tmp_path / "log"), "-o", str(made), *files], env={"COLUMNS": "80"})
    shown = CliRunner().invoke(app, ["policy", "show", str(made)], env={"COLUMNS": "80"})
    assert (learned.exit_code, shown.exit_code) == (0, 0)
    count = int(few().there[:150, LATE].sum())
    assert f"warning: new in the pool: late ({count} outcomes);" in " ".join(learned.stderr.split())
    for said in (learned.stdout, shown.stdout):
        assert f"Few outcomes: late {count}." in said
    assert "measured without late, who have too few outcomes" in " ".join(learned.stdout.split())
    (row,) = (line for line in shown.stdout.splitlines() if line.startswith("late "))
    assert "%*" in row
    assert json.loads((tmp_path / "report.json").read_text())["few_outcomes"] == [NEW]
    page = (tmp_path / "page.html").read_text()
    assert "late<small>few outcomes</small>" in page
    assert "Results were measured without late" in page
