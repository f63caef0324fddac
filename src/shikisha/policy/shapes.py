"""Shapes: numbers about how a prompt looks and asks, whatever it is about: sizes, options, marks, signal words.

Invariants: a prompt is read in pieces of fixed length from both ends, so that a long one takes no longer than a short
one; the same text gives the same SHAPES numbers in the same order everywhere. Deliberately absent: what the prompt is
about (`words`), and any scaling, which is the reader's business.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np

from shikisha.policy.arrays import Floats

END = 1000  # characters that are read at either end
_OPTION = re.compile(r"\n\(?([A-J])[.)] ?(.*)")
_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_ITEM = re.compile(r"\n\d+\. ")
_NUMERIC = re.compile(r"[\s$\\(]*-?[\d.,/ ]+.{0,12}")
_SHOUTED = re.compile(r"\b(?:NOT|EXCEPT|LEAST)\b")
_STATEMENTS = re.compile(r"Statement 1|\bII\b")
_DENIES = re.compile(r"\b(?:not|except|least|false|incorrect)\b")
_RECKONS = re.compile(r"\b(?:find|compute|calculate|evaluate|how many|what is the (?:value|probability|area))\b")
_SIGNALS = ("following", "best", "most", "which", "what", "how", "why", "if ", "according", "is ")
_FORMULA = "\\^="
SHAPES = 45


def shapes(prompts: Sequence[str]) -> Floats:
    """Return [T, SHAPES]."""
    return np.array([_shape(prompt) for prompt in prompts], float).reshape(len(prompts), SHAPES)


def cut(prompt: str) -> str:
    """Return what is read of a prompt: all of it, or its two ends."""
    return prompt if len(prompt) <= 2 * END else f"{prompt[:END]}\n{prompt[-END:]}"


@dataclass(frozen=True, slots=True)
class _Read:
    """A prompt as it is read: `text` of it all, its `stem` before the options, and the `options`."""

    text: str
    stem: str
    options: tuple[str, ...]

    @classmethod
    def of(cls, prompt: str) -> "_Read":
        text = cut(prompt)
        found = list(_OPTION.finditer(text))
        start = found[0].start() if found and found[0][1] == "A" else len(text)
        return cls(text, text[:start] or text, tuple(option[2] for option in found))


def _shape(prompt: str) -> list[float]:
    read = _Read.of(prompt)
    return [*_sizes(prompt, read), *_options(read), *_marks(read), *_spelling(read), *_asking(read)]


def _sizes(prompt: str, read: _Read) -> list[float]:
    """How long it is: the whole, the stem, and in how many lines, items and sentence parts."""
    stem = read.stem
    counts = (len(prompt), len(stem), stem.count("\n"), stem.count(","), len(_ITEM.findall(read.text)))
    return [log1p(count) for count in counts]


def _options(read: _Read) -> list[float]:
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


def _marks(read: _Read) -> list[float]:
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


def _spelling(read: _Read) -> list[float]:
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


def _asking(read: _Read) -> list[float]:
    """How it asks: signal words, what it rules out, what is to be reckoned, what it refers to."""
    lower = read.stem.lower()
    return [
        _DENIES.search(lower) is not None,
        _SHOUTED.search(read.stem) is not None,
        _RECKONS.search(lower) is not None,
        _STATEMENTS.search(read.text) is not None,
        "above" in read.text.lower(),
        *(signal in lower for signal in _SIGNALS),
    ]
