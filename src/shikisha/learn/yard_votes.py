"""Votes as yardsticks: ask a fixed set of workers, ship the answer that has most behind it.

The sets are the best k of those who cost at most so much each, for every k and every cost; a dial over them finds what
a budget is best spent on. Invariants: equal answers are those of one canonical form; of answers that weigh the same,
the one with the better supporter is shipped, as it was given in the fewest characters. Deliberately absent: looking at
one answer before asking for the next (cascades and inductions do that), and panels without answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.learn.panel import Panel
from shikisha.learn.scoring import fit_scorer
from shikisha.learn.yard_trials import Came, Perform
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import NOBODY, supporter
from shikisha.policy.scorer import Scorer

Asked = tuple[int, ...]
Tally = Callable[[Panel, Asked], Ints]  # [T]: the code of the answer that wins, -1 for none
_TINY = 1e-6  # what breaks a tie
_SIZES = (1, 2, 3, 5, 8, 99)
_LEAST = 1e-3  # whoever is asked counts something


@dataclass(frozen=True, slots=True)
class Weighted:
    """A vote by weights [J]; ties go to the better supporter: `ranks` [J], 0 for the best."""

    weights: Floats
    ranks: Ints

    def __call__(self, panel: Panel, asked: Asked) -> Ints:
        """Return the codes that win."""
        table = np.zeros((len(panel), int(panel.codes.max(initial=0)) + 1))
        for worker in asked:
            rows = np.flatnonzero(panel.codes[:, worker] >= 0)
            table[rows, panel.codes[rows, worker]] += self.weights[worker] + _TINY * 0.5 ** float(self.ranks[worker])
        return np.where(table.max(axis=1) > 0, table.argmax(axis=1), -1)


@dataclass(frozen=True, slots=True)
class Scored:
    """The answer that a scorer holds for the most probable one."""

    scorer: Scorer

    def __call__(self, panel: Panel, asked: Asked) -> Ints:
        """Return the codes that win."""
        given = np.zeros(panel.codes.shape, bool)
        given[:, list(asked)] = True
        answers, _ = self.scorer.posterior(panel.seen(given), sorted(asked))
        return np.where(answers.max(axis=1) > 0, answers.argmax(axis=1), -1)


def majority(panel: Panel) -> Perform:
    """Fit a vote in which all count the same."""
    return _performing(Weighted(np.ones(len(panel.workers)), _ranks(panel)), affordable(panel))


def weighted(panel: Panel) -> Perform:
    """Fit a vote in which each counts by the odds that it is right rather than wrong in the same way as others."""
    return _performing(Weighted(weights(panel), _ranks(panel)), affordable(panel))


def learned(panel: Panel) -> Perform:
    """Fit a vote by our scorer, over sets of a few sizes and all of those who cost at most so much."""
    return _performing(Scored(fit_scorer(panel)), affordable(panel, _SIZES))


def weights(panel: Panel) -> Floats:
    """[J]: log odds of being right, plus the log of how many ways to be wrong there seem to be (naive Bayes).

    With p the share of right answers and c the share of pairs of wrong ones that agree: log(p / (1 - p) / c).
    """
    known = ~np.isnan(panel.scores)
    right = (panel.won.sum(axis=0) + 1) / (known.sum(axis=0) + 2)
    odds: Floats = np.log(right / (1 - right)) - np.log(_agreeing(panel))
    return np.maximum(odds, _LEAST)


def affordable(panel: Panel, sizes: Sequence[int] = ()) -> tuple[Asked, ...]:
    """Return the best k, the best first, of the c cheapest workers, for every c and every k up to c (or these k)."""
    cheap = np.argsort(panel.paid.mean(axis=0), kind="stable").tolist()
    skill = _by_skill(panel)
    return tuple(
        tuple(worker for worker in skill if worker in cheap[:count])[:most]
        for count in range(1, len(cheap) + 1)
        for most in sizes or range(1, count + 1)
    )


def _performing(tally: Tally, sets: tuple[Asked, ...]) -> Perform:
    def perform(panel: Panel) -> Came:
        known: dict[Asked, tuple[Floats, Floats]] = {}
        for asked in sets:
            if asked not in known:
                known[asked] = _voted(tally, asked, panel)
        return _stacked(sets, known, len(panel.workers))

    return perform


def _voted(tally: Tally, asked: Asked, panel: Panel) -> tuple[Floats, Floats]:
    seen = panel.seen(np.ones(panel.codes.shape, bool))
    shipped = supporter(seen, sorted(asked), tally(panel, asked))
    won = np.where(shipped == NOBODY, 0.0, panel.won[np.arange(len(panel)), shipped])
    return won, panel.paid[:, list(asked)].sum(axis=1)


def _stacked(sets: tuple[Asked, ...], known: Mapping[Asked, tuple[Floats, Floats]], workers: int) -> Came:
    won, paid = (np.stack([known[asked][place] for asked in sets], axis=1) for place in (0, 1))
    asks = np.zeros((len(sets), workers))
    for row, asked in enumerate(sets):
        asks[row, list(asked)] = 1.0
    return Came(won, paid, asks)


def _agreeing(panel: Panel) -> float:
    """Return the share of pairs of wrong answers to one task that agree, a little above 0 and below 1."""
    wrong = (panel.won <= 0.5) & (panel.codes >= 0)
    codes = np.where(wrong, panel.codes, -1)
    pairs = wrong.sum(axis=1) * (wrong.sum(axis=1) - 1) / 2
    same = np.zeros(len(panel))
    for code in range(int(codes.max(initial=-1)) + 1):
        count = (codes == code).sum(axis=1)
        same += count * (count - 1) / 2
    return float((same.sum() + 1) / (pairs.sum() + 2))


def _by_skill(panel: Panel) -> Asked:
    return tuple(np.argsort(-panel.means(), kind="stable").tolist())


def _ranks(panel: Panel) -> Ints:
    ranks = np.empty(len(panel.workers), np.int64)
    ranks[list(_by_skill(panel))] = np.arange(len(panel.workers))
    return ranks
