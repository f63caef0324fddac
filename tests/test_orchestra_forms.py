"""Forms of plans: each is known again by its plan, and is said in a line that no list is read from."""

import pytest

from shikisha.orchestra.edition import LARGE, SMALL
from shikisha.orchestra.forms import Cast, Form, LongForm, form_of, formed, forms_of, named, pieces, plain_form
from shikisha.parse import parse_plan
from shikisha.prompt import render_lists

KINDS = ("fact", "gauge", "text", "date", "comparison")


@pytest.mark.parametrize("form", forms_of(LARGE))
@pytest.mark.parametrize("arm", [1, 2, 3])
def test_a_plan_is_known_by_its_form(form: Form | LongForm, arm: int) -> None:
    plan = formed(form, Cast(KINDS, (0, 1, 2, 3, 4), 5, 4, arm=arm))
    assert form_of(plan) is form


@pytest.mark.parametrize("form", forms_of(LARGE))
def test_the_line_that_names_a_form_changes_nothing_of_the_plan(form: Form | LongForm) -> None:
    plan = formed(form, Cast(KINDS, (0, 1, 2, 3, 4), 5, 4))
    assert parse_plan(named(form) + render_lists(plan), 6) == plan


def test_a_vote_has_all_its_readings_from_one_worker() -> None:
    plan = formed(Form.VOTE, Cast(KINDS, (3, 1, 2), 5, 4))
    assert [step.worker for step in plan.steps] == [3, 3, 3, 3, 5]


def test_what_is_done_one_by_one_is_a_chain_or_a_join() -> None:
    assert [plain_form(count, joined=False) for count in (1, 2, 3)] == [Form.ONE, Form.CHAIN_2, Form.CHAIN_3]
    assert [plain_form(count, joined=True) for count in (3, 4, 5)] == [Form.JOIN, LongForm.JOIN_4, LongForm.JOIN_5]


def test_a_tokenizer_can_keep_every_line_as_one_piece() -> None:
    for edition in (SMALL, LARGE):
        assert pieces(edition) == tuple(f"\n{named(form)[:-1]}" for form in forms_of(edition))
