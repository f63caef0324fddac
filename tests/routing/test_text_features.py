"""Hashed words and hearing: the same text has the same places everywhere; who wrote nothing tells nothing."""

import numpy as np
import pytest
from policies import empty_response_model

from shikisha.routing.text_features import (
    PROMPT_BUCKETS,
    RESPONSE_BUCKETS,
    hash_prompts,
    hash_responses,
)


def test_places_are_the_same_on_every_machine() -> None:
    words = hash_prompts(["Prime numbers"])
    assert sorted(words.places.tolist()) == [2809, 3927, 12586]  # of CRC-32


@pytest.mark.parametrize("text", ["", "   ", "?!", "1"])
def test_texts_without_words_are_rows_all_the_same(text: str) -> None:
    assert len(hash_prompts([text, "some words"])) == 2


def test_rows_have_length_one_and_can_be_taken_apart() -> None:
    words = hash_prompts(["a long prompt about prime numbers", "another one", "about primes"])
    ones = words.scaled(np.ones(PROMPT_BUCKETS))
    assert np.bincount(ones.rows, ones.weights**2) == pytest.approx([1, 1, 1])
    part = words.at(np.array([2, 0]))
    matrix = np.random.default_rng(0).random((PROMPT_BUCKETS, 2))
    assert part.times(matrix) == pytest.approx(words.times(matrix)[[2, 0]])


def test_who_wrote_nothing_tells_nothing() -> None:
    hearing = empty_response_model(2, 1)
    loud = np.ones((2, RESPONSE_BUCKETS))
    told = type(hearing)(loud, hearing.rarity, hearing.usual, np.array([True, False]))
    texts = [hash_responses(["however it seems", None]), hash_responses(["plain", "plain"])]
    tells = told.log_odds(texts, np.zeros(2, np.int64))
    assert tells[0, 0] > 0
    assert tells[1, 0] == tells[0, 1] == 0
    assert told.log_odds_of(0, "however it seems", 0) == pytest.approx(tells[0, 0])
