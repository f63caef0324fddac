"""Hashed words: which words and pairs of words stand in a prompt, as places in a table of fixed size.

Invariant: the same text has the same places on every machine and in every version of Python (CRC-32, not `hash`).
Deliberately absent: a vocabulary, so that there is nothing to keep and nothing to leak. (Weinberger et al. 2009.)

Hearing: how sure the text of an answer sounds, from its words ("however", "none of the options", "closest").

A logistic model for each worker over the hashed words of what it wrote, fitted in `learn`. Invariant: what is told is
relative to what is usual for the worker and the task's type, so that an answer without a text, or a worker that was
never heard, tells nothing (0). Deliberately absent: what the words mean, and the prompt.

Shapes: numbers about how a prompt looks and asks, whatever it is about: sizes, options, marks, signal words.

Invariants: a prompt is read in pieces of fixed length from both ends, so that a long one takes no longer than a short
one; the same text gives the same SHAPES numbers in the same order everywhere. Deliberately absent: what the prompt is
about (`words`), and any scaling, which is the reader's business.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import log1p
from zlib import crc32

import numpy as np

from shikisha.routing.arrays import Flags, Floats, Ints

PROMPT_BUCKETS = 2**14  # of prompts' words and pairs of words
RESPONSE_BUCKETS = 2**16  # of answers' words, numbers and marks
NGRAM_BUCKETS = 2**24  # places so many that hardly two words share one; single precision still holds each exactly
_WORD_OR_DIGIT = re.compile(r"[^\W\d_]{2,}|\d")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_MAX_CHARACTERS = 20_000  # characters that are read
_ENDING_CHARACTERS = 340  # of them are near the end


@dataclass(frozen=True, slots=True)
class HashedWords:
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

    def at(self, rows: Ints) -> "HashedWords":
        """Return these rows."""
        sizes = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        entries = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], sizes)
        return HashedWords(starts, self.places[entries], self.weights[entries])

    def scaled(self, rarity: Floats) -> "HashedWords":
        """Return the rows with each entry times its place's rarity, each row of length 1."""
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
    """Return words and pairs in SIZE places, each counting the log of how often it occurs; rows have length 1."""
    return _stack_rows(
        [
            _hash_row([*words, *map(" ".join, pairwise(words))], PROMPT_BUCKETS)
            for words in _tokenize(_WORD_OR_DIGIT, prompts)
        ]
    ).scaled(np.ones(PROMPT_BUCKETS))


def hash_responses(answers: Sequence[str | None]) -> HashedWords:
    """Return the words, numbers and marks of answers, and the pairs of those near the end, in HEARD places.

    The end of a long one is read. Near its end an answer says how it came to its conclusion.
    """
    texts = [(answer or "")[-_MAX_CHARACTERS:] for answer in answers]
    ends = _tokenize(_TOKEN, [text[-_ENDING_CHARACTERS:] for text in texts])
    whole = _tokenize(_TOKEN, texts)
    return _stack_rows(
        [
            _hash_row([*words, *map(" ".join, pairwise(end))], RESPONSE_BUCKETS)
            for words, end in zip(whole, ends, strict=True)
        ]
    )


def hash_ngrams(texts: Sequence[str]) -> HashedWords:
    """Return words, numbers and marks and the pairs of them in GRAMS places, by the log of how often each occurs."""
    return _stack_rows(
        [_hash_row([*words, *map(" ".join, pairwise(words))], NGRAM_BUCKETS) for words in _tokenize(_TOKEN, texts)]
    )


def _tokenize(pattern: re.Pattern[str], texts: Sequence[str]) -> Iterator[list[str]]:
    return (pattern.findall(text[:_MAX_CHARACTERS].lower()) for text in texts)


def _hash_row(words: Sequence[str], size: int) -> tuple[Ints, Floats]:
    counts = Counter(words)
    places = np.array([crc32(word.encode(errors="surrogatepass")) for word in counts], np.int64) % size
    return places, 1 + np.log(np.array(list(counts.values()), float))


def _stack_rows(rows: Sequence[tuple[Ints, Floats]]) -> HashedWords:
    starts = np.concatenate([[0], np.cumsum([len(places) for places, _ in rows])]).astype(np.int64)
    places = np.concatenate([np.zeros(0, np.int64), *(places for places, _ in rows)])
    return HashedWords(starts, places, np.concatenate([np.zeros(0), *(weights for _, weights in rows)]))


MAX_LOG_ODDS = 3.0  # in log odds


@dataclass(frozen=True, slots=True)
class ResponseModel:
    """`weights` [J, HEARD] by worker, `rarity` [HEARD] of words, `usual` [D + 1, J] log odds by type, `heard` [J]."""

    weights: Floats
    rarity: Floats
    usual: Floats
    heard: Flags

    def log_odds(self, texts: Sequence[HashedWords | None], types: Ints) -> Floats:
        """Return [T, J]: how much surer than usual each worker's text sounds, in log odds; 0 where there is no text."""
        found = np.zeros((len(types), len(self.weights)))
        for worker, words in enumerate(texts):
            if words is not None and self.heard[worker]:
                odds = words.scaled(self.rarity).dot(self.weights[worker])
                told = np.clip(odds - self.usual[types, worker], -MAX_LOG_ODDS, MAX_LOG_ODDS)
                found[:, worker] = np.where(words.empty, 0.0, told)
        return found

    def log_odds_of(self, worker: int, text: str, kind: int) -> float:
        """Return the same for one text."""
        texts: list[HashedWords | None] = [None] * len(self.weights)
        texts[worker] = _hash_response(text)
        return float(self.log_odds(texts, np.array([kind], np.int64))[0, worker])

    def to_arrays(self) -> dict[str, Floats]:
        """Return its arrays."""
        heard = self.heard.astype(float)
        return {"weights": self.weights, "rarity": self.rarity, "usual": self.usual, "heard": heard}

    @classmethod
    def of(cls, held: dict[str, Floats]) -> "ResponseModel":
        """Return the hearing that `held` wrote."""
        return cls(held["weights"], held["rarity"], held["usual"], held["heard"] > 0)


def empty_response_model(workers: int, types: int) -> ResponseModel:
    """Return a hearing that hears nobody."""
    return ResponseModel(
        np.zeros((workers, RESPONSE_BUCKETS)),
        np.ones(RESPONSE_BUCKETS),
        np.zeros((types + 1, workers)),
        np.zeros(workers, bool),
    )


@lru_cache(maxsize=64)
def _hash_response(text: str) -> HashedWords:
    """Return the words of one text; a run's next decision asks for those of its earlier answers again."""
    return hash_responses([text])


PROMPT_END_CHARACTERS = 1000  # characters that are read at either end
_OPTION = re.compile(r"\n\(?([A-J])[.)] ?(.*)")
_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_ITEM = re.compile(r"\n\d+\. ")
_NUMERIC = re.compile(r"[\s$\\(]*-?[\d.,/ ]+.{0,12}")
_UPPERCASE_NEGATION = re.compile(r"\b(?:NOT|EXCEPT|LEAST)\b")
_STATEMENT_LABEL = re.compile(r"Statement 1|\bII\b")
_NEGATION = re.compile(r"\b(?:not|except|least|false|incorrect)\b")
_CALCULATION = re.compile(r"\b(?:find|compute|calculate|evaluate|how many|what is the (?:value|probability|area))\b")
_SIGNALS = ("following", "best", "most", "which", "what", "how", "why", "if ", "according", "is ")
_FORMULA = "\\^="
NUM_SHAPE_FEATURES = 45


def prompt_shapes(prompts: Sequence[str]) -> Floats:
    """Return [T, SHAPES]."""
    return np.array([_shape_row(prompt) for prompt in prompts], float).reshape(len(prompts), NUM_SHAPE_FEATURES)


def truncate_prompt(prompt: str) -> str:
    """Return what is read of a prompt: all of it, or its two ends."""
    return (
        prompt
        if len(prompt) <= 2 * PROMPT_END_CHARACTERS
        else f"{prompt[:PROMPT_END_CHARACTERS]}\n{prompt[-PROMPT_END_CHARACTERS:]}"
    )


@dataclass(frozen=True, slots=True)
class _ParsedPrompt:
    """A prompt as it is read: `text` of it all, its `stem` before the options, and the `options`."""

    text: str
    stem: str
    options: tuple[str, ...]

    @classmethod
    def of(cls, prompt: str) -> "_ParsedPrompt":
        text = truncate_prompt(prompt)
        found = list(_OPTION.finditer(text))
        start = found[0].start() if found and found[0][1] == "A" else len(text)
        return cls(text, text[:start] or text, tuple(option[2] for option in found))


def _shape_row(prompt: str) -> list[float]:
    read = _ParsedPrompt.of(prompt)
    return [
        *_length_features(prompt, read),
        *_option_features(read),
        *_punctuation_features(read),
        *_spelling_features(read),
        *_question_features(read),
    ]


def _length_features(prompt: str, read: _ParsedPrompt) -> list[float]:
    """How long it is: the whole, the stem, and in how many lines, items and sentence parts."""
    stem = read.stem
    counts = (len(prompt), len(stem), stem.count("\n"), stem.count(","), len(_ITEM.findall(read.text)))
    return [log1p(count) for count in counts]


def _option_features(read: _ParsedPrompt) -> list[float]:
    """How many options, how long and how alike they are, and what they look like."""
    sizes = [len(option) for option in read.options] or [0]
    shortest, longest = log1p(min(sizes)), log1p(max(sizes))
    count = max(1, len(read.options))
    words = [set(option.lower().split()) for option in read.options]
    distinct = len(set().union(*words)) / max(1, sum(map(len, words))) if words else 1.0
    return [
        len(read.options),
        log1p(sum(sizes)),
        longest,
        shortest,
        longest - shortest,
        sum(_NUMERIC.fullmatch(option) is not None for option in read.options) / count,
        distinct,
        any(option.rstrip().endswith(".") for option in read.options),
        any(option[:1].islower() for option in read.options),
    ]


def _punctuation_features(read: _ParsedPrompt) -> list[float]:
    """Which marks stand in it: of formulas, quotations, blanks, and the last one of the stem."""
    text, stem = read.text, read.stem
    end = stem.rstrip()[-1:]
    return [
        end == "?",
        end == ".",
        "_" in stem,
        log1p(sum(map(text.count, _FORMULA))),
        "$" in text,
        '"' in text,
        "(" in text,
        not text.isascii(),
    ]


def _spelling_features(read: _ParsedPrompt) -> list[float]:
    """Which characters and words it is made of: digits, numbers, capitals, names, long words."""
    text, stem = read.text, read.stem
    size = max(1, len(stem))
    own, every = _WORD.findall(stem), _WORD.findall(text)
    letters = sum(map(len, own))
    return [
        sum(map(str.isdigit, stem)) / size,
        log1p(len(_NUMBER.findall(stem))),
        sum(map(str.isupper, text)) / max(1, len(text)),
        log1p(len(_NAME.findall(stem))),
        letters / max(1, len(own)),
        log1p(max(map(len, every), default=0)),
        len({word.lower() for word in own}) / max(1, len(own)),
        text[:1].isupper(),
    ]


def _question_features(read: _ParsedPrompt) -> list[float]:
    """How it asks: signal words, what it rules out, what is to be reckoned, what it refers to."""
    lower = read.stem.lower()
    return [
        _NEGATION.search(lower) is not None,
        _UPPERCASE_NEGATION.search(read.stem) is not None,
        _CALCULATION.search(lower) is not None,
        _STATEMENT_LABEL.search(read.text) is not None,
        "above" in read.text.lower(),
        *(signal in lower for signal in _SIGNALS),
    ]
