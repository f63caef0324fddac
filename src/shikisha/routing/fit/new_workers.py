"""Workers that joined late: what a worker with few outcomes would have said to the tasks that it was not asked.

A newcomer is right more often where many known workers are, where those are right that it resembles, and on some types
of task; where it is wrong, it shares the wrong answers of some known workers more than those of others. What is usual
among the known ones, each looked at as if it were new, is the prior (`borrowing`), so that a hundred outcomes go a long
way. One that was kept away from a type of task is taken to have no answer there: nothing says what it can do with such
tasks. Invariants: what was recorded is never changed; what is filled in is told apart by `imputed`, is for fitting
only, and is never evidence; equal panels and seeds give equal fillings; without newcomers a panel is returned as it is.
Deliberately absent: workers with fewer than FEWEST outcomes (those are explored, not learned).

Likeness to known workers: when a worker with few outcomes is right, and whose wrong answers it shares.

A logistic model of being right (how many known workers are, which of them, the type) and a conditional logit of which
wrong answer is given (each known worker's, one of its own, none), both with a normal prior. The prior is empirical
Bayes: each known worker is fitted as if it were new, on what the others did; means and variances of what was found are
the prior of a new one, and the price a worker costs moves how able it is thought at first. Invariant: a worker's own
outcomes are never among what it is told from. Deliberately absent: names and descriptions, whose likeness explains a
fiftieth of the likeness of answers.
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

_LEADING = 2  # leading coefficients of being right: the constant, and how many others are
_TRAILING = 4  # trailing coefficients of a wrong answer: of one's own, none; each plain and by difficulty
_MIN_VARIANCE = 0.01  # variance that a prior has at least
_ABILITY_VARIANCE_FACTOR = (
    3.0  # times the variance of ability at a price: cheap and able workers are rarer than normal, and matter most
)
_VAGUE_PRECISION, _PRIOR_PRECISION = 1e-3, 1.0  # precisions while the known are fitted
_MAX_WRONG_ANSWERS = 1_500  # wrong answers of a known worker
_CHUNK = 2_000  # tasks
_ROUNDS, _CONVERGED = 30, 1e-6


@dataclass(frozen=True, slots=True)
class NormalPrior:
    """Normal, each coefficient by itself: `mean` and `precision`, [p]."""

    mean: Floats
    precision: Floats


@dataclass(frozen=True, slots=True)
class KnownWorkerContext:
    """What the known workers (places in the panel) did: `right` [T, C] of their answers, by code."""

    panel: OutcomeMatrix
    known: tuple[int, ...]
    right: Floats

    @classmethod
    def of(cls, panel: OutcomeMatrix, known: Sequence[int]) -> "KnownWorkerContext":
        """Return the context of these workers."""
        right = answer_correctness(panel.select_workers([panel.workers[worker] for worker in known]))
        most = max(1, int(panel.codes.max(initial=0)) + 1)
        return cls(panel, tuple(known), np.pad(right, ((0, 0), (0, most - right.shape[1]))))

    def without(self, worker: int) -> "KnownWorkerContext":
        """Return the context as it is for this worker."""
        return replace(self, known=tuple(other for other in self.known if other != worker))

    def log_odds_of_success(self) -> Floats:
        """[T]: the log odds of the share of the known workers who are right."""
        won, there = self._won()
        share = (won.sum(axis=1) + 0.5) / (there.sum(axis=1) + 1)
        return np.asarray(np.log(share / (1 - share)), np.float64)

    def of_being_right(self) -> Floats:
        """Return [T, 2 + D + J] features: constant, ease, type, and who of all workers is right beyond that."""
        ease, kinds = self.log_odds_of_success(), len(self.panel.types.names)
        won, there = self._won()
        beyond = np.where(there, won - (1 / (1 + np.exp(-ease)))[:, None], 0.0)
        types = np.eye(kinds + 1)[self.panel.batch.types][:, :kinds]
        return np.concatenate([np.ones((len(ease), 1)), ease[:, None], types, beyond], axis=1)

    def of_wrong(self, rows: Ints) -> tuple[Floats, Flags]:
        """Return [N, C + 2, J + 4] features of wrong answers, and [N, C + 2] which are there.

        After those that known workers gave come one of the worker's own (C), and none.
        """
        count, workers = self.right.shape[1], len(self.panel.workers)
        found, given = np.zeros((len(rows), count + 2, workers + _TRAILING)), np.zeros((len(rows), count + 2), bool)
        for worker in self.known:
            codes = self.panel.codes[rows, worker]
            said = np.flatnonzero(codes > NO_ANSWER)
            found[said, codes[said], worker] = 1.0
            given[said, codes[said]] = True
        given[:, :count] &= self.right[rows] <= 0.5
        given[:, count:] = True
        found[:, count, workers], found[:, count, workers + 1] = 1.0, self.log_odds_of_success()[rows]
        found[:, count + 1, workers + 2], found[:, count + 1, workers + 3] = 1.0, self.log_odds_of_success()[rows]
        return found, given

    def chosen_answers(self, worker: int, rows: Ints, given: Flags) -> Ints:
        """[N]: which of these answers the worker gave."""
        codes, count = self.panel.codes[rows, worker], self.right.shape[1]
        shared = (codes > NO_ANSWER) & given[np.arange(len(rows)), np.maximum(codes, 0)]
        chosen: Ints = np.where(codes == NO_ANSWER, count + 1, np.where(shared, codes, count))
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
class WorkerSimilarity:
    """What is usual among the known workers of a context."""

    context: KnownWorkerContext
    prices: tuple[float, float]  # what ability a price speaks for: the constant, and per log dollar
    being_right: NormalPrior
    wrong: NormalPrior

    @classmethod
    def among(cls, context: KnownWorkerContext) -> "WorkerSimilarity":
        """Fit each known worker as if it were new, and return what is usual."""
        rights, wrongs = [], []
        for worker in context.known:
            own = context.without(worker)
            rights.append(_fit_correctness(own, worker, _vague_correctness_prior(context)))
            wrongs.append(_fit_wrong_answers(own, worker, _vague_wrong_answer_prior(context), _MAX_WRONG_ANSWERS))
        prices, being_right = _correctness_prior(context, np.array(rights))
        return cls(context, prices, being_right, _wrong_answer_prior(context, np.array(wrongs)))

    def chance(self, worker: int) -> Floats:
        """[T]: how probably this worker is right."""
        found = _fit_correctness(self.context, worker, self._prior(worker))
        return np.asarray(1 / (1 + np.exp(-(self.context.of_being_right() @ found))), np.float64)

    def doubt(self, worker: int) -> tuple[Floats, Floats]:
        """Return the features [T, p] of being right, and the covariance [p, p] of what is thought of their weights."""
        prior, features = self._prior(worker), self.context.of_being_right()
        found, own = _fit_correctness(self.context, worker, prior), features[self.context.outcomes(worker)[0]]
        chance = 1 / (1 + np.exp(-(own @ found)))
        bend = (own.T * (chance * (1 - chance))) @ own + np.diag(prior.precision)
        return features, np.asarray(np.linalg.inv(bend), np.float64)

    def _prior(self, worker: int) -> NormalPrior:
        mean = self.being_right.mean.copy()
        mean[0] = self.prices[0] + self.prices[1] * self.context.price(worker)
        return replace(self.being_right, mean=mean)

    def right_answer(self, panel: OutcomeMatrix, rows: Ints, own: Ints) -> tuple[Ints, Floats]:
        """Return the right answer's code and score, where somebody gave it; a code of its `own`, NaN, elsewhere."""
        right = answer_correctness(panel)[rows]
        some = right.max(axis=1, initial=0) > 0.5
        return np.where(some, right.argmax(axis=1), own), np.where(some, right.max(axis=1, initial=0), np.nan)

    def wrong_answer(self, worker: int, rows: Ints, own: Ints, random: np.random.Generator) -> tuple[Ints, Floats]:
        """Return codes and scores of wrong answers drawn for this worker; NOTHING for none."""
        weights = _fit_wrong_answers(self.context, worker, self.wrong)
        codes, scores = own.copy(), np.full(len(rows), np.nan)
        for first in range(0, len(rows), _CHUNK):
            part = slice(first, first + _CHUNK)
            found, given = self.context.of_wrong(rows[part])
            worth = np.where(given, found @ weights, -np.inf) + random.gumbel(size=given.shape)
            drawn, count = worth.argmax(axis=1), self.context.right.shape[1]
            shared = drawn < count
            codes[part] = np.where(shared, drawn, np.where(drawn == count, own[part], NO_ANSWER))
            scores[part] = np.where(shared, self.context.right[rows[part], np.minimum(drawn, count - 1)], np.nan)
        return codes, scores


def _vague_correctness_prior(context: KnownWorkerContext) -> NormalPrior:
    kinds, workers = len(context.panel.types.names), len(context.panel.workers)
    precision = np.concatenate([np.full(_LEADING, _VAGUE_PRECISION), np.full(kinds + workers, _PRIOR_PRECISION)])
    return NormalPrior(np.zeros(len(precision)), precision)


def _vague_wrong_answer_prior(context: KnownWorkerContext) -> NormalPrior:
    workers = len(context.panel.workers)
    mean = np.concatenate([np.full(workers, 0.5), np.zeros(_TRAILING)])
    return NormalPrior(
        mean, np.concatenate([np.full(workers, _PRIOR_PRECISION), np.full(_TRAILING, 10 * _VAGUE_PRECISION)])
    )


def _correctness_prior(context: KnownWorkerContext, found: Floats) -> tuple[tuple[float, float], NormalPrior]:
    """Return what a price speaks for, and the prior of being right, from the coefficients [n, p] of the known."""
    kinds, workers = len(context.panel.types.names), len(context.panel.workers)
    head, types, others = np.split(found, [_LEADING, _LEADING + kinds], axis=1)
    each = _off_diagonal(context, others)
    price = np.array([context.price(worker) for worker in context.known])
    away = price - price.mean()
    slope = float(away @ (head[:, 0] - head[:, 0].mean()) / (away @ away + 1.0))
    rest = head[:, 0] - head[:, 0].mean() - slope * away
    mean = np.concatenate([head.mean(axis=0), np.zeros(kinds), np.full(workers, each.mean())])
    spread = np.concatenate(
        [
            [_ABILITY_VARIANCE_FACTOR * rest.var(), head[:, 1].var()],
            np.full(kinds, types.var() if kinds else 0.0),
            np.full(workers, each.var()),
        ]
    )
    return (float(head[:, 0].mean() - slope * price.mean()), slope), NormalPrior(mean, 1 / (spread + _MIN_VARIANCE))


def _wrong_answer_prior(context: KnownWorkerContext, found: Floats) -> NormalPrior:
    workers = len(context.panel.workers)
    each, tail = _off_diagonal(context, found[:, :workers]), found[:, workers:]
    mean = np.concatenate([np.full(workers, each.mean()), tail.mean(axis=0)])
    spread = np.concatenate([np.full(workers, each.var()), tail.var(axis=0)])
    return NormalPrior(mean, 1 / (spread + _MIN_VARIANCE))


def _off_diagonal(context: KnownWorkerContext, found: Floats) -> Floats:
    """Return the coefficients [n, J] of known workers by known workers other than themselves, in one row."""
    known = np.array(context.known)
    return found[:, known][~np.eye(len(known), dtype=bool)]


def _fit_correctness(context: KnownWorkerContext, worker: int, prior: NormalPrior) -> Floats:
    rows, right = context.outcomes(worker)
    features, found = context.of_being_right()[rows], prior.mean.copy()
    for _ in range(_ROUNDS):
        chance = 1 / (1 + np.exp(-(features @ found)))
        slope = features.T @ (chance - right) + prior.precision * (found - prior.mean)
        bend = (features.T * (chance * (1 - chance))) @ features + np.diag(prior.precision)
        step = _newton_step(bend, slope)
        found -= step
        if np.abs(step).max() < _CONVERGED:
            break
    return found


def _fit_wrong_answers(context: KnownWorkerContext, worker: int, prior: NormalPrior, most: int | None = None) -> Floats:
    rows, right = context.outcomes(worker)
    rows = np.random.default_rng(worker).permutation(rows[~right])[:most]
    features, given = context.of_wrong(rows)
    chosen, found = context.chosen_answers(worker, rows, given), prior.mean.copy()
    for _ in range(_ROUNDS):
        worth = np.where(given, features @ found, -np.inf)
        chance = np.exp(worth - worth.max(axis=1, keepdims=True, initial=0.0))
        chance /= chance.sum(axis=1, keepdims=True)
        mean = np.einsum("nc,ncf->nf", chance, features)
        slope = mean.sum(axis=0) - features[np.arange(len(rows)), chosen].sum(axis=0)
        slope += prior.precision * (found - prior.mean)
        flat = features.reshape(-1, features.shape[2])
        bend = (flat.T * chance.ravel()) @ flat - mean.T @ mean + np.diag(prior.precision)
        step = _newton_step(bend, slope)
        found -= step
        if np.abs(step).max() < _CONVERGED:
            break
    return found


def _newton_step(bend: Floats, slope: Floats) -> Floats:
    """Return Newton's step, no longer than 2 in any coefficient."""
    step = np.linalg.solve(bend, slope)
    return np.asarray(step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12)), np.float64)


KNOWN_SHARE = 0.5  # share of the tasks from which on a worker is known
MIN_OUTCOMES = 10  # outcomes below which nothing is filled in
EXPECTED_OUTCOMES = 7.0  # outcomes to be expected of a type; where there is none, that is no chance (1 in 1,000)
MANY_TASKS, MAX_IMPUTATIONS = 5_000, 4  # tasks from which on one filling is enough, and the most fillings
_SLOPE = 20.0  # outcomes' worth of belief that a newcomer's costs vary over tasks as those of others do
_FREE = 1e-12
_N = TypeVar("_N", np.float64, np.int64)


def find_new_workers(panel: OutcomeMatrix) -> tuple[int, ...]:
    """Return the workers whose missing outcomes can be filled in, those with most outcomes first.

    They were asked for, and graded in, less than half of what others were, so that none is ever the best single worker.
    There are none where fewer than two workers are known: likeness is likeness to somebody.
    """
    counts, asked = _outcome_counts(panel), panel.there.sum(axis=0)
    rare = (
        (counts < KNOWN_SHARE * counts.max(initial=0))
        & (asked < KNOWN_SHARE * asked.max(initial=0))
        & (counts >= MIN_OUTCOMES)
    )
    few = np.flatnonzero(rare).tolist()
    return tuple(sorted(few, key=lambda worker: -int(counts[worker]))) if len(_known_workers(panel)) > 1 else ()


def without_new_workers(panel: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel of the workers that are no newcomers; where there are none, the panel as it is."""
    late = find_new_workers(panel)
    if not late:
        return panel
    return panel.select_workers([name for place, name in enumerate(panel.workers) if place not in late])


def excluded_types(panel: OutcomeMatrix, worker: int) -> Ints:
    """Return the types for which this worker was never asked, though by chance it would have been: [n] places."""
    types, kinds = panel.batch.types, len(panel.types.names)
    sizes = np.array([(types == kind).mean() for kind in range(kinds)])
    told = panel.there[:, worker] & ~np.isnan(panel.scores[:, worker])
    asked = np.array([(told & (types == kind)).sum() for kind in range(kinds)])
    return np.flatnonzero((asked == 0) & (sizes * told.sum() >= EXPECTED_OUTCOMES)).astype(np.int64)


def fit_similarity(panel: OutcomeMatrix) -> WorkerSimilarity:
    """Return what is usual among the known workers of a panel."""
    return WorkerSimilarity.among(KnownWorkerContext.of(panel, _known_workers(panel)))


def imputed_mask(panel: OutcomeMatrix) -> Flags:
    """[T, J]: which outcomes were filled in and not recorded."""
    flags: Flags = ~panel.there & ~np.isnan(panel.scores)
    return flags


def num_imputations(panel: OutcomeMatrix) -> int:
    """Return how often a panel is best filled in: small ones several times, since each filling is drawn by lot."""
    return max(1, min(MAX_IMPUTATIONS, round(MANY_TASKS / len(panel)))) if find_new_workers(panel) else 1


def impute_outcomes(panel: OutcomeMatrix, seed: int = 0, copies: int = 1) -> OutcomeMatrix:
    """Return the panel with the missing outcomes of its newcomers filled in; all tasks so many times, each anew.

    Folds by content (`fits.folds_of`) keep the copies of a task together.
    """
    late = find_new_workers(panel)
    if not late:
        return panel
    likeness = fit_similarity(panel)
    drawn = [_impute_once(panel, late, likeness, (seed, copy)) for copy in range(copies)]
    if copies == 1:
        return drawn[0]
    return replace(
        panel.at(np.tile(np.arange(len(panel)), copies)),
        codes=np.concatenate([each.codes for each in drawn]),
        scores=np.concatenate([each.scores for each in drawn]),
        lengths=np.concatenate([each.lengths for each in drawn]),
        tokens=np.concatenate([each.tokens for each in drawn]),
        dollars=np.concatenate([each.dollars for each in drawn]),
        seconds=np.concatenate([each.seconds for each in drawn]),
    )


def _impute_once(
    panel: OutcomeMatrix, late: Sequence[int], likeness: WorkerSimilarity, seed: tuple[int, int]
) -> OutcomeMatrix:
    found = panel
    for place, worker in enumerate(late):
        random = np.random.default_rng((*seed, place))
        found = _fill_worker(found, worker, _draw_answers(found, worker, likeness, random), random)
    return found


@dataclass(frozen=True, slots=True)
class _ImputedAnswers:
    """What a worker is taken to have said to the tasks `rows`: codes, whether that is right, its score (NaN: open)."""

    rows: Ints
    codes: Ints
    right: Flags
    scores: Floats


def _draw_answers(
    panel: OutcomeMatrix, worker: int, likeness: WorkerSimilarity, random: np.random.Generator
) -> _ImputedAnswers:
    rows = np.flatnonzero(~panel.there[:, worker] & np.isnan(panel.scores[:, worker]))
    away = np.isin(panel.batch.types[rows], excluded_types(panel, worker))
    right = (random.random(len(rows)) < likeness.chance(worker)[rows]) & ~away
    own = panel.codes[rows].max(axis=1) + 1  # the code of an answer that nobody else gave
    codes, scores = own.copy(), np.full(len(rows), np.nan)
    if panel.answers:
        codes[right], scores[right] = likeness.right_answer(panel, rows[right], own[right])
        codes[~right], scores[~right] = likeness.wrong_answer(worker, rows[~right], own[~right], random)
    codes[away], scores[away] = NO_ANSWER, 0.0
    return _ImputedAnswers(rows, codes, right, scores)


def _fill_worker(
    panel: OutcomeMatrix, worker: int, said: _ImputedAnswers, random: np.random.Generator
) -> OutcomeMatrix:
    """Fill in what was said; costs, tokens and the rest are like those of one of its own outcomes that went alike."""
    like = _sample_like_outcomes(panel, worker, said.right, random)
    scores = np.where(np.isnan(said.scores), panel.scores[like, worker], said.scores)
    tokens = _impute_spending(panel.tokens, panel, (worker, said.rows, like))
    dollars = _impute_spending(panel.dollars, panel, (worker, said.rows, like))
    return replace(
        panel,
        codes=_replace_column(panel.codes, worker, said.rows, said.codes),
        scores=_replace_column(panel.scores, worker, said.rows, scores),
        lengths=_replace_column(panel.lengths, worker, said.rows, panel.lengths[like, worker]),
        tokens=_replace_column(panel.tokens, worker, said.rows, np.where(said.codes == NO_ANSWER, np.nan, tokens)),
        dollars=_replace_column(panel.dollars, worker, said.rows, dollars),
        seconds=_replace_column(panel.seconds, worker, said.rows, panel.seconds[like, worker]),
    )


def _sample_like_outcomes(panel: OutcomeMatrix, worker: int, right: Flags, random: np.random.Generator) -> Ints:
    """Return for each task to fill in the row of a recorded outcome of this worker that was as right, drawn by lot."""
    recorded = np.flatnonzero(~np.isnan(panel.scores[:, worker]) & panel.there[:, worker])
    was_right = panel.won[recorded, worker] > 0.5
    found = np.zeros(len(right), np.int64)
    for side in (True, False):
        own = recorded[was_right == side]
        found[right == side] = random.choice(own if len(own) else recorded, int((right == side).sum()))
    return found


def _impute_spending(spent: Floats, panel: OutcomeMatrix, who: tuple[int, Ints, Ints]) -> Floats:
    """Return what `worker` is taken to spend on `rows`: what it spent on those that went alike, times what is usual.

    Usual is what the known workers spent on the one task and on the other, to a power that its outcomes tell.
    """
    worker, rows, like = who
    logs = np.log(np.maximum(spent, _FREE))
    others = logs[:, list(_known_workers(panel))]
    known = ~np.isnan(others)
    usual = np.nan_to_num(others).sum(axis=1) / np.maximum(1, known.sum(axis=1))
    usual = np.where(known.any(axis=1), usual, usual[known.any(axis=1)].mean() if known.any() else 0.0)
    told = np.flatnonzero(~np.isnan(logs[:, worker]) & panel.there[:, worker])
    if not len(told):
        return np.asarray(spent[like, worker], np.float64)
    away, own = usual[told] - usual[told].mean(), logs[told, worker] - logs[told, worker].mean()
    belief = _SLOPE * float(usual.var()) + _FREE
    power = float((away @ own + belief) / (away @ away + belief))
    scaled: Floats = spent[like, worker] * np.exp(np.clip(power * (usual[rows] - usual[like]), -5, 5))
    return scaled


def _replace_column(held: NDArray[_N], worker: int, rows: Ints, values: NDArray[_N]) -> NDArray[_N]:
    changed = held.copy()
    changed[rows, worker] = values
    return changed


def _known_workers(panel: OutcomeMatrix) -> tuple[int, ...]:
    return tuple(int(worker) for worker in np.flatnonzero(_outcome_counts(panel) >= KNOWN_SHARE * len(panel)))


def _outcome_counts(panel: OutcomeMatrix) -> Ints:
    counts: Ints = (panel.there & ~np.isnan(panel.scores)).sum(axis=0)
    return counts
