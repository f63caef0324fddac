"""Canonical forms hold on any text: never an exception, never a guess, and the same again for what they return."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha.evals.graders.answer_extraction import normalize_words
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.evals.graders.quantities import format_fraction, parse_unit

PIECES = st.sampled_from(
    [
        *(
            "answer is ",
            "Answer:",
            "\\boxed{",
            "}",
            "{",
            "####",
            "\n",
            " ",
            "$",
            "\\frac",
            "/",
            "1",
            "23",
            ",",
            ".",
            "-",
        ),
        *("(", ")", "A", "B", "I", "or", "=", "^", "%", '"answer":', "</think>", "```", "e9", "×", "½", "²", "∞", "km"),
        *("\\sqrt", "\\{", "\\}", "∪", "[", "]", "_", "*", "the ", "not ", "null", "<answer>", "</answer>", "x", "０"),
    ]
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=14).map("".join))


@pytest.mark.parametrize("form", AnswerForm)
@given(text=TEXTS)
def test_any_text_has_one_canonical_form_or_none(form: AnswerForm, text: str) -> None:
    found = canonicalize(text, form, 4 if form is AnswerForm.CHOICE else None)
    assert found == canonicalize(text, form, 4 if form is AnswerForm.CHOICE else None)
    assert found is None or found.strip()


@pytest.mark.parametrize("form", [AnswerForm.CHOICE, AnswerForm.NUMBER])
@given(text=TEXTS)
def test_what_is_canonical_stays_so(form: AnswerForm, text: str) -> None:
    found = canonicalize(text, form)
    assert found is None or canonicalize(found, form) == found


@given(cents=st.integers(-(10**12), 10**12))
def test_a_number_is_found_in_whatever_way_it_is_written(cents: int) -> None:
    plain = f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}"
    grouped = f"{'-' if cents < 0 else ''}{abs(cents) // 100:,}.{abs(cents) % 100:02}"
    for spelled in (plain, grouped, f"${plain}$", f"\\boxed{{{grouped}}}", f"The answer is {grouped}.", f"{cents}/100"):
        assert canonicalize(spelled, AnswerForm.NUMBER) == format_fraction(Fraction(cents, 100))


@given(top=st.integers(-500, 500), bottom=st.integers(1, 500))
def test_fractions_are_written_in_lowest_terms_or_as_decimals(top: int, bottom: int) -> None:
    value = Fraction(top, bottom)
    assert Fraction(format_fraction(value)) == value
    assert canonicalize(f"{top}/{bottom}", AnswerForm.NUMBER) == format_fraction(value)


@given(letter=st.sampled_from("ABCDEFGHIJ"), before=st.text(alphabet="xyz ,\n", max_size=40))
def test_a_letter_that_is_said_to_be_the_answer_is_found(letter: str, before: str) -> None:
    for said in (
        f"The answer is ({letter}).",
        f"**Answer: {letter}**",
        f"\\boxed{{{letter}}}",
        f'{{"answer": "{letter}"}}',
    ):
        assert canonicalize(f"{before}\n{said}", AnswerForm.CHOICE, 10) == letter


MEGABYTE = 1_000_000
HOSTILE = [
    "answer is ",
    "\\boxed{",
    '{"answer": "\\',
    "111,",
    "1,",
    "(A",
    "**",
    "A or ",
    "\\frac",
    "\\text{",
    "{",
    "$x",
    "1/",
    "x=1 or ",
    "```\n",
    "<answer>",
    "</think>",
    " ",
    "\u0301\u0316",
    "²",
    "-",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_an_answer_behind_a_megabyte_of_anything_is_found(piece: str) -> None:
    text = piece * (MEGABYTE // len(piece))
    assert canonicalize(f"{text}\nThe answer is (C).", AnswerForm.CHOICE) == "C"


@pytest.mark.parametrize("form", [AnswerForm.NUMBER, AnswerForm.TEXT, AnswerForm.MATH])
@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_of_anything_is_read_through(form: AnswerForm, piece: str) -> None:
    assert canonicalize(piece * (MEGABYTE // len(piece)), form) != ""


SHORT = [
    "1,",
    "1.",
    "1 ",
    "1;",
    "1-",
    "1=",
    "1 or ",
    "a ",
    "or ",
    "C or ",
    "not ",
    "no ",
    "**",
    "__",
    "''",
    "(",
    "x=",
    "$1$ ",
]


@pytest.mark.parametrize("piece", [*SHORT, *HOSTILE])
def test_no_short_answer_takes_long(piece: str) -> None:
    """An answer just short enough for the closer looks: a pattern that backtracks would not come back from it."""
    for length, end in product((40, 99, 380, 399, 4_000), ("", "x", "!\n1x", "\nno?")):
        text = (piece * (length // len(piece) + 1))[:length] + end
        for form in AnswerForm:
            canonicalize(text, form, 4 if form is AnswerForm.CHOICE else None)
        assert normalize_words(text) == normalize_words(text)


UNITS = [
    ("km", "m", "1000"),
    ("km/h", "m/s", "5/18"),
    ("miles per hour", "m/s", "0.44704"),
    ("square feet", "m^2", "0.09290304"),
    ("kWh", "J", "3600000"),
    ("g/cm^3", "kg m^-3", "1000"),
    ("N·m", "J", "1"),
    ("meters per second squared", "m/s^2", "1"),
    ("mL", "cm3", "1"),
    ("dozen eggs", "", ""),
    ("apples", "", ""),
    ("", "", ""),
    ("m" * 100, "", ""),
]


@pytest.mark.parametrize(("one", "other", "factor"), UNITS)
def test_units_are_products_of_what_is_in_the_table(one: str, other: str, factor: str) -> None:
    ours, theirs = parse_unit(one), parse_unit(other)
    if not factor:
        assert ours is None
    else:
        assert ours is not None
        assert theirs is not None
        assert ours.dimension == theirs.dimension
        assert ours.factor / theirs.factor == Fraction(factor)


@pytest.mark.parametrize("words", [0, 30, 200])
def test_where_no_number_is_announced_the_last_one_counts_however_long_the_text(words: int) -> None:
    text = "We had 7 to begin with.\n" + "so it goes on " * words + "\nthat leaves us with 42 apples"
    assert canonicalize(text, AnswerForm.NUMBER) == "42"
    assert canonicalize(text + ".\n" + "and nothing more to say of it " * 2, AnswerForm.NUMBER) == "42"
