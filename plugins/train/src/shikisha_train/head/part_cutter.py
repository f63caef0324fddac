"""Cuts a task into its parts: linear scores of labels of its tokens, the best sequence of them, and the parts' order.

Labels are around the parts, first of a part, or inside one. Features are words, marks and shapes near a token.
Invariant: parts are stretches of the text in its own words, and the same text has the same parts. Time is linear in the
text, which its callers bound by `MAX_CHARACTERS`. Deliberately absent: what a part is about.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from zlib import crc32

import numpy as np

AROUND, FIRST, INSIDE = 0, 1, 2
BUCKETS, PLACES = 2**18, 2**12  # of features of tokens, and of parts' places
NEVER = -1e4
MAX_CHARACTERS = 20_000
_TOKEN = re.compile(r"\n|```\w*|\w+(?:['’]\w+)*|[^\w\s]")
Token = tuple[int, int, str]
Span = tuple[int, int]


def tokens(text: str) -> list[Token]:
    """Return words and marks with where they begin and end."""
    return [(each.start(), each.end(), each.group()) for each in _TOKEN.finditer(text)]


def _hash(names: Sequence[str], buckets: int) -> list[int]:
    return [crc32(name.encode()) % buckets for name in names]


def _shape(word: str) -> str:
    if word.isdigit():
        return "9"
    if word[0].isupper():
        return "Xx" if word[1:].islower() else "X"
    return "x" if word.isalpha() else word


def token_features(text: str) -> np.ndarray:
    """Return hashed features, shape (tokens, features): words near a token, and its sentence's ends and brackets."""
    low = [token[2].lower() for token in tokens(text)]
    shapes = [_shape(token[2]) for token in tokens(text)]
    starts, sentence = [0], []
    for at, word in enumerate(low):
        sentence.append(len(starts) - 1)
        if word in (".", "?", "!", ":", "\n"):
            starts.append(at + 1)
    starts.append(len(low))
    slashed = ["/" in low[begin:end] for begin, end in pairwise(starts)]
    depth = quoted = fenced = 0
    rows = []

    def word_at(at: int) -> str:
        return low[at] if 0 <= at < len(low) else "<none>"

    def pair(at: int) -> str:
        return f"{word_at(at)} {word_at(at + 1)}"

    for at, word in enumerate(low):
        depth += word == "("
        quoted ^= word == '"'
        fenced ^= word.startswith("```")
        begin, end = starts[sentence[at]], min(starts[sentence[at] + 1], len(low)) - 1
        before = starts[sentence[at] - 1] if sentence[at] else -9
        opens = at == begin
        names = [f"w{step}={word_at(at + step)}" for step in range(-5, 6)]
        names += [f"s{step}={shapes[at + step] if 0 <= at + step < len(low) else ''}" for step in range(-3, 4)]
        names += [f"p{step}={pair(at + step)}" for step in range(-3, 3)]
        names += [f"before={pair(at - 2)} {word}", f"after={word} {pair(at + 1)}", f"opening={pair(begin)}"]
        names += [f"ends={word_at(begin - 1)} {word_at(end)} {opens}", f"end={word_at(end)}"]
        names += [
            f"next={pair(end + 1)} {opens}",
            f"previous={pair(before)} {opens}",
            f"last={pair(begin - 2)} {opens}",
        ]
        names += [f"depth={min(depth, 2)}", f"quoted={quoted}", f"fenced={fenced}", f"begin={at == 0}", "always"]
        names += [
            f"length={min(end - begin, 12) // 3} {word_at(end)} {opens}",
            f"slash={slashed[sentence[at]]} {opens}",
        ]
        rows.append(_hash(names, BUCKETS))
        depth = max(0, depth - (word == ")"))
    return np.array(rows, dtype=np.int64).reshape(len(rows), -1 if rows else 0)


def place_features(text: str, spans: Sequence[Span]) -> list[list[int]]:
    """Return hashed features of each part in the order of the text: the words around it, and its place."""
    rows = []
    for at, (begin, end) in enumerate(spans):
        left = text[spans[at - 1][1] if at else 0 : begin]
        right = text[end : spans[at + 1][0] if at + 1 < len(spans) else len(text)]
        words = [f"left {token[2].lower()}" for token in tokens(left)[-6:]]
        words += [f"right {token[2].lower()}" for token in tokens(right)[:6]]
        size = len(spans)
        rows.append(_hash([f"{size} {at}", *words, *(f"{size} {at} {one}" for one in words)], PLACES))
    return rows


@dataclass(frozen=True)
class Cutter:
    """Weights of labels (buckets, 3), of a label after another (3, 3), and of places among the parts."""

    labels: np.ndarray
    moves: np.ndarray
    places: np.ndarray

    def cut(self, text: str) -> list[str]:
        """Return the parts, in the order in which answers are wanted."""
        spans = self._spans(text)
        ranks = order_of(self.places, text, spans)
        return [text[slice(*spans[ranks.index(rank)])].strip() for rank in range(len(spans))]

    def _spans(self, text: str) -> list[Span]:
        scores = self.labels[token_features(text)].sum(1)
        if not len(scores):
            return []
        best, back = scores[0] + [0.0, 0.0, NEVER], []
        for row in scores[1:]:
            paths = best[:, None] + self.moves
            back.append(paths.argmax(0))
            best = paths.max(0) + row
        label = int(best.argmax())
        labels = [label]
        for step in reversed(back):
            label = int(step[label])
            labels.append(label)
        spans: list[Span] = []
        for label, (begin, end, _) in zip(reversed(labels), tokens(text), strict=True):
            if label == FIRST:
                spans.append((begin, end))
            elif label == INSIDE and spans:
                spans[-1] = (spans[-1][0], end)
        return [span for span in spans if text[slice(*span)].strip()]


def order_of(places: np.ndarray, text: str, spans: Sequence[Span]) -> list[int]:
    """Return the rank of each part, in the order of the text; as they stand where there are not two or three."""
    size = len(spans)
    if size not in (2, 3):
        return list(range(size))
    scores = np.array([places[row].sum(0) for row in place_features(text, spans)])
    return list(
        max(permutations(range(size)), key=lambda ranks: sum(scores[at, rank] for at, rank in enumerate(ranks)))
    )
