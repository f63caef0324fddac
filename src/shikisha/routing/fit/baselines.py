"""Baselines: what other strategies and an oracle achieve on the same held-out tasks.

Baselines are the best single worker, random mixes of single workers, votes of fixed sets of workers, and an oracle that
knows the scores. Invariants: each is fitted, and its settings chosen, on the training part alone; the folds are those
of model selection; equal answers have one canonical form. The conductors that made a journal are in `incumbents`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.boosted_scorer import BoostedTrees
from shikisha.routing.fit.cost_frontier import BUDGETS, REPORTED_BUDGETS, Frontier, compute_frontier, mix_for_budget
from shikisha.routing.fit.fit_stopping_rule import StoppingData, rank_searched_workers
from shikisha.routing.fit.model_selection import (
    FOLDS,
    assign_folds,
    concat_frontiers,
    core_executor,
    num_evaluated_folds,
    single_threaded_blas,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Baseline
from shikisha.routing.state import NO_ANSWER, NO_WORKER, best_supporter
from shikisha.routing.stopping_rule import AnswerScorer, believe
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

AskedSet = tuple[int, ...]
# The winning code [T], -1 for none.
VoteTally = Callable[[OutcomeMatrix, AskedSet], Ints]
# Breaks ties.
_TINY = 1e-6
_SIZES = (1, 2, 3, 5, 8, 99)
# Of more workers only some sets are measured.
_MANY_WORKERS = 32
# Every worker that is asked counts for something.
_MIN_WEIGHT = 1e-3
BEST_SINGLE, SINGLE_MIX, ORACLE = "best single worker", "random mix", "oracle"
MAJORITY_VOTE, WEIGHTED_VOTE, LEARNED_VOTE = "majority vote", "weighted vote", "learned vote"
BASELINE_NOTES: Mapping[str, str] = {
    BEST_SINGLE: "the worker with the highest mean score in training, for every task, at one cost",
    SINGLE_MIX: "single workers on the hull of cost and accuracy, drawn at random (the Zero router of RouterBench)",
    MAJORITY_VOTE: "the best k of the workers below a cost, one vote each",
    WEIGHTED_VOTE: "the same, each vote counting its log odds",
    LEARNED_VOTE: "the answer scorer over growing sets of workers, all asked",
    ORACLE: "knows the scores: the cheapest right worker, else the cheapest; an upper bound",
}
_ORACLE_PRICES = np.append(1e-9, np.geomspace(0.002, 20.0, 60))
# With a smaller share of the answers graded there is no oracle.
_ORACLE_GRADED = 0.98
_MEASURED_BUDGETS = np.array((*REPORTED_BUDGETS, *BUDGETS))


@dataclass(frozen=True, slots=True)
class BaselineOutcomes:
    """Results by setting: `won` (score) and `paid` (dollars) [T, L]; `asks` [L, J], the shares of tasks."""

    won: Floats
    paid: Floats
    asks: Floats


FittedBaseline = Callable[[OutcomeMatrix], BaselineOutcomes]
# Fitted on one matrix, it runs on others.
BaselineFitter = Callable[[OutcomeMatrix], FittedBaseline]


@dataclass(frozen=True, slots=True)
class BaselineTrial:
    """`cost` and `accuracy` [L] on the training part, by folds; `won`, `spent` (units) [T, L] and `asks` held out."""

    cost: Floats
    accuracy: Floats
    won: Floats
    spent: Floats
    asks: Floats
    unit: float
    best_single: float

    @property
    def dial(self) -> TradeOff:
        """The trade-off over its settings, chosen on the training part."""
        points = (
            OperatingPoint(0, setting, float(cost), float(accuracy))
            for setting, (cost, accuracy) in enumerate(zip(self.cost, self.accuracy, strict=True))
        )
        return TradeOff(upper_hull(points), self.unit, self.best_single)

    def frontier(self, budgets: Floats = BUDGETS) -> Frontier:
        """Return what the trade-off's budgets achieve on the held-out tasks."""
        return compute_frontier(
            self.dial, self.won, self.spent, [(0, setting) for setting in range(len(self.cost))], budgets
        )

    def shares(self, budget: float) -> Floats:
        """Return [J], the share of held-out tasks on which each worker is asked within this budget."""
        mix = mix_for_budget(self.dial, budget)
        shares: Floats = (1 - mix.share) * self.asks[mix.low.setting] + mix.share * self.asks[mix.high.setting]
        return shares


def try_baseline(baseline: BaselineFitter, train: OutcomeMatrix, folds: Ints, held_out: OutcomeMatrix) -> BaselineTrial:
    """Evaluate a baseline by folds ([T]) on the training part, and on the held-out part after a fit on the former."""
    unit, cost, accuracy = train.cost_unit(), [], []
    for fold in range(int(folds.max()) + 1):
        inside: Flags = folds == fold
        outcomes = baseline(train.at(~inside))(train.at(inside))
        cost.append(outcomes.paid.sum(axis=0) / unit)
        accuracy.append(outcomes.won.sum(axis=0))
    outcomes, count = baseline(train)(held_out), len(train)
    curve = np.sum(cost, axis=0) / count, np.sum(accuracy, axis=0) / count
    return BaselineTrial(
        *curve, outcomes.won, outcomes.paid / unit, outcomes.asks, unit, float(train.mean_scores().max())
    )


def score_picks(picks: Ints, matrix: OutcomeMatrix) -> BaselineOutcomes:
    """Return the results of asking one worker per task: `picks` [T, L]."""
    given = np.where(matrix.codes > NO_ANSWER, matrix.won, 0.0)
    won, paid = (np.take_along_axis(table, picks, axis=1) for table in (given, matrix.paid))
    asks = np.stack([(picks == worker).mean(axis=0) for worker in range(len(matrix.workers))], axis=1)
    return BaselineOutcomes(won, paid, asks)


@dataclass(frozen=True, slots=True)
class WeightedVote:
    """A vote by weights [J]; ties go to the better supporter: `ranks` [J], 0 for the best."""

    weights: Floats
    ranks: Ints

    def __call__(self, matrix: OutcomeMatrix, asked: AskedSet) -> Ints:
        """Return the winning codes."""
        table = np.zeros((len(matrix), int(matrix.codes.max(initial=0)) + 1))
        for worker in asked:
            rows = np.flatnonzero(matrix.codes[:, worker] >= 0)
            table[rows, matrix.codes[rows, worker]] += self.weights[worker] + _TINY * 0.5 ** float(self.ranks[worker])
        return np.where(table.max(axis=1) > 0, table.argmax(axis=1), -1)


@dataclass(frozen=True, slots=True)
class ScoredVote:
    """The answer that a scorer considers most probable, or trees that read the answers beside it."""

    scorer: AnswerScorer
    boost: BoostedTrees | None = None

    def __call__(self, matrix: OutcomeMatrix, asked: AskedSet) -> Ints:
        """Return the winning codes."""
        asked_mask = np.zeros(matrix.codes.shape, bool)
        asked_mask[:, list(asked)] = True
        answers = believe(self.scorer, self.boost, matrix.state_after(asked_mask), tuple(sorted(asked))).answers
        return np.where(answers.max(axis=1) > 0, answers.argmax(axis=1), -1)


def fit_majority_vote(matrix: OutcomeMatrix) -> FittedBaseline:
    """Fit a vote with equal weights."""
    return _vote_baseline(WeightedVote(np.ones(len(matrix.workers)), _skill_ranks(matrix)), affordable_sets(matrix))


def fit_weighted_vote(matrix: OutcomeMatrix) -> FittedBaseline:
    """Fit a vote weighted by the odds of being right rather than wrong in the same way as others."""
    return _vote_baseline(WeightedVote(vote_weights(matrix), _skill_ranks(matrix)), affordable_sets(matrix))


def fit_learned_vote(matrix: OutcomeMatrix) -> FittedBaseline:
    """Fit a vote by the scorers that read the answers, over sets of a few sizes and all cost limits."""
    return _vote_baseline(fit_scored_vote(matrix), affordable_sets(matrix, _SIZES))


def fit_scored_vote(matrix: OutcomeMatrix) -> ScoredVote:
    """Fit the answer scorer and, where there are enough tasks, the trees beside it."""
    data = StoppingData.of(matrix, assign_folds(matrix.hashes, "vote"))
    return ScoredVote(data.scorer, data.vote_trees())


def vote_weights(matrix: OutcomeMatrix) -> Floats:
    """Return [J]: log odds of being right, plus the log of the number of ways to be wrong (naive Bayes).

    With p the share of right answers and c the share of pairs of wrong ones that agree: log(p / (1 - p) / c).
    """
    known = ~np.isnan(matrix.scores)
    right = (matrix.won.sum(axis=0) + 1) / (known.sum(axis=0) + 2)
    odds: Floats = np.log(right / (1 - right)) - np.log(_wrong_agreement(matrix))
    return np.maximum(odds, _MIN_WEIGHT)


# At the oracle's first price any right answer is worth its cost.
def affordable_sets(matrix: OutcomeMatrix, sizes: Sequence[int] = ()) -> tuple[AskedSet, ...]:
    """Return the best k of the c cheapest workers, best first, for every c and every k up to c (or these k)."""
    cheap = np.argsort(matrix.paid.mean(axis=0), kind="stable").tolist()
    skill = _rank_by_skill(matrix)
    counts: Sequence[int] = range(1, len(cheap) + 1)
    if len(cheap) > _MANY_WORKERS:
        sizes, counts = sizes or _SIZES, sorted({round(count) for count in np.linspace(1, len(cheap), _MANY_WORKERS)})
    limits = [frozenset(cheap[:count]) for count in counts]
    return tuple(
        tuple(worker for worker in skill if worker in limit)[:most]
        for limit in limits
        for most in sizes or range(1, len(limit) + 1)
    )


def _vote_baseline(tally: VoteTally, sets: tuple[AskedSet, ...]) -> FittedBaseline:
    def perform(matrix: OutcomeMatrix) -> BaselineOutcomes:
        by_set: dict[AskedSet, tuple[Floats, Floats]] = {}
        for asked in sets:
            if asked not in by_set:
                by_set[asked] = _vote_outcomes(tally, asked, matrix)
        return _stack_outcomes(sets, by_set, len(matrix.workers))

    return perform


def _vote_outcomes(tally: VoteTally, asked: AskedSet, matrix: OutcomeMatrix) -> tuple[Floats, Floats]:
    seen = matrix.state_after(np.ones(matrix.codes.shape, bool))
    shipped = best_supporter(seen, sorted(asked), tally(matrix, asked))
    won = np.where(shipped == NO_WORKER, 0.0, matrix.won[np.arange(len(matrix)), shipped])
    return won, matrix.paid[:, list(asked)].sum(axis=1)


def _stack_outcomes(
    sets: tuple[AskedSet, ...], known: Mapping[AskedSet, tuple[Floats, Floats]], workers: int
) -> BaselineOutcomes:
    won, paid = (np.stack([known[asked][index] for asked in sets], axis=1) for index in (0, 1))
    asks = np.zeros((len(sets), workers))
    for row, asked in enumerate(sets):
        asks[row, list(asked)] = 1.0
    return BaselineOutcomes(won, paid, asks)


def _wrong_agreement(matrix: OutcomeMatrix) -> float:
    """Return the smoothed share of pairs of wrong answers to one task that agree, strictly between 0 and 1."""
    wrong = (matrix.won <= 0.5) & (matrix.codes >= 0)
    codes = np.where(wrong, matrix.codes, -1)
    pairs = wrong.sum(axis=1) * (wrong.sum(axis=1) - 1) / 2
    same = np.zeros(len(matrix))
    for code in range(int(codes.max(initial=-1)) + 1):
        count = (codes == code).sum(axis=1)
        same += count * (count - 1) / 2
    return float((same.sum() + 1) / (pairs.sum() + 2))


def _rank_by_skill(matrix: OutcomeMatrix) -> AskedSet:
    return tuple(np.argsort(-matrix.mean_scores(), kind="stable").tolist())


def _skill_ranks(matrix: OutcomeMatrix) -> Ints:
    ranks = np.empty(len(matrix.workers), np.int64)
    ranks[list(_rank_by_skill(matrix))] = np.arange(len(matrix.workers))
    return ranks


def _among_workers(baseline: BaselineFitter, workers: Sequence[int]) -> BaselineFitter:
    """Return the baseline over these workers of a matrix."""

    def fit(matrix: OutcomeMatrix) -> FittedBaseline:
        names, everybody = [matrix.workers[worker] for worker in workers], len(matrix.workers)
        fitted = baseline(matrix.select_workers(names))

        def perform(held_out: OutcomeMatrix) -> BaselineOutcomes:
            outcomes = fitted(held_out.select_workers(names))
            asks = np.zeros((len(outcomes.asks), everybody))
            asks[:, list(workers)] = outcomes.asks
            return BaselineOutcomes(outcomes.won, outcomes.paid, asks)

        return perform

    return fit


def quick_frontiers(
    train: OutcomeMatrix, folds: Ints, held_out: OutcomeMatrix, budgets: Floats = BUDGETS
) -> dict[str, Frontier]:
    """Return the frontiers of all quick baselines on the held-out part; no votes where there are no answers."""
    return {
        name: try_baseline(baseline, train, folds, held_out).frontier(budgets)
        for name, baseline in quick_baselines(train).items()
    }


def quick_baselines(matrix: OutcomeMatrix) -> dict[str, BaselineFitter]:
    """Return the baselines that take seconds to fit, by name; votes are over the workers that a policy may ask."""
    votes: dict[str, BaselineFitter] = (
        {MAJORITY_VOTE: fit_majority_vote, WEIGHTED_VOTE: fit_weighted_vote, LEARNED_VOTE: fit_learned_vote}
        if matrix.answers
        else {}
    )
    searched = sorted(rank_searched_workers(matrix))
    if len(searched) < len(matrix.workers):
        votes = {name: _among_workers(vote, searched) for name, vote in votes.items()}
    # Nobody knows who is right where grades are missing.
    oracle: dict[str, BaselineFitter] = {ORACLE: fit_oracle} if matrix.graded_share >= _ORACLE_GRADED else {}
    return {BEST_SINGLE: fit_best_single, SINGLE_MIX: fit_single_mix, **votes, **oracle}


def baseline_records(frontiers: Mapping[str, Frontier], first: int = 0) -> tuple[Baseline, ...]:
    """Return the frontiers as a policy stores them; the area covers the budgets from index `first` on."""
    return tuple(
        Baseline(name, float(front.won[:, first:].mean()), front.points(), BASELINE_NOTES.get(name, ""))
        for name, front in frontiers.items()
    )


def fit_best_single(matrix: OutcomeMatrix) -> FittedBaseline:
    """Fit the best single worker."""
    best = matrix.best_worker()
    return lambda held_out: score_picks(np.full((len(held_out), 1), best, np.int64), held_out)


def fit_single_mix(matrix: OutcomeMatrix) -> FittedBaseline:
    """Fit each worker alone as one setting: the trade-off mixes those on the hull at random."""
    order = np.arange(len(matrix.workers))
    return lambda held_out: score_picks(np.broadcast_to(order, held_out.codes.shape), held_out)


def fit_oracle(matrix: OutcomeMatrix) -> FittedBaseline:
    """Return the oracle: the worker with the highest utility at a price, given all scores. It fits nothing."""
    unit = matrix.cost_unit()

    def perform(held_out: OutcomeMatrix) -> BaselineOutcomes:
        picks = [(held_out.won - price * held_out.paid / unit).argmax(axis=1) for price in _ORACLE_PRICES]
        return score_picks(np.stack(picks, axis=1), held_out)

    return perform


@single_threaded_blas()
def measure_baselines(matrix: OutcomeMatrix, seed: int, report: Callable[[str], None]) -> tuple[Baseline, ...]:
    """Return all quick baselines on the folds of a model selection with this seed; none where tasks are few."""
    if len(set(matrix.hashes)) < 2 * FOLDS:
        return ()
    folds = assign_folds(matrix.hashes, f"outer {seed}")
    count = num_evaluated_folds(folds)

    def one(fold: int) -> dict[str, Frontier]:
        report(f"baselines: fold {fold + 1} of {count}")
        train, held_out = (
            matrix.at(np.flatnonzero(folds != fold)),
            matrix.at(np.flatnonzero(folds == fold)).for_evaluation(),
        )
        return quick_frontiers(train, assign_folds(train.hashes, f"fit {seed}"), held_out, _MEASURED_BUDGETS)

    with core_executor() as threads:
        by_fold = list(threads.map(one, range(count)))
    records = baseline_records(
        {name: concat_frontiers([fold[name] for fold in by_fold]) for name in by_fold[0]}, len(REPORTED_BUDGETS)
    )
    return tuple(_sort_points(one) for one in records)


def _sort_points(one: Baseline) -> Baseline:
    return Baseline(one.name, one.area, tuple(sorted(one.frontier, key=lambda met: met.budget)), one.note)
