"""What a trained conductor can read: a measure of how much a text is like those that it was trained on.

A sentence becomes hashed words, pairs and triples of words, and runs of three to five letters, with names and digits
masked. A logistic regression tells sentences of the conductor's own tasks from ordinary ones (`background.npz`:
requests and sentences that no conductor was trained on, as hashed features without a text). A text is as familiar
as its most familiar sentence, so that a greeting or a filler paragraph does not hide a question. `shikisha_train` fits
ranges.

Invariants: the same texts give the same range on every machine; reading is bounded (MAX_CHARACTERS, eight clauses); no
text raises. Needs numpy alone. Why no sentence vectors: on the same tasks they told fewer (`docs/results/security.md`).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shikisha.core.fast_dataclass import dataclass
from shikisha.retrieval.text_index import split_clauses

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Doubles: TypeAlias = NDArray[np.float64]

MAX_CHARACTERS = 8_000
_BUCKETS = 2**14  # for runs of letters, and as many for words
KNOWN_FEATURES = 2 * _BUCKETS  # of a range
_MOST_FEATURES = 600  # of a sentence
_TOKEN = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*|[?%+*/=$-]")
_DIGIT = re.compile(r"\d")


def split_sentences(text: str) -> Sequence[str]:
    """Return a text's clauses, at most eight; one that is empty for a text without any."""
    return split_clauses(text[:MAX_CHARACTERS]) or [""]


@dataclass(frozen=True, slots=True)
class HashedSentences:
    """Rows of features (CSR): row n is at starts[n] to starts[n + 1] of `places`; each part of a row has length 1."""

    starts: Ints
    places: Ints
    weights: Floats

    def __len__(self) -> int:
        return len(self.starts) - 1

    def dot(self, weights: "Floats | Doubles") -> Doubles:
        """Return [N]: the rows times a vector."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return np.bincount(rows, self.weights * weights[self.places], len(self)).astype(np.float64)


def hash_sentences(sentences: Sequence[str]) -> HashedSentences:
    """Return the features of sentences."""
    return _stack([_sentence_places(sentence) for sentence in sentences])


def _sentence_places(sentence: str) -> Ints:
    """Return a sentence's places: names masked, digits as 0, runs of letters within words, words in order."""
    words: list[str] = []
    for at, match in enumerate(_TOKEN.finditer(sentence[:MAX_CHARACTERS])):
        word = match[0]
        named = at > 0 and word[0].isupper() and not word.isupper()
        words.append("\x00name" if named else _DIGIT.sub("0", word.lower())[:24])
        if len(words) >= _MOST_FEATURES // 8:
            break
    if not any(any(map(str.isalnum, word)) for word in words):  # signs alone are no sentence
        words = []
    runs = {
        padded[at : at + size]
        for padded in (f" {word} " for word in words)
        for size in (3, 4, 5)
        for at in range(len(padded) - size + 1)
    }
    near = {*words, *map(" ".join, pairwise(words)), *map(" ".join, zip(words, words[1:], words[2:], strict=False))}
    letters = sorted({crc32(run.encode(errors="surrogatepass")) % _BUCKETS for run in runs})[: _MOST_FEATURES // 2]
    named_words = sorted({_BUCKETS + crc32(each.encode(errors="surrogatepass")) % _BUCKETS for each in near})
    return np.array([*letters, *named_words[: _MOST_FEATURES // 2]], np.int64)


def _stack(rows: Sequence[Ints]) -> HashedSentences:
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    places = np.concatenate([np.zeros(0, np.int64), *rows]).astype(np.int64)
    owners = np.repeat(np.arange(len(rows)), np.diff(starts))
    part = 2 * owners + (places >= _BUCKETS)
    sizes = np.bincount(part, minlength=2 * len(rows)) if len(rows) else np.zeros(0)
    return HashedSentences(starts, places, (1 / np.sqrt(sizes[part])).astype(np.float32))


@lru_cache(maxsize=1)
def background() -> HashedSentences:
    """Return the features of ordinary sentences that come with the package."""
    with resources.as_file(resources.files("shikisha_train.pointer") / "background.npz") as file:
        held = np.load(file, allow_pickle=False)
        sizes, places = held["sizes"].astype(np.int64), held["places"].astype(np.int64)
    return _stack(np.split(places, np.cumsum(sizes)[:-1]))


@dataclass(frozen=True, eq=False)
class ReadingRange:
    """A fitted measure: `weights` [features], `bias`, and the `threshold` below which a text cannot be read."""

    weights: Floats
    bias: float
    threshold: float

    def familiarity(self, text: str) -> float:
        """Return the log odds that a text's most familiar sentence is of the conductor's own tasks."""
        return float(self.familiarities([text])[0])

    def familiarities(self, texts: Sequence[str]) -> Floats:
        """Return [N], the same for many texts."""
        split = [split_sentences(text) for text in texts]
        if not split:
            return np.zeros(0, np.float32)
        scores = hash_sentences([sentence for sentences in split for sentence in sentences]).dot(self.weights)
        firsts = np.cumsum([0, *map(len, split)])[:-1]
        return np.asarray(np.maximum.reduceat(scores, firsts) + self.bias, np.float32)

    def reads(self, text: str) -> bool:
        """Whether the text is familiar enough."""
        return self.familiarity(text) >= self.threshold
