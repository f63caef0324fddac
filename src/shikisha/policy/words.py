"""Hashed words: which words and pairs of words stand in a prompt, as places in a table of fixed size.

Invariant: the same text has the same places on every machine and in every version of Python (CRC-32, not `hash`).
Deliberately absent: a vocabulary, so that there is nothing to keep and nothing to leak. (Weinberger et al. 2009.)
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np

from shikisha.policy.arrays import Floats, Ints

SIZE = 2**14
_WORD = re.compile(r"[^\W\d_]{2,}|\d")
_LONGEST = 20_000  # characters that are read


@dataclass(frozen=True, slots=True)
class Words:
    """Rows of places and weights, one after another: row t is at starts[t] to starts[t + 1]; each has length 1."""

    starts: Ints
    places: Ints
    weights: Floats

    def at(self, rows: Ints) -> "Words":
        """Return these rows."""
        spans = [slice(self.starts[row], self.starts[row + 1]) for row in rows]
        sizes = [span.stop - span.start for span in spans]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        if not spans:
            return Words(starts, self.places[:0], self.weights[:0])
        return Words(
            starts, np.concatenate([self.places[s] for s in spans]), np.concatenate([self.weights[s] for s in spans])
        )

    def times(self, matrix: Floats) -> Floats:
        """Return [T, k], the rows times a matrix [SIZE, k]."""
        found = np.zeros((len(self.starts) - 1, matrix.shape[1]))
        rows = np.repeat(np.arange(len(found)), np.diff(self.starts))
        for column in range(matrix.shape[1]):
            found[:, column] = np.bincount(rows, self.weights * matrix[self.places, column], len(found))
        return found


def hashed(texts: Sequence[str]) -> Words:
    """Return the hashed words of these texts; each word counts the logarithm of how often it occurs."""
    rows = [_row(text) for text in texts]
    starts = np.concatenate([[0], np.cumsum([len(places) for places, _ in rows])]).astype(np.int64)
    places = np.concatenate([places for places, _ in rows]) if rows else np.zeros(0, np.int64)
    weights = np.concatenate([weights for _, weights in rows]) if rows else np.zeros(0)
    return Words(starts, places.astype(np.int64), weights)


def _row(text: str) -> tuple[Ints, Floats]:
    words = _WORD.findall(text[:_LONGEST].lower())
    found = Counter(crc32(word.encode()) % SIZE for word in (*words, *map(" ".join, pairwise(words))))
    places = np.array(sorted(found), np.int64)
    weights = np.array([1 + np.log(found[place]) for place in places.tolist()])
    return places, weights / max(1e-12, float(np.sqrt((weights**2).sum())))
