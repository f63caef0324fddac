"""What a policy would have come to, told from a log in which somebody else chose whom to ask.

A task counts where the log holds all that the policy would have asked, and for one over the probability of that (IPS:
Horvitz and Thompson 1952); divided by the weights' mean (SNIPS: Swaminathan and Joachims 2015); or as a correction of
what a table of the other tasks expects (DR: Dudik et al. 2011; Thomas and Brunskill 2016). Where one worker was asked
after another (`turns`), the probability is the product of those of the asks, each given all that had been said till
then, and a task counts where they were asked in the policy's order; asking one worker is judged by first asks alone,
and the table is made of them. Invariants: a missing pair is never read as wrong; where the log cannot carry a figure
the result is a Refusal that says why, and holds none. Deliberately absent: fitting policies (`partial`), and guessing
propensities that nobody wrote down.
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

MIN_EFFECTIVE_TASKS = 100.0  # tasks that a sample must be worth before a figure is given
MAX_UNKNOWN_SHARE = 0.01  # share of the tasks on which a policy may do what the log knows nothing about
_PRIOR_TASKS = 20.0  # tasks at the mean of all that stand beside those of a worker, and of a type
_SHRINK = (5.0, 500.0)  # least and most tasks at what both come to that stand beside those of a worker on a type
_Z = 1.96
_ROUNDS = 10


class OffPolicyMethod(StrEnum):
    """How a value is estimated."""

    IPS = "ips"  # weights alone: unbiased, and wide
    SNIPS = "snips"  # weights divided by their mean: narrower, and slightly biased in small samples
    DR = "dr"  # what a table expects, corrected by such weights: as narrow or narrower, whatever the table is worth


@dataclass(frozen=True, slots=True)
class ExpectedOutcomes:
    """What is expected of each worker on each type, [D + 1, J]: success, dollars, and from how many outcomes (`cells`).

    The last row is for unknown types: the mean over the tasks' mixture of types. Outcomes do not count whose weights do
    not come to the type's tasks: a worker that is only asked where others were unsure is not known on the others. Nor
    do those of a second or later turn, which are among `later`: how many are known of asking it after others (or
    first).
    """

    success: Floats
    dollars: Floats
    cells: Ints
    later: Ints


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """[T] each: what every task says about a policy.

    `weight` is one over the probability of what the policy asks there, 0 where the log does not hold all of it;
    `gained` and `spent` are score and dollars times that, and so is `over`, by how much the score is above a table's
    `guess`. `paid` are dollars, doubly robust step by step. `dark` is the share of the task on which the policy does
    what the log knows nothing about.
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
        """[T]: the doubly robust terms of accuracy, by weights divided by their mean."""
        terms: Floats = self.guess + self._normalised(self.over)
        return terms

    def by(self, method: OffPolicyMethod) -> tuple[Floats, Floats]:
        """Return [T], [T] whose means are the estimates of accuracy and dollars, and whose spread is their error's."""
        match method:
            case OffPolicyMethod.DR:
                return self.won, self.paid
            case OffPolicyMethod.IPS:
                return self.gained, self.spent
            case OffPolicyMethod.SNIPS:
                return self._normalised(self.gained), self._normalised(self.spent)

    def _normalised(self, weighted: Floats) -> Floats:
        level = self.weight.mean() or 1.0
        middle = weighted.mean() / level
        terms: Floats = middle + (weighted - self.weight * middle) / level
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

        Its degrees of freedom are as many as there are squared deviations that count: a few terms of great weight say
        little about how much such terms vary, however many others there are.
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

    `followed` tasks hold all that it asks, which are worth `effective` tasks that nobody chose (Kish 1965). The mean of
    the weights is `level`: 1 where propensities are right and everything has one. `dark` is as in Terms.
    """

    tasks: int
    followed: int
    effective: float
    level: float
    dark: float


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """What a policy would have come to: accuracy, and dollars a task."""

    accuracy: EstimateInterval
    dollars: EstimateInterval
    overlap: LogOverlap


@dataclass(frozen=True, slots=True)
class EstimateRefusal:
    """Why no figure can be given, and how many more tasks logged like these would do (None: no number of them)."""

    reason: str
    overlap: LogOverlap
    needs: int | None = None


@dataclass(frozen=True, slots=True)
class CrossFitSplit:
    """A panel in folds, `parts`, with their `rows` in the whole, and for each a table of the other folds."""

    rows: tuple[Ints, ...]
    parts: tuple[OutcomeMatrix, ...]
    tables: tuple[ExpectedOutcomes, ...]

    @classmethod
    def of(cls, panel: OutcomeMatrix, folds: Ints) -> "CrossFitSplit":
        """Split a panel by folds [T]."""
        rows = tuple(np.flatnonzero(folds == fold) for fold in range(int(folds.max(initial=-1)) + 1))
        every, (cells, later) = np.arange(len(panel)), _supported_cells(panel)
        tables = (
            replace(expected_outcomes(panel.at(np.setdiff1d(every, own))), cells=cells, later=later) for own in rows
        )
        return cls(rows, tuple(panel.at(own) for own in rows), tuple(tables))

    def terms(self, of: Callable[[int, OutcomeMatrix, ExpectedOutcomes], PolicyTerms]) -> PolicyTerms:
        """Return the terms of all tasks in their order; `of` is given a fold, its tasks, and the others' table."""
        return concat_terms([of(*each) for each in zip(count(), self.parts, self.tables)], self.rows)

    def rule_terms(self, part: DecisionRule, setting: int) -> PolicyTerms:
        """Return the terms of a part that was fitted on none of these tasks (see `followed`)."""
        return self.terms(lambda _, panel, table: follow_rule(part, setting, panel, table))

    def single_ask_terms(self, shares: Floats) -> PolicyTerms:
        """Return the terms of asking one worker, each with its share [T, J] of the probability (see `routed`)."""
        return self.terms(lambda fold, panel, table: single_ask_terms(panel, shares[self.rows[fold]], table))


def _student_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t, by two terms of its expansion around the normal one."""
    first, second = (_Z**3 + _Z) / 4, (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    return _Z + first / freedom + second / freedom**2


def estimate_value(terms: PolicyTerms, method: OffPolicyMethod = OffPolicyMethod.DR) -> PolicyValue | EstimateRefusal:
    """Return what these terms say of the policy, or why they do not."""
    refused = estimate_refusal(terms)
    if refused is not None:
        return refused
    won, paid = terms.by(method)
    return PolicyValue(EstimateInterval.of(won), EstimateInterval.of(paid), measure_overlap(terms))


def estimate_difference(
    one: PolicyTerms, other: PolicyTerms, method: OffPolicyMethod = OffPolicyMethod.DR
) -> EstimateInterval | EstimateRefusal:
    """Return how much more accurate one policy is than the other on the same tasks, or why nobody can tell."""
    refused = estimate_refusal(one) or estimate_refusal(other)
    return refused or EstimateInterval.of(one.by(method)[0] - other.by(method)[0])


def estimate_refusal(terms: PolicyTerms) -> EstimateRefusal | None:
    """Return why these terms carry no figure; None where they do."""
    found = measure_overlap(terms)
    room = WEIGHT_TOLERANCE + WEIGHT_STANDARD_ERRORS * float(terms.weight.std() / np.sqrt(max(1, len(terms))))
    sums = f"the weights of the tasks that hold all it asks have a mean of {found.level:.2f} rather than 1"
    if found.level - 1 > room:
        return EstimateRefusal(f"{sums}: the propensities are not how the log came about", found)
    if found.dark > MAX_UNKNOWN_SHARE:
        return EstimateRefusal(
            f"for {found.dark:.0%} of the tasks it asks workers of whom the log knows nothing there", found
        )
    if found.effective < MIN_EFFECTIVE_TASKS:
        needs = ceil(found.tasks * (MIN_EFFECTIVE_TASKS / found.effective - 1)) if found.effective else None
        more = f": about {needs:,} more tasks logged like these are needed" if needs else ""
        what = f"the {found.followed:,} tasks of {found.tasks:,} that hold all it asks"
        return EstimateRefusal(
            f"{what} are worth {found.effective:.0f}, and {MIN_EFFECTIVE_TASKS:.0f} is the least{more}", found, needs
        )
    if 1 - found.level > room:
        return EstimateRefusal(f"{sums}: some of what it asks could never be recorded, or has no score", found)
    return None


def measure_overlap(terms: PolicyTerms) -> LogOverlap:
    """Return how much of the log is about the policy."""
    squares = float((terms.weight**2).sum())
    effective = float(terms.weight.sum()) ** 2 / squares if squares else 0.0
    level, dark = (float(part.mean()) if len(terms) else 0.0 for part in (terms.weight, terms.dark))
    return LogOverlap(len(terms), int((terms.weight > 0).sum()), effective, level, dark)


def concat_terms(parts: Sequence[PolicyTerms], rows: Sequence[Ints]) -> PolicyTerms:
    """Return the terms of several sets of tasks, which have these rows in the whole."""
    order = np.argsort(np.concatenate(rows))
    return PolicyTerms(
        *(np.concatenate([getattr(part, one.name) for part in parts])[order] for one in fields(PolicyTerms))
    )


def follow_rule(part: DecisionRule, setting: int, panel: OutcomeMatrix, table: ExpectedOutcomes) -> PolicyTerms:
    """Follow a part through the panel (`ordered`, where it has turns), as far as the log holds what it asks.

    Without turns each worker was drawn on its own, and chances multiply. With them the log asked one after another,
    each propensity given what had been said till then; a task counts where the part asks in the same order.
    """
    turns = panel.turns if has_turns(panel) else None
    types, worth, prices = panel.batch.types, known_outcomes(panel), recorded_propensities(panel)
    asked = np.zeros(panel.there.shape, bool)
    dollars, paid, score, dark = (np.zeros(len(panel)) for _ in range(4))
    weight, guess = np.ones(len(panel)), np.zeros(len(panel))
    rows, turn = np.arange(len(panel)), 0
    while len(rows):
        acts = part.act(panel.state_after(asked).at(rows), setting)
        ends = acts.ask == SHIP
        over, ship = rows[ends], acts.ship[ends]
        weight[over] *= (ship == NO_WORKER) | worth[over, ship]
        score[over] = np.where(ship == NO_WORKER, 0.0, panel.won[over, ship])
        rows, ask = rows[~ends], acts.ask[~ends]
        expected = table.dollars[types[rows], ask]
        if turn == 0:
            guess[rows] = table.success[types[rows], ask]
        dark[rows] += weight[rows] * ((table.cells if turn == 0 else table.later)[types[rows], ask] == 0)
        paid[rows] += weight[rows] * expected
        there = panel.there[rows, ask] & (turns is None or turns[rows, ask] == turn)
        weight[rows] = np.where(there, weight[rows] / prices[rows, ask], 0.0)
        cost = np.where(np.isnan(panel.dollars[rows, ask]), expected, panel.dollars[rows, ask])
        paid[rows] += weight[rows] * (cost - expected)
        dollars[rows] += cost
        asked[rows, ask] = True
        rows, turn = rows[there], turn + 1
    return PolicyTerms(
        weight, weight * score, weight * dollars, guess, weight * (score - guess), paid, np.minimum(1.0, dark)
    )


def single_ask_terms(panel: OutcomeMatrix, shares: Floats, table: ExpectedOutcomes) -> PolicyTerms:
    """Return the terms of a policy that asks one worker, each with its share [T, J] of the probability."""
    panel = first_asks(panel)
    types, worth = panel.batch.types, known_outcomes(panel)
    success, dollars = table.success[types], table.dollars[types]
    weight = np.where(worth, shares / recorded_propensities(panel), 0.0)
    cost = np.where(np.isnan(panel.dollars), dollars, panel.dollars)
    return PolicyTerms(
        weight.sum(axis=1),
        (weight * panel.won).sum(axis=1),
        (weight * cost).sum(axis=1),
        (shares * success).sum(axis=1),
        (weight * (panel.won - success)).sum(axis=1),
        (shares * dollars + weight * (cost - dollars)).sum(axis=1),
        (shares * (table.cells[types] == 0)).sum(axis=1),
    )


def expected_outcomes(panel: OutcomeMatrix, *, told: bool = True) -> ExpectedOutcomes:
    """Return what is expected of each worker on each type: weighted means, shrunk to what both come to elsewhere.

    Of a log with turns they are of first asks. `told` False: nobody knows why those were asked who were asked, and all
    outcomes count as they are.
    """
    cells, later = _supported_cells(panel) if told else (count_by_type(panel, known_outcomes(panel)),) * 2
    panel = first_asks(panel) if told else panel
    worth, kinds = known_outcomes(panel), len(panel.types.names)
    shares = np.bincount(panel.batch.types % (kinds + 1), minlength=kinds + 1) / max(1, len(panel))
    sizes, means = _weighted_means(panel, panel.won, worth)
    sizes[:kinds] *= cells[:kinds] > 0
    success = np.clip(_shrink_means(sizes, means, np.clip(_additive_prior(sizes, means), 0, 1)), 0, 1)
    sizes, means = _weighted_means(panel, panel.paid, panel.there & ~np.isnan(panel.dollars))
    prior = _multiplicative_prior(sizes, means)
    dollars = (sizes * means + _PRIOR_TASKS * prior) / (sizes + _PRIOR_TASKS)
    held = [np.vstack([rows[:kinds], shares @ rows]) for rows in (success, dollars)]
    return ExpectedOutcomes(held[0], held[1], cells, later)


def _supported_cells(panel: OutcomeMatrix) -> tuple[Ints, Ints]:
    """[D + 1, J] each: outcomes that tell of workers alone, by type, and those that tell of one asked after others."""
    cells = supported_outcomes(first_asks(panel))
    return cells, count_by_type(panel, known_outcomes(panel)) if has_turns(panel) else cells


def _weighted_means(panel: OutcomeMatrix, values: Floats, cells: Flags) -> tuple[Floats, Floats]:
    """Return [D + 1, J] effective numbers of these pairs by type (last: unknown ones), and their weighted means."""
    weights, kinds = cells / recorded_propensities(panel), len(panel.types.names) + 1
    member = np.eye(kinds)[panel.batch.types % kinds].T
    sums, squares, totals = (member @ part for part in (weights, weights**2, weights * values))
    sizes = np.divide(sums**2, squares, out=np.zeros_like(sums), where=squares > 0)
    return sizes, np.divide(totals, sums, out=np.zeros_like(sums), where=sums > 0)


def _shrink_means(sizes: Floats, means: Floats, prior: Floats) -> Floats:
    """[D + 1, J]: the means, held back to the prior as far as they differ from it by no more than chance would.

    What they differ beyond that is found by moments (Efron and Morris 1975).
    """
    chance = float((sizes * prior * (1 - prior)).sum() / max(1.0, sizes.sum()))
    free = max(0, int((sizes > 0).sum()) - sum(sizes.shape))
    beyond = float((sizes * (means - prior) ** 2).sum()) - free * chance
    least, most = _SHRINK
    strength = min(most, max(least, chance * float(sizes.sum()) / beyond)) if beyond > 0 else most
    held: Floats = (sizes * means + strength * prior) / (sizes + strength)
    return held


def _additive_prior(sizes: Floats, means: Floats) -> Floats:
    """[D + 1, J]: the level plus what a worker is better and a type easier (least squares, held back to the level).

    A worker is not taken for bad because it was asked for hard types, nor for good because it was not.
    """
    kinds, workers = sizes.shape
    level = float((sizes * means).sum() / max(1.0, sizes.sum()))
    over = sizes * (means - level)
    gram = np.block([[np.diag(sizes.sum(axis=1)), sizes], [sizes.T, np.diag(sizes.sum(axis=0))]])
    found = np.linalg.solve(
        gram + _PRIOR_TASKS * np.eye(kinds + workers), np.concatenate([over.sum(axis=1), over.sum(axis=0)])
    )
    return level + found[:kinds, None] + found[None, kinds:]


def _multiplicative_prior(sizes: Floats, means: Floats) -> Floats:
    """[D + 1, J]: the worker's mean cost times how much more a type costs, found in turns."""
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
