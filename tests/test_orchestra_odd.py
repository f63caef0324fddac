"""Questions that make no sense: any kind of work after any other, and never those that training must not meet."""

import random
import re
from dataclasses import replace
from itertools import permutations, product

import pytest

from shikisha.orchestra import lessons
from shikisha.orchestra.edition import LARGE, SMALL, Edition
from shikisha.orchestra.grammar import write
from shikisha.orchestra.lessons import Curriculum, Lesson, lesson, readings
from shikisha.orchestra.odd import odd_question, odd_shape
from shikisha.orchestra.shapes import Shape, groups
from shikisha.orchestra.wording import Split

READINGS = Curriculum(drills=0, plans=0, encores=0, turns=0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("edition", [SMALL, LARGE], ids=["small", "large"])
def test_each_part_feeds_one_other_and_the_last_is_asked_for(edition: Edition, count: int) -> None:
    draw, joined = random.Random(count), 0
    for _ in range(100):
        shape = odd_shape(edition, count, draw)
        assert sorted(place for uses in shape.uses for place in uses) == list(range(count - 1))
        assert all(place < at for at, uses in enumerate(shape.uses) for place in uses)
        assert not edition.holds_out(frozenset(shape.families))
        for operation, uses in zip(shape.operations, shape.uses, strict=True):
            assert operation.joins is (len(uses) > 1)
            joined += operation.joins
        question = odd_question(shape, Split.TRAIN, draw)
        assert question.families == shape.families
        asked = write(question, Split.TRAIN, draw, edition.slots)
        assert not set(asked) & set("{}")
    assert bool(joined) is (count > 2)


def test_every_pair_but_the_held_out_one_is_met_in_both_orders() -> None:
    draw = random.Random(1)
    met = {odd_shape(SMALL, 2, draw).families for _ in range(2_000)}
    assert met == {pair for pair in product(SMALL.families, repeat=2) if not SMALL.holds_out(frozenset(pair))}
    assert len({group.families for group in groups(2) if not group.held_out}) < len(met)


def test_a_share_of_the_readings_makes_no_sense() -> None:
    sensible = {families(one) for one in (lesson(1, index, Curriculum(drills=1)) for index in range(2_000))}
    drawn = [families(lesson(1, index, READINGS)) for index in range(600)]
    odd = sum(one not in sensible for one in drawn) / len(drawn)
    assert 0.08 < odd < READINGS.odd
    beside = readings(1)
    assert any(families(beside(index, 1.0)) not in sensible for index in range(100))


@pytest.mark.parametrize("edition", [SMALL, LARGE], ids=["small", "large"])
def test_a_turn_teaches_the_kind_of_its_place_after_any_others(
    edition: Edition, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[Shape] = []

    def kept(edition: Edition, count: int, draw: random.Random) -> Shape:
        shapes.append(odd_shape(edition, count, draw))
        return shapes[-1]

    monkeypatch.setattr(lessons, "odd_shape", kept)
    others, followed, drawn = 0, set(), replace(lessons.curriculum_of(edition), drills=0, plans=0, encores=0, turns=1)
    for index in range(400):
        one, shape = lesson(1, index, drawn), shapes[index]
        before, (kind,) = families(replace(one, taught="")), re.findall(r"^(\w+)=(?:\d|-)$", one.taught)
        assert kind == shape.families[len(before)]
        assert not edition.holds_out(frozenset(shape.families))
        assert not one.whole
        others += before != shape.families[: len(before)]
        followed.add((before[-1], kind))
    assert others > 200
    assert all(pair in followed for names in edition.held_out[:1] for pair in permutations(names))


def families(one: Lesson) -> tuple[str, ...]:
    """Return the kinds of work that a lesson's thought names, in order."""
    line = next(line for line in (one.shown + one.taught).splitlines() if line.startswith("work "))
    return tuple(found for found in re.findall(r"(\w+)=", line) if found != "none")
