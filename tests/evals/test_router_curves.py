"""Router curves: RouteLLM's and RouterBench's figures, by hand, by property, and on RouteLLM's own MMLU answers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from shikisha.evals.entrant_metrics import RouterCurve
from shikisha.evals.report import (
    RouterPoint,
    WorkerOutcomes,
    aiq,
    apgr,
    cpt,
    cross_fitted_gains,
    hash_fraction,
    pgr,
    router_curves,
    threshold_sweep,
)
from shikisha.outcomes.log_reader import open_log

FOLDER = ROOT.parent / "shared" / "recorded"
WEAK, STRONG = "mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4-1106-preview"
BENT = [(0.0, 0.4), (0.25, 0.6), (0.5, 0.7), (1.0, 0.8)]  # from a weak worker's 0.4 to a strong one's 0.8


def test_the_gap_recovered_goes_from_0_to_1_and_beyond() -> None:
    assert [pgr(score, 0.4, 0.8) for score in (0.4, 0.6, 0.8)] == pytest.approx([0, 0.5, 1])
    assert pgr(1.0, 0.4, 0.8) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="no gap"):
        pgr(0.5, 0.4, 0.4)


def test_apgr_is_the_area_under_the_recovered_gap() -> None:
    by_hand = 0.25 * 0.25 + 0.25 * 0.625 + 0.5 * 0.875
    assert apgr(BENT, 0.4, 0.8) == pytest.approx(by_hand)
    assert apgr(BENT[::-1], 0.4, 0.8) == pytest.approx(by_hand)


@pytest.mark.parametrize(("gap", "share"), [(0.0, 0.0), (0.5, 0.25), (0.75, 0.5), (0.8, 0.6), (1.0, 1.0), (1.1, None)])
def test_cpt_is_the_least_share_that_recovers_so_much(gap: float, share: float | None) -> None:
    found = cpt(BENT, 0.4, 0.8, gap)
    assert found == (None if share is None else pytest.approx(share))


def test_cpt_takes_the_first_crossing_of_a_curve_that_falls_again() -> None:
    assert cpt([(0, 0.0), (0.2, 0.6), (0.4, 0.4), (1, 1.0)], 0.0, 1.0, 0.5) == pytest.approx(0.5 / 3)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], None),
        ([(3.0, 0.7)], 0.7),
        ([(3.0, 0.7), (3.0, 0.9)], 0.9),
        ([(1.0, 0.2), (3.0, 0.6)], 0.4),
        ([(0.0, 0.2), (1.0, 0.6), (2.0, 0.4)], 0.5),  # level at 0.6 from 1 to 2
        ([(0.0, 0.0), (1.0, 0.1), (2.0, 1.0)], 0.5),  # the middle one lies below the hull
    ],
)
def test_aiq_is_the_mean_height_of_the_hull(points: list[tuple[float, float]], expected: float | None) -> None:
    assert aiq(points) == (None if expected is None else pytest.approx(expected))


def test_a_sweep_sends_the_highest_rates_first() -> None:
    weak, strong = WorkerOutcomes("w", [0.0] * 10, [1.0] * 10), WorkerOutcomes("s", [1.0] * 5 + [0.0] * 5, [3.0] * 10)
    steps = threshold_sweep(weak, strong, [1 - task / 10 for task in range(10)])
    assert steps[0] == RouterPoint(0.0, 0.0, 1.0)
    assert [step.score for step in steps if step.share >= 0.5] == [0.5] * 6
    assert steps[-1] == RouterPoint(1.0, 0.5, 3.0)


def test_tasks_of_one_rate_go_together() -> None:
    weak, strong = WorkerOutcomes("w", [0.0] * 4), WorkerOutcomes("s", [1.0] * 4)
    steps = threshold_sweep(weak, strong, [0.9, 0.2, 0.2, 0.2])
    assert {step.share for step in steps} == {0.0, 0.25, 1.0}
    assert {step.dollars for step in steps} == {None}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=60))
def test_a_rate_is_never_fitted_on_its_own_task(tasks: list[tuple[str, float]]) -> None:
    groups, gains, keys = (
        [group for group, _ in tasks],
        [gain for _, gain in tasks],
        [str(i) for i in range(len(tasks))],
    )
    before = cross_fitted_gains(groups, gains, keys)
    assert cross_fitted_gains(groups, [gains[0] + 5, *gains[1:]], keys)[0] == before[0]
    fold = [int(hash_fraction(key, "fold") * 5) for key in keys]
    others = [
        gain for group, gain, own in zip(groups, gains, fold, strict=True) if own != fold[0] and group == groups[0]
    ]
    if others:
        assert before[0] == pytest.approx(sum(others) / len(others))


def test_there_is_no_curve_without_a_gap() -> None:
    assert router_curves(WorkerOutcomes("w", [1.0, 0.0]), WorkerOutcomes("s", [0.0, 1.0]), ["x", "y"], ["", ""]) == ()
    assert router_curves(WorkerOutcomes("w", []), WorkerOutcomes("s", []), [], []) == ()


def made(order: int = 1) -> tuple[RouterCurve, ...]:
    """Two domains: in one the strong worker gains everything, in the other nothing."""
    keys = [f"key {task}" for task in range(400)][::order]
    hard = [int(key.split()[1]) % 2 == 0 for key in keys]
    weak = WorkerOutcomes("w", [0.0 if each else 1.0 for each in hard], [1.0] * 400)
    return router_curves(
        weak, WorkerOutcomes("s", [1.0] * 400, [11.0] * 400), keys, ["hard" if each else "easy" for each in hard]
    )


def test_a_rule_by_domain_finds_where_the_strong_worker_is_needed() -> None:
    expected, drawn, rule = made()
    assert (expected.name, drawn.name, rule.name) == ("random, expected", "random, drawn", "by domain")
    assert (expected.apgr, expected.cpt50, expected.cpt80) == pytest.approx((0.5, 0.5, 0.8))
    assert drawn.apgr == pytest.approx(0.5, abs=0.03)
    assert rule.points == ((0.0, 0.5), (0.5, 1.0), (1.0, 1.0))
    assert (rule.apgr, rule.cpt50, rule.cpt80) == pytest.approx((0.75, 0.25, 0.4))
    assert (expected.aiq, rule.aiq) == pytest.approx((0.75, 0.875))


def test_the_order_of_the_tasks_changes_no_curve() -> None:
    assert made(-1) == made()


@pytest.mark.recorded
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded answers in {FOLDER}")
def test_routers_on_the_answers_that_routellm_recorded() -> None:
    """9,764 of its 14,042 tasks are at hand; a per-subject rule is said to reach 0.679, 28 % and 57 % on them all."""
    log = open_log(FOLDER / "routellm-mmlu")
    tasks = [log.task(task_id) for task_id in log.task_ids]
    weak, strong = (
        WorkerOutcomes(name, [outcome.score or 0.0 for outcome in log.outcomes_of(name)]) for name in (WEAK, STRONG)
    )
    expected, drawn, rule = router_curves(weak, strong, [t.content_hash for t in tasks], [t.domain for t in tasks])
    assert expected.apgr == pytest.approx(0.5)
    assert drawn.apgr == pytest.approx(0.5, abs=0.01)
    assert rule.apgr == pytest.approx(0.67, abs=0.015)
    assert rule.cpt50 == pytest.approx(0.28, abs=0.02)
    assert rule.cpt80 == pytest.approx(0.59, abs=0.03)
