"""Features of prompts and responses: hashed words, surface features of a prompt, how certain a response sounds.

Words and pairs of words are hashed into tables of fixed size (Weinberger et al. 2009), so there is no vocabulary to
store or leak. The response model is a logistic regression per worker on the words of its answers ("however", "none of
the options", "closest"), fitted in `routing.fit`. Invariants: the same text has the same features on every machine and
in every version of Python (CRC-32, not `hash`); long prompts are read at both ends only, so they take no longer than
short ones; an answer without a text, or a worker without a response model, contributes 0.
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

# Buckets for words and pairs of words of prompts.
PROMPT_BUCKETS = 2**14
# Buckets for words, numbers and marks of responses.
RESPONSE_BUCKETS = 2**16
# So many that hardly two words share one; single precision still holds each number exactly.
NGRAM_BUCKETS = 2**24
_WORD_OR_DIGIT = re.compile(r"[^\W\d_]{2,}|\d")
_TOKEN = re.compile(r"\w+|[^\w\s]")
# Characters that are read, to bound the time.
_MAX_CHARACTERS = 20_000
# Pairs of words count in this last part only.
_ENDING_CHARACTERS = 340
# Sizes of a fall, in log odds.
MAX_LOG_ODDS = 3.0
# Characters that are read at either end, to bound the time.
PROMPT_END_CHARACTERS = 1000
LETTERED_OPTION = re.compile(r"\n\(?([A-J])[.)] ?(.*)")
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
            for words in _tokenize(_WORD_OR_DIGIT, prompts)
        ]
    ).scaled(np.ones(PROMPT_BUCKETS))


def hash_responses(answers: Sequence[str | None]) -> HashedWords:
    """Return the words, numbers and marks of answers, and the pairs of those near the end, in RESPONSE_BUCKETS places.

    Long answers are read at the end, where an answer says how it reached its conclusion.
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
    """Return words, numbers and marks and the pairs of them in NGRAM_BUCKETS places, weighted by log counts."""
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


@dataclass(frozen=True, slots=True)
class ResponseModel:
    """`weights` [J, RESPONSE_BUCKETS] by worker, `rarity` [RESPONSE_BUCKETS], `usual` [D + 1, J], `heard` [J].

    `usual` are mean log odds by type, and `heard` the workers with a model. Log odds are relative to the mean of the
    worker and type, so that a missing text contributes 0.
    """

    weights: Floats
    rarity: Floats
    usual: Floats
    heard: Flags

    def log_odds(self, texts: Sequence[HashedWords | None], types: Ints) -> Floats:
        """Return [T, J]: each text's log odds of being right, relative to the mean; 0 where there is no text."""
        relative_odds = np.zeros((len(types), len(self.weights)))
        for worker, words in enumerate(texts):
            if words is not None and self.heard[worker]:
                odds = words.scaled(self.rarity).dot(self.weights[worker])
                relative = np.clip(odds - self.usual[types, worker], -MAX_LOG_ODDS, MAX_LOG_ODDS)
                relative_odds[:, worker] = np.where(words.empty, 0.0, relative)
        return relative_odds

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
    def of(cls, arrays: dict[str, Floats]) -> "ResponseModel":
        """Return the response model with these arrays."""
        return cls(arrays["weights"], arrays["rarity"], arrays["usual"], arrays["heard"] > 0)


@lru_cache(maxsize=64)
def _hash_response(text: str) -> HashedWords:
    """Return the words of one text; a run's next decision reads its earlier answers again."""
    return hash_responses([text])


def prompt_shapes(prompts: Sequence[str]) -> Floats:
    """Return [T, NUM_SHAPE_FEATURES]."""
    return np.array([_shape_row(prompt) for prompt in prompts], float).reshape(len(prompts), NUM_SHAPE_FEATURES)


def truncate_prompt(prompt: str) -> str:
    """Return a prompt's relevant text: all of it, or its two ends."""
    return (
        prompt
        if len(prompt) <= 2 * PROMPT_END_CHARACTERS
        else f"{prompt[:PROMPT_END_CHARACTERS]}\n{prompt[-PROMPT_END_CHARACTERS:]}"
    )


@dataclass(frozen=True, slots=True)
class _ParsedPrompt:
    """A prompt: its `text`, its `stem` before the options, and the `options`."""

    text: str
    stem: str
    options: tuple[str, ...]

    @classmethod
    def of(cls, prompt: str) -> "_ParsedPrompt":
        text = truncate_prompt(prompt)
        options_found = list(LETTERED_OPTION.finditer(text))
        start = options_found[0].start() if options_found and options_found[0][1] == "A" else len(text)
        return cls(text, text[:start] or text, tuple(option[2] for option in options_found))


def _shape_row(prompt: str) -> list[float]:
    read = _ParsedPrompt.of(prompt)
    # Lengths: of the prompt, of the stem, and counts of lines, items and commas.
    stem = read.stem
    counts = (len(prompt), len(stem), stem.count("\n"), stem.count(","), len(_ITEM.findall(read.text)))
    return [
        *([log1p(count) for count in counts]),
        *_option_features(read),
        *_punctuation_features(read),
        *_spelling_features(read),
        *_question_features(read),
    ]


def _option_features(read: _ParsedPrompt) -> list[float]:
    """Number, lengths, similarity and format of the options."""
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
    """Marks: of formulas, quotations, blanks, and the last one of the stem."""
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
    """Characters and words: digits, numbers, capitals, names, long words."""
    text, stem = read.text, read.stem
    size = max(1, len(stem))
    stem_words, words = _WORD.findall(stem), _WORD.findall(text)
    letters = sum(map(len, stem_words))
    return [
        sum(map(str.isdigit, stem)) / size,
        log1p(len(_NUMBER.findall(stem))),
        sum(map(str.isupper, text)) / max(1, len(text)),
        log1p(len(_NAME.findall(stem))),
        letters / max(1, len(stem_words)),
        log1p(max(map(len, words), default=0)),
        len({word.lower() for word in stem_words}) / max(1, len(stem_words)),
        text[:1].isupper(),
    ]


def _question_features(read: _ParsedPrompt) -> list[float]:
    """The question: signal words, negations, calculations, references."""
    lower = read.stem.lower()
    return [
        _NEGATION.search(lower) is not None,
        _UPPERCASE_NEGATION.search(read.stem) is not None,
        _CALCULATION.search(lower) is not None,
        _STATEMENT_LABEL.search(read.text) is not None,
        "above" in read.text.lower(),
        *(signal in lower for signal in _SIGNALS),
    ]
