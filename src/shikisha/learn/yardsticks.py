"""Yardsticks: what others would have made of the same tasks, and what nobody could have made of them.

`yardsticks` has those that are quick to try: the best single worker, a mix of single workers by lot, votes, and an
oracle. Invariants: every one is fitted, and its settings are chosen, on the training part alone; the oracle alone looks
at the scores of what it decides on, and bounds what anybody can reach by shipping a worker's answer. Deliberately
absent: routers that read the prompt (`yard_routers`), which take minutes; the rule and the cascade, which are rungs.
"""

from collections.abc import Mapping

import numpy as np

from shikisha.learn.frontier import BUDGETS, Frontier
from shikisha.learn.panel import Panel
from shikisha.learn.yard_trials import Came, Perform, Yard, of_picks, trial
from shikisha.learn.yard_votes import learned, majority, weighted
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.policy import Yardstick

BEST, MIX, ORACLE = "best single worker", "mix by lot", "oracle"
MAJORITY, WEIGHTED, LEARNED = "majority vote", "weighted vote", "learned vote"
NOTES: Mapping[str, str] = {
    BEST: "the worker with the highest mean score in training, for every task; it has one cost, whatever the budget",
    MIX: "single workers on the hull of cost and accuracy, drawn by lot (the Zero router of RouterBench)",
    MAJORITY: "the best k of those who cost at most so much, one vote each",
    WEIGHTED: "the same, each vote counting its log odds",
    LEARNED: "our scorer over the answers of growing sets of workers, all asked",
    ORACLE: "knows the scores: the cheapest right worker, else the cheapest; nobody can do better",
}
_PRICES = np.append(1e-9, np.geomspace(0.002, 20.0, 60))  # the oracle's: at the first, any right answer is worth asking


def yardsticks(train: Panel, folds: Ints, held: Panel, budgets: Floats = BUDGETS) -> dict[str, Frontier]:
    """Return the frontiers, on the part held out, of all that is quick to try; no votes where there are no answers."""
    return {name: trial(yard, train, folds, held).frontier(budgets) for name, yard in quick(train).items()}


def quick(panel: Panel) -> dict[str, Yard]:
    """Return what can be tried in seconds on such a panel, by name."""
    votes: dict[str, Yard] = {MAJORITY: majority, WEIGHTED: weighted, LEARNED: learned} if panel.answers else {}
    return {BEST: best_single, MIX: singles, **votes, ORACLE: oracle}


def told(frontiers: Mapping[str, Frontier], first: int = 0) -> tuple[Yardstick, ...]:
    """Return these as a policy keeps them; the area is over the budgets from place `first` on."""
    return tuple(
        Yardstick(name, float(front.won[:, first:].mean()), front.met(), NOTES.get(name, ""))
        for name, front in frontiers.items()
    )


def best_single(panel: Panel) -> Perform:
    """Fit the best single worker."""
    best = panel.best()
    return lambda held: of_picks(np.full((len(held), 1), best, np.int64), held)


def singles(panel: Panel) -> Perform:
    """Fit each worker alone, a setting each: a dial over them mixes those on the hull by lot."""
    order = np.arange(len(panel.workers))
    return lambda held: of_picks(np.broadcast_to(order, held.codes.shape), held)


def oracle(panel: Panel) -> Perform:
    """Return the oracle: for each task whoever is worth most at a price, with all scores known; it fits nothing."""
    unit = panel.unit()

    def perform(held: Panel) -> Came:
        picks = [(held.won - price * held.paid / unit).argmax(axis=1) for price in _PRICES]
        return of_picks(np.stack(picks, axis=1), held)

    return perform
