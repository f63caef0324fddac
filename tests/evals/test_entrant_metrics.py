"""Counting: what an entry says of samples made by hand."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_samples import sample, samples_of

from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.budget import wilson
from shikisha.core.errors import FaultKind
from shikisha.core.events import GradeMark, RunStatus
from shikisha.engine.pool import Pool
from shikisha.evals.entrant_metrics import (
    ConfidenceBin,
    ConfidenceInterval,
    EntrantInfo,
    SecondRound,
    TaskGroup,
    entrant_figures,
    oracle_samples,
    paired_difference,
)
from shikisha.evals.samples import Entrant, EntrantRole, Sample

ME = EntrantInfo("me", note="made by hand")
SCORES = st.lists(st.sampled_from([0.0, 0.3, 1.0, None]), max_size=40)


def test_accuracy_is_over_graded_samples_and_no_answer_is_a_zero() -> None:
    samples = [
        *samples_of("me", [1.0, 0.5, None, 0.0]),
        sample("me", "silent", 0.0, mark=GradeMark.NO_ANSWER, judged=True),
    ]
    found = entrant_figures(ME, samples)
    assert (found.name, found.part, found.note) == ("me", EntrantRole.ASKED, "made by hand")
    assert (found.tasks, found.ungraded, found.no_answer, found.judged) == (4, 1, 1, 1)
    assert found.accuracy == 1.5 / 4
    assert found.interval.low < found.accuracy < found.interval.high


def test_right_or_wrong_has_the_interval_of_a_share() -> None:
    assert entrant_figures(ME, samples_of("me", [1.0] * 7 + [0.0] * 3)).interval == ConfidenceInterval(*wilson(7, 10))


def test_an_entrant_without_samples_has_an_entry_of_zeros() -> None:
    found = entrant_figures(ME, [], {"t0": 1.0}, "best")
    assert (found.tasks, found.accuracy, found.interval) == (0, 0.0, ConfidenceInterval(0.0, 1.0))
    assert (found.against, found.valid, found.accuracy_given_valid, found.dollars_a_task) == (None, None, None, None)
    assert (found.workers, found.topologies, found.domains, found.second_round) == ({}, {}, {}, None)


def test_what_was_proposed_is_valid_or_not_and_nothing_proposed_is_neither() -> None:
    samples = [
        sample("me", "good", 1.0, valid=True),
        sample("me", "fine", 0.0, valid=True),
        sample("me", "bad", 1.0, valid=False),
        sample("me", "capped", 0.0, valid=None),
        sample("me", "unknown", None, valid=True),
    ]
    found = entrant_figures(ME, samples)
    assert found.valid == 3 / 4
    assert found.accuracy_given_valid == 1 / 2


def test_work_and_money_are_counted_over_all_samples() -> None:
    samples = [
        sample("me", "t0", 1.0, tokens=100, dollars=0.5, paid=0.25, rounds=1, workers=("a", "b", "a"), seconds=1.0),
        sample("me", "t1", 0.0, tokens=50, dollars=None, rounds=2, workers=("b",), seconds=2.0),
        sample("me", "t2", None, tokens=0, dollars=0.25, rounds=0, seconds=9.0),
    ]
    found = entrant_figures(ME, samples)
    assert (found.dollars, found.unpriced, found.paid, found.dollars_a_task) == (0.75, 1, 0.25, 0.375)
    assert (found.tokens, found.steps, found.rounds) == (50, 4 / 3, 1)
    assert (found.seconds_p50, found.seconds_p95) == pytest.approx((2.0, 8.3))
    assert (dict(found.workers), found.entropy) == ({"a": 0.5, "b": 0.5}, 1.0)


def test_shapes_and_graphs_of_first_plans_are_counted_from_the_most_frequent_down() -> None:
    one, vote = ((),), ((), (), (0, 1))
    samples = [
        sample("me", "t0", shape="one-shot", access=one),
        *(sample("me", f"v{n}", shape="fan-out+join", access=vote) for n in range(2)),
        sample("me", "nothing proposed", 0.0),
    ]
    found = entrant_figures(ME, samples)
    assert list(found.topologies.items()) == [("fan-out+join", 2), ("one-shot", 1)]
    assert found.graphs == ((vote, 2), (one, 1))
    assert found.multi_step == 2 / 3


def test_a_second_round_repairs_breaks_or_changes_nothing() -> None:
    pairs = [(0.0, 1.0), (0.0, 0.5), (1.0, 0.0), (1.0, 1.0), (0.0, None), (None, 1.0)]
    samples = [sample("me", f"t{n}", last, first_score=first) for n, (first, last) in enumerate(pairs)]
    assert entrant_figures(ME, samples).second_round == SecondRound(runs=4, repaired=2, broke=1)


def test_failures_are_runs_by_kind_each_kind_once_a_run() -> None:
    twice = (FaultKind.TIMEOUT, FaultKind.TIMEOUT, FaultKind.RESET)
    samples = [
        sample("me", "t0", 0.0, mark=GradeMark.NO_ANSWER, status=RunStatus.FAILED, faults=twice),
        sample("me", "t1", None, status=RunStatus.FAILED, faults=(FaultKind.TIMEOUT,)),
        sample("me", "t2", 0.0, mark=GradeMark.NO_ANSWER, status=RunStatus.CAPPED),
        sample("me", "t3", 1.0, status=RunStatus.CAPPED),
        sample("me", "t4", 0.0, mark=GradeMark.NO_ANSWER),
    ]
    assert dict(entrant_figures(ME, samples).failures) == {"timeout": 2, "capped": 1, "reset": 1}


def test_groups_have_their_tasks_accuracy_and_worker_shares() -> None:
    samples = [
        sample("me", "t0", 1.0, domain="maths", workers=("a", "b")),
        sample("me", "t1", 0.0, domain="maths", workers=("a", "a")),
        sample("me", "t2", None, domain="maths"),
        sample("me", "t3", 1.0, domain="art", workers=("b",)),
    ]
    found = entrant_figures(ME, samples)
    assert list(found.domains) == ["art", "maths"]
    assert found.domains["maths"] == TaskGroup(2, 0.5, {"a": 0.75, "b": 0.25})
    assert found.difficulties == {}


def test_calibration_is_over_the_samples_that_are_sure_of_something() -> None:
    samples = [sample("me", "t0", 1.0, confidence=0.75), sample("me", "t1", 0.0, confidence=0.75), sample("me", "t2")]
    found = entrant_figures(ME, samples).calibration
    assert found is not None
    assert (found.of, len(found.bins), found.bins[7]) == ("me", 10, ConfidenceBin(2, 0.75, 0.5))
    assert found.error == 0.25
    assert entrant_figures(ME, samples_of("me", [1.0])).calibration is None


def test_a_difference_is_over_the_tasks_of_both() -> None:
    found = paired_difference({"x": 1.0, "y": 0.5, "mine": 0.0}, {"x": 0.0, "y": 1.0, "theirs": 1.0}, "best")
    assert found is not None
    assert (found.to, found.tasks, found.mean, found.better, found.worse) == ("best", 2, 0.25, 1, 1)
    assert not found.significant
    assert paired_difference({"x": 1.0}, {"y": 1.0}, "best") is None


@settings(max_examples=30, deadline=None)
@given(SCORES)
def test_an_entrant_against_itself_differs_by_nothing(scores: list[float | None]) -> None:
    mine = {f"t{place}": score for place, score in enumerate(scores) if score is not None}
    found = entrant_figures(ME, samples_of("me", scores), mine, "me").against
    if found is None:
        assert not mine
    else:
        assert (found.mean, found.better, found.worse) == (0.0, 0, 0)
        assert found.interval.low == pytest.approx(-found.interval.high)
        assert found.interval.high > 0  # as few tasks do not show that no other task would differ


def mixed(place: int, score: float | None) -> Sample:
    """A sample in which everything that is counted varies with its place."""
    return sample(
        "me",
        f"t{place}",
        score,
        domain=("x", "y", "")[place % 3],
        workers=("a", "b", "c")[: place % 4],
        shape="mixed" if place % 2 else "chain",
        access=((),) * (place % 3),
        faults=(FaultKind.TIMEOUT,) if place % 5 == 0 else (),
        dollars=0.1 * place,
        seconds=0.7 * place,
        confidence=place / 40,
    )


@settings(max_examples=30, deadline=None)
@given(SCORES, st.randoms(use_true_random=False))
def test_the_order_of_the_samples_changes_nothing(scores: list[float | None], random: Random) -> None:
    samples = [mixed(place, score) for place, score in enumerate(scores)]
    best = {f"t{place}": 0.3 for place in range(0, 40, 2)}
    assert entrant_figures(ME, random.sample(samples, len(samples)), best) == entrant_figures(ME, samples, best)


def test_the_oracle_takes_the_best_score_then_the_cheapest_then_the_first() -> None:
    first = samples_of("a", [0.0, 1.0, 1.0, None, 0.0], dollars=0.2, workers=("a",), paid=0.2)
    second = samples_of("b", [1.0, 1.0, 1.0, None, None], dollars=0.1, workers=("b",))
    third = samples_of("c", [0.5, 1.0], dollars=None, workers=("c",))
    found = oracle_samples([first, second, third])
    assert [each.score for each in found] == [1.0, 1.0, 1.0, None, 0.0]
    assert [each.workers for each in found] == [("b",), ("b",), ("b",), ("b",), ("a",)]
    assert {each.entrant for each in found} == {"oracle"}
    assert sum(each.paid for each in found) == 0


def test_a_name_is_taken_from_an_entrant_without_its_conductor() -> None:
    entrant = Entrant(
        "alone", fixed_conductor("single?worker=a"), lambda _: Pool([]), EntrantRole.SINGLE, "a", "so it is"
    )
    assert EntrantInfo.of(entrant) == EntrantInfo("alone", EntrantRole.SINGLE, "a", "so it is")
