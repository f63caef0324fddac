"""Intents: what a plan is to be, said before it is written, is what it is."""

from itertools import product

import pytest

from shikisha.orchestra.intent import Choice, Form, form_of, intent, pieces
from shikisha.orchestra.lessons import Curriculum, formed, lesson
from shikisha.parse import parse_plan

KINDS = ["fact", "gauge", "date"]


@pytest.mark.parametrize(("form", "readings"), list(product(Form, (2, 3, 4))))
def test_the_form_of_a_plan_is_the_one_that_it_was_made_in(form: Form, readings: int) -> None:
    assert form_of(formed(form, KINDS, [3, 4, 5], 6, readings, None)) is form


def test_a_lesson_says_of_its_plan_what_it_is() -> None:
    for index in range(200):
        one = lesson(3, index, Curriculum(drills=0.5, plans=0.5, encores=0))
        said = (one.shown + one.taught).rpartition("\nso ")[2].partition(": ")[2].partition(", by ")[0]
        plan = parse_plan(one.taught, 9)
        twice = plan.steps[0].subtask == plan.steps[1 % len(plan)].subtask  # kinds by lot may be the same twice
        assert form_of(plan) == said or (said == Form.JOIN and twice)


def test_pieces_spell_every_intent() -> None:
    for form, choice in product(Form, Choice):
        rest = intent(form, choice)
        for piece in pieces():
            rest = rest.replace(piece, "", 1)
        assert rest == "\n"


def test_by_fit_is_said_where_the_thought_is_followed() -> None:
    always, never = (
        [lesson(3, index, Curriculum(drills=0, plans=1, encores=0, follow=follow)) for index in range(50)]
        for follow in (1.0, 0.0)
    )
    assert all(", by fit\n" in one.taught for one in always)
    assert all(", by lot\n" in one.taught for one in never)
