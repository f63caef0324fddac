"""The boosted scorer: gradient-boosted trees that say how probably a candidate answer is right.

The trees (Friedman 2001) read what the conditional logit of `stopping_rule` thinks, who agrees, what the candidate
looks like beside the question, which texts mention it, and how long its supporters' texts are.
Invariants: trees are arrays of numbers, walked here with numpy alone; no column belongs to one worker, so workers can
be added and removed; a candidate's probability depends neither on how answers are numbered nor on tasks beside it;
probabilities sum to at most 1, and the rest is "none of them".
"""

from collections.abc import Sequence

import numpy as np

from shikisha.core.fast_dataclass import dataclass
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.state import NOT_ASKED, ArrayMap, DecisionState

# Columns of `candidate_features`.
NUM_CANDIDATE_FEATURES = 48
# The one with the conditional logit's own log odds.
LOGIT_COLUMN = 5
# Probabilities are kept away from 0 and 1 by this much before odds are taken.
_LEAST = 1e-4
# Rows that walk the trees at once, to bound memory.
_ROWS = 4096
_UNKNOWN = -1.0
_PREFIX = "boost "


@dataclass(frozen=True, slots=True)
class BoostedTrees:
    """[N trees, M nodes] each: the column that a node compares, its threshold, its two children, and its value.

    A value up to the threshold leads `left`. A leaf is its own child, and its value counts; the root is node 0. `start`
    are the log odds before the first tree.
    """

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats
    start: float

    def log_odds(self, features: Floats) -> Floats:
        """Return [R], the log odds of each row of features [R, NUM_CANDIDATE_FEATURES]."""
        parts = [self._walk(features[first : first + _ROWS]) for first in range(0, len(features), _ROWS)]
        return np.concatenate([np.zeros(0), *parts])

    def _walk(self, features: Floats) -> Floats:
        trees, nodes = self.feature.shape
        roots = np.arange(trees) * nodes
        left, right = ((child + roots[:, None]).ravel() for child in (self.left, self.right))
        feature, threshold = self.feature.ravel(), self.threshold.ravel()
        flat, first = np.ascontiguousarray(features).ravel(), (np.arange(len(features)) * features.shape[1])[:, None]
        place = np.broadcast_to(roots, (len(features), trees))
        for _ in range(nodes):
            low = flat[first + feature[place]] <= threshold[place]
            below = np.where(low, left[place], right[place])
            if (below == place).all():
                break
            place = below
        total: Floats = self.value.ravel()[place].sum(axis=1) + self.start
        return total

    def to_arrays(self) -> ArrayMap:
        """Return its arrays, named like `boost left`."""
        arrays = {
            "feature": self.feature.astype(float),
            "threshold": self.threshold,
            "left": self.left.astype(float),
            "right": self.right.astype(float),
            "value": self.value,
            "start": np.array([self.start]),
        }
        return {_PREFIX + name: array for name, array in arrays.items()}

    @classmethod
    def of(cls, arrays: ArrayMap) -> "BoostedTrees | None":
        """Return the trees with these arrays; None where there are none."""
        if f"{_PREFIX}feature" not in arrays:
            return None
        feature, left, right = (arrays[_PREFIX + name].astype(np.int64) for name in ("feature", "left", "right"))
        threshold, value = arrays[f"{_PREFIX}threshold"], arrays[f"{_PREFIX}value"]
        return cls(feature, threshold, left, right, value, arrays[f"{_PREFIX}start"].item())


def boosted_posterior(
    log_odds: Floats, cells: tuple[Ints, Ints], posterior: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Return ([T, K], [T]): the probability of each candidate and of none, by the log odds of `cells` (task, code).

    `posterior` is that of the conditional logit. Where the candidates' probabilities sum to more than 1, they share it.
    """
    answers, none = np.zeros_like(posterior[0]), posterior[1].copy()
    answers[cells] = 1 / (1 + np.exp(-np.clip(log_odds, -30, 30)))
    total = answers.sum(axis=1)
    given = total > 0
    answers /= np.maximum(1.0, total)[:, None]
    none[given] = np.maximum(0.0, 1 - total[given])
    return answers, none


def candidate_features(
    state: DecisionState, asked: Sequence[int], posterior: tuple[Floats, Floats]
) -> tuple[tuple[Ints, Ints], Floats]:
    """Return the cells (task, code) of all candidates given, and their features [R, NUM_CANDIDATE_FEATURES]."""
    answers, none = posterior
    columns = np.array(asked, np.int64)
    codes = state.codes[:, columns]
    table = np.zeros((len(codes), answers.shape[1]), np.int64)
    rows, places = np.nonzero(codes >= 0)
    np.add.at(table, (rows, codes[rows, places]), 1)
    tasks, own = np.nonzero(table)
    if not len(tasks):
        return (tasks, own), np.zeros((0, NUM_CANDIDATE_FEATURES))
    supports = codes[tasks] == own[:, None]
    disagrees = (codes[tasks] >= 0) & ~supports
    features = [
        _vote_features(table, (tasks, own), supports | disagrees),
        _belief_features(answers, none, (tasks, own)),
        np.concatenate([state.batch.types[tasks, None], state.batch.shape[tasks]], axis=1),
        _evidence_features(state, (tasks, own), columns, supports),
        _text_features(state, (tasks, columns), supports, disagrees),
    ]
    return (tasks, own), np.concatenate(features, axis=1)


def _vote_features(table: Ints, cells: tuple[Ints, Ints], answered: Flags) -> Floats:
    """Supporters, answers, the share of supporters, the largest rival's, the number of rivals."""
    tasks, own = cells
    votes, given = table[cells], answered.sum(axis=1)
    rivals = table[tasks]
    rivals[np.arange(len(tasks)), own] = 0
    counts = [votes, given, votes / np.maximum(1, given), rivals.max(axis=1), (rivals > 0).sum(axis=1)]
    return np.stack(counts, axis=1).astype(float)


def _belief_features(answers: Floats, none: Floats, cells: tuple[Ints, Ints]) -> Floats:
    """What the conditional logit thinks: own log odds, the best rival, none, own less the rival."""
    tasks, own = cells
    chance = answers[cells]
    rivals = answers[tasks]
    rivals[np.arange(len(tasks)), own] = 0
    clipped, best = np.clip(chance, _LEAST, 1 - _LEAST), rivals.max(axis=1)
    return np.stack([np.log(clipped / (1 - clipped)), best, none[tasks], chance - best], axis=1)


def _evidence_features(state: DecisionState, cells: tuple[Ints, Ints], columns: Ints, supports: Flags) -> Floats:
    """The candidate's looks, and who mentions it: in all, beside supporters, where last, by letter, text lengths."""
    evidence, (tasks, own) = state.evidence, cells
    if evidence is None:
        raise ValueError("the state has no evidence about answers")
    said = evidence.mentions[tasks[:, None], columns[None], own[:, None]].astype(float)
    written = evidence.written[tasks][:, columns].astype(float)
    kept = (written > 0) & (state.codes[tasks][:, columns] != NOT_ASKED)
    times, last, letters = (np.where(kept, said[:, :, place], 0.0) for place in range(3))
    named, backed = times > 0, supports & kept
    opposed = kept & ~supports
    mentions = [
        times.sum(axis=1),
        named.sum(axis=1),
        (named & opposed).sum(axis=1),
        (backed & ~named).sum(axis=1),
        np.where(kept, last, 1.0).min(axis=1),
        (letters * opposed).sum(axis=1),
        (letters * backed).sum(axis=1) / np.maximum(1, backed.sum(axis=1)),
        _masked_mean(written, backed),
        _masked_mean(written, opposed),
    ]
    return np.concatenate([evidence.looks[tasks, own].astype(float), np.stack(mentions, axis=1)], axis=1)


def _text_features(state: DecisionState, at: tuple[Ints, Ints], supports: Flags, disagrees: Flags) -> Floats:
    """Output lengths of supporters (mean, largest) and of all."""
    tasks, columns = at
    tokens = np.log1p(state.tokens[tasks][:, columns])
    known = ~np.isnan(tokens) & (state.codes[tasks][:, columns] != NOT_ASKED)
    filled = np.nan_to_num(tokens)
    backed = known & supports
    return np.stack(
        [
            _masked_mean(filled, backed),
            np.where(backed, filled, _UNKNOWN).max(axis=1),
            _masked_mean(filled, known & (supports | disagrees)),
        ],
        axis=1,
    )


def _masked_mean(values: Floats, mask: Flags) -> Floats:
    count = mask.sum(axis=1)
    mean: Floats = np.where(count > 0, (values * mask).sum(axis=1) / np.maximum(1, count), _UNKNOWN)
    return mean
