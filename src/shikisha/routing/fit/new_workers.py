"""New workers: imputing what a worker with few outcomes would have answered to the tasks it was not asked.

A logistic model says when the worker is right (how many known workers are right, which of them, the type), a
conditional logit which wrong answer it gives (one shared with a known worker, its own, none). Both have a normal prior
by empirical Bayes: each known worker is fitted as if it were new, and the means and variances found are the prior; the
price of a worker shifts its prior ability. A worker that was never asked for a type is taken to have no answer there.
Names and descriptions are not used: they explain 2 % of the similarity of answers. Invariants: recorded outcomes never
change; imputed ones are marked by `imputed_mask`, serve fitting only and are never evidence; equal inputs and seeds
give equal imputations. Workers with fewer than MIN_OUTCOMES are explored, not learned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.fit_stopping_rule import answer_correctness
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import NO_ANSWER

# Leading coefficients of correctness: the constant, and how many others are right.
_LEADING = 2
# Trailing coefficients of a wrong answer: an own one, and none, each with its slope by difficulty.
_TRAILING = 4
# A prior has at least this variance, since few known workers may agree by chance.
_MIN_VARIANCE = 0.01
# Factor on the variance of ability at a price: cheap and able workers are in its tail and matter most.
_ABILITY_VARIANCE_FACTOR = 3.0
# Precisions while known workers are fitted as if they were new.
_VAGUE_PRECISION, _PRIOR_PRECISION = 1e-3, 1.0
# At most this many wrong answers of a known worker are fitted, to bound the time.
_MAX_WRONG_ANSWERS = 1_500
# Tasks per chunk, to bound memory.
_CHUNK = 2_000
_ROUNDS, _CONVERGED = 30, 1e-6
# A worker with outcomes on this share of the tasks is known.
KNOWN_SHARE = 0.5
# With fewer outcomes nothing is imputed.
MIN_OUTCOMES = 10
# No outcome where this many are expected of a type is no chance (exp(-7) < 1 in 1,000).
EXPECTED_OUTCOMES = 7.0
# With this many tasks one imputation is enough; and the most imputations.
MANY_TASKS, MAX_IMPUTATIONS = 5_000, 4
# Prior outcomes for the belief that a new worker's costs vary over tasks as those of others do.
_SLOPE = 20.0
_FREE = 1e-12
_N = TypeVar("_N", np.float64, np.int64)


@dataclass(frozen=True, slots=True)
class NormalPrior:
    """A normal prior with independent coefficients: `mean` and `precision`, [p]."""

    mean: Floats
    precision: Floats


@dataclass(frozen=True, slots=True)
class KnownWorkerContext:
    """What the known workers (indices) did: `right` [T, C], the correctness of their answers, by code."""

    matrix: OutcomeMatrix
    known: tuple[int, ...]
    right: Floats

    @classmethod
    def of(cls, matrix: OutcomeMatrix, known: Sequence[int]) -> "KnownWorkerContext":
        """Return the context of these workers."""
        right = answer_correctness(matrix.select_workers([matrix.workers[worker] for worker in known]))
        most = max(1, int(matrix.codes.max(initial=0)) + 1)
        return cls(matrix, tuple(known), np.pad(right, ((0, 0), (0, most - right.shape[1]))))

    def without(self, worker: int) -> "KnownWorkerContext":
        """Return the context without this worker."""
        return replace(self, known=tuple(other for other in self.known if other != worker))

    def log_odds_of_success(self) -> Floats:
        """Return [T]: the log odds of the share of known workers that are right."""
        won, there = self._won()
        share = (won.sum(axis=1) + 0.5) / (there.sum(axis=1) + 1)
        return np.asarray(np.log(share / (1 - share)), np.float64)

    def of_being_right(self) -> Floats:
        """Return [T, 2 + D + J] features: constant, ease, type, and each worker's correctness beyond that."""
        ease, kinds = self.log_odds_of_success(), len(self.matrix.types.names)
        won, there = self._won()
        beyond = np.where(there, won - (1 / (1 + np.exp(-ease)))[:, None], 0.0)
        types = np.eye(kinds + 1)[self.matrix.batch.types][:, :kinds]
        return np.concatenate([np.ones((len(ease), 1)), ease[:, None], types, beyond], axis=1)

    def of_wrong(self, rows: Ints) -> tuple[Floats, Flags]:
        """Return [N, C + 2, J + 4] features of wrong answers, and [N, C + 2] which exist.

        After the answers of known workers come one of the worker's own (C), and none.
        """
        count, workers = self.right.shape[1], len(self.matrix.workers)
        features, exists = np.zeros((len(rows), count + 2, workers + _TRAILING)), np.zeros((len(rows), count + 2), bool)
        for worker in self.known:
            codes = self.matrix.codes[rows, worker]
            answered = np.flatnonzero(codes > NO_ANSWER)
            features[answered, codes[answered], worker] = 1.0
            exists[answered, codes[answered]] = True
        exists[:, :count] &= self.right[rows] <= 0.5
        exists[:, count:] = True
        features[:, count, workers], features[:, count, workers + 1] = 1.0, self.log_odds_of_success()[rows]
        features[:, count + 1, workers + 2], features[:, count + 1, workers + 3] = 1.0, self.log_odds_of_success()[rows]
        return features, exists

    def chosen_answers(self, worker: int, rows: Ints, given: Flags) -> Ints:
        """Return [N]: which of these answers the worker gave."""
        codes, count = self.matrix.codes[rows, worker], self.right.shape[1]
        shared = (codes > NO_ANSWER) & given[np.arange(len(rows)), np.maximum(codes, 0)]
        chosen: Ints = np.where(codes == NO_ANSWER, count + 1, np.where(shared, codes, count))
        return chosen

    def outcomes(self, worker: int) -> tuple[Ints, Flags]:
        """Return the tasks with a recorded outcome of this worker, and whether it is right."""
        rows = np.flatnonzero(self.matrix.there[:, worker] & ~np.isnan(self.matrix.scores[:, worker]))
        right: Flags = self.matrix.won[rows, worker] > 0.5
        return rows, right

    def price(self, worker: int) -> float:
        """Return the log of its mean dollars; 0 if free or unknown."""
        dollars = self.matrix.dollars[self.matrix.there[:, worker], worker]
        mean = float(dollars[~np.isnan(dollars)].mean()) if (~np.isnan(dollars)).any() else 0.0
        return float(np.log(mean)) if mean > 0 else 0.0

    def _won(self) -> tuple[Floats, Flags]:
        """Return [T, J]: scores of the known workers, and whether there is one."""
        known = np.isin(np.arange(len(self.matrix.workers)), self.known)
        there: Flags = ~np.isnan(self.matrix.scores) & self.matrix.there & known
        return np.where(there, self.matrix.won, 0.0), there


@dataclass(frozen=True, slots=True)
class WorkerSimilarity:
    """Priors estimated from the known workers of a context."""

    context: KnownWorkerContext
    prices: tuple[float, float]  # ability by price: constant, and per log dollar
    being_right: NormalPrior
    wrong: NormalPrior

    @classmethod
    def among(cls, context: KnownWorkerContext) -> "WorkerSimilarity":
        """Fit each known worker as if it were new, and return the priors."""
        rights, wrongs = [], []
        for worker in context.known:
            own = context.without(worker)
            rights.append(_fit_correctness(own, worker, _vague_correctness_prior(context)))
            wrongs.append(_fit_wrong_answers(own, worker, _vague_wrong_answer_prior(context), _MAX_WRONG_ANSWERS))
        prices, being_right = _correctness_prior(context, np.array(rights))
        return cls(context, prices, being_right, _wrong_answer_prior(context, np.array(wrongs)))

    def chance(self, worker: int) -> Floats:
        """Return [T]: the probability that this worker is right."""
        weights = _fit_correctness(self.context, worker, self._prior(worker))
        return np.asarray(1 / (1 + np.exp(-(self.context.of_being_right() @ weights))), np.float64)

    def doubt(self, worker: int) -> tuple[Floats, Floats]:
        """Return the features [T, p] of correctness, and the posterior covariance [p, p] of their weights."""
        prior, features = self._prior(worker), self.context.of_being_right()
        weights, own_features = (
            _fit_correctness(self.context, worker, prior),
            features[self.context.outcomes(worker)[0]],
        )
        chance = 1 / (1 + np.exp(-(own_features @ weights)))
        hessian = (own_features.T * (chance * (1 - chance))) @ own_features + np.diag(prior.precision)
        return features, np.asarray(np.linalg.inv(hessian), np.float64)

    def _prior(self, worker: int) -> NormalPrior:
        mean = self.being_right.mean.copy()
        mean[0] = self.prices[0] + self.prices[1] * self.context.price(worker)
        return replace(self.being_right, mean=mean)

    def right_answer(self, matrix: OutcomeMatrix, rows: Ints, own: Ints) -> tuple[Ints, Floats]:
        """Return code and score of the right answer; a code of its `own` and NaN where unknown."""
        right = answer_correctness(matrix)[rows]
        some = right.max(axis=1, initial=0) > 0.5
        return np.where(some, right.argmax(axis=1), own), np.where(some, right.max(axis=1, initial=0), np.nan)

    def wrong_answer(self, worker: int, rows: Ints, own: Ints, random: np.random.Generator) -> tuple[Ints, Floats]:
        """Return codes and scores of wrong answers drawn for this worker; NO_ANSWER for none."""
        weights = _fit_wrong_answers(self.context, worker, self.wrong)
        codes, scores = own.copy(), np.full(len(rows), np.nan)
        for first in range(0, len(rows), _CHUNK):
            part = slice(first, first + _CHUNK)
            features, given = self.context.of_wrong(rows[part])
            worth = np.where(given, features @ weights, -np.inf) + random.gumbel(size=given.shape)
            drawn, count = worth.argmax(axis=1), self.context.right.shape[1]
            shared = drawn < count
            codes[part] = np.where(shared, drawn, np.where(drawn == count, own[part], NO_ANSWER))
            scores[part] = np.where(shared, self.context.right[rows[part], np.minimum(drawn, count - 1)], np.nan)
        return codes, scores


def _vague_correctness_prior(context: KnownWorkerContext) -> NormalPrior:
    kinds, workers = len(context.matrix.types.names), len(context.matrix.workers)
    precision = np.concatenate([np.full(_LEADING, _VAGUE_PRECISION), np.full(kinds + workers, _PRIOR_PRECISION)])
    return NormalPrior(np.zeros(len(precision)), precision)


def _vague_wrong_answer_prior(context: KnownWorkerContext) -> NormalPrior:
    workers = len(context.matrix.workers)
    mean = np.concatenate([np.full(workers, 0.5), np.zeros(_TRAILING)])
    return NormalPrior(
        mean, np.concatenate([np.full(workers, _PRIOR_PRECISION), np.full(_TRAILING, 10 * _VAGUE_PRECISION)])
    )


def _correctness_prior(context: KnownWorkerContext, coefficients: Floats) -> tuple[tuple[float, float], NormalPrior]:
    """Return the regression of ability on price, and the prior of correctness, from known coefficients [n, p]."""
    kinds, workers = len(context.matrix.types.names), len(context.matrix.workers)
    head, types, others = np.split(coefficients, [_LEADING, _LEADING + kinds], axis=1)
    each = _off_diagonal(context, others)
    price = np.array([context.price(worker) for worker in context.known])
    centered = price - price.mean()
    slope = float(centered @ (head[:, 0] - head[:, 0].mean()) / (centered @ centered + 1.0))
    residual = head[:, 0] - head[:, 0].mean() - slope * centered
    mean = np.concatenate([head.mean(axis=0), np.zeros(kinds), np.full(workers, each.mean())])
    spread = np.concatenate(
        [
            [_ABILITY_VARIANCE_FACTOR * residual.var(), head[:, 1].var()],
            np.full(kinds, types.var() if kinds else 0.0),
            np.full(workers, each.var()),
        ]
    )
    return (float(head[:, 0].mean() - slope * price.mean()), slope), NormalPrior(mean, 1 / (spread + _MIN_VARIANCE))


def _wrong_answer_prior(context: KnownWorkerContext, coefficients: Floats) -> NormalPrior:
    workers = len(context.matrix.workers)
    each, tail = _off_diagonal(context, coefficients[:, :workers]), coefficients[:, workers:]
    mean = np.concatenate([np.full(workers, each.mean()), tail.mean(axis=0)])
    spread = np.concatenate([np.full(workers, each.var()), tail.var(axis=0)])
    return NormalPrior(mean, 1 / (spread + _MIN_VARIANCE))


def _off_diagonal(context: KnownWorkerContext, coefficients: Floats) -> Floats:
    """Return the coefficients [n, J] of known workers on other known workers, flattened."""
    known = np.array(context.known)
    return coefficients[:, known][~np.eye(len(known), dtype=bool)]


def _fit_correctness(context: KnownWorkerContext, worker: int, prior: NormalPrior) -> Floats:
    rows, right = context.outcomes(worker)
    features, weights = context.of_being_right()[rows], prior.mean.copy()
    for _ in range(_ROUNDS):
        chance = 1 / (1 + np.exp(-(features @ weights)))
        gradient = features.T @ (chance - right) + prior.precision * (weights - prior.mean)
        hessian = (features.T * (chance * (1 - chance))) @ features + np.diag(prior.precision)
        step = _newton_step(hessian, gradient)
        weights -= step
        if np.abs(step).max() < _CONVERGED:
            break
    return weights


def _fit_wrong_answers(context: KnownWorkerContext, worker: int, prior: NormalPrior, most: int | None = None) -> Floats:
    rows, right = context.outcomes(worker)
    rows = np.random.default_rng(worker).permutation(rows[~right])[:most]
    features, given = context.of_wrong(rows)
    chosen, weights = context.chosen_answers(worker, rows, given), prior.mean.copy()
    for _ in range(_ROUNDS):
        worth = np.where(given, features @ weights, -np.inf)
        chance = np.exp(worth - worth.max(axis=1, keepdims=True, initial=0.0))
        chance /= chance.sum(axis=1, keepdims=True)
        mean = np.einsum("nc,ncf->nf", chance, features)
        gradient = mean.sum(axis=0) - features[np.arange(len(rows)), chosen].sum(axis=0)
        gradient += prior.precision * (weights - prior.mean)
        flat = features.reshape(-1, features.shape[2])
        hessian = (flat.T * chance.ravel()) @ flat - mean.T @ mean + np.diag(prior.precision)
        step = _newton_step(hessian, gradient)
        weights -= step
        if np.abs(step).max() < _CONVERGED:
            break
    return weights


def _newton_step(hessian: Floats, gradient: Floats) -> Floats:
    """Return Newton's step, clipped to 2 in any coefficient."""
    step = np.linalg.solve(hessian, gradient)
    return np.asarray(step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12)), np.float64)


def find_new_workers(matrix: OutcomeMatrix) -> tuple[int, ...]:
    """Return the workers whose missing outcomes can be imputed, those with most outcomes first.

    They were asked, and graded, less than half as often as others, so none is ever the best single worker. There are
    none where fewer than two workers are known, since there is nothing to compare with.
    """
    counts, asked = _outcome_counts(matrix), matrix.there.sum(axis=0)
    few_outcomes = (
        (counts < KNOWN_SHARE * counts.max(initial=0))
        & (asked < KNOWN_SHARE * asked.max(initial=0))
        & (counts >= MIN_OUTCOMES)
    )
    candidates = np.flatnonzero(few_outcomes).tolist()
    return tuple(sorted(candidates, key=lambda worker: -int(counts[worker]))) if len(_known_workers(matrix)) > 1 else ()


def without_new_workers(matrix: OutcomeMatrix) -> OutcomeMatrix:
    """Return the matrix of established workers; unchanged if all are."""
    new = find_new_workers(matrix)
    if not new:
        return matrix
    return matrix.select_workers([name for index, name in enumerate(matrix.workers) if index not in new])


def excluded_types(matrix: OutcomeMatrix, worker: int) -> Ints:
    """Return the types for which this worker was never asked, beyond chance: [n] indices."""
    types, kinds = matrix.batch.types, len(matrix.types.names)
    sizes = np.array([(types == kind).mean() for kind in range(kinds)])
    graded = matrix.there[:, worker] & ~np.isnan(matrix.scores[:, worker])
    asked = np.array([(graded & (types == kind)).sum() for kind in range(kinds)])
    return np.flatnonzero((asked == 0) & (sizes * graded.sum() >= EXPECTED_OUTCOMES)).astype(np.int64)


def fit_similarity(matrix: OutcomeMatrix) -> WorkerSimilarity:
    """Return the priors estimated from the known workers of a matrix."""
    return WorkerSimilarity.among(KnownWorkerContext.of(matrix, _known_workers(matrix)))


def imputed_mask(matrix: OutcomeMatrix) -> Flags:
    """Return [T, J]: which outcomes are imputed."""
    imputed: Flags = ~matrix.there & ~np.isnan(matrix.scores)
    return imputed


def num_imputations(matrix: OutcomeMatrix) -> int:
    """Return how often to impute a matrix: small ones several times, since each imputation is random."""
    return max(1, min(MAX_IMPUTATIONS, round(MANY_TASKS / len(matrix)))) if find_new_workers(matrix) else 1


def impute_outcomes(matrix: OutcomeMatrix, seed: int = 0, copies: int = 1) -> OutcomeMatrix:
    """Return the matrix with imputed outcomes of new workers, and all tasks `copies` times, each imputed anew.

    Folds by content (`assign_folds`) keep the copies of a task together.
    """
    new = find_new_workers(matrix)
    if not new:
        return matrix
    matrix, likeness = replace(matrix, evidence=None), fit_similarity(matrix)  # nobody can read an imputed answer
    imputations = [_impute_once(matrix, new, likeness, (seed, copy)) for copy in range(copies)]
    if copies == 1:
        return imputations[0]
    return replace(
        matrix.at(np.tile(np.arange(len(matrix)), copies)),
        codes=np.concatenate([each.codes for each in imputations]),
        scores=np.concatenate([each.scores for each in imputations]),
        lengths=np.concatenate([each.lengths for each in imputations]),
        tokens=np.concatenate([each.tokens for each in imputations]),
        dollars=np.concatenate([each.dollars for each in imputations]),
        seconds=np.concatenate([each.seconds for each in imputations]),
    )


def _impute_once(
    matrix: OutcomeMatrix, new: Sequence[int], likeness: WorkerSimilarity, seed: tuple[int, int]
) -> OutcomeMatrix:
    imputed = matrix
    for index, worker in enumerate(new):
        random = np.random.default_rng((*seed, index))
        imputed = _fill_worker(imputed, worker, _draw_answers(imputed, worker, likeness, random), random)
    return imputed


@dataclass(frozen=True, slots=True)
class _ImputedAnswers:
    """The imputed answers of a worker to the tasks `rows`: codes, whether right, and score (NaN: unknown)."""

    rows: Ints
    codes: Ints
    right: Flags
    scores: Floats


def _draw_answers(
    matrix: OutcomeMatrix, worker: int, likeness: WorkerSimilarity, random: np.random.Generator
) -> _ImputedAnswers:
    rows = np.flatnonzero(~matrix.there[:, worker] & np.isnan(matrix.scores[:, worker]))
    excluded = np.isin(matrix.batch.types[rows], excluded_types(matrix, worker))
    right = (random.random(len(rows)) < likeness.chance(worker)[rows]) & ~excluded
    new_code = matrix.codes[rows].max(axis=1) + 1  # a code that nobody else gave
    codes, scores = new_code.copy(), np.full(len(rows), np.nan)
    if matrix.answers:
        codes[right], scores[right] = likeness.right_answer(matrix, rows[right], new_code[right])
        codes[~right], scores[~right] = likeness.wrong_answer(worker, rows[~right], new_code[~right], random)
    codes[excluded], scores[excluded] = NO_ANSWER, 0.0
    return _ImputedAnswers(rows, codes, right, scores)


def _fill_worker(
    matrix: OutcomeMatrix, worker: int, answers: _ImputedAnswers, random: np.random.Generator
) -> OutcomeMatrix:
    """Fill in imputed answers; costs, tokens and lengths come from its own outcomes of the same correctness."""
    sampled = _sample_like_outcomes(matrix, worker, answers.right, random)
    scores = np.where(np.isnan(answers.scores), matrix.scores[sampled, worker], answers.scores)
    tokens = _impute_spending(matrix.tokens, matrix, (worker, answers.rows, sampled))
    dollars = _impute_spending(matrix.dollars, matrix, (worker, answers.rows, sampled))
    return replace(
        matrix,
        codes=_replace_column(matrix.codes, worker, answers.rows, answers.codes),
        scores=_replace_column(matrix.scores, worker, answers.rows, scores),
        lengths=_replace_column(matrix.lengths, worker, answers.rows, matrix.lengths[sampled, worker]),
        tokens=_replace_column(
            matrix.tokens, worker, answers.rows, np.where(answers.codes == NO_ANSWER, np.nan, tokens)
        ),
        dollars=_replace_column(matrix.dollars, worker, answers.rows, dollars),
        seconds=_replace_column(matrix.seconds, worker, answers.rows, matrix.seconds[sampled, worker]),
    )


def _sample_like_outcomes(matrix: OutcomeMatrix, worker: int, right: Flags, random: np.random.Generator) -> Ints:
    """Return for each task the row of a random recorded outcome of this worker with the same correctness."""
    recorded = np.flatnonzero(~np.isnan(matrix.scores[:, worker]) & matrix.there[:, worker])
    was_right = matrix.won[recorded, worker] > 0.5
    sampled = np.zeros(len(right), np.int64)
    for correct in (True, False):
        same = recorded[was_right == correct]
        sampled[right == correct] = random.choice(same if len(same) else recorded, int((right == correct).sum()))
    return sampled


def _impute_spending(spent: Floats, matrix: OutcomeMatrix, sample: tuple[int, Ints, Ints]) -> Floats:
    """Return the imputed spending on `rows`: that of the sampled outcome, scaled by relative difficulty.

    Relative difficulty is the known workers' spending on one task over that on the other, to a power estimated from the
    worker's own outcomes.
    """
    worker, rows, like = sample
    logs = np.log(np.maximum(spent, _FREE))
    others = logs[:, list(_known_workers(matrix))]
    known = ~np.isnan(others)
    usual = np.nan_to_num(others).sum(axis=1) / np.maximum(1, known.sum(axis=1))
    usual = np.where(known.any(axis=1), usual, usual[known.any(axis=1)].mean() if known.any() else 0.0)
    known_rows = np.flatnonzero(~np.isnan(logs[:, worker]) & matrix.there[:, worker])
    if not len(known_rows):
        return np.asarray(spent[like, worker], np.float64)
    relative, own_relative = (
        usual[known_rows] - usual[known_rows].mean(),
        logs[known_rows, worker] - logs[known_rows, worker].mean(),
    )
    belief = _SLOPE * float(usual.var()) + _FREE
    power = float((relative @ own_relative + belief) / (relative @ relative + belief))
    scaled: Floats = spent[like, worker] * np.exp(np.clip(power * (usual[rows] - usual[like]), -5, 5))
    return scaled


def _replace_column(array: NDArray[_N], worker: int, rows: Ints, values: NDArray[_N]) -> NDArray[_N]:
    changed = array.copy()
    changed[rows, worker] = values
    return changed


def _known_workers(matrix: OutcomeMatrix) -> tuple[int, ...]:
    return tuple(int(worker) for worker in np.flatnonzero(_outcome_counts(matrix) >= KNOWN_SHARE * len(matrix)))


def _outcome_counts(matrix: OutcomeMatrix) -> Ints:
    counts: Ints = (matrix.there & ~np.isnan(matrix.scores)).sum(axis=0)
    return counts
