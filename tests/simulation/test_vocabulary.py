"""Every wording is written and read by one grammar, and the splits share none."""

import re
from itertools import combinations

import pytest

from shikisha.simulation.question_families import Operation
from shikisha.simulation.questions import (
    FAMILIES,
    JOINED_CLAUSES,
    ONE_CLAUSE,
    OPERATIONS,
    THREE_CLAUSES,
    TWO_CLAUSES,
    PartReference,
    parse_question,
    pointer_in,
    question_readings,
    write_question,
)
from shikisha.simulation.seeded_random import hash_fraction, seeded_generator, shuffle_by_hash
from shikisha.simulation.task_generator import draw_question, shape_groups
from shikisha.simulation.values import (
    SLIP_COUNT,
    ValueKind,
    corrupt_value,
    format_value,
    normalize_answer,
    parse_value,
    spell_value,
)
from shikisha.simulation.vocabulary import (
    Paraphrases,
    WordingSplit,
    draw_word,
    expand_template,
    fact_table,
    split_names,
    split_wordings,
)
from shikisha.simulation.worker_profiles import PROFILES

EVERY_WORDING = [op.words for op in OPERATIONS.values()] + [ONE_CLAUSE, TWO_CLAUSES, JOINED_CLAUSES, THREE_CLAUSES]
EVERY_OFFER = [offer for profile in PROFILES.values() for offer in profile.descriptions]
TALLY, GROWN = "the tally listed for kalo", "4 times {} plus 12"


def literal(operation: Operation, wording: str) -> str:
    inputs = {ValueKind.NUMBER: "37", ValueKind.DAY: "3 may 2031"}
    slots = {slot: inputs.get(sort, "kalo") for slot, sort in zip("xy", operation.takes, strict=False)}
    return wording.format(**slots, a="4", b="12", c="90", d="7 june 2040")


def families_of(text: str) -> list[tuple[str, ...]]:
    return [question.families for question in question_readings(text)]


def test_alternatives_expand_to_every_wording() -> None:
    assert expand_template("the (a|b) of (c|d)") == ["the a of c", "the a of d", "the b of c", "the b of d"]


def test_too_few_wordings_cannot_be_dealt() -> None:
    with pytest.raises(ValueError, match="too few wordings"):
        _ = Paraphrases.of("only this", "and that").by_split


@pytest.mark.parametrize("which", EVERY_WORDING + EVERY_OFFER)
def test_splits_share_no_wording(which: Paraphrases) -> None:
    for one, other in combinations(which.by_split.values(), 2):
        assert one
        assert not set(one) & set(other)


@pytest.mark.parametrize("which", EVERY_WORDING + EVERY_OFFER)
def test_every_word_of_a_held_out_wording_is_known_from_training(which: Paraphrases) -> None:
    known = {word for wording in which.by_split[WordingSplit.TRAIN] for word in wording.split()}
    assert {word for wording in which.all for word in wording.split()} <= known


def test_a_deal_does_not_hang_on_the_order_of_the_templates() -> None:
    everything = expand_template("(a|b|c) of the (d|e|f)")
    assert split_wordings(everything) == split_wordings(list(everything))


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_every_wording_of_an_operation_is_read_back_and_as_nothing_else(operation: Operation) -> None:
    for wording in operation.words.all:
        found = list(question_readings(f"Find {literal(operation, wording)}."))
        assert [question.parts[0].operation for question in found] == [operation], wording
        assert [format_value(value) for value in found[0].parts[0].constants] == [
            {"a": "4", "b": "12", "c": "90", "d": "2040-06-07"}[slot] for slot in operation.slots
        ]


def test_every_way_to_ask_one_thing_is_read_back() -> None:
    assert {tuple(families_of(form.format(A=TALLY))) for form in ONE_CLAUSE.all} == {(("fact",),)}


def test_every_way_to_ask_a_chain_is_read_back() -> None:
    for form in TWO_CLAUSES.all:
        text = form.format(A=TALLY, B=GROWN.format(pointer_in(form) or "it"))
        assert families_of(text) == [("fact", "arithmetic")], text


def test_every_way_to_ask_a_join_is_read_back() -> None:
    for form in JOINED_CLAUSES.all:
        text = form.format(A=TALLY, B="the level on the gauge of kalo", C="the sum of one and two")
        assert families_of(text) == [("fact", "gauge", "arithmetic")], text


def test_every_way_to_ask_a_chain_of_three_is_read_back() -> None:
    for form in THREE_CLAUSES.all:
        text = form.format(A=TALLY, B=GROWN.format("it"), C="the gap from it to the nearest of 10 or 20 or 90")
        assert families_of(text) == [("fact", "arithmetic", "comparison")], text


@pytest.mark.parametrize("split", WordingSplit)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_shape_is_read_back_as_the_same_question_and_no_other(count: int, split: WordingSplit) -> None:
    draw = seeded_generator("shapes", count, split)
    for shape in (shape for group in shape_groups(count) for shape in group.shapes):
        question, _ = draw_question(shape, split, draw)
        text = write_question(question, split, draw)
        assert list(question_readings(text)) == [question], text


def test_longer_chains_can_be_asked_and_read_too() -> None:
    draw = seeded_generator("longer")
    for group in shape_groups(4)[::25]:
        question, _ = draw_question(group.shapes[0], WordingSplit.TRAIN, draw)
        assert parse_question(write_question(question, WordingSplit.TRAIN, draw)) == question


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Find " + "the sum of " * 5_000 + "kalo.",
        "What is the weather?",
        "Find it.",
        "Find 4 times it plus 12.",
        f"Take {TALLY}. Then find {TALLY}.",
    ],
)
def test_other_texts_are_no_questions(text: str) -> None:
    assert parse_question(text) is None


def test_parts_stand_in_order_of_work_whatever_the_order_of_the_clauses() -> None:
    question = parse_question("Find 4 times it plus 12, where it is the tally listed for kalo.")
    assert question is not None
    assert question.families == ("fact", "arithmetic")
    assert question.parts[1].inputs == (PartReference(0),)


def test_names_are_in_one_split_and_no_words_of_the_language() -> None:
    places, keepers = split_names()
    everyone = [name for of in (places, keepers) for split in WordingSplit for name in of[split]]
    spoken_words = {word for which in EVERY_WORDING for text in which.all for word in re.findall(r"[a-z]+", text)}
    assert len(everyone) == len(set(everyone))
    assert not spoken_words & set(everyone)


def test_a_place_and_its_keeper_are_of_the_same_split() -> None:
    places, keepers = split_names()
    for split in WordingSplit:
        assert {fact_table()[place].keeper for place in places[split]} <= set(keepers[split])


def test_words_are_of_one_split() -> None:
    drawn = {split: {draw_word(seeded_generator("words", n), split) for n in range(300)} for split in WordingSplit}
    assert not drawn[WordingSplit.TRAIN] & drawn[WordingSplit.HELDOUT]
    assert not drawn[WordingSplit.TRAIN] & drawn[WordingSplit.DEV]


@pytest.mark.parametrize(
    ("text", "form"),
    [(" 0037. ", "37"), ("3 May 2031", "2031-05-03"), ("2031-05-03", "2031-05-03"), ("Kalo.", "kalo"), ("4 5", "4 5")],
)
def test_answers_are_compared_in_normal_form(text: str, form: str) -> None:
    assert normalize_answer(text) == form


@pytest.mark.parametrize(
    ("text", "sort"),
    [
        ("kalo", ValueKind.NUMBER),
        ("31 february 2031", ValueKind.DAY),
        ("2031-13-01", ValueKind.DAY),
        ("two words", ValueKind.WORD),
    ],
)
def test_what_is_no_value_of_its_sort_is_not_read(text: str, sort: ValueKind) -> None:
    assert parse_value(text, sort) is None


@pytest.mark.parametrize(
    ("text", "sort"), [("412", ValueKind.NUMBER), ("2031-05-03", ValueKind.DAY), ("kalo", ValueKind.WORD)]
)
def test_a_slip_is_one_of_some_wrong_values_of_the_same_sort(text: str, sort: ValueKind) -> None:
    value = parse_value(text, sort)
    assert value is not None
    wrong = {corrupt_value(value, place / SLIP_COUNT) for place in range(SLIP_COUNT)}
    assert len(wrong) == SLIP_COUNT
    assert value not in wrong
    assert all(parse_value(format_value(one), sort) == one == parse_value(spell_value(one), sort) for one in wrong)


def test_chance_is_even_and_hangs_on_every_circumstance() -> None:
    shares = [hash_fraction("even", place) for place in range(2_000)]
    assert 0.47 < sum(shares) / len(shares) < 0.53
    assert hash_fraction("a", "bc") != hash_fraction("ab", "c")
    assert shuffle_by_hash("abcdef", 1) != shuffle_by_hash("abcdef", 2)


def test_every_instruction_speaks_of_its_family_alone() -> None:
    for name, family in FAMILIES.items():
        for tell in family.instructions:
            heard = [other for other in FAMILIES.values() if set(tell.split()) & other.keywords]
            assert [other.name for other in heard] == [name], tell
