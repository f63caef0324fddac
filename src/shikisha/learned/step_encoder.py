"""Texts of subtasks as vectors: hashed words and letters, weighed by rarity, projected on what varies in the journal.

Digits count as one sign, so that "invoice 8831" has the shape of every invoice; names of things say much about the kind
of work. `StepEncoder` is the one method that a better encoder has as well. Invariants: the same text has the same
vector on every machine, of length 1 or 0; encoding takes time linear in the first MAX_ENCODED_CHARACTERS; what is
stored is hashes of word parts, no text. Deliberately absent: anything pretrained.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Protocol
from zlib import crc32

import numpy as np

from shikisha.retrieval.terms import split_clauses
from shikisha.routing.arrays import Floats, Ints

MAX_ENCODED_CHARACTERS = 2_000
_MAX_FEATURES = 4_000
_BUCKETS = 2**18
_DIGIT = re.compile(r"\d")
_TOKEN = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*|[^\w\s]")
_GRAMS = (3, 4, 5)
_SHARPNESS = 15.0  # of a text's share in its kinds
_AXES_SCALE = 0.3  # of its place on the axes, next to its kinds
_KMEANS_STARTS, _KMEANS_ROUNDS = 4, 20


class StepEncoder(Protocol):
    """Turns texts into vectors, one row each."""

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the vectors, shape (texts, size)."""
        ...


@dataclass(frozen=True, eq=False)
class NgramEncoder:
    """`buckets` (ascending) with their `rarity`, the projection (buckets, axes), and `centres` (kinds, axes).

    A vector has the text's share in each kind of subtask, its place on the axes, which counts for less, and last how
    many clauses it has: a worker that does one part well may fail at three.
    """

    buckets: Ints
    rarity: Floats
    projection: Floats
    centres: Floats

    @cached_property
    def _ended(self) -> Ints:
        return np.append(self.buckets, -1)  # what is above all buckets is none of them

    @property
    def size(self) -> int:
        """The length of a vector."""
        return int(sum(self.centres.shape)) + 1

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the vectors."""
        places = self.project(texts)
        clauses = np.array([[(len(split_clauses(text)) - 1) / 3] for text in texts]).reshape(-1, 1)
        return np.hstack([self.shares(places), places * _AXES_SCALE, clauses])

    def shares(self, places: Floats) -> Floats:
        """Return to which kinds of subtasks projected texts belong, in shares that add up to 1."""
        near = _SHARPNESS * places @ self.centres.T
        weights = np.exp(near - near.max(axis=1, keepdims=True, initial=0.0))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def project(self, texts: Sequence[str]) -> Floats:
        """Return the texts on the axes, each of length 1 (0 where no part of a text is known)."""
        found = np.zeros((len(texts), self.projection.shape[1]))
        for row, text in enumerate(texts):
            grams = _buckets_of(text)
            places = np.searchsorted(self.buckets, grams)
            known = places[self._ended[places] == grams]
            weights = self.rarity[known]
            norm = float(np.sqrt(weights @ weights))
            if norm:
                found[row] = (weights / norm) @ self.projection[known]
        return _unit_rows(found)


@lru_cache(maxsize=4096)
def text_features(text: str) -> tuple[int, ...]:
    """Return the hashes of a text's words, pairs of words and parts of words, ascending."""
    words = _TOKEN.findall(_DIGIT.sub("0", text[:MAX_ENCODED_CHARACTERS].lower()))
    grams = {f"w {word}" for word in words} | {f"b {one} {two}" for one, two in pairwise(words)}
    for word in set(words):
        marked = f"<{word[:40]}>"
        grams |= {marked[at : at + size] for size in _GRAMS for at in range(len(marked) - size + 1)}
    return tuple(sorted({crc32(gram.encode()) % _BUCKETS for gram in grams}))


def _buckets_of(text: str) -> Ints:
    return np.array(text_features(text), dtype=np.int64)


def fit_encoder(texts: Sequence[str], size: int = 96, kinds: int = 14) -> NgramEncoder:
    """Return the encoder of these texts: the most telling word parts, the axes along which they differ, and kinds.

    Kinds are the centres of spherical k-means.
    """
    documents = [text_features(text) for text in dict.fromkeys(texts)]
    counts = Counter(bucket for document in documents for bucket in document)
    least = 2 if len(documents) > 20 else 1
    often = [(bucket, count) for bucket, count in counts.items() if count >= least]
    total = len(documents)
    weighed = sorted(often, key=lambda pair: (-pair[1] * np.log(1 + total / pair[1]), pair[0]))[:_MAX_FEATURES]
    buckets = np.array(sorted(bucket for bucket, _ in weighed), dtype=np.int64)
    rarity = np.array([np.log(1 + total / counts[int(bucket)]) for bucket in buckets])
    if not len(buckets):
        return NgramEncoder(buckets, rarity, np.zeros((0, 1)), np.zeros((1, 1)))
    column = {int(bucket): place for place, bucket in enumerate(buckets)}
    matrix = np.zeros((total, len(buckets)), dtype=np.float32)
    for row, document in enumerate(documents):
        known = [column[bucket] for bucket in document if bucket in column]
        matrix[row, known] = rarity[known]
    norms = np.sqrt((matrix**2).sum(axis=1, keepdims=True))
    matrix /= np.where(norms > 0, norms, 1.0)
    axes = _principal_axes(matrix, size)
    places = _unit_rows(matrix @ axes)
    return NgramEncoder(buckets, rarity, axes, _centres(places, min(kinds, total)))


def _centres(places: Floats, kinds: int) -> Floats:
    """Return the best of several k-means on the sphere, each begun far apart (k-means++)."""
    found = []
    for seed in range(_KMEANS_STARTS):
        rng = np.random.default_rng(seed)
        centres = places[rng.choice(len(places), 1)]
        while len(centres) < kinds:
            far = np.maximum(0, 1 - (places @ centres.T).max(axis=1))
            if far.sum() < 1e-9:
                break
            centres = np.vstack([centres, places[rng.choice(len(places), p=far / far.sum())]])
        for _ in range(_KMEANS_ROUNDS):
            nearest = (places @ centres.T).argmax(axis=1)
            sums = np.zeros_like(centres)
            np.add.at(sums, nearest, places)
            centres = _unit_rows(np.where(np.abs(sums).sum(axis=1, keepdims=True) > 0, sums, centres))
        found.append((float((places @ centres.T).max(axis=1).sum()), seed, centres))
    return max(found, key=lambda one: one[:2])[2]


def _unit_rows(rows: Floats) -> Floats:
    norms = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return np.asarray(rows / np.where(norms > 0, norms, 1.0), dtype=np.float64)


def _principal_axes(matrix: np.ndarray, size: int) -> Floats:
    """Return the axes of largest variance about zero, by the smaller Gram matrix; signs are fixed."""
    wide = matrix.shape[0] < matrix.shape[1]
    gram = (matrix @ matrix.T if wide else matrix.T @ matrix).astype(np.float64)
    values, vectors = np.linalg.eigh(gram)
    kept = [place for place in np.argsort(values)[::-1][:size] if values[place] > 1e-6]
    axes = vectors[:, kept]
    if wide:
        axes = matrix.T.astype(np.float64) @ axes / np.sqrt(values[kept])
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return np.asarray(axes * np.where(signs == 0, 1.0, signs), dtype=np.float64)
