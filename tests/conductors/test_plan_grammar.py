"""Only plans can be written: every walk through the grammar parses, every plan is a walk, and it ends in time."""

import random

import numpy as np
import pytest

from shikisha.conductors.plan_grammar import (
    COMPLETE_STATE,
    GrammarConstraint,
    PlanGrammar,
    TokenPieces,
    count_ordinals,
    read_token_pieces,
)
from shikisha.core.errors import ConfigError
from shikisha.core.plan import Plan, Step
from shikisha.core.plan_parser import parse_plan
from shikisha.core.prompts import render_plan_lists

LETTERS = [*map(chr, range(32, 127)), "\n", "é", "\u2028", "\x00"]
PIECES = ["", *LETTERS, "model_id", " = [", "]\nsubtasks = [", '", "', "[0, 1", '"]', "\n\n", '"steps"', "{\n"]
WHOLES = ["", "model_id = [", "\nmodel_id = [", "]\nsubtasks = [", "]\naccess_list = [", "]", ", ", '"go on"', "[]"]
WORDS = [*WHOLES, '["all"]', "[0]", "[1]", "[0, 1]", "0", "1", "2", "a", "access", "list", "\n", "-", "="]
LIKELY = {"model_id = [", "\nmodel_id = [", "model_id", " = [", "\n", ",", ", ", '", "', '"', '"go on"', "{", "=", "["}


def walk(lexicon: TokenPieces, grammar: PlanGrammar, most: int, reserve: int, draw: random.Random) -> str:
    """Write by lot whatever is allowed, until the plan is complete."""
    held, text = GrammarConstraint(lexicon, grammar, reserve), ""
    for left in reversed(range(most)):
        allowed = np.flatnonzero(held.allowed()).tolist()
        signs = [60.0 if lexicon.pieces[token] in LIKELY else 1.0 for token in allowed]
        token = draw.choices(allowed, signs)[0]
        assert held.allows(token)
        text += lexicon.pieces[token]
        if held.take(token, left):
            return text
    raise AssertionError(f"{text!r} is no plan yet")


@pytest.mark.parametrize(("pieces", "most", "reserve"), [(PIECES, 320, 200), (WORDS, 70, 45)])
def test_whatever_is_written_by_lot_is_a_plan_for_its_pool(pieces: list[str], most: int, reserve: int) -> None:
    draw, lexicon, lengths = random.Random(1), TokenPieces(pieces), set()
    for _ in range(250):
        grammar = PlanGrammar(draw.randint(1, 3 if pieces is WORDS else 12), draw.randint(1, 5), draw.random() < 0.3)
        plan = parse_plan(walk(lexicon, grammar, most, reserve, draw), grammar.workers, grammar.steps)
        assert plan.steps or grammar.keeps
        lengths.add(len(plan))
    assert lengths == {0, 1, 2, 3, 4, 5}


def drawn(draw: random.Random) -> Plan:
    """A plan by lot."""
    count = draw.randint(1, 5)
    said = ("go", 'say "no"', "a \\ b", "two\nlines", "x = [1]", "{", "é")
    return Plan(
        tuple(
            Step(
                draw.choice(said), draw.randrange(12), tuple(sorted(draw.sample(range(place), draw.randint(0, place))))
            )
            for place in range(count)
        )
    )


def test_every_plan_can_be_written_in_pieces_of_any_size() -> None:
    draw, grammar = random.Random(2), PlanGrammar(12, 5)
    for _ in range(300):
        text = draw.choice(["", "a thought\n", "2 + 2 = 4, {x}\n\n"]) + render_plan_lists(drawn(draw))
        state, at = grammar.begin(), 0
        while at < len(text):
            size = draw.randint(1, 20)
            state = grammar.after(state, text[at : at + size])
            at += size
        assert state == COMPLETE_STATE, text


LISTS = 'model_id = [0]\nsubtasks = ["a"]\naccess_list = [[]]'


@pytest.mark.parametrize(
    "text",
    [
        "model_id = [2",
        "model_id = [0, 0, 0",
        "model_id = [00",
        "model_id = []",
        "so model_id = [",
        "# model_id = [",
        "model_id=[",
        "subtasks = [",
        "thought\nmodel_id\n=",
        "access_list  =",
        '{"',
        '{ \n "',
        'model_id = [0]\nsubtasks = [""',
        'model_id = [0]\nsubtasks = [" \\n"',
        'model_id = [0]\nsubtasks = ["a", "b"',
        'model_id = [0]\nsubtasks = ["a\n',
        'model_id = [0]\nsubtasks = ["\\x',
        'model_id = [0, 1]\nsubtasks = ["a"]',
        'model_id = [0]\nsubtasks = ["a"]\naccess_list = [["all"',
        'model_id = [0, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], [1',
        'model_id = [0, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], [0, 0',
        f"{LISTS}\n",
        f"{LISTS}]",
    ],
)
def test_what_is_no_beginning_of_a_plan_is_refused(text: str) -> None:
    grammar = PlanGrammar(2, 2)
    assert not grammar.after(grammar.begin(), text)
    state = grammar.begin()
    for letter in text:
        state = grammar.after(state, letter)
    assert not state


def test_an_answer_can_be_kept_once_there_is_one() -> None:
    text = render_plan_lists(Plan())
    for keeps in (False, True):
        grammar = PlanGrammar(3, 5, keeps)
        assert (grammar.after(grammar.begin(), text) == COMPLETE_STATE) is keeps


def test_a_piece_that_leads_nowhere_is_not_taken() -> None:
    lexicon, grammar = TokenPieces([*WHOLES, "0", "\n", "a", "["]), PlanGrammar(1, 1)
    state = grammar.begin()
    for piece in ("model_id = [", "0"):
        state = grammar.after(state, piece)
    allowed = [lexicon.pieces[token] for token in np.flatnonzero(lexicon.allowed(grammar, state))]
    assert allowed == ["]\nsubtasks = ["]  # after a bare "]" no piece could go on with the line


def test_a_vocabulary_that_cannot_write_plans_allows_nothing() -> None:
    lexicon, grammar = TokenPieces(["a", "\n", "model_id = [", "0"]), PlanGrammar(1, 1)
    assert not lexicon.allowed(grammar, grammar.begin()).any()


def test_the_longest_end_is_a_plan_after_any_thought() -> None:
    grammar = PlanGrammar(12, 5)
    text = grammar.longest_end()
    assert grammar.after(grammar.begin(), f"thought{text}") == COMPLETE_STATE
    assert len(parse_plan(text, 12)) == 5


def spelled(letters: str) -> tuple[list[str], dict[str, int]]:
    return list(letters), {letter: token for token, letter in enumerate(letters)}


@pytest.mark.parametrize(
    ("without", "says"), [("[", "of 'model_id"), ("0", "of 'model_id"), ('"', "no words in quotes")]
)
def test_a_tokenizer_that_cannot_write_the_format_is_refused(without: str, says: str) -> None:
    letters, known = spelled("".join(letter for letter in map(chr, (10, *range(32, 127))) if letter != without))

    def encode(text: str) -> list[int]:
        return [known[letter] for letter in text if letter in known]

    with pytest.raises(ConfigError, match=f"here: the tokenizer cannot write plans: .*{says}"):
        read_token_pieces(encode, lambda tokens: "".join(letters[token] for token in tokens), len(letters), (), "here")


def test_ordinals_end_where_the_tokenizer_has_no_number() -> None:
    letters, known = spelled("0123456789#")

    def encode(text: str) -> list[int]:
        return [known["#" if len(text) > 1 else text]]

    assert count_ordinals(encode, lambda tokens: "".join(letters[token] for token in tokens)) == 10
