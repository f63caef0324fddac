"""The router rule: the table rule, adjusted by what the prompt says. It asks one worker and ships its answer.

Utility(T, M) = success(type, M) + adjustment(prompt, M) - price * cost(type, M). For logs with scores but without
answers, where agreement cannot be learned. An adjustment is linear in hashed words and in standardized surface features
and quadratic in the latter; one map holds for all tasks, others for one type. Invariants: with zero maps it decides as
its table does; unknown words, outlying features and unknown types adjust nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.state import NO_ANSWER, NO_WORKER, SHIP, Actions, ArrayMap, DecisionState, TaskBatch
from shikisha.routing.table_rule import TableRule
from shikisha.routing.text_features import NUM_SHAPE_FEATURES, HashedWords

# Features are clipped at this many standard deviations.
MAX_DEVIATIONS = 3.0
# Fewer buckets suffice for what the few tasks of a type can tell.
WORD_BUCKETS = 2**12
# The kind of a map for all tasks.
ALL_TYPES = -1
_TABLE, _MAPS = "table/", "maps/"


@dataclass(frozen=True, slots=True)
class PromptVocabulary:
    """The words that count: `places` [V], ascending, and their inverse document frequency, `rarity` [V]."""

    places: Ints
    rarity: Floats

    def read(self, words: HashedWords) -> HashedWords:
        """Return the known words by their index here, weighted by rarity; a row has length 1, or no word."""
        if not len(self.places):
            return HashedWords(np.zeros_like(words.starts), words.places[:0], words.weights[:0])
        index = np.minimum(np.searchsorted(self.places, words.places), len(self.places) - 1)
        known = self.places[index] == words.places
        starts = np.concatenate([[0], np.cumsum(known)])[words.starts].astype(np.int64)
        return HashedWords(starts, index[known].astype(np.int64), words.weights[known]).scaled(self.rarity)

    def bucketed(self, read: HashedWords) -> HashedWords:
        """Return what was `read` with its words in WORD_BUCKETS places."""
        return HashedWords(read.starts, self.places[read.places] % WORD_BUCKETS, read.weights)


@dataclass(frozen=True, slots=True)
class FeatureScale:
    """Standardization of surface features: `middle` [NUM_SHAPE_FEATURES], and `inverse` spread, 0 for constant ones."""

    middle: Floats
    inverse: Floats

    def of(self, features: Floats) -> Floats:
        """Return standardized features [T, NUM_SHAPE_FEATURES], divided so that rows have about unit length."""
        differ = max(1, int((self.inverse > 0).sum()))
        scaled: Floats = np.clip((features - self.middle) * self.inverse, -MAX_DEVIATIONS, MAX_DEVIATIONS) / np.sqrt(
            differ
        )
        return scaled


@dataclass(frozen=True, slots=True)
class SuccessMap:
    """Adjustment for tasks of one `kind`, or ALL_TYPES, with S = NUM_SHAPE_FEATURES.

    `lines` [S, J], `squares` [J, S, S] and `words` [WORD_BUCKETS, J] are weights; `shift` [J] is the adjustment of a
    task without features.
    """

    kind: int
    scale: FeatureScale
    lines: Floats
    squares: Floats
    words: Floats
    shift: Floats

    def of(self, features: Floats, words: HashedWords) -> Floats:
        """Return [T, J]."""
        adjustment: Floats = (
            evaluate_quadratic(self.scale.of(features), self.lines, self.squares)
            + _words_times(words, self.words)
            + self.shift
        )
        return adjustment

    def times(self, share: float) -> "SuccessMap":
        """Return the map scaled by this share."""
        arrays = (self.lines, self.squares, self.words, self.shift)
        return SuccessMap(self.kind, self.scale, *(share * array for array in arrays))


@dataclass(frozen=True, slots=True)
class SuccessMaps:
    """The vocabulary, the weights of its words for all tasks [V, J], and the maps."""

    lexicon: PromptVocabulary
    weights: Floats
    maps: tuple[SuccessMap, ...] = ()

    def of(self, batch: TaskBatch) -> Floats:
        """Return [T, J]: the adjustment of each worker's success by each prompt."""
        adjustment = np.zeros((len(batch), self.weights.shape[1]))
        if not len(self.lexicon.places) and not self.maps:
            return adjustment
        read = self.lexicon.read(batch.grams)
        adjustment += _words_times(read, self.weights)
        words = self.lexicon.bucketed(read)
        for success_map in self.maps:
            rows = np.flatnonzero((batch.types == success_map.kind) | (success_map.kind == ALL_TYPES))
            if len(rows):
                adjustment[rows] += success_map.of(batch.looks[rows], words.at(rows))
        return adjustment

    def to_arrays(self) -> dict[str, Floats]:
        """Return their arrays; those of the maps are stacked."""
        maps, workers = self.maps, self.weights.shape[1]
        return {
            "places": self.lexicon.places.astype(np.float64),
            "rarity": self.lexicon.rarity,
            "weights": self.weights,
            "kinds": np.array([success_map.kind for success_map in maps], float),
            "middles": _stack_arrays([success_map.scale.middle for success_map in maps], (NUM_SHAPE_FEATURES,)),
            "inverses": _stack_arrays([success_map.scale.inverse for success_map in maps], (NUM_SHAPE_FEATURES,)),
            "lines": _stack_arrays([success_map.lines for success_map in maps], (NUM_SHAPE_FEATURES, workers)),
            "squares": _stack_arrays(
                [success_map.squares for success_map in maps], (workers, NUM_SHAPE_FEATURES, NUM_SHAPE_FEATURES)
            ),
            "words": _stack_arrays([success_map.words for success_map in maps], (WORD_BUCKETS, workers)),
            "shifts": _stack_arrays([success_map.shift for success_map in maps], (workers,)),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> "SuccessMaps":
        """Return the maps with these arrays."""
        maps = [
            SuccessMap(int(kind), FeatureScale(arrays["middles"][place], arrays["inverses"][place]), *weights)
            for place, (kind, *weights) in enumerate(
                zip(*(arrays[name] for name in ("kinds", "lines", "squares", "words", "shifts")), strict=True)
            )
        ]
        return cls(
            PromptVocabulary(arrays["places"].astype(np.int64), arrays["rarity"]), arrays["weights"], tuple(maps)
        )


def evaluate_quadratic(scaled: Floats, lines: Floats, squares: Floats) -> Floats:
    """Return [T, J], linear plus quadratic terms of scaled features."""
    curved = [((scaled @ square) * scaled).sum(axis=1) for square in squares]
    return np.asarray(scaled @ lines + np.stack(curved, axis=1), np.float64)


def zero_maps(workers: int) -> SuccessMaps:
    """Return maps that adjust nothing."""
    return SuccessMaps(PromptVocabulary(np.zeros(0, np.int64), np.zeros(0)), np.zeros((0, workers)))


def _words_times(rows: HashedWords, matrix: Floats) -> Floats:
    """Return [T, J], words times a matrix by place, with a fast path for one prompt: a live decision is about one."""
    if len(rows) == 1:
        return np.asarray((rows.weights @ matrix[rows.places])[None], np.float64)
    return rows.times(matrix)


def _stack_arrays(arrays: list[Floats], shape: tuple[int, ...]) -> Floats:
    return np.array(arrays, float).reshape(len(arrays), *shape)


@dataclass(frozen=True, slots=True)
class RouterRule:
    """A table, whose prices are the settings, and maps of prompts."""

    kind: ClassVar[str] = "router"
    table: TableRule
    maps: SuccessMaps

    @property
    def settings(self) -> int:
        """One for each price."""
        return self.table.settings

    def success(self, batch: TaskBatch) -> Floats:
        """Return [T, J], the estimated success of each worker."""
        success: Floats = self.table.success[batch.types] + self.maps.of(batch)
        return success

    def worker_offsets(self, batch: TaskBatch) -> Floats:
        """Return [T, J], the adjustment of each worker's utility for its type."""
        moved: Floats = self.maps.of(batch) + self.table.task_offsets(batch)
        return moved

    def act(self, state: DecisionState, setting: int) -> Actions:
        """Ask the available worker with the highest utility, then ship its answer."""
        asked = state.asked
        answered = asked & (state.codes > NO_ANSWER)
        ship = np.where(answered.any(axis=1), answered.argmax(axis=1), NO_WORKER)
        ask = np.full(len(state), SHIP, np.int64)
        rows = np.flatnonzero(~asked.any(axis=1))
        if len(rows) and state.may_ask.any():
            ask[rows] = self._best(state.batch.at(rows), setting, state)
        return Actions(ask, ship)

    def _best(self, batch: TaskBatch, setting: int, state: DecisionState) -> Ints:
        worth = self.table.worth(setting)[batch.types] + self.worker_offsets(batch) - state.pressures()
        return np.asarray(np.where(state.may_ask, worth, -np.inf).argmax(axis=1), np.int64)

    def to_arrays(self) -> ArrayMap:
        """Return its arrays."""
        return {_TABLE + name: array for name, array in self.table.to_arrays().items()} | {
            _MAPS + name: array for name, array in self.maps.to_arrays().items()
        }

    @classmethod
    def of(cls, arrays: ArrayMap) -> "RouterRule":
        """Return the router with these arrays."""
        return cls(TableRule.of(_strip_prefix(_TABLE, arrays)), SuccessMaps.from_arrays(_strip_prefix(_MAPS, arrays)))


def _strip_prefix(prefix: str, arrays: ArrayMap) -> dict[str, Floats]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
