"""Comparing evaluations: by content and not by name, over what both have; refused where nothing is common."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_samples import content, report_of, sample, samples_of

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.evals.entrant_metrics import EvaluationReport
from shikisha.evals.evaluation_comparison import PairedEntrants, compare_evaluations

SCORES = st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=1, max_size=30)


def asked(scores: Sequence[float | None], name: str = "me", dollars: float | None = 1.0) -> EvaluationReport:
    """A report of one conductor."""
    return report_of({}, {name: samples_of(name, scores, dollars=dollars)})


def only(pairs: Sequence[PairedEntrants]) -> PairedEntrants:
    """The only pair."""
    (pair,) = pairs
    return pair


def test_who_is_in_both_is_compared_task_by_task() -> None:
    before, after = asked([1.0, 0.0, 0.0, 1.0], dollars=1.0), asked([1.0, 1.0, 0.0, 0.0], dollars=3.0)
    found = compare_evaluations(before, after)
    pair = only(found.pairs)
    assert (found.common, found.only_a, found.only_b) == (4, 0, 0)
    assert (pair.a, pair.b, pair.tasks, pair.accuracy) == ("me", "me", 4, (0.5, 0.5))
    assert (pair.difference.mean, pair.difference.better, pair.difference.worse, pair.p) == (0.0, 1, 1, 1.0)
    assert (pair.dollars, pair.priced) == (2.0, 4)


def test_a_difference_has_the_sign_of_b_less_a_and_a_p() -> None:
    pair = only(compare_evaluations(asked([0.0] * 8 + [1.0] * 20), asked([1.0] * 28)).pairs)
    assert pair.difference.mean == pytest.approx(8 / 28)
    assert pair.p == pytest.approx(2 / 2**8)
    assert pair.difference.significant


def test_tasks_are_matched_by_content_whatever_they_are_called() -> None:
    before, after = asked([1.0, 0.0, 0.5]), asked([0.0, 1.0, 0.5, 1.0])
    renamed = replace(after, tasks=("x2", "x1", "x0", "x3"), hashes=tuple(map(content, ("t2", "t1", "t0", "t3"))))
    found = compare_evaluations(before, renamed)
    assert (found.common, found.only_a, found.only_b) == (3, 0, 1)
    assert only(found.pairs).difference.mean == pytest.approx((0.5 - 1.0 + 1.0 - 0.0 + 0.0 - 0.5) / 3)
    assert only(found.pairs).p is None


def test_the_same_content_twice_is_two_tasks() -> None:
    twice = replace(asked([1.0, 0.0]), hashes=("same", "same"))
    assert only(compare_evaluations(twice, twice).pairs).tasks == 2
    assert compare_evaluations(twice, replace(asked([1.0]), hashes=("same",))).only_a == 1


def test_only_what_both_have_a_score_for_counts() -> None:
    found = compare_evaluations(asked([1.0, None, 0.0, 1.0]), asked([None, 1.0, 1.0, 1.0], dollars=None))
    assert (found.common, only(found.pairs).tasks) == (4, 2)
    assert (only(found.pairs).dollars, only(found.pairs).priced) == (None, 0)
    without = compare_evaluations(asked([1.0, None]), asked([None, 1.0]))
    assert without.pairs == ()
    assert without.notes == ("no task has a score from me in A and from me in B",)


def test_the_same_id_with_another_content_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match="task 't1' is not the same in both"):
        compare_evaluations(asked([1.0, 1.0]), replace(asked([1.0, 1.0]), hashes=(content("t0"), "other")))


def test_evaluations_without_a_common_task_are_refused() -> None:
    other = report_of({}, {"me": [sample("me", "elsewhere")]})
    with pytest.raises(ConfigError, match="none of the 2 tasks of A is among the 1 of B"):
        compare_evaluations(asked([1.0, 1.0]), other)


def test_where_nobody_is_in_both_the_best_that_were_asked_for_are_compared() -> None:
    mine = {"bad": samples_of("bad", [0.0, 0.0]), "good": samples_of("good", [1.0, 0.0])}
    first, second = report_of({"alone": samples_of("alone", [1.0, 1.0])}, mine), asked([1.0, 1.0], "new")
    pair = only(compare_evaluations(first, second).pairs)
    assert (pair.a, pair.b) == ("good", "new")
    single = report_of({"alone": samples_of("alone", [1.0, 1.0])})
    assert only(compare_evaluations(single, second).pairs).a == "alone"


def test_named_pairs_are_compared_and_unknown_names_refused() -> None:
    first, second = asked([1.0, 0.0], "old"), asked([1.0, 1.0], "new")
    pair = only(compare_evaluations(first, second, [("old", "new")]).pairs)
    assert (pair.a, pair.b, pair.difference.to) == ("old", "new", "old")
    with pytest.raises(UnknownName, match="unknown entrant 'odd': known are new"):
        compare_evaluations(first, second, [("old", "odd")])


@settings(max_examples=30, deadline=None)
@given(SCORES)
def test_an_evaluation_does_not_differ_from_itself(scores: list[float | None]) -> None:
    found = compare_evaluations(asked(scores), asked(scores))
    for pair in found.pairs:
        assert pair.difference.mean == 0.0
        assert pair.difference.interval.low < 0 < pair.difference.interval.high
        assert (pair.p, pair.dollars) in ((1.0, 0.0), (None, 0.0))
    assert len(found.pairs) + len(found.notes) == 1


def test_a_comparison_goes_into_json() -> None:
    found = json.loads(json.dumps(compare_evaluations(asked([1.0, 0.0]), asked([1.0, 1.0])).plain(), allow_nan=False))
    assert found["pairs"][0]["difference"]["interval"].keys() == {"low", "high"}
    assert (found["common"], found["pairs"][0]["p"]) == (2, 1.0)
