"""Questions that make no sense: any kind of work after any other, and never those that training must not meet."""

import random
import re
from dataclasses import replace
from itertools import permutations, product

import pytest

from shikisha.simulation import sft_examples
from shikisha.simulation.editions import LARGE, SMALL, Edition
from shikisha.simulation.questions import write_question
from shikisha.simulation.sft_examples import (
    SFTMixture,
    SimulatedExample,
    generate_example,
    nonsense_question,
    nonsense_shape,
    reading_examples,
)
from shikisha.simulation.task_generator import QuestionShape, shape_groups
from shikisha.simulation.vocabulary import WordingSplit

READINGS = SFTMixture(drills=0, plans=0, encores=0, turns=0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("edition", [SMALL, LARGE], ids=["small", "large"])
def test_each_part_feeds_one_other_and_the_last_is_asked_for(edition: Edition, count: int) -> None:
    draw, joined = random.Random(count), 0
    for _ in range(100):
        shape = nonsense_shape(edition, count, draw)
        assert sorted(place for uses in shape.uses for place in uses) == list(range(count - 1))
        assert all(place < at for at, uses in enumerate(shape.uses) for place in uses)
        assert not edition.holds_out(frozenset(shape.families))
        for operation, uses in zip(shape.operations, shape.uses, strict=True):
            assert operation.joins is (len(uses) > 1)
            joined += operation.joins
        question = nonsense_question(shape, WordingSplit.TRAIN, draw)
        assert question.families == shape.families
        asked = write_question(question, WordingSplit.TRAIN, draw, edition.slots)
        assert not set(asked) & set("{}")
    assert bool(joined) is (count > 2)


def test_every_pair_but_the_held_out_one_is_met_in_both_orders() -> None:
    draw = random.Random(1)
    met = {nonsense_shape(SMALL, 2, draw).families for _ in range(2_000)}
    assert met == {pair for pair in product(SMALL.families, repeat=2) if not SMALL.holds_out(frozenset(pair))}
    assert len({group.families for group in shape_groups(2) if not group.held_out}) < len(met)


def test_a_share_of_the_readings_makes_no_sense() -> None:
    sensible = {families(one) for one in (generate_example(1, index, SFTMixture(drills=1)) for index in range(2_000))}
    drawn = [families(generate_example(1, index, READINGS)) for index in range(600)]
    odd = sum(one not in sensible for one in drawn) / len(drawn)
    assert 0.08 < odd < READINGS.odd
    beside = reading_examples(1)
    assert any(families(beside(index, 1.0)) not in sensible for index in range(100))


@pytest.mark.parametrize("edition", [SMALL, LARGE], ids=["small", "large"])
def test_a_turn_teaches_the_kind_of_its_place_after_any_others(
    edition: Edition, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[QuestionShape] = []

    def kept(edition: Edition, count: int, draw: random.Random) -> QuestionShape:
        shapes.append(nonsense_shape(edition, count, draw))
        return shapes[-1]

    monkeypatch.setattr(sft_examples, "nonsense_shape", kept)
    others, followed, drawn = 0, set(), replace(sft_examples.mixture_of(edition), drills=0, plans=0, encores=0, turns=1)
    for index in range(400):
        one, shape = generate_example(1, index, drawn), shapes[index]
        before, (kind,) = families(replace(one, taught="")), re.findall(r"^(\w+)=(?:\d|-)$", one.taught)
        assert kind == shape.families[len(before)]
        assert not edition.holds_out(frozenset(shape.families))
        assert not one.whole
        others += before != shape.families[: len(before)]
        followed.add((before[-1], kind))
    assert others > 200
    assert all(pair in followed for names in edition.held_out[:1] for pair in permutations(names))


def families(one: SimulatedExample) -> tuple[str, ...]:
    """Return the kinds of work that a lesson's thought names, in order."""
    line = next(line for line in (one.shown + one.taught).splitlines() if line.startswith("work "))
    return tuple(found for found in re.findall(r"(\w+)=", line) if found != "none")
