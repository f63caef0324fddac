"""Hashed words: which words and pairs of words stand in a prompt, as places in a table of fixed size.

Invariant: the same text has the same places on every machine and in every version of Python (CRC-32, not `hash`).
Deliberately absent: a vocabulary, so that there is nothing to keep and nothing to leak. (Weinberger et al. 2009.)
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np

from shikisha.policy.arrays import Flags, Floats, Ints

SIZE = 2**14  # of prompts' words and pairs of words
HEARD = 2**16  # of answers' words, numbers and marks
GRAMS = 2**24  # places so many that hardly two words share one; single precision still holds each exactly
_WORD = re.compile(r"[^\W\d_]{2,}|\d")
_SPOKEN = re.compile(r"\w+|[^\w\s]")
_LONGEST = 20_000  # characters that are read
_END = 340  # of them are near the end


@dataclass(frozen=True, slots=True)
class Words:
    """Rows of places and weights, one after another: row t is at starts[t] to starts[t + 1]."""

    starts: Ints
    places: Ints
    weights: Floats

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> Ints:
        """The row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @property
    def empty(self) -> Flags:
        """[T]: whether a row has no word."""
        return np.equal(np.diff(self.starts), 0)

    def at(self, rows: Ints) -> "Words":
        """Return these rows."""
        sizes = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        entries = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], sizes)
        return Words(starts, self.places[entries], self.weights[entries])

    def scaled(self, rarity: Floats) -> "Words":
        """Return the rows with each entry times its place's rarity, each row of length 1."""
        weights = self.weights * rarity[self.places]
        squares: Floats = np.bincount(self.rows, weights**2, len(self)).astype(np.float64)
        lengths = np.sqrt(squares)
        return Words(self.starts, self.places, weights / np.maximum(lengths, 1e-12)[self.rows])

    def dot(self, weights: Floats) -> Floats:
        """Return [T], the rows times a vector of weights by place."""
        return np.bincount(self.rows, self.weights * weights[self.places], len(self)).astype(np.float64)

    def times(self, matrix: Floats) -> Floats:
        """Return [T, k], the rows times a matrix of weights by place, [size, k]."""
        return np.stack([self.dot(matrix[:, column]) for column in range(matrix.shape[1])], axis=1)


def hashed(prompts: Sequence[str]) -> Words:
    """Return words and pairs in SIZE places, each counting the log of how often it occurs; rows have length 1."""
    return _joined([_row([*words, *map(" ".join, pairwise(words))], SIZE) for words in _found(_WORD, prompts)]).scaled(
        np.ones(SIZE)
    )


def spoken(answers: Sequence[str | None]) -> Words:
    """Return the words, numbers and marks of answers, and the pairs of those near the end, in HEARD places.

    The end of a long one is read. Near its end an answer says how it came to its conclusion.
    """
    texts = [(answer or "")[-_LONGEST:] for answer in answers]
    ends = _found(_SPOKEN, [text[-_END:] for text in texts])
    whole = _found(_SPOKEN, texts)
    return _joined(
        [_row([*words, *map(" ".join, pairwise(end))], HEARD) for words, end in zip(whole, ends, strict=True)]
    )


def grams(texts: Sequence[str]) -> Words:
    """Return words, numbers and marks and the pairs of them in GRAMS places, by the log of how often each occurs."""
    return _joined([_row([*words, *map(" ".join, pairwise(words))], GRAMS) for words in _found(_SPOKEN, texts)])


def _found(pattern: re.Pattern[str], texts: Sequence[str]) -> Iterator[list[str]]:
    return (pattern.findall(text[:_LONGEST].lower()) for text in texts)


def _row(words: Sequence[str], size: int) -> tuple[Ints, Floats]:
    counts = Counter(words)
    places = np.array([crc32(word.encode(errors="surrogatepass")) for word in counts], np.int64) % size
    return places, 1 + np.log(np.array(list(counts.values()), float))


def _joined(rows: Sequence[tuple[Ints, Floats]]) -> Words:
    starts = np.concatenate([[0], np.cumsum([len(places) for places, _ in rows])]).astype(np.int64)
    places = np.concatenate([np.zeros(0, np.int64), *(places for places, _ in rows)])
    return Words(starts, places, np.concatenate([np.zeros(0), *(weights for _, weights in rows)]))
