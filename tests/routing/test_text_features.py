"""Hashed words: the same text has the same places everywhere."""

import numpy as np
import pytest

from shikisha.routing.text_features import (
    PROMPT_BUCKETS,
    hash_prompts,
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
