"""Who plays besides those asked for, and how those asked for are named."""

from math import log

import pytest

from shikisha.evals.baselines import (
    Baselines,
    EntrantSpec,
    fixed_topology_specs,
    requested_entrant,
    self_consistency_spec,
    vote_weights,
)
from shikisha.evals.samples import EntrantRole

SKILL = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.3}


@pytest.mark.parametrize(
    ("given", "name", "conductor"),
    [
        ("fixed:chain?workers=a,b", "fixed:chain?workers=a,b", "fixed:chain?workers=a,b"),
        ("two in a row=fixed:chain?workers=a,b", "two in a row", "fixed:chain?workers=a,b"),
        ("mine", "mine", "mine"),
        ("a label=mine", "a label", "mine"),
        ("rules:a=b.toml", "rules:a=b.toml", "rules:a=b.toml"),
    ],
)
def test_a_conductor_may_be_given_a_label(given: str, name: str, conductor: str) -> None:
    spec = requested_entrant(given, {})
    assert (spec.name, spec.conductor, spec.part) == (name, conductor, EntrantRole.ASKED)


def test_votes_are_weighed_by_the_log_odds_of_dev_accuracy_and_never_below_nothing() -> None:
    spec = requested_entrant("fixed:fan-out-join?workers=a,c,e&join=weigh", SKILL)
    assert spec.weights == pytest.approx((log(9), log(7 / 3), 0.0))
    assert requested_entrant("fixed:fan-out-join?workers=a,c,e&join=a", SKILL).weights == ()
    assert vote_weights(["x"], {"x": 1.0})[0] < 4  # a perfect score on a few tasks is not infinitely sure


def test_a_spec_survives_json() -> None:
    spec = EntrantSpec("n", "fixed:single", EntrantRole.FIXED, "w", "note", (1.0, 0.5))
    assert EntrantSpec.of(dict(spec.to_json())) == spec


def test_replayed_workers_are_only_put_to_votes() -> None:
    ranking = sorted(SKILL, key=lambda worker: -SKILL[worker])
    made = {spec.conductor.partition("?")[0] for spec in fixed_topology_specs(ranking, SKILL, talk=False)}
    more = {spec.conductor.partition("?")[0] for spec in fixed_topology_specs(ranking, SKILL, talk=True)}
    assert made == {"fixed:single", "fixed:vote", "fixed:agreement", "fixed:fan-out-join"}
    assert more - made == {"fixed:planner-executor-verifier", "fixed:chain"}
    assert all(spec.part is EntrantRole.FIXED for spec in fixed_topology_specs(ranking, SKILL, talk=True))


def test_a_pool_of_one_has_itself_as_its_best_topology() -> None:
    repertoire = Baselines(["a"], talk=True)
    assert [spec.worker for spec in repertoire.singles()] == ["a"]
    assert repertoire.candidates({"a": 0.5})[0].conductor == "fixed:single?worker=a"


@pytest.mark.parametrize(("alone", "others", "count"), [(0.1, [0.31], 3), (0.1, [5.0], 4), (0.1, [0.14], None)])
def test_self_consistency_asks_as_often_as_the_dearest_other_pays_for(
    alone: float, others: list[float], count: int | None
) -> None:
    spec = self_consistency_spec("a", alone, others)
    assert (spec.conductor if spec else None) == (count and f"fixed:vote?workers=a&n={count}&join=vote")


def test_replayed_workers_cannot_be_asked_again() -> None:
    assert Baselines(["a"], talk=False).consistency("a", 0.1, [0.5]) is None
