"""Maps: how far a prompt moves what each worker's success is thought to be, by its words and by its looks.

A map is linear in words, in standardised looks (`shapes`) and in products of two of them; one is for every task, others
are for the tasks of one type. Invariants: what a prompt says that was never seen moves nothing (unknown words, far-off
looks, an unknown type); one prompt is moved alike alone and among others. Deliberately absent: fitting, and how far the
maps are trusted (both in `learn`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import Batch
from shikisha.policy.shapes import SHAPES
from shikisha.policy.words import Words

FAR = 3.0  # standard deviations beyond which looks are not told apart
BUCKETS = 2**12  # places of words in a map: what few tasks can tell needs no more
ALL = -1  # the kind of a map that is for every task


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The words that count: `places` [V], ascending, and how rare each is, `rarity` [V]."""

    places: Ints
    rarity: Floats

    def read(self, words: Words) -> Words:
        """Return the known words by their index here, weighed by rarity; a row has length 1, or no word."""
        if not len(self.places):
            return Words(np.zeros_like(words.starts), words.places[:0], words.weights[:0])
        found = np.minimum(np.searchsorted(self.places, words.places), len(self.places) - 1)
        known = self.places[found] == words.places
        starts = np.concatenate([[0], np.cumsum(known)])[words.starts].astype(np.int64)
        return Words(starts, found[known].astype(np.int64), words.weights[known]).scaled(self.rarity)

    def bucketed(self, read: Words) -> Words:
        """Return what was `read` with its words in BUCKETS places."""
        return Words(read.starts, self.places[read.places] % BUCKETS, read.weights)


@dataclass(frozen=True, slots=True)
class Scale:
    """What looks are usual: `middle` [SHAPES], and one over the `spread`, 0 for looks that hardly ever differ."""

    middle: Floats
    inverse: Floats

    def of(self, looks: Floats) -> Floats:
        """Return looks [T, SHAPES] in standard deviations, all divided by what makes rows about 1 long."""
        differ = max(1, int((self.inverse > 0).sum()))
        scaled: Floats = np.clip((looks - self.middle) * self.inverse, -FAR, FAR) / np.sqrt(differ)
        return scaled


@dataclass(frozen=True, slots=True)
class Map:
    """For tasks of one `kind`, or ALL: `lines` [SHAPES, J], `squares` [J, SHAPES, SHAPES], `words` [BUCKETS, J].

    `shift` [J] is what it moves a task that has nothing to go by.
    """

    kind: int
    scale: Scale
    lines: Floats
    squares: Floats
    words: Floats
    shift: Floats

    def of(self, looks: Floats, words: Words) -> Floats:
        """Return [T, J]."""
        moved: Floats = drawn(self.scale.of(looks), self.lines, self.squares) + _times(words, self.words) + self.shift
        return moved

    def times(self, share: float) -> "Map":
        """Return a map that moves this share as far."""
        arrays = (self.lines, self.squares, self.words, self.shift)
        return Map(self.kind, self.scale, *(share * array for array in arrays))


@dataclass(frozen=True, slots=True)
class Maps:
    """The words that count, each one's own weights for every task, [V, J], and the maps."""

    lexicon: Lexicon
    weights: Floats
    maps: tuple[Map, ...] = ()

    def of(self, batch: Batch) -> Floats:
        """Return [T, J]: how far each prompt moves each worker's success."""
        moved = np.zeros((len(batch), self.weights.shape[1]))
        if not len(self.lexicon.places) and not self.maps:
            return moved
        read = self.lexicon.read(batch.grams)
        moved += _times(read, self.weights)
        words = self.lexicon.bucketed(read)
        for one in self.maps:
            rows = np.flatnonzero((batch.types == one.kind) | (one.kind == ALL))
            if len(rows):
                moved[rows] += one.of(batch.looks[rows], words.at(rows))
        return moved

    def held(self) -> dict[str, Floats]:
        """Return their arrays; those of the maps are stacked."""
        maps, workers = self.maps, self.weights.shape[1]
        return {
            "places": self.lexicon.places.astype(np.float64),
            "rarity": self.lexicon.rarity,
            "weights": self.weights,
            "kinds": np.array([one.kind for one in maps], float),
            "middles": _stacked([one.scale.middle for one in maps], (SHAPES,)),
            "inverses": _stacked([one.scale.inverse for one in maps], (SHAPES,)),
            "lines": _stacked([one.lines for one in maps], (SHAPES, workers)),
            "squares": _stacked([one.squares for one in maps], (workers, SHAPES, SHAPES)),
            "words": _stacked([one.words for one in maps], (BUCKETS, workers)),
            "shifts": _stacked([one.shift for one in maps], (workers,)),
        }

    @classmethod
    def kept(cls, held: Mapping[str, Floats]) -> "Maps":
        """Return the maps that `held` wrote."""
        maps = [
            Map(int(kind), Scale(held["middles"][place], held["inverses"][place]), *arrays)
            for place, (kind, *arrays) in enumerate(
                zip(*(held[name] for name in ("kinds", "lines", "squares", "words", "shifts")), strict=True)
            )
        ]
        return cls(Lexicon(held["places"].astype(np.int64), held["rarity"]), held["weights"], tuple(maps))


def drawn(scaled: Floats, lines: Floats, squares: Floats) -> Floats:
    """Return [T, J], what lines and squares come to on scaled looks."""
    curved = [((scaled @ square) * scaled).sum(axis=1) for square in squares]
    return np.asarray(scaled @ lines + np.stack(curved, axis=1), np.float64)


def unmoved(workers: int) -> Maps:
    """Return maps that move nothing."""
    return Maps(Lexicon(np.zeros(0, np.int64), np.zeros(0)), np.zeros((0, workers)))


def _times(words: Words, matrix: Floats) -> Floats:
    """Return [T, J], words times a matrix by place; of one prompt at once, since a decision is about one."""
    if len(words) == 1:
        return np.asarray((words.weights @ matrix[words.places])[None], np.float64)
    return words.times(matrix)


def _stacked(arrays: list[Floats], shape: tuple[int, ...]) -> Floats:
    return np.array(arrays, float).reshape(len(arrays), *shape)
