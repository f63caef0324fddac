"""What a trained conductor can read: a measure of how much a text is like those that it was trained on.

A sentence becomes hashed words, pairs and triples of words, and runs of three to five letters, with names and digits
masked. A logistic regression tells sentences of the conductor's own tasks from ordinary ones (`background.npz`:
requests and sentences that no conductor was trained on, as hashed features without a text). A text is as familiar
as its most familiar sentence, so that a greeting or a filler paragraph does not hide a question. The threshold is
calibrated on own tasks that the regression did not see, group by group: whole authors or kinds of task are left out
where their names are known.

Invariants: the same texts give the same range on every machine; reading is bounded (MAX_CHARACTERS, eight clauses); no
text raises. Needs numpy alone. Why no sentence vectors: on the same tasks they told fewer (`docs/results/security.md`).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shikisha.core.errors import ConfigError
from shikisha.retrieval.text_index import split_clauses

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Doubles: TypeAlias = NDArray[np.float64]

MAX_CHARACTERS = 8_000
REFUSED_OWN = 0.02  # of own tasks that were left out, where the threshold is put
_BUCKETS = 2**14  # for runs of letters, and as many for words
KNOWN_FEATURES = 2 * _BUCKETS  # of a range
_MOST_FEATURES = 600  # of a sentence
_GROUPS = 5  # where none are named
_RIDGE = 5e-6
_STEPS, _MEMORY, _LEAST_STEP, _LEAST_GAIN = 100, 8, 1e-6, 1e-6
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

    def transposed_dot(self, values: Doubles) -> Doubles:
        """Return [features]: the columns times a vector [N]."""
        spread = np.repeat(values, np.diff(self.starts))
        return np.bincount(self.places, self.weights * spread, 2 * _BUCKETS).astype(np.float64)

    def rows(self, kept: Sequence[int]) -> "HashedSentences":
        """Return these rows."""
        spans = [slice(int(self.starts[row]), int(self.starts[row + 1])) for row in kept]
        starts = np.concatenate([[0], np.cumsum([span.stop - span.start for span in spans])]).astype(np.int64)
        places = np.concatenate([self.places[:0], *(self.places[span] for span in spans)])
        weights = np.concatenate([self.weights[:0], *(self.weights[span] for span in spans)])
        return HashedSentences(starts, places, weights)


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


def save_background(file: Path, sentences: HashedSentences) -> None:
    """Write the features of ordinary sentences."""
    sizes, places = np.diff(sentences.starts).astype(np.uint16), sentences.places.astype(np.uint16)
    np.savez_compressed(file, sizes=sizes, places=places)


@lru_cache(maxsize=1)
def background() -> HashedSentences:
    """Return the features of ordinary sentences that come with the package."""
    with resources.as_file(resources.files("shikisha.conductors") / "background.npz") as file:
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


def fit_reading_range(
    own: Sequence[str],
    groups: Sequence[str] = (),
    sentences: Sequence[Sequence[str]] = (),
    refused: float = REFUSED_OWN,
    highest: float = 0.0,
) -> ReadingRange:
    """Fit on own tasks. `groups` name what each is of (an author, a kind); `sentences` carry each task's question.

    Without `sentences` every sentence of a task counts as own, greetings too. The threshold refuses the share `refused`
    of tasks whose group was left out, or fewer, and is never above `highest` (0: even odds): where all tasks are alike,
    so are the scores of those that were left out. ConfigError for fewer than ten tasks.
    """
    if len(own) < 2 * _GROUPS:
        raise ConfigError(f"{len(own)} tasks: a reading range needs at least {2 * _GROUPS}")
    named = list(groups) or [str(crc32(text.encode(errors="surrogatepass")) % _GROUPS) for text in own]
    carrying = list(sentences) or [split_sentences(text) for text in own]
    rows = list(dict.fromkeys((group, each) for group, said in zip(named, carrying, strict=True) for each in said))
    hashed = hash_sentences([sentence for _, sentence in rows])
    left_out: list[float] = []
    for group in sorted(set(named)):
        inside = [at for at, (name, _) in enumerate(rows) if name != group]
        asked = [text for text, name in zip(own, named, strict=True) if name == group]
        if inside:
            left_out += _fit(hashed.rows(inside), 0.0).familiarities(asked).tolist()
    return _fit(hashed, min(highest, float(np.quantile(left_out, refused))) if left_out else 0.0)


def _fit(own: HashedSentences, threshold: float) -> ReadingRange:
    """Fit a logistic regression of own against ordinary sentences, each side counting half, by L-BFGS."""
    other = background()
    both = HashedSentences(
        np.concatenate([own.starts, own.starts[-1] + other.starts[1:]]),
        np.concatenate([own.places, other.places]),
        np.concatenate([own.weights, other.weights]),
    )
    signs = np.concatenate([np.ones(len(own)), -np.ones(len(other))])
    shares = np.concatenate([np.full(len(own), 0.5 / len(own)), np.full(len(other), 0.5 / len(other))])

    def loss(at: Doubles) -> tuple[float, Doubles]:
        margins = signs * (both.dot(at[:-1]) + at[-1])
        value = float(shares @ np.logaddexp(0, -margins)) + _RIDGE / 2 * float(at[:-1] @ at[:-1])
        pull = -signs * shares / (1 + np.exp(np.clip(margins, -50, 50)))
        return value, np.append(both.transposed_dot(pull) + _RIDGE * at[:-1], pull.sum())

    found = _minimize(loss, np.zeros(KNOWN_FEATURES + 1))
    return ReadingRange(found[:-1].astype(np.float32), float(found[-1]), threshold)


def _minimize(loss: Callable[[Doubles], tuple[float, Doubles]], at: Doubles) -> Doubles:
    """Return where a smooth convex loss is smallest: L-BFGS (Liu and Nocedal 1989) with halved steps."""
    value, slope = loss(at)
    steps: list[tuple[Doubles, Doubles]] = []
    for _ in range(_STEPS):
        way = slope.copy()
        kept = []
        for moved, changed in reversed(steps):
            share = (moved @ way) / (moved @ changed)
            kept.append(share)
            way -= share * changed
        if steps:
            moved, changed = steps[-1]
            way *= (moved @ changed) / (changed @ changed)
        for (moved, changed), share in zip(steps, reversed(kept), strict=True):
            way += moved * (share - (changed @ way) / (moved @ changed))
        size, fall = 1.0, float(slope @ way)
        while size > _LEAST_STEP:
            there, (next_value, next_slope) = at - size * way, loss(at - size * way)
            if next_value <= value - 1e-4 * size * fall:
                break
            size /= 2
        else:
            return at
        if (there - at) @ (next_slope - slope) > 0:
            steps = [*steps, (there - at, next_slope - slope)][-_MEMORY:]
        done = value - next_value < _LEAST_GAIN
        at, value, slope = there, next_value, next_slope
        if done:
            break
    return at
