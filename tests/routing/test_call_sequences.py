"""Turns: who was asked because of what others had said tells nothing of a worker alone; sequences tell of sequences."""

from dataclasses import replace

import numpy as np
import pytest
from panels import Made, panel, replay_mix
from partial_logs import one_each, second_opinions, step_by_step, untold

from shikisha.routing.arrays import Ints
from shikisha.routing.fit import log_quality
from shikisha.routing.fit.log_quality import LogKind, supported_outcomes
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import TABLE
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, first_asks, has_turns, known_first_asks
from shikisha.routing.fit.partial_logs import expected_outcomes, fit_partial_log
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingTarget, TargetMetric

WORKERS = {"one": Made((0.75, 0.5), 0.1), "two": Made((0.6, 0.7), 0.3), "three": Made((0.8, 0.8), 1.0)}
HELD = panel(WORKERS, tasks=1200, alike=0.6)
FIRST = np.where(HELD.batch.types[:, None] == 0, [0.5, 0.3, 0.2], [0.3, 0.3, 0.4])
SURE = (0.0, 1.0)  # as most policies go on: never after a right answer, always after a wrong one
REPEATS = 24
nan = np.nan


def test_the_table_is_of_first_asks() -> None:
    truth = HELD.won.mean(axis=0)
    log = step_by_step(panel(WORKERS, 12_000, alike=0.6), np.array([0.6, 0.2, 0.2]), 0, SURE)
    assert expected_outcomes(log).success[-1] == pytest.approx(truth, abs=0.025)
    assert expected_outcomes(first_asks(log)).success == pytest.approx(expected_outcomes(log).success)
    assert (
        expected_outcomes(log).success[-1, 1:] - expected_outcomes(log, weighted=False).success[-1, 1:] > 0.03
    ).all()


@pytest.mark.parametrize(
    ("turns", "chances", "begin", "kept"),
    [
        ((1, 0, 2), (0.5, 0.5, 1.0), True, (1, 0, 2)),
        ((0, -1, -1), (0.5, nan, nan), True, (0, -1, -1)),  # the others stood in, or another run asked them
        ((0, 2, -1), (0.5, 0.5, nan), True, (0, -1, -1)),  # nobody knows who was asked between them
        ((0, 1, 2), (0.5, nan, 0.5), True, (0, -1, -1)),
        ((0, 1, 1), (0.5, 0.5, 0.5), True, (0, -1, -1)),
        ((1, 2, -1), (0.5, 0.5, 0.5), True, (-1, -1, -1)),  # the first is not among these workers
        ((0, 0, 1), (0.5, 0.5, 0.5), False, (-1, -1, -1)),
        ((0, 1, -1), (nan, 0.5, nan), False, (-1, -1, -1)),
        ((0, 1, -1), (0.0, 0.5, nan), False, (-1, -1, -1)),  # what cannot happen did
        ((-1, -1, -1), (0.5, 0.5, 0.5), False, (-1, -1, -1)),
    ],
)
def test_the_first_ask_counts_where_its_probability_is_known(
    turns: tuple[int, ...], chances: tuple[float, ...], begin: bool, kept: tuple[int, ...]
) -> None:
    held = replace(panel(tasks=2), propensities=np.array([chances, (1.0, 1.0, 1.0)]))
    log = replace(held, turns=np.array([turns, (0, 1, 2)]))
    assert known_first_asks(log).tolist() == [begin, True]
    assert first_asks(log).there[0].tolist() == [turn == 0 for turn in kept]


def test_whoever_was_asked_alone_was_asked_first() -> None:
    log = replace(one_each(HELD, FIRST), turns=np.full(HELD.there.shape, -1))
    first = np.where(np.arange(1200)[:, None] == 0, np.where(log.there, 0, -1), -1)
    told = replace(log, turns=first)
    assert known_first_asks(told).all()
    assert (first_asks(told).there == log.there).all()


def test_a_log_without_turns_is_as_it_was() -> None:
    assert not has_turns(HELD)
    assert first_asks(HELD) is HELD


def test_coverage_tells_first_asks_from_others() -> None:
    log = step_by_step(HELD, FIRST)
    found = log_quality.measure_coverage(log)
    said = "\n".join(found.findings)
    later = int((_turns(log) > 0).sum())
    assert found.kind is LogKind.DRAWN
    assert found.drawn.all()
    assert f"{later:,} outcomes are not of the first ask of a task, and say nothing about a worker alone" in said


def test_a_worker_that_was_never_asked_first_is_not_known_alone() -> None:
    log = second_opinions(HELD, 0, 2)
    said = "\n".join(log_quality.measure_coverage(log).findings)
    assert "three was asked first for 0 % of the tasks: too few outcomes on any type" in said
    assert (expected_outcomes(log).cells[:, 2] == 0).all()
    policy = fit_partial_log(log)[0].policy
    assert not any(
        replay(part, setting, HELD).asked[:, 2].any() for part in policy.parts for setting in range(part.settings)
    )


def test_the_same_log_without_turns_is_not_followed_where_answers_decided() -> None:
    log = replace(second_opinions(HELD, 0, 2), propensities=np.ones(HELD.there.shape), turns=None)
    assert (supported_outcomes(log)[:, 2] == 0).all()


def test_tasks_of_which_the_first_chance_is_not_told_are_left_out() -> None:
    log = step_by_step(HELD, FIRST)
    early = (np.arange(1200) < 400)[:, None]
    part = replace(log, propensities=np.where(early & (_turns(log) == 0), np.nan, log.propensities))
    found = log_quality.measure_coverage(part)
    assert (found.drawn == ~early[:, 0]).all()
    assert not first_asks(part).there[:400].any()
    assert log_quality.measure_coverage(untold(log)).kind is LogKind.UNTOLD


def test_the_rule_of_a_log_with_turns_is_the_one_of_the_full_log() -> None:
    many, fresh = panel(WORKERS, 3000, alike=0.6), panel(WORKERS, 3000, alike=0.6, seed=9)
    policy = fit_partial_log(step_by_step(many, np.full(3, 1 / 3)))[0].policy
    rule = policy.parts[0]
    assert isinstance(rule, TableRule)
    assert rule.success[:2] == pytest.approx(np.array([[0.75, 0.6, 0.8], [0.5, 0.7, 0.8]]), abs=0.07)
    dial = policy.rung(TABLE).dial
    best = replay_mix(policy.parts, policy.mix(OperatingTarget(TargetMetric.BEST), TABLE), fresh)
    assert best.won.mean() == pytest.approx(dial.points[-1].accuracy, abs=0.04)
    assert [worker.tasks for worker in policy.workers] == (first_asks(step_by_step(many, np.full(3, 1 / 3))).there).sum(
        axis=0
    ).tolist()


def _turns(log: OutcomeMatrix) -> Ints:
    assert log.turns is not None
    return log.turns
