"""Words of prompts as hashed features, for types of tasks that are found by clustering.

Words and pairs of words are hashed into a table of fixed size (Weinberger et al. 2009), so there is no vocabulary to
store or leak. Invariants: the same text has the same features on every machine and in every version of Python (CRC-32,
not `hash`); long prompts are read to a fixed length.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np

from shikisha.core.fast_dataclass import dataclass
from shikisha.routing.arrays import Floats, Ints

# Buckets for words and pairs of words of prompts.
PROMPT_BUCKETS = 2**14
_WORD_OR_DIGIT = re.compile(r"[^\W\d_]{2,}|\d")
# Characters that are read, to bound the time.
_MAX_CHARACTERS = 20_000
LETTERED_OPTION = re.compile(r"\n\(?([A-J])[.)] ?(.*)")


@dataclass(frozen=True, slots=True)
class HashedWords:
    """Sparse rows of places and weights (CSR): row t is at starts[t] to starts[t + 1]."""

    starts: Ints
    places: Ints
    weights: Floats

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> Ints:
        """The row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def at(self, rows: Ints) -> "HashedWords":
        """Return these rows."""
        sizes = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        entries = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], sizes)
        return HashedWords(starts, self.places[entries], self.weights[entries])

    def scaled(self, rarity: Floats) -> "HashedWords":
        """Return the rows with each entry times its place's rarity, normalized to length 1."""
        weights = self.weights * rarity[self.places]
        squares: Floats = np.bincount(self.rows, weights**2, len(self)).astype(np.float64)
        lengths = np.sqrt(squares)
        return HashedWords(self.starts, self.places, weights / np.maximum(lengths, 1e-12)[self.rows])

    def dot(self, weights: Floats) -> Floats:
        """Return [T], the rows times a vector of weights by place."""
        return np.bincount(self.rows, self.weights * weights[self.places], len(self)).astype(np.float64)

    def times(self, matrix: Floats) -> Floats:
        """Return [T, k], the rows times a matrix of weights by place, [size, k]."""
        return np.stack([self.dot(matrix[:, column]) for column in range(matrix.shape[1])], axis=1)


def hash_prompts(prompts: Sequence[str]) -> HashedWords:
    """Return words and pairs in PROMPT_BUCKETS places, weighted by log counts; rows have length 1."""
    return _stack_rows(
        [
            _hash_row([*words, *map(" ".join, pairwise(words))], PROMPT_BUCKETS)
            for words in (_WORD_OR_DIGIT.findall(text[:_MAX_CHARACTERS].lower()) for text in prompts)
        ]
    ).scaled(np.ones(PROMPT_BUCKETS))


def _hash_row(words: Sequence[str], size: int) -> tuple[Ints, Floats]:
    counts = Counter(words)
    places = np.array([crc32(word.encode(errors="surrogatepass")) for word in counts], np.int64) % size
    return places, 1 + np.log(np.array(list(counts.values()), float))


def _stack_rows(rows: Sequence[tuple[Ints, Floats]]) -> HashedWords:
    starts = np.concatenate([[0], np.cumsum([len(places) for places, _ in rows])]).astype(np.int64)
    places = np.concatenate([np.zeros(0, np.int64), *(places for places, _ in rows)])
    return HashedWords(starts, places, np.concatenate([np.zeros(0), *(weights for _, weights in rows)]))
