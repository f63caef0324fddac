"""Likeness to known workers: when a worker with few outcomes is right, and whose wrong answers it shares.

A logistic model of being right (how many known workers are, which of them, the type) and a conditional logit of which
wrong answer is given (each known worker's, one of its own, none), both with a normal prior. The prior is empirical
Bayes: each known worker is fitted as if it were new, on what the others did; means and variances of what was found are
the prior of a new one, and the price a worker costs moves how able it is thought at first. Invariant: a worker's own
outcomes are never among what it is told from. Deliberately absent: names and descriptions, whose likeness explains a
fiftieth of the likeness of answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shikisha.learn.panel import Panel
from shikisha.learn.scoring import rightness
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOTHING

_HEAD = 2  # leading coefficients of being right: the constant, and how many others are
_TAIL = 4  # trailing coefficients of a wrong answer: of one's own, none; each plain and by difficulty
_LEAST = 0.01  # variance that a prior has at least
_DOUBT = 3.0  # times the variance of ability at a price: cheap and able workers are rarer than normal, and matter most
_LOOSE, _HELD = 1e-3, 1.0  # precisions while the known are fitted
_LOOKED_AT = 1_500  # wrong answers of a known worker
_AT_ONCE = 2_000  # tasks
_ROUNDS, _STILL = 30, 1e-6


@dataclass(frozen=True, slots=True)
class Prior:
    """Normal, each coefficient by itself: `mean` and `precision`, [p]."""

    mean: Floats
    precision: Floats


@dataclass(frozen=True, slots=True)
class Context:
    """What the known workers (places in the panel) did: `right` [T, C] of their answers, by code."""

    panel: Panel
    known: tuple[int, ...]
    right: Floats

    @classmethod
    def of(cls, panel: Panel, known: Sequence[int]) -> "Context":
        """Return the context of these workers."""
        right = rightness(panel.only([panel.workers[worker] for worker in known]))
        most = max(1, int(panel.codes.max(initial=0)) + 1)
        return cls(panel, tuple(known), np.pad(right, ((0, 0), (0, most - right.shape[1]))))

    def without(self, worker: int) -> "Context":
        """Return the context as it is for this worker."""
        return replace(self, known=tuple(other for other in self.known if other != worker))

    def ease(self) -> Floats:
        """[T]: the log odds of the share of the known workers who are right."""
        won, there = self._won()
        share = (won.sum(axis=1) + 0.5) / (there.sum(axis=1) + 1)
        return np.asarray(np.log(share / (1 - share)), np.float64)

    def of_being_right(self) -> Floats:
        """Return [T, 2 + D + J] features: constant, ease, type, and who of all workers is right beyond that."""
        ease, kinds = self.ease(), len(self.panel.types.names)
        won, there = self._won()
        beyond = np.where(there, won - (1 / (1 + np.exp(-ease)))[:, None], 0.0)
        types = np.eye(kinds + 1)[self.panel.batch.types][:, :kinds]
        return np.concatenate([np.ones((len(ease), 1)), ease[:, None], types, beyond], axis=1)

    def of_wrong(self, rows: Ints) -> tuple[Floats, Flags]:
        """Return [N, C + 2, J + 4] features of wrong answers, and [N, C + 2] which are there.

        After those that known workers gave come one of the worker's own (C), and none.
        """
        count, workers = self.right.shape[1], len(self.panel.workers)
        found, given = np.zeros((len(rows), count + 2, workers + _TAIL)), np.zeros((len(rows), count + 2), bool)
        for worker in self.known:
            codes = self.panel.codes[rows, worker]
            said = np.flatnonzero(codes > NOTHING)
            found[said, codes[said], worker] = 1.0
            given[said, codes[said]] = True
        given[:, :count] &= self.right[rows] <= 0.5
        given[:, count:] = True
        found[:, count, workers], found[:, count, workers + 1] = 1.0, self.ease()[rows]
        found[:, count + 1, workers + 2], found[:, count + 1, workers + 3] = 1.0, self.ease()[rows]
        return found, given

    def chosen(self, worker: int, rows: Ints, given: Flags) -> Ints:
        """[N]: which of these answers the worker gave."""
        codes, count = self.panel.codes[rows, worker], self.right.shape[1]
        shared = (codes > NOTHING) & given[np.arange(len(rows)), np.maximum(codes, 0)]
        chosen: Ints = np.where(codes == NOTHING, count + 1, np.where(shared, codes, count))
        return chosen

    def outcomes(self, worker: int) -> tuple[Ints, Flags]:
        """Return the tasks of which this worker's outcome is recorded, and whether it is right."""
        rows = np.flatnonzero(self.panel.there[:, worker] & ~np.isnan(self.panel.scores[:, worker]))
        right: Flags = self.panel.won[rows, worker] > 0.5
        return rows, right

    def price(self, worker: int) -> float:
        """Return the log of its mean dollars; 0 where it is free or nobody knows."""
        dollars = self.panel.dollars[self.panel.there[:, worker], worker]
        mean = float(dollars[~np.isnan(dollars)].mean()) if (~np.isnan(dollars)).any() else 0.0
        return float(np.log(mean)) if mean > 0 else 0.0

    def _won(self) -> tuple[Floats, Flags]:
        """[T, J]: scores of the known workers, and whether there is one."""
        known = np.isin(np.arange(len(self.panel.workers)), self.known)
        there: Flags = ~np.isnan(self.panel.scores) & self.panel.there & known
        return np.where(there, self.panel.won, 0.0), there


@dataclass(frozen=True, slots=True)
class Likeness:
    """What is usual among the known workers of a context."""

    context: Context
    prices: tuple[float, float]  # what ability a price speaks for: the constant, and per log dollar
    being_right: Prior
    wrong: Prior

    @classmethod
    def among(cls, context: Context) -> "Likeness":
        """Fit each known worker as if it were new, and return what is usual."""
        rights, wrongs = [], []
        for worker in context.known:
            own = context.without(worker)
            rights.append(_fit_right(own, worker, _loose_right(context)))
            wrongs.append(_fit_wrong(own, worker, _loose_wrong(context), _LOOKED_AT))
        prices, being_right = _usual_right(context, np.array(rights))
        return cls(context, prices, being_right, _usual_wrong(context, np.array(wrongs)))

    def chance(self, worker: int) -> Floats:
        """[T]: how probably this worker is right."""
        found = _fit_right(self.context, worker, self._prior(worker))
        return np.asarray(1 / (1 + np.exp(-(self.context.of_being_right() @ found))), np.float64)

    def doubt(self, worker: int) -> tuple[Floats, Floats]:
        """Return the features [T, p] of being right, and the covariance [p, p] of what is thought of their weights."""
        prior, features = self._prior(worker), self.context.of_being_right()
        found, own = _fit_right(self.context, worker, prior), features[self.context.outcomes(worker)[0]]
        chance = 1 / (1 + np.exp(-(own @ found)))
        bend = (own.T * (chance * (1 - chance))) @ own + np.diag(prior.precision)
        return features, np.asarray(np.linalg.inv(bend), np.float64)

    def _prior(self, worker: int) -> Prior:
        mean = self.being_right.mean.copy()
        mean[0] = self.prices[0] + self.prices[1] * self.context.price(worker)
        return replace(self.being_right, mean=mean)

    def right_answer(self, panel: Panel, rows: Ints, own: Ints) -> tuple[Ints, Floats]:
        """Return the right answer's code and score, where somebody gave it; a code of its `own`, NaN, elsewhere."""
        right = rightness(panel)[rows]
        some = right.max(axis=1, initial=0) > 0.5
        return np.where(some, right.argmax(axis=1), own), np.where(some, right.max(axis=1, initial=0), np.nan)

    def wrong_answer(self, worker: int, rows: Ints, own: Ints, random: np.random.Generator) -> tuple[Ints, Floats]:
        """Return codes and scores of wrong answers drawn for this worker; NOTHING for none."""
        weights = _fit_wrong(self.context, worker, self.wrong)
        codes, scores = own.copy(), np.full(len(rows), np.nan)
        for first in range(0, len(rows), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            found, given = self.context.of_wrong(rows[part])
            worth = np.where(given, found @ weights, -np.inf) + random.gumbel(size=given.shape)
            drawn, count = worth.argmax(axis=1), self.context.right.shape[1]
            shared = drawn < count
            codes[part] = np.where(shared, drawn, np.where(drawn == count, own[part], NOTHING))
            scores[part] = np.where(shared, self.context.right[rows[part], np.minimum(drawn, count - 1)], np.nan)
        return codes, scores


def _loose_right(context: Context) -> Prior:
    kinds, workers = len(context.panel.types.names), len(context.panel.workers)
    precision = np.concatenate([np.full(_HEAD, _LOOSE), np.full(kinds + workers, _HELD)])
    return Prior(np.zeros(len(precision)), precision)


def _loose_wrong(context: Context) -> Prior:
    workers = len(context.panel.workers)
    mean = np.concatenate([np.full(workers, 0.5), np.zeros(_TAIL)])
    return Prior(mean, np.concatenate([np.full(workers, _HELD), np.full(_TAIL, 10 * _LOOSE)]))


def _usual_right(context: Context, found: Floats) -> tuple[tuple[float, float], Prior]:
    """Return what a price speaks for, and the prior of being right, from the coefficients [n, p] of the known."""
    kinds, workers = len(context.panel.types.names), len(context.panel.workers)
    head, types, others = np.split(found, [_HEAD, _HEAD + kinds], axis=1)
    each = _of_others(context, others)
    price = np.array([context.price(worker) for worker in context.known])
    away = price - price.mean()
    slope = float(away @ (head[:, 0] - head[:, 0].mean()) / (away @ away + 1.0))
    rest = head[:, 0] - head[:, 0].mean() - slope * away
    mean = np.concatenate([head.mean(axis=0), np.zeros(kinds), np.full(workers, each.mean())])
    spread = np.concatenate(
        [
            [_DOUBT * rest.var(), head[:, 1].var()],
            np.full(kinds, types.var() if kinds else 0.0),
            np.full(workers, each.var()),
        ]
    )
    return (float(head[:, 0].mean() - slope * price.mean()), slope), Prior(mean, 1 / (spread + _LEAST))


def _usual_wrong(context: Context, found: Floats) -> Prior:
    workers = len(context.panel.workers)
    each, tail = _of_others(context, found[:, :workers]), found[:, workers:]
    mean = np.concatenate([np.full(workers, each.mean()), tail.mean(axis=0)])
    spread = np.concatenate([np.full(workers, each.var()), tail.var(axis=0)])
    return Prior(mean, 1 / (spread + _LEAST))


def _of_others(context: Context, found: Floats) -> Floats:
    """Return the coefficients [n, J] of known workers by known workers other than themselves, in one row."""
    known = np.array(context.known)
    return found[:, known][~np.eye(len(known), dtype=bool)]


def _fit_right(context: Context, worker: int, prior: Prior) -> Floats:
    rows, right = context.outcomes(worker)
    features, found = context.of_being_right()[rows], prior.mean.copy()
    for _ in range(_ROUNDS):
        chance = 1 / (1 + np.exp(-(features @ found)))
        slope = features.T @ (chance - right) + prior.precision * (found - prior.mean)
        bend = (features.T * (chance * (1 - chance))) @ features + np.diag(prior.precision)
        step = _step(bend, slope)
        found -= step
        if np.abs(step).max() < _STILL:
            break
    return found


def _fit_wrong(context: Context, worker: int, prior: Prior, most: int | None = None) -> Floats:
    rows, right = context.outcomes(worker)
    rows = np.random.default_rng(worker).permutation(rows[~right])[:most]
    features, given = context.of_wrong(rows)
    chosen, found = context.chosen(worker, rows, given), prior.mean.copy()
    for _ in range(_ROUNDS):
        worth = np.where(given, features @ found, -np.inf)
        chance = np.exp(worth - worth.max(axis=1, keepdims=True, initial=0.0))
        chance /= chance.sum(axis=1, keepdims=True)
        mean = np.einsum("nc,ncf->nf", chance, features)
        slope = mean.sum(axis=0) - features[np.arange(len(rows)), chosen].sum(axis=0)
        slope += prior.precision * (found - prior.mean)
        flat = features.reshape(-1, features.shape[2])
        bend = (flat.T * chance.ravel()) @ flat - mean.T @ mean + np.diag(prior.precision)
        step = _step(bend, slope)
        found -= step
        if np.abs(step).max() < _STILL:
            break
    return found


def _step(bend: Floats, slope: Floats) -> Floats:
    """Return Newton's step, no longer than 2 in any coefficient."""
    step = np.linalg.solve(bend, slope)
    return np.asarray(step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12)), np.float64)
