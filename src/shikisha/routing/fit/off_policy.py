"""Off-policy evaluation: what a policy would have achieved, from a log in which another policy chose whom to ask.

A task counts where the log holds all that the policy would have asked, weighted by the inverse of that probability
(IPS: Horvitz and Thompson 1952); normalized by the mean weight (SNIPS: Swaminathan and Joachims 2015); or as a
correction of what a table of the other tasks expects (DR: Dudik et al. 2011; Thomas and Brunskill 2016). Where workers
were asked in turns, the probability is the product over the asks, each given the answers so far, in the policy's order;
asking one worker is evaluated by first asks alone. Invariants: a missing outcome never counts as wrong; where the log
cannot support a figure, the result is a refusal that says why. Propensities are never guessed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import count
from math import ceil

import numpy as np

from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.log_quality import (
    WEIGHT_STANDARD_ERRORS,
    WEIGHT_TOLERANCE,
    count_by_type,
    known_outcomes,
    recorded_propensities,
    supported_outcomes,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, first_asks, has_turns
from shikisha.routing.state import NO_WORKER, SHIP, DecisionRule

# No estimate is given below this effective sample size.
MIN_EFFECTIVE_TASKS = 100.0
# A policy may act without support in the log on at most this share of the tasks.
MAX_UNKNOWN_SHARE = 0.01
# Pseudo-tasks at the overall mean, added to those of a worker and of a type.
_PRIOR_TASKS = 20.0
# Least and most pseudo-tasks at the prior, added to those of a worker on a type.
_SHRINK = (5.0, 500.0)
_Z = 1.96
_ROUNDS = 10


class OffPolicyMethod(StrEnum):
    """How a value is estimated."""

    IPS = "ips"  # weights alone: unbiased, with wide intervals
    SNIPS = "snips"  # normalized weights: narrower, slightly biased in small samples
    DR = "dr"  # a table's expectation, corrected by weights: as narrow or narrower, whatever the table's quality


@dataclass(frozen=True, slots=True)
class ExpectedOutcomes:
    """Expected outcomes by type and worker, [D + 1, J]: success, dollars, and the number of outcomes (`cells`).

    The last row is for unknown types: the mean over the mixture of types. Outcomes do not count where their weights do
    not add up to the type's tasks: a worker that is only asked where others were unsure is unknown elsewhere. Nor do
    those of later turns, which are counted in `later`, as outcomes after any number of asks.
    """

    success: Floats
    dollars: Floats
    cells: Ints
    later: Ints


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """[T] each: what every task contributes to the value of a policy.

    `weight` is the inverse probability of what the policy asks there, 0 where the log does not hold all of it; `gained`
    and `spent` are score and dollars times that, and so is `over`, the score beyond a table's `guess`. `paid` are
    dollars, doubly robust step by step. `dark` is the share of the task on which the policy does what the log knows
    nothing about.
    """

    weight: Floats
    gained: Floats
    spent: Floats
    guess: Floats
    over: Floats
    paid: Floats
    dark: Floats

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def won(self) -> Floats:
        """[T]: the doubly robust terms of accuracy, with normalized weights."""
        terms: Floats = self.guess + self._normalised(self.over)
        return terms

    def by(self, method: OffPolicyMethod) -> tuple[Floats, Floats]:
        """Return [T], [T] whose means estimate accuracy and dollars, and whose spread gives their errors."""
        match method:
            case OffPolicyMethod.DR:
                return self.won, self.paid
            case OffPolicyMethod.IPS:
                return self.gained, self.spent
            case OffPolicyMethod.SNIPS:
                return self._normalised(self.gained), self._normalised(self.spent)

    def _normalised(self, weighted: Floats) -> Floats:
        level = self.weight.mean() or 1.0
        mean = weighted.mean() / level
        terms: Floats = mean + (weighted - self.weight * mean) / level
        return terms


@dataclass(frozen=True, slots=True)
class EstimateInterval:
    """An estimate with its 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, terms: Floats) -> "EstimateInterval":
        """Return the mean of independent terms, with Student's interval.

        Degrees of freedom are the effective number of squared deviations: a few terms of large weight say little about
        the variance, however many others there are.
        """
        mean = float(terms.mean())
        squares = (terms - mean) ** 2
        total, fourth = float(squares.sum()), float((squares**2).sum())
        freedom = max(2.0, total**2 / fourth) if fourth else np.inf
        reach = _student_quantile(freedom) * float(np.sqrt(total / max(1, len(terms) - 1) / len(terms)))
        return cls(mean, mean - reach, mean + reach)


@dataclass(frozen=True, slots=True)
class LogOverlap:
    """How much of a log is about a policy.

    `followed` tasks hold all that it asks and are worth `effective` unweighted tasks (Kish 1965). `level` is the mean
    weight: 1 where propensities are right and complete. `dark` is as in `PolicyTerms`.
    """

    tasks: int
    followed: int
    effective: float
    level: float
    dark: float


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """The estimated accuracy of a policy, and dollars a task."""

    accuracy: EstimateInterval
    dollars: EstimateInterval
    overlap: LogOverlap


@dataclass(frozen=True, slots=True)
class EstimateRefusal:
    """Why no figure can be given, and how many more such tasks would suffice (None: no number of them)."""

    reason: str
    overlap: LogOverlap
    needs: int | None = None


@dataclass(frozen=True, slots=True)
class CrossFitSplit:
    """A matrix in folds, `parts`, with their `rows` in the whole, and for each a table of the other folds."""

    rows: tuple[Ints, ...]
    parts: tuple[OutcomeMatrix, ...]
    tables: tuple[ExpectedOutcomes, ...]

    @classmethod
    def of(cls, matrix: OutcomeMatrix, folds: Ints) -> "CrossFitSplit":
        """Split a matrix by folds [T]."""
        rows = tuple(np.flatnonzero(folds == fold) for fold in range(int(folds.max(initial=-1)) + 1))
        every, (cells, later) = np.arange(len(matrix)), _supported_cells(matrix)
        tables = (
            replace(expected_outcomes(matrix.at(np.setdiff1d(every, own))), cells=cells, later=later) for own in rows
        )
        return cls(rows, tuple(matrix.at(own) for own in rows), tuple(tables))

    def terms(self, of: Callable[[int, OutcomeMatrix, ExpectedOutcomes], PolicyTerms]) -> PolicyTerms:
        """Return the terms of all tasks in order; `of` receives a fold, its tasks, and the others' table."""
        return concat_terms([of(*each) for each in zip(count(), self.parts, self.tables)], self.rows)

    def rule_terms(self, rule: DecisionRule, setting: int) -> PolicyTerms:
        """Return the terms of a rule that was fitted on none of these tasks (see `follow_rule`)."""
        return self.terms(lambda _, matrix, table: follow_rule(rule, setting, matrix, table))

    def single_ask_terms(self, shares: Floats) -> PolicyTerms:
        """Return the terms of asking one worker with probabilities `shares` [T, J] (see `single_ask_terms`)."""
        return self.terms(lambda fold, matrix, table: single_ask_terms(matrix, shares[self.rows[fold]], table))


def _student_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t, by two terms of its Cornish-Fisher expansion."""
    first, second = (_Z**3 + _Z) / 4, (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    return _Z + first / freedom + second / freedom**2


def estimate_value(terms: PolicyTerms, method: OffPolicyMethod = OffPolicyMethod.DR) -> PolicyValue | EstimateRefusal:
    """Return the value of the policy, or why it cannot be estimated."""
    refusal = estimate_refusal(terms)
    if refusal is not None:
        return refusal
    won, paid = terms.by(method)
    return PolicyValue(EstimateInterval.of(won), EstimateInterval.of(paid), measure_overlap(terms))


def estimate_difference(
    one: PolicyTerms, other: PolicyTerms, method: OffPolicyMethod = OffPolicyMethod.DR
) -> EstimateInterval | EstimateRefusal:
    """Return how much more accurate one policy is than the other on the same tasks, or why that is unknown."""
    refusal = estimate_refusal(one) or estimate_refusal(other)
    return refusal or EstimateInterval.of(one.by(method)[0] - other.by(method)[0])


def estimate_refusal(terms: PolicyTerms) -> EstimateRefusal | None:
    """Return why these terms support no figure; None where they do."""
    overlap = measure_overlap(terms)
    tolerance = WEIGHT_TOLERANCE + WEIGHT_STANDARD_ERRORS * float(terms.weight.std() / np.sqrt(max(1, len(terms))))
    sums = f"the weights of tasks that hold all it asks have a mean of {overlap.level:.2f} rather than 1"
    if overlap.level - 1 > tolerance:
        return EstimateRefusal(f"{sums}: the propensities do not match the log", overlap)
    if overlap.dark > MAX_UNKNOWN_SHARE:
        return EstimateRefusal(f"for {overlap.dark:.0%} of the tasks it asks workers without outcomes there", overlap)
    if overlap.effective < MIN_EFFECTIVE_TASKS:
        needs = ceil(overlap.tasks * (MIN_EFFECTIVE_TASKS / overlap.effective - 1)) if overlap.effective else None
        more = f": about {needs:,} more tasks logged like these are needed" if needs else ""
        what = f"the {overlap.followed:,} tasks of {overlap.tasks:,} that hold all it asks"
        return EstimateRefusal(
            f"{what} have an effective size of {overlap.effective:.0f}, "
            f"and at least {MIN_EFFECTIVE_TASKS:.0f} is needed{more}",
            overlap,
            needs,
        )
    if 1 - overlap.level > tolerance:
        return EstimateRefusal(f"{sums}: some of what it asks was never recorded, or has no score", overlap)
    return None


def measure_overlap(terms: PolicyTerms) -> LogOverlap:
    """Return how much of the log is about the policy."""
    squares = float((terms.weight**2).sum())
    effective = float(terms.weight.sum()) ** 2 / squares if squares else 0.0
    level, dark = (float(part.mean()) if len(terms) else 0.0 for part in (terms.weight, terms.dark))
    return LogOverlap(len(terms), int((terms.weight > 0).sum()), effective, level, dark)


def concat_terms(parts: Sequence[PolicyTerms], rows: Sequence[Ints]) -> PolicyTerms:
    """Return the terms of several sets of tasks with these rows in the whole."""
    order = np.argsort(np.concatenate(rows))
    return PolicyTerms(
        *(np.concatenate([getattr(part, one.name) for part in parts])[order] for one in fields(PolicyTerms))
    )


def follow_rule(rule: DecisionRule, setting: int, matrix: OutcomeMatrix, table: ExpectedOutcomes) -> PolicyTerms:
    """Follow a rule through the matrix (in order of turns, if it has any), as far as the log holds what it asks.

    Without turns each worker was drawn independently, and probabilities multiply. With turns each propensity is
    conditional on the answers so far; a task counts where the rule asks in the same order.
    """
    turns = matrix.turns if has_turns(matrix) else None
    types, worth, prices = matrix.batch.types, known_outcomes(matrix), recorded_propensities(matrix)
    asked = np.zeros(matrix.there.shape, bool)
    dollars, paid, score, dark = (np.zeros(len(matrix)) for _ in range(4))
    weight, guess = np.ones(len(matrix)), np.zeros(len(matrix))
    rows, turn = np.arange(len(matrix)), 0
    while len(rows):
        acts = rule.act(matrix.state_after(asked).at(rows), setting)
        ends = acts.ask == SHIP
        done, ship = rows[ends], acts.ship[ends]
        weight[done] *= (ship == NO_WORKER) | worth[done, ship]
        score[done] = np.where(ship == NO_WORKER, 0.0, matrix.won[done, ship])
        rows, ask = rows[~ends], acts.ask[~ends]
        expected = table.dollars[types[rows], ask]
        if turn == 0:
            guess[rows] = table.success[types[rows], ask]
        dark[rows] += weight[rows] * ((table.cells if turn == 0 else table.later)[types[rows], ask] == 0)
        paid[rows] += weight[rows] * expected
        recorded = matrix.there[rows, ask] & (turns is None or turns[rows, ask] == turn)
        weight[rows] = np.where(recorded, weight[rows] / prices[rows, ask], 0.0)
        cost = np.where(np.isnan(matrix.dollars[rows, ask]), expected, matrix.dollars[rows, ask])
        paid[rows] += weight[rows] * (cost - expected)
        dollars[rows] += cost
        asked[rows, ask] = True
        rows, turn = rows[recorded], turn + 1
    return PolicyTerms(
        weight, weight * score, weight * dollars, guess, weight * (score - guess), paid, np.minimum(1.0, dark)
    )


def single_ask_terms(matrix: OutcomeMatrix, shares: Floats, table: ExpectedOutcomes) -> PolicyTerms:
    """Return the terms of a policy that asks one worker with probabilities `shares` [T, J]."""
    matrix = first_asks(matrix)
    types, worth = matrix.batch.types, known_outcomes(matrix)
    success, dollars = table.success[types], table.dollars[types]
    weight = np.where(worth, shares / recorded_propensities(matrix), 0.0)
    cost = np.where(np.isnan(matrix.dollars), dollars, matrix.dollars)
    return PolicyTerms(
        weight.sum(axis=1),
        (weight * matrix.won).sum(axis=1),
        (weight * cost).sum(axis=1),
        (shares * success).sum(axis=1),
        (weight * (matrix.won - success)).sum(axis=1),
        (shares * dollars + weight * (cost - dollars)).sum(axis=1),
        (shares * (table.cells[types] == 0)).sum(axis=1),
    )


def expected_outcomes(matrix: OutcomeMatrix, *, weighted: bool = True) -> ExpectedOutcomes:
    """Return expected outcomes by type and worker: weighted means, shrunk to what both achieve elsewhere.

    Of a log with turns, first asks count. Not `weighted`: propensities are unknown, and all outcomes count equally.
    """
    cells, later = _supported_cells(matrix) if weighted else (count_by_type(matrix, known_outcomes(matrix)),) * 2
    matrix = first_asks(matrix) if weighted else matrix
    worth, kinds = known_outcomes(matrix), len(matrix.types.names)
    shares = np.bincount(matrix.batch.types % (kinds + 1), minlength=kinds + 1) / max(1, len(matrix))
    sizes, means = _weighted_means(matrix, matrix.won, worth)
    sizes[:kinds] *= cells[:kinds] > 0
    success = np.clip(_shrink_means(sizes, means, np.clip(_additive_prior(sizes, means), 0, 1)), 0, 1)
    sizes, means = _weighted_means(matrix, matrix.paid, matrix.there & ~np.isnan(matrix.dollars))
    prior = _multiplicative_prior(sizes, means)
    dollars = (sizes * means + _PRIOR_TASKS * prior) / (sizes + _PRIOR_TASKS)
    held = [np.vstack([rows[:kinds], shares @ rows]) for rows in (success, dollars)]
    return ExpectedOutcomes(held[0], held[1], cells, later)


def _supported_cells(matrix: OutcomeMatrix) -> tuple[Ints, Ints]:
    """Return [D + 1, J] each: outcomes by type that represent workers alone, and outcomes after other asks."""
    cells = supported_outcomes(first_asks(matrix))
    return cells, count_by_type(matrix, known_outcomes(matrix)) if has_turns(matrix) else cells


def _weighted_means(matrix: OutcomeMatrix, values: Floats, cells: Flags) -> tuple[Floats, Floats]:
    """Return [D + 1, J] effective numbers of these outcomes by type (last: unknown), and their weighted means."""
    weights, kinds = cells / recorded_propensities(matrix), len(matrix.types.names) + 1
    member = np.eye(kinds)[matrix.batch.types % kinds].T
    sums, squares, totals = (member @ part for part in (weights, weights**2, weights * values))
    sizes = np.divide(sums**2, squares, out=np.zeros_like(sums), where=squares > 0)
    return sizes, np.divide(totals, sums, out=np.zeros_like(sums), where=sums > 0)


def _shrink_means(sizes: Floats, means: Floats, prior: Floats) -> Floats:
    """Return [D + 1, J]: the means, shrunk to the prior as far as chance explains the difference.

    The variance beyond chance is estimated by moments (Efron and Morris 1975).
    """
    chance = float((sizes * prior * (1 - prior)).sum() / max(1.0, sizes.sum()))
    free = max(0, int((sizes > 0).sum()) - sum(sizes.shape))
    beyond = float((sizes * (means - prior) ** 2).sum()) - free * chance
    least, most = _SHRINK
    strength = min(most, max(least, chance * float(sizes.sum()) / beyond)) if beyond > 0 else most
    shrunk: Floats = (sizes * means + strength * prior) / (sizes + strength)
    return shrunk


def _additive_prior(sizes: Floats, means: Floats) -> Floats:
    """Return [D + 1, J]: level plus worker effect plus type effect (ridge regression).

    So a worker is not considered bad because it was asked for hard types.
    """
    kinds, workers = sizes.shape
    level = float((sizes * means).sum() / max(1.0, sizes.sum()))
    over = sizes * (means - level)
    gram = np.block([[np.diag(sizes.sum(axis=1)), sizes], [sizes.T, np.diag(sizes.sum(axis=0))]])
    effects = np.linalg.solve(
        gram + _PRIOR_TASKS * np.eye(kinds + workers), np.concatenate([over.sum(axis=1), over.sum(axis=0)])
    )
    return level + effects[:kinds, None] + effects[None, kinds:]


def _multiplicative_prior(sizes: Floats, means: Floats) -> Floats:
    """Return [D + 1, J]: the worker's mean cost times the relative cost of a type, found by alternation."""
    total, kinds = sizes * means, np.ones(len(sizes))
    workers = np.zeros(sizes.shape[1])
    for _ in range(_ROUNDS):
        workers = _ratio(total.sum(axis=0), kinds @ sizes)
        kinds = _ratio(
            total.sum(axis=1) + _PRIOR_TASKS * workers.mean(), sizes @ workers + _PRIOR_TASKS * workers.mean()
        )
    return kinds[:, None] * workers[None, :]


def _ratio(over: Floats, under: Floats) -> Floats:
    return np.divide(over, under, out=np.ones_like(over), where=under > 0)
