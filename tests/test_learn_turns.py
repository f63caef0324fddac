"""Turns: who was asked because of what others had said tells nothing of a worker alone; sequences tell of sequences."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from panels import Made, folds, panel
from partial_logs import one_each, second_opinions, step_by_step, untold
from shikisha.learn import coverage
from shikisha.learn.coverage import Kind, sized
from shikisha.learn.fits import POLICY, TABLE
from shikisha.learn.offpolicy import Method, Split, Value, expected, refusal, value
from shikisha.learn.panel import Panel
from shikisha.learn.partial import fit_partial
from shikisha.learn.play import mixed, play
from shikisha.learn.turns import begins, begun, in_turn, ordered
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import NOBODY, SHIP, Acts, Seen
from shikisha.policy.dial import Aim, Wish
from shikisha.policy.parts import Held
from shikisha.policy.table import Table

WORKERS = {"one": Made((0.75, 0.5), 0.1), "two": Made((0.6, 0.7), 0.3), "three": Made((0.8, 0.8), 1.0)}
HELD = panel(WORKERS, tasks=1200, alike=0.6)
FIRST = np.where(HELD.batch.types[:, None] == 0, [0.5, 0.3, 0.2], [0.3, 0.3, 0.4])
SURE = (0.0, 1.0)  # as most policies go on: never after a right answer, always after a wrong one
REPEATS = 24
nan = np.nan


def alone(log: Panel, worker: int) -> tuple[Floats, Floats]:
    """The doubly robust terms of accuracy and of dollars of asking this worker alone."""
    shares = np.zeros(log.there.shape)
    shares[:, worker] = 1.0
    return Split.of(log, folds(log)).routing(shares).by(Method.DR)


def near(found: list[float], truth: float) -> bool:
    """Whether estimates of many logs are right on average, give or take four standard errors."""
    return bool(abs(np.mean(found) - truth) < 4 * np.std(found) / np.sqrt(len(found)))


@dataclass(frozen=True)
class Doubting:
    """Asks the first worker, and the second where the first wrote much; ships what was said last."""

    kind: ClassVar[str] = "doubting"
    settings: int = 1

    def act(self, seen: Seen, setting: int) -> Acts:  # noqa: ARG002 - the protocol's signature
        once, twice = seen.asked[:, 0], seen.asked[:, 1]
        more = once & ~twice & (np.nan_to_num(seen.tokens[:, 0]) > 100)
        ends = once & ~more
        return Acts(np.where(ends, SHIP, np.where(more, 1, 0)), np.where(ends, np.where(twice, 1, 0), NOBODY))

    def held(self) -> Held:
        return {}


@pytest.mark.parametrize("goes_on", [SURE, (0.2, 0.9)], ids=["sure", "drawn"])
@pytest.mark.parametrize("worker", range(3))
def test_a_worker_alone_is_judged_right_on_average(worker: int, goes_on: tuple[float, float]) -> None:
    found = [alone(step_by_step(HELD, FIRST, seed, goes_on), worker) for seed in range(REPEATS)]
    assert near([float(won.mean()) for won, _ in found], HELD.won[:, worker].mean())
    assert near([float(paid.mean()) for _, paid in found], HELD.paid[:, worker].mean())


@pytest.mark.parametrize("worker", range(3))
def test_all_outcomes_taken_as_if_each_were_drawn_by_its_own_chance_would_not_be_right(worker: int) -> None:
    logs = [replace(step_by_step(HELD, FIRST, seed, SURE), turns=None) for seed in range(REPEATS)]
    assert not near([float(alone(log, worker)[0].mean()) for log in logs], HELD.won[:, worker].mean())


def test_intervals_hold_the_truth_about_nineteen_times_in_twenty() -> None:
    many, random, held = panel(WORKERS, 20_000, alike=0.6, seed=3), np.random.default_rng(5), 0
    for seed in range(100):
        some = many.at(random.integers(0, len(many), 600))
        shares = np.tile([0.0, 0.0, 1.0], (600, 1))
        log = step_by_step(some, np.array([0.4, 0.2, 0.4]), seed, SURE)
        found = value(Split.of(log, folds(log)).routing(shares))
        assert isinstance(found, Value)
        held += found.accuracy.low <= many.won[:, 2].mean() <= found.accuracy.high
    assert 88 <= held <= 99


def test_a_policy_that_asks_by_what_was_said_is_judged_right_on_average() -> None:
    truth, found = play(Doubting(), 0, HELD), []
    for seed in range(REPEATS):
        log = step_by_step(HELD, np.array([0.8, 0.1, 0.1]), seed)
        terms = Split.of(log, folds(log)).following(Doubting(), 0)
        assert refusal(terms) is None
        found.append([float(each.mean()) for each in terms.by(Method.DR)])
    assert near([won for won, _ in found], truth.won.mean())
    assert near([paid for _, paid in found], truth.paid.mean())


def test_the_table_is_of_first_asks() -> None:
    truth = HELD.won.mean(axis=0)
    log = step_by_step(panel(WORKERS, 12_000, alike=0.6), np.array([0.6, 0.2, 0.2]), 0, SURE)
    assert expected(log).success[-1] == pytest.approx(truth, abs=0.025)
    assert expected(begun(log)).success == pytest.approx(expected(log).success)
    assert (expected(log).success[-1, 1:] - expected(log, told=False).success[-1, 1:] > 0.03).all()


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
def test_a_sequence_counts_as_far_as_it_is_told(
    turns: tuple[int, ...], chances: tuple[float, ...], begin: bool, kept: tuple[int, ...]
) -> None:
    held = replace(panel(tasks=2), propensities=np.array([chances, (1.0, 1.0, 1.0)]))
    log = replace(held, turns=np.array([turns, (0, 1, 2)]))
    assert begins(log).tolist() == [begin, True]
    assert _turns(ordered(log))[0].tolist() == list(kept)
    assert (ordered(log).there == (_turns(ordered(log)) >= 0)).all()
    assert (begun(ordered(log)).there[0] == [turn == 0 for turn in kept]).all()


def test_whoever_was_asked_alone_was_asked_first() -> None:
    log = replace(one_each(HELD, FIRST), turns=np.full(HELD.there.shape, -1))
    first = np.where(np.arange(1200)[:, None] == 0, np.where(log.there, 0, -1), -1)
    told = replace(log, turns=first)
    assert begins(told).all()
    assert (_turns(ordered(told)) == np.where(log.there, 0, -1)).all()


def test_a_log_without_turns_is_as_it_was() -> None:
    assert not in_turn(HELD)
    assert ordered(HELD) is HELD
    assert begun(HELD) is HELD


def test_coverage_tells_first_asks_from_others() -> None:
    log = step_by_step(HELD, FIRST)
    found, first = coverage.of(log), (_turns(log) == 0)
    said = "\n".join(found.findings)
    later = int((_turns(log) > 0).sum())
    assert found.kind is Kind.DRAWN
    assert found.drawn.all()
    assert (found.cells[-1] == first.sum(axis=0)).all()
    assert f"{later:,} outcomes are not of the first ask of a task: they tell what it is worth to ask several" in said
    assert "weighted by their probabilities" not in said


def test_a_worker_that_was_never_asked_first_is_not_known_alone() -> None:
    log = second_opinions(HELD, 0, 2)
    said = "\n".join(coverage.of(log).findings)
    assert "three was asked first for 0 % of the tasks: too little is known about it on any type" in said
    assert (expected(log).cells[:, 2] == 0).all()
    assert (expected(log).later[:, 2] > 0).all()
    terms = Split.of(log, folds(log)).routing(np.tile([0.0, 0.0, 1.0], (1200, 1)))
    why = refusal(terms)
    assert why is not None
    assert why.reason == "for 100% of the tasks it asks workers of whom the log knows nothing there"


def test_the_same_log_without_turns_is_not_followed_where_answers_decided() -> None:
    log = replace(second_opinions(HELD, 0, 2), propensities=np.ones(HELD.there.shape), turns=None)
    assert (sized(log)[:, 2] == 0).all()
    assert "its probabilities hang on what others had said" in "\n".join(coverage.of(log).findings)


def test_tasks_of_which_the_first_chance_is_not_told_are_left_out() -> None:
    log = step_by_step(HELD, FIRST)
    early = (np.arange(1200) < 400)[:, None]
    part = replace(log, propensities=np.where(early & (_turns(log) == 0), np.nan, log.propensities))
    found = coverage.of(part)
    assert (found.drawn == ~early[:, 0]).all()
    assert "of 400 tasks nobody knows with what probability the first worker was asked" in "\n".join(found.findings)
    assert coverage.of(untold(log)).kind is Kind.UNTOLD


def test_first_asks_without_a_score_are_said_not_to_stand_for_the_tasks() -> None:
    log = step_by_step(HELD, FIRST)
    lost = (np.arange(1200) % 3 == 0)[:, None] & np.array([False, False, True])
    held = replace(log, scores=np.where(lost, np.nan, log.scores))
    said = "\n".join(coverage.of(held).findings)
    assert "% of the first answers of three have no score, and its worth may be off by as much" in said
    assert "answers of one have no score" not in said
    assert "the outcomes of three, weighted by their probabilities, stand for " in said
    assert "on others it was never asked first, or its answers have no score" in said


def test_the_rule_of_a_log_with_turns_is_the_one_of_the_full_log() -> None:
    many, fresh = panel(WORKERS, 3000, alike=0.6), panel(WORKERS, 3000, alike=0.6, seed=9)
    policy = fit_partial(step_by_step(many, np.full(3, 1 / 3)))
    rule = policy.parts[0]
    assert isinstance(rule, Table)
    assert rule.success[:2] == pytest.approx(np.array([[0.75, 0.6, 0.8], [0.5, 0.7, 0.8]]), abs=0.07)
    dial = policy.rung(TABLE).dial
    best = mixed(policy.parts, policy.mix(Wish(Aim.BEST), TABLE), fresh)
    assert best.won.mean() == pytest.approx(dial.points[-1].accuracy, abs=0.04)
    assert [worker.tasks for worker in policy.workers] == (begun(step_by_step(many, np.full(3, 1 / 3))).there).sum(
        axis=0
    ).tolist()


def test_sequences_carry_a_policy_that_asks_several() -> None:
    unlike = {"one": Made(0.65, 0.1), "two": Made(0.65, 0.1), "three": Made(0.7, 1.0)}
    log = step_by_step(panel(unlike, 3000), np.full(3, 1 / 3))
    policy, fresh = fit_partial(log), panel(unlike, 3000, seed=8)
    evidence = policy.rung(POLICY).evidence
    assert evidence is not None
    for point in policy.rung(POLICY).dial.points:
        won = play(policy.parts[point.part], point.setting, fresh).won.mean()
        assert won == pytest.approx(point.accuracy, abs=4 * point.error + 0.02)


def test_where_no_further_ask_was_left_to_chance_no_other_way_of_asking_is_promised() -> None:
    unlike = {"one": Made(0.65, 0.1), "two": Made(0.65, 0.1), "three": Made(0.7, 1.0)}
    policy = fit_partial(second_opinions(panel(unlike, 2000), 0, 2, chances=(0.0, 1.0)))
    notes = "\n".join(policy.about.notes)
    assert [rung.name for rung in policy.rungs] == [TABLE]
    assert "no further ask was left to chance" in notes
    assert "there is no policy that asks several: the rule is as good as those of its settings that can be" in notes


def test_a_part_of_the_workers_is_judged_by_the_tasks_of_all() -> None:
    log = step_by_step(HELD, FIRST).only(["two", "three"])
    assert near(
        [float(alone(step_by_step(HELD, FIRST, seed).only(["two", "three"]), 1)[0].mean()) for seed in range(8)],
        HELD.won[:, 2].mean(),
    )
    assert coverage.of(log).kind is Kind.DRAWN


def _turns(log: Panel) -> Ints:
    assert log.turns is not None
    return log.turns
