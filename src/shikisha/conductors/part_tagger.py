"""A tagger over the words of a task: where a sentence begins, what each word is part of, and how many results it uses.

A word is what it says (hashed words and runs of letters), its marks and its shape; four layers of dilated convolutions
look at up to fifteen words on either side, and a mean over all words tells in which manner the whole text is written.
A test holds the pass in numpy against that of training.

Invariants: the same text is tagged alike on every machine (CRC-32, not `hash`); time is linear in the words.
Deliberately absent: choosing one reading from the scores (`task_reader`).
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from zlib import crc32

import numpy as np

from shikisha.routing.arrays import Floats32, Ints

TOKEN_BUCKETS, TOKEN_WIDTH, TAG_HIDDEN = 2**15, 48, 80
DILATIONS = (1, 2, 4, 8)
END_MARKS = ".?!:;"
_MARKS = END_MARKS + ",\"'()[]-_/"
_LOWER, _UPPER, _DIGITS = re.compile("[a-z]+"), re.compile("[A-Z]+"), re.compile(r"\d+")


def letters_of(word: str) -> str:
    """Return a word's first letter and its others in order of the alphabet: the same after two letters were swapped."""
    return word if not word.isalpha() else word[0] + "".join(sorted(word[1:20]))


def tagger_sizes(roles: int, references: int) -> dict[str, tuple[int, ...]]:
    """Return each weight's shape for so many roles of a sentence and numbers of results that it uses."""
    sizes: dict[str, tuple[int, ...]] = {"words": (TOKEN_BUCKETS, TOKEN_WIDTH)}

    def layer(name: str, wide: int, narrow: int) -> None:
        sizes[f"{name}.weight"], sizes[f"{name}.bias"] = (wide, narrow), (narrow,)

    layer("first", TOKEN_WIDTH, TAG_HIDDEN)
    layer("manner", TAG_HIDDEN, TAG_HIDDEN)
    for at in range(len(DILATIONS)):
        layer(f"around{at}", 3 * TAG_HIDDEN, TAG_HIDDEN)
    layer("tags", TAG_HIDDEN, 1 + roles + references)
    return sizes


def token_features(text: str, spans: Sequence[tuple[int, int]]) -> list[Ints]:
    """Return the buckets of each word of a text."""
    words = [text[start:end] for start, end in spans]
    bare = [word.strip(_MARKS) or word for word in words]
    capital = [word[:1].isupper() and not word.isupper() for word in bare]
    found = []
    for at, word in enumerate(words):
        core = bare[at].removesuffix("'s")
        joined = at > 0 and capital[at - 1] and words[at - 1][-1] not in END_MARKS
        joins = at + 1 < len(words) and capital[at + 1] and word[-1] not in END_MARKS
        if capital[at] and (joined or joins):
            said = "Name"
        elif any(sign.isdigit() for sign in core):
            said = _DIGITS.sub("0", core.lower())
        else:
            said = core.lower()
        tail, lead = ("-" if sign.isalnum() else sign for sign in (word[-1], word[0]))
        newline = at > 0 and "\n" in text[spans[at - 1][1] : spans[at][0]]
        marks = (
            f"tail {tail}", f"lead {lead}", f"shape {_shape(core)}", f"begins {capital[at]:d}{newline:d}{at == 0:d}",
            f"own {core != bare[at]:d}",
        )  # fmt: skip
        found.append(np.array([*_said_buckets(said), *map(_bucket, marks)], np.int64))
    return found


def _shape(word: str) -> str:
    return _LOWER.sub("x", _UPPER.sub("X", _DIGITS.sub("0", word[:40])))[:8]


@lru_cache(maxsize=20_000)
def _bucket(text: str) -> int:
    return crc32(text.encode()) % TOKEN_BUCKETS


@lru_cache(maxsize=20_000)
def _said_buckets(word: str) -> tuple[int, ...]:
    whole = f"<{word[:20]}>"
    runs = [f"~{letters_of(word)}"] if word.isalpha() else []
    runs += [whole[at : at + size] for size in (3, 4) for at in range(len(whole) - size + 1)] if word.isalpha() else []
    return tuple(map(_bucket, (f"word {word[:40]}", *runs)))


def score_words(weights: Mapping[str, Floats32], rows: Sequence[Ints]) -> Floats32:
    """Return [T, 1 + roles + references]: log-odds that a sentence begins, and scores of roles and references."""
    table = weights["words"]
    x = np.stack([table[row].sum(0) / len(row) ** 0.5 for row in rows])
    h = _dense(weights, "first", x).clip(0)
    h = h + _dense(weights, "manner", h.mean(0, keepdims=True)).clip(0)
    for at, apart in enumerate(DILATIONS):
        wide = np.pad(h, ((apart, apart), (0, 0)))
        near = np.concatenate([wide[: len(h)], h, wide[2 * apart :]], 1)
        h = h + _dense(weights, f"around{at}", near).clip(0)
    return _dense(weights, "tags", h)


def _dense(weights: Mapping[str, Floats32], name: str, x: Floats32) -> Floats32:
    found: Floats32 = x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]
    return found
