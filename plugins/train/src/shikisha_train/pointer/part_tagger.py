"""A tagger over the words of a task: where a sentence begins, what each word is part of, and how many results it uses.

A small transformer. A word goes in as what it says (hashed words and runs of letters), its marks and its shape; what
stands beside it is mixed in, and layers of attention look at the whole text. Heads differ in how far they look, and in
which direction, by a fixed slope (ALiBi), so that a text longer than those of the lessons is read alike. On top, a
layer says of each word whether a sentence begins there, and another one what a stretch of words is as a whole. It is
pretrained on what people wrote (`recipes/reader_trunk.md`) and taught by lessons (`training/task_reader_fit`). A
test holds the pass in numpy against that of training.

Invariants: the same text is tagged alike on every machine (CRC-32, not `hash`); work is bounded by the words of a text
(`task_reader.MAX_TEXT_WORDS`). Deliberately absent: choosing one reading from the scores (`task_reader`).
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from zlib import crc32

import numpy as np

from shikisha.routing.arrays import Floats32, Ints

TOKEN_BUCKETS, TOKEN_WIDTH, TAG_HIDDEN, TAG_INNER, TAG_LAYERS = 2**15, 112, 192, 512, 6
STRETCH_HIDDEN = 128
# How fast a head's attention falls with the distance to the left, and to the right.
HEAD_SLOPES = ((0.5, 0.5), (0.1, 1.0), (1.0, 0.1), (0.1, 0.1), (0.02, 0.02), (0.0, 0.0))
SMALLEST = 1e-6  # added to a mean square before its root is divided by
END_MARKS = ".?!:;"
TEXT_BEGINS, LINE_BEGINS, WORD_HIDDEN = "begins text", "begins line", "hidden"
_MARKS = END_MARKS + ",\"'()[]-_/"
_LOWER, _UPPER, _DIGITS = re.compile("[a-z]+"), re.compile("[A-Z]+"), re.compile(r"\d+")


def letters_of(word: str) -> str:
    """Return a word's first letter and its others in order of the alphabet: the same after two letters were swapped."""
    return word if not word.isalpha() else word[0] + "".join(sorted(word[1:20]))


def trunk_sizes() -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight that pretraining fits: all but the last layer's."""
    sizes: dict[str, tuple[int, ...]] = {"words": (TOKEN_BUCKETS, TOKEN_WIDTH)}
    for name, wide, narrow in (("first", TOKEN_WIDTH, TAG_HIDDEN), ("beside", 3 * TAG_HIDDEN, TAG_HIDDEN)):
        sizes[f"{name}.weight"], sizes[f"{name}.bias"] = (wide, narrow), (narrow,)
    for at in range(TAG_LAYERS):
        sizes[f"look{at}.norm"], sizes[f"think{at}.norm"] = (TAG_HIDDEN,), (TAG_HIDDEN,)
        sizes[f"look{at}.in"], sizes[f"look{at}.out"] = (TAG_HIDDEN, 3 * TAG_HIDDEN), (TAG_HIDDEN, TAG_HIDDEN)
        sizes[f"think{at}.in"], sizes[f"think{at}.out"] = (TAG_HIDDEN, TAG_INNER), (TAG_INNER, TAG_HIDDEN)
        sizes[f"think{at}.bias"] = (TAG_INNER,)
    sizes["norm"] = (TAG_HIDDEN,)
    return sizes


def tagger_sizes(roles: int, references: int) -> dict[str, tuple[int, ...]]:
    """Return each weight's shape for so many roles of a stretch (the last: none) and numbers of results it uses."""
    return {
        **trunk_sizes(),
        "begins.weight": (TAG_HIDDEN, 1),
        "begins.bias": (1,),
        "stretch.weight": (4 * TAG_HIDDEN, STRETCH_HIDDEN),
        "stretch.bias": (STRETCH_HIDDEN,),
        "roles.weight": (STRETCH_HIDDEN, roles + references),
        "roles.bias": (roles + references,),
    }


def token_features(text: str, spans: Sequence[tuple[int, int]]) -> list[Ints]:
    """Return the buckets of each word of a text."""
    found = []
    for at, (start, end) in enumerate(spans):
        row = word_buckets(text[start:end])
        if at == 0 or "\n" in text[spans[at - 1][1] : start]:
            row = (*row, bucket_of(TEXT_BEGINS if at == 0 else LINE_BEGINS))
        found.append(np.array(row, np.int64))
    return found


@lru_cache(maxsize=20_000)
def word_buckets(word: str) -> tuple[int, ...]:
    """Return the buckets of a word by itself: what it says, its runs of letters, its marks, its shape."""
    bare = word.strip(_MARKS) or word
    core = bare.removesuffix("'s")
    capital = word[:1].isupper() and not word.isupper()
    said = _DIGITS.sub("0", core.lower())
    whole = f"<{said[:20]}>"
    runs = [f"~{letters_of(said)}"] if said.isalpha() else []
    if any(sign.isalpha() for sign in said):
        runs += [whole[at : at + size] for size in (3, 4) for at in range(len(whole) - size + 1)]
    tail, lead = ("-" if sign.isalnum() else sign for sign in (word[-1], word[0]))
    marks = (f"tail {tail}", f"lead {lead}", f"shape {_shape(core)}", f"own {core != bare:d}{capital:d}")
    return tuple(map(bucket_of, (f"word {said[:40]}", *runs, *marks)))


def _shape(word: str) -> str:
    return _LOWER.sub("x", _UPPER.sub("X", _DIGITS.sub("0", word[:40])))[:8]


@lru_cache(maxsize=20_000)
def bucket_of(text: str) -> int:
    """Return the row that a feature has in the table of words."""
    return crc32(text.encode()) % TOKEN_BUCKETS


def far_bias(words: int) -> Floats32:
    """Return [heads, T, T]: what is taken from a head's attention by the distance from one word to another."""
    apart = np.arange(words)[None, :] - np.arange(words)[:, None]
    left, right = np.maximum(-apart, 0), np.maximum(apart, 0)
    return np.stack([-(one * left + two * right) for one, two in HEAD_SLOPES]).astype(np.float32)


def score_begins(weights: Mapping[str, Floats32], h: Floats32) -> Floats32:
    """Return [T]: log-odds that a sentence begins at each word; `h` is what `encode_words` gives."""
    return _dense(weights, "begins", h)[:, 0]


def score_stretches(weights: Mapping[str, Floats32], h: Floats32, starts: Ints, ends: Ints) -> Floats32:
    """Return [S, roles + references]: what each stretch of words, from a start to before an end, is for."""
    sums = np.concatenate([np.zeros((1, h.shape[1]), np.float32), h.cumsum(0)])
    after = np.concatenate([h, np.zeros((1, h.shape[1]), np.float32)])
    mean = (sums[ends] - sums[starts]) / (ends - starts)[:, None]
    x = np.concatenate([mean, h[starts], h[ends - 1], after[ends]], 1)
    return _dense(weights, "roles", _dense(weights, "stretch", x).clip(0))


def encode_words(weights: Mapping[str, Floats32], rows: Sequence[Ints]) -> Floats32:
    """Return [T, TAG_HIDDEN]: each word in its text."""
    table = weights["words"]
    x = _dense(weights, "first", np.stack([table[row].sum(0) / len(row) ** 0.5 for row in rows]))
    wide = np.pad(x, ((1, 1), (0, 0)))
    h = x + _dense(weights, "beside", np.concatenate([wide[:-2], x, wide[2:]], 1)).clip(0)
    count, heads = len(h), len(HEAD_SLOPES)
    bias, scale = far_bias(count), (TAG_HIDDEN / heads) ** -0.5
    for at in range(TAG_LAYERS):
        asked = _normed(weights, f"look{at}.norm", h) @ weights[f"look{at}.in"]
        query, key, value = asked.reshape(count, 3, heads, -1).transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1) * scale + bias
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (scores / scores.sum(-1, keepdims=True)) @ value
        h = h + seen.transpose(1, 0, 2).reshape(count, -1) @ weights[f"look{at}.out"]
        thought = _normed(weights, f"think{at}.norm", h) @ weights[f"think{at}.in"] + weights[f"think{at}.bias"]
        h = h + thought.clip(0) @ weights[f"think{at}.out"]
    return _normed(weights, "norm", h)


def _normed(weights: Mapping[str, Floats32], name: str, x: Floats32) -> Floats32:
    found: Floats32 = x / np.sqrt((x * x).mean(-1, keepdims=True) + SMALLEST) * weights[name]
    return found


def _dense(weights: Mapping[str, Floats32], name: str, x: Floats32) -> Floats32:
    found: Floats32 = x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]
    return found
