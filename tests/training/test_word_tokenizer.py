"""The word-level tokenizer: what it writes it reads back, and no text spells a special token."""

import pytest

pytest.importorskip("tokenizers")

from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.simulation import plan_templates, sft_examples
from shikisha.simulation.chain_of_thought import thought_tokens
from shikisha.simulation.editions import SMALL
from shikisha.simulation.sft_examples import generate_example, plan_subtasks
from shikisha.training.sft_data import END_TOKEN, PAD_TOKEN, UNKNOWN_TOKEN, plan_pieces, word_tokenizer

CORPUS = ["ask what is the tally of kalo by 412?\n0 $3 looks up facts\nplan\n"] * 5
PIECES = (
    *plan_pieces(plan_subtasks()),
    *thought_tokens(),
    *plan_templates.form_tokens(SMALL),
    *sft_examples.OUTCOME_TOKENS,
)
MADE = word_tokenizer(CORPUS, PIECES)


def test_padding_and_the_end_are_the_first_tokens() -> None:
    assert [MADE.token_to_id(special) for special in (PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN)] == [0, 1, 2]


@pytest.mark.parametrize("special", [PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN])
def test_no_text_spells_a_special_token(special: str) -> None:
    assert not {0, 1} & set(MADE.encode(f"a {special}{special} b").ids)


@pytest.mark.parametrize("index", range(40))
def test_what_lessons_teach_comes_back_to_the_letter(index: int) -> None:
    one = generate_example(1, index)
    text = one.shown + one.taught
    assert MADE.decode(MADE.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("access", [(), (0,), (0, 2), (1, 3), (0, 1, 2, 3)])
def test_any_access_list_can_be_written(access: tuple[int, ...]) -> None:
    steps = [Step("look up the fact", place) for place in range(4)]
    text = render_plan_lists(Plan((*steps, Step("finish with the previous result", 9, access))))
    assert MADE.decode(MADE.encode(text).ids, skip_special_tokens=False) == text


def test_numbers_and_strange_words_are_one_token_each() -> None:
    tokens = MADE.encode("what is 412 of zuzuzu").tokens
    assert tokens == ["what", "is", "#", "of", UNKNOWN_TOKEN]


def test_rare_words_are_left_out_and_the_same_corpus_gives_the_same() -> None:
    assert MADE.token_to_id("kalo") is not None
    rare = word_tokenizer(CORPUS[:4], plan_pieces(plan_subtasks()))
    assert rare.token_to_id("kalo") is None
    assert MADE.to_str() == word_tokenizer(CORPUS, PIECES).to_str()
