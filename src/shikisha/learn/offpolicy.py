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

from shikisha.learn.coverage import ERRORS, OFF, chances, counted, known, sized
from shikisha.learn.panel import Panel
from shikisha.learn.turns import begun, in_turn
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOBODY, SHIP
from shikisha.policy.parts import Part

EFFECTIVE = 100.0  # tasks that a sample must be worth before a figure is given
DARK = 0.01  # share of the tasks on which a policy may do what the log knows nothing about
_LEVEL = 20.0  # tasks at the mean of all that stand beside those of a worker, and of a type
_SHRINK = (5.0, 500.0)  # least and most tasks at what both come to that stand beside those of a worker on a type
_Z = 1.96
_ROUNDS = 10


class Method(StrEnum):
    """How a value is estimated."""

    IPS = "ips"  # weights alone: unbiased, and wide
    SNIPS = "snips"  # weights divided by their mean: narrower, and slightly biased in small samples
    DR = "dr"  # what a table expects, corrected by such weights: as narrow or narrower, whatever the table is worth


@dataclass(frozen=True, slots=True)
class Expected:
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
class Terms:
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

    def by(self, method: Method) -> tuple[Floats, Floats]:
        """Return [T], [T] whose means are the estimates of accuracy and dollars, and whose spread is their error's."""
        match method:
            case Method.DR:
                return self.won, self.paid
            case Method.IPS:
                return self.gained, self.spent
            case Method.SNIPS:
                return self._normalised(self.gained), self._normalised(self.spent)

    def _normalised(self, weighted: Floats) -> Floats:
        level = self.weight.mean() or 1.0
        middle = weighted.mean() / level
        terms: Floats = middle + (weighted - self.weight * middle) / level
        return terms


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, terms: Floats) -> "Interval":
        """Return the mean of independent terms, with Student's interval.

        Its degrees of freedom are as many as there are squared deviations that count: a few terms of great weight say
        little about how much such terms vary, however many others there are.
        """
        mean = float(terms.mean())
        squares = (terms - mean) ** 2
        total, fourth = float(squares.sum()), float((squares**2).sum())
        freedom = max(2.0, total**2 / fourth) if fourth else np.inf
        reach = _student(freedom) * float(np.sqrt(total / max(1, len(terms) - 1) / len(terms)))
        return cls(mean, mean - reach, mean + reach)


@dataclass(frozen=True, slots=True)
class Overlap:
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
class Value:
    """What a policy would have come to: accuracy, and dollars a task."""

    accuracy: Interval
    dollars: Interval
    overlap: Overlap


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no figure can be given, and how many more tasks logged like these would do (None: no number of them)."""

    reason: str
    overlap: Overlap
    needs: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A panel in folds, `parts`, with their `rows` in the whole, and for each a table of the other folds."""

    rows: tuple[Ints, ...]
    parts: tuple[Panel, ...]
    tables: tuple[Expected, ...]

    @classmethod
    def of(cls, panel: Panel, folds: Ints) -> "Split":
        """Split a panel by folds [T]."""
        rows = tuple(np.flatnonzero(folds == fold) for fold in range(int(folds.max(initial=-1)) + 1))
        every, (cells, later) = np.arange(len(panel)), _supported(panel)
        tables = (replace(expected(panel.at(np.setdiff1d(every, own))), cells=cells, later=later) for own in rows)
        return cls(rows, tuple(panel.at(own) for own in rows), tuple(tables))

    def terms(self, of: Callable[[int, Panel, Expected], Terms]) -> Terms:
        """Return the terms of all tasks in their order; `of` is given a fold, its tasks, and the others' table."""
        return joined([of(*each) for each in zip(count(), self.parts, self.tables)], self.rows)

    def following(self, part: Part, setting: int) -> Terms:
        """Return the terms of a part that was fitted on none of these tasks (see `followed`)."""
        return self.terms(lambda _, panel, table: followed(part, setting, panel, table))

    def routing(self, shares: Floats) -> Terms:
        """Return the terms of asking one worker, each with its share [T, J] of the probability (see `routed`)."""
        return self.terms(lambda fold, panel, table: routed(panel, shares[self.rows[fold]], table))


def _student(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t, by two terms of its expansion around the normal one."""
    first, second = (_Z**3 + _Z) / 4, (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    return _Z + first / freedom + second / freedom**2


def value(terms: Terms, method: Method = Method.DR) -> Value | Refusal:
    """Return what these terms say of the policy, or why they do not."""
    refused = refusal(terms)
    if refused is not None:
        return refused
    won, paid = terms.by(method)
    return Value(Interval.of(won), Interval.of(paid), overlap(terms))


def difference(one: Terms, other: Terms, method: Method = Method.DR) -> Interval | Refusal:
    """Return how much more accurate one policy is than the other on the same tasks, or why nobody can tell."""
    refused = refusal(one) or refusal(other)
    return refused or Interval.of(one.by(method)[0] - other.by(method)[0])


def refusal(terms: Terms) -> Refusal | None:
    """Return why these terms carry no figure; None where they do."""
    found = overlap(terms)
    room = OFF + ERRORS * float(terms.weight.std() / np.sqrt(max(1, len(terms))))
    sums = f"the weights of the tasks that hold all it asks have a mean of {found.level:.2f} rather than 1"
    if found.level - 1 > room:
        return Refusal(f"{sums}: the propensities are not how the log came about", found)
    if found.dark > DARK:
        return Refusal(f"for {found.dark:.0%} of the tasks it asks workers of whom the log knows nothing there", found)
    if found.effective < EFFECTIVE:
        needs = ceil(found.tasks * (EFFECTIVE / found.effective - 1)) if found.effective else None
        more = f": about {needs:,} more tasks logged like these are needed" if needs else ""
        what = f"the {found.followed:,} tasks of {found.tasks:,} that hold all it asks"
        return Refusal(f"{what} are worth {found.effective:.0f}, and {EFFECTIVE:.0f} is the least{more}", found, needs)
    if 1 - found.level > room:
        return Refusal(f"{sums}: some of what it asks could never be recorded, or has no score", found)
    return None


def overlap(terms: Terms) -> Overlap:
    """Return how much of the log is about the policy."""
    squares = float((terms.weight**2).sum())
    effective = float(terms.weight.sum()) ** 2 / squares if squares else 0.0
    level, dark = (float(part.mean()) if len(terms) else 0.0 for part in (terms.weight, terms.dark))
    return Overlap(len(terms), int((terms.weight > 0).sum()), effective, level, dark)


def joined(parts: Sequence[Terms], rows: Sequence[Ints]) -> Terms:
    """Return the terms of several sets of tasks, which have these rows in the whole."""
    order = np.argsort(np.concatenate(rows))
    return Terms(*(np.concatenate([getattr(part, one.name) for part in parts])[order] for one in fields(Terms)))


def followed(part: Part, setting: int, panel: Panel, table: Expected) -> Terms:
    """Follow a part through the panel (`ordered`, where it has turns), as far as the log holds what it asks.

    Without turns each worker was drawn on its own, and chances multiply. With them the log asked one after another,
    each propensity given what had been said till then; a task counts where the part asks in the same order.
    """
    turns = panel.turns if in_turn(panel) else None
    types, worth, prices = panel.batch.types, known(panel), chances(panel)
    asked = np.zeros(panel.there.shape, bool)
    dollars, paid, score, dark = (np.zeros(len(panel)) for _ in range(4))
    weight, guess = np.ones(len(panel)), np.zeros(len(panel))
    rows, turn = np.arange(len(panel)), 0
    while len(rows):
        acts = part.act(panel.seen(asked).at(rows), setting)
        ends = acts.ask == SHIP
        over, ship = rows[ends], acts.ship[ends]
        weight[over] *= (ship == NOBODY) | worth[over, ship]
        score[over] = np.where(ship == NOBODY, 0.0, panel.won[over, ship])
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
    return Terms(weight, weight * score, weight * dollars, guess, weight * (score - guess), paid, np.minimum(1.0, dark))


def routed(panel: Panel, shares: Floats, table: Expected) -> Terms:
    """Return the terms of a policy that asks one worker, each with its share [T, J] of the probability."""
    panel = begun(panel)
    types, worth = panel.batch.types, known(panel)
    success, dollars = table.success[types], table.dollars[types]
    weight = np.where(worth, shares / chances(panel), 0.0)
    cost = np.where(np.isnan(panel.dollars), dollars, panel.dollars)
    return Terms(
        weight.sum(axis=1),
        (weight * panel.won).sum(axis=1),
        (weight * cost).sum(axis=1),
        (shares * success).sum(axis=1),
        (weight * (panel.won - success)).sum(axis=1),
        (shares * dollars + weight * (cost - dollars)).sum(axis=1),
        (shares * (table.cells[types] == 0)).sum(axis=1),
    )


def expected(panel: Panel, *, told: bool = True) -> Expected:
    """Return what is expected of each worker on each type: weighted means, shrunk to what both come to elsewhere.

    Of a log with turns they are of first asks. `told` False: nobody knows why those were asked who were asked, and all
    outcomes count as they are.
    """
    cells, later = _supported(panel) if told else (counted(panel, known(panel)),) * 2
    panel = begun(panel) if told else panel
    worth, kinds = known(panel), len(panel.types.names)
    shares = np.bincount(panel.batch.types % (kinds + 1), minlength=kinds + 1) / max(1, len(panel))
    sizes, means = _means(panel, panel.won, worth)
    sizes[:kinds] *= cells[:kinds] > 0
    success = np.clip(_shrunk(sizes, means, np.clip(_sum_of_two(sizes, means), 0, 1)), 0, 1)
    sizes, means = _means(panel, panel.paid, panel.there & ~np.isnan(panel.dollars))
    prior = _product_of_two(sizes, means)
    dollars = (sizes * means + _LEVEL * prior) / (sizes + _LEVEL)
    held = [np.vstack([rows[:kinds], shares @ rows]) for rows in (success, dollars)]
    return Expected(held[0], held[1], cells, later)


def _supported(panel: Panel) -> tuple[Ints, Ints]:
    """[D + 1, J] each: outcomes that tell of workers alone, by type, and those that tell of one asked after others."""
    cells = sized(begun(panel))
    return cells, counted(panel, known(panel)) if in_turn(panel) else cells


def _means(panel: Panel, values: Floats, cells: Flags) -> tuple[Floats, Floats]:
    """Return [D + 1, J] effective numbers of these pairs by type (last: unknown ones), and their weighted means."""
    weights, kinds = cells / chances(panel), len(panel.types.names) + 1
    member = np.eye(kinds)[panel.batch.types % kinds].T
    sums, squares, totals = (member @ part for part in (weights, weights**2, weights * values))
    sizes = np.divide(sums**2, squares, out=np.zeros_like(sums), where=squares > 0)
    return sizes, np.divide(totals, sums, out=np.zeros_like(sums), where=sums > 0)


def _shrunk(sizes: Floats, means: Floats, prior: Floats) -> Floats:
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


def _sum_of_two(sizes: Floats, means: Floats) -> Floats:
    """[D + 1, J]: the level plus what a worker is better and a type easier (least squares, held back to the level).

    A worker is not taken for bad because it was asked for hard types, nor for good because it was not.
    """
    kinds, workers = sizes.shape
    level = float((sizes * means).sum() / max(1.0, sizes.sum()))
    over = sizes * (means - level)
    gram = np.block([[np.diag(sizes.sum(axis=1)), sizes], [sizes.T, np.diag(sizes.sum(axis=0))]])
    found = np.linalg.solve(
        gram + _LEVEL * np.eye(kinds + workers), np.concatenate([over.sum(axis=1), over.sum(axis=0)])
    )
    return level + found[:kinds, None] + found[None, kinds:]


def _product_of_two(sizes: Floats, means: Floats) -> Floats:
    """[D + 1, J]: the worker's mean cost times how much more a type costs, found in turns."""
    total, kinds = sizes * means, np.ones(len(sizes))
    workers = np.zeros(sizes.shape[1])
    for _ in range(_ROUNDS):
        workers = _ratio(total.sum(axis=0), kinds @ sizes)
        kinds = _ratio(total.sum(axis=1) + _LEVEL * workers.mean(), sizes @ workers + _LEVEL * workers.mean())
    return kinds[:, None] * workers[None, :]


def _ratio(over: Floats, under: Floats) -> Floats:
    return np.divide(over, under, out=np.ones_like(over), where=under > 0)
