"""The router: the rule of a task's type, moved by what the prompt says; one worker is asked, and its answer shipped.

R(T) = success(type, M) + moved(prompt, M) - price * cost(type, M). For logs that have scores only, where nothing can be
learned from whether answers agree. Invariant: with maps that move nothing it does what its table does, to the task.
Deliberately absent: second opinions, and what a prompt does to cost.

Maps: how far a prompt moves what each worker's success is thought to be, by its words and by its looks.

A map is linear in words, in standardised looks (`shapes`) and in products of two of them; one is for every task, others
are for the tasks of one type. Invariants: what a prompt says that was never seen moves nothing (unknown words, far-off
looks, an unknown type); one prompt is moved alike alone and among others. Deliberately absent: fitting, and how far the
maps are trusted (both in `learn`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.state import NO_ANSWER, NO_WORKER, SHIP, Actions, ArrayMap, DecisionState, TaskBatch
from shikisha.routing.table_rule import TableRule
from shikisha.routing.text_features import NUM_SHAPE_FEATURES, HashedWords

MAX_DEVIATIONS = 3.0  # standard deviations beyond which looks are not told apart
WORD_BUCKETS = 2**12  # places of words in a map: what few tasks can tell needs no more
ALL_TYPES = -1  # the kind of a map that is for every task


@dataclass(frozen=True, slots=True)
class PromptVocabulary:
    """The words that count: `places` [V], ascending, and how rare each is, `rarity` [V]."""

    places: Ints
    rarity: Floats

    def read(self, words: HashedWords) -> HashedWords:
        """Return the known words by their index here, weighed by rarity; a row has length 1, or no word."""
        if not len(self.places):
            return HashedWords(np.zeros_like(words.starts), words.places[:0], words.weights[:0])
        found = np.minimum(np.searchsorted(self.places, words.places), len(self.places) - 1)
        known = self.places[found] == words.places
        starts = np.concatenate([[0], np.cumsum(known)])[words.starts].astype(np.int64)
        return HashedWords(starts, found[known].astype(np.int64), words.weights[known]).scaled(self.rarity)

    def bucketed(self, read: HashedWords) -> HashedWords:
        """Return what was `read` with its words in BUCKETS places."""
        return HashedWords(read.starts, self.places[read.places] % WORD_BUCKETS, read.weights)


@dataclass(frozen=True, slots=True)
class FeatureScale:
    """What looks are usual: `middle` [SHAPES], and one over the `spread`, 0 for looks that hardly ever differ."""

    middle: Floats
    inverse: Floats

    def of(self, looks: Floats) -> Floats:
        """Return looks [T, SHAPES] in standard deviations, all divided by what makes rows about 1 long."""
        differ = max(1, int((self.inverse > 0).sum()))
        scaled: Floats = np.clip((looks - self.middle) * self.inverse, -MAX_DEVIATIONS, MAX_DEVIATIONS) / np.sqrt(
            differ
        )
        return scaled


@dataclass(frozen=True, slots=True)
class SuccessMap:
    """For tasks of one `kind`, or ALL: `lines` [SHAPES, J], `squares` [J, SHAPES, SHAPES], `words` [BUCKETS, J].

    `shift` [J] is what it moves a task that has nothing to go by.
    """

    kind: int
    scale: FeatureScale
    lines: Floats
    squares: Floats
    words: Floats
    shift: Floats

    def of(self, looks: Floats, words: HashedWords) -> Floats:
        """Return [T, J]."""
        moved: Floats = (
            evaluate_quadratic(self.scale.of(looks), self.lines, self.squares)
            + _words_times(words, self.words)
            + self.shift
        )
        return moved

    def times(self, share: float) -> "SuccessMap":
        """Return a map that moves this share as far."""
        arrays = (self.lines, self.squares, self.words, self.shift)
        return SuccessMap(self.kind, self.scale, *(share * array for array in arrays))


@dataclass(frozen=True, slots=True)
class SuccessMaps:
    """The words that count, each one's own weights for every task, [V, J], and the maps."""

    lexicon: PromptVocabulary
    weights: Floats
    maps: tuple[SuccessMap, ...] = ()

    def of(self, batch: TaskBatch) -> Floats:
        """Return [T, J]: how far each prompt moves each worker's success."""
        moved = np.zeros((len(batch), self.weights.shape[1]))
        if not len(self.lexicon.places) and not self.maps:
            return moved
        read = self.lexicon.read(batch.grams)
        moved += _words_times(read, self.weights)
        words = self.lexicon.bucketed(read)
        for one in self.maps:
            rows = np.flatnonzero((batch.types == one.kind) | (one.kind == ALL_TYPES))
            if len(rows):
                moved[rows] += one.of(batch.looks[rows], words.at(rows))
        return moved

    def to_arrays(self) -> dict[str, Floats]:
        """Return their arrays; those of the maps are stacked."""
        maps, workers = self.maps, self.weights.shape[1]
        return {
            "places": self.lexicon.places.astype(np.float64),
            "rarity": self.lexicon.rarity,
            "weights": self.weights,
            "kinds": np.array([one.kind for one in maps], float),
            "middles": _stack_arrays([one.scale.middle for one in maps], (NUM_SHAPE_FEATURES,)),
            "inverses": _stack_arrays([one.scale.inverse for one in maps], (NUM_SHAPE_FEATURES,)),
            "lines": _stack_arrays([one.lines for one in maps], (NUM_SHAPE_FEATURES, workers)),
            "squares": _stack_arrays([one.squares for one in maps], (workers, NUM_SHAPE_FEATURES, NUM_SHAPE_FEATURES)),
            "words": _stack_arrays([one.words for one in maps], (WORD_BUCKETS, workers)),
            "shifts": _stack_arrays([one.shift for one in maps], (workers,)),
        }

    @classmethod
    def from_arrays(cls, held: Mapping[str, Floats]) -> "SuccessMaps":
        """Return the maps that `held` wrote."""
        maps = [
            SuccessMap(int(kind), FeatureScale(held["middles"][place], held["inverses"][place]), *arrays)
            for place, (kind, *arrays) in enumerate(
                zip(*(held[name] for name in ("kinds", "lines", "squares", "words", "shifts")), strict=True)
            )
        ]
        return cls(PromptVocabulary(held["places"].astype(np.int64), held["rarity"]), held["weights"], tuple(maps))


def evaluate_quadratic(scaled: Floats, lines: Floats, squares: Floats) -> Floats:
    """Return [T, J], what lines and squares come to on scaled looks."""
    curved = [((scaled @ square) * scaled).sum(axis=1) for square in squares]
    return np.asarray(scaled @ lines + np.stack(curved, axis=1), np.float64)


def zero_maps(workers: int) -> SuccessMaps:
    """Return maps that move nothing."""
    return SuccessMaps(PromptVocabulary(np.zeros(0, np.int64), np.zeros(0)), np.zeros((0, workers)))


def _words_times(words: HashedWords, matrix: Floats) -> Floats:
    """Return [T, J], words times a matrix by place; of one prompt at once, since a decision is about one."""
    if len(words) == 1:
        return np.asarray((words.weights @ matrix[words.places])[None], np.float64)
    return words.times(matrix)


def _stack_arrays(arrays: list[Floats], shape: tuple[int, ...]) -> Floats:
    return np.array(arrays, float).reshape(len(arrays), *shape)


_TABLE, _MAPS = "table/", "maps/"


@dataclass(frozen=True, slots=True)
class RouterRule:
    """A rule by type, whose prices are the settings, and maps by prompt."""

    kind: ClassVar[str] = "router"
    table: TableRule
    maps: SuccessMaps

    @property
    def settings(self) -> int:
        """One for each price."""
        return self.table.settings

    def success(self, batch: TaskBatch) -> Floats:
        """Return [T, J], what each worker's success is thought to be."""
        success: Floats = self.table.success[batch.types] + self.maps.of(batch)
        return success

    def worker_offsets(self, batch: TaskBatch) -> Floats:
        """Return [T, J], how far each task moves each worker's worth for its type."""
        moved: Floats = self.maps.of(batch) + self.table.task_offsets(batch)
        return moved

    def act(self, seen: DecisionState, setting: int) -> Actions:
        """Ask the one that is worth most of those who are there; then ship what it said."""
        asked = seen.asked
        said = asked & (seen.codes > NO_ANSWER)
        ship = np.where(said.any(axis=1), said.argmax(axis=1), NO_WORKER)
        ask = np.full(len(seen), SHIP, np.int64)
        rows = np.flatnonzero(~asked.any(axis=1))
        if len(rows) and seen.may_ask.any():
            ask[rows] = self._best(seen.batch.at(rows), setting, seen.may_ask)
        return Actions(ask, ship)

    def _best(self, batch: TaskBatch, setting: int, may_ask: Flags) -> Ints:
        worth = self.table.worth(setting)[batch.types] + self.worker_offsets(batch)
        return np.asarray(np.where(may_ask, worth, -np.inf).argmax(axis=1), np.int64)

    def to_arrays(self) -> ArrayMap:
        """Return its arrays."""
        return {_TABLE + name: array for name, array in self.table.to_arrays().items()} | {
            _MAPS + name: array for name, array in self.maps.to_arrays().items()
        }

    @classmethod
    def of(cls, held: ArrayMap) -> "RouterRule":
        """Return the router that `held` wrote."""
        return cls(TableRule.of(_strip_prefix(_TABLE, held)), SuccessMaps.from_arrays(_strip_prefix(_MAPS, held)))


def _strip_prefix(prefix: str, held: ArrayMap) -> dict[str, Floats]:
    return {name.removeprefix(prefix): array for name, array in held.items() if name.startswith(prefix)}
