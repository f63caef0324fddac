"""Which workers an induction gets: the pools that bring most, found by adding one worker after another.

It begins with the three best of those whom no one beats at their cost, and adds whoever widens the area under accuracy
over cost most, on tasks that the fit has not seen. Invariant: the search sees the training part and nothing else.
Deliberately absent: searching every subset, and removing a worker again.
"""

from collections.abc import Sequence

import numpy as np

from shikisha.learn.frontier import BUDGETS, frontier
from shikisha.learn.inducing import Fitted, Ground, induce
from shikisha.learn.panel import Panel
from shikisha.policy.dial import Dial, Point, on_hull

FIRST, LAST = 3, 6  # how many workers the search begins and ends with
_SEARCHED = np.geomspace(0.01, 4.0, 8)  # prices while searching
_SHORTLIST = 6  # candidates that are looked at again after the first addition


def pools(ground: Ground) -> tuple[tuple[int, ...], ...]:
    """Return the pools to fit, each with one worker more; one pool of all where there are few workers."""
    everyone = range(len(ground.panel.workers))
    if len(everyone) <= FIRST + 1:
        return (tuple(everyone),)
    pool = skyline(ground.panel)[:FIRST]
    pool += [worker for worker in _by_skill(ground.panel) if worker not in pool][: FIRST - len(pool)]
    found, rest = [], [worker for worker in everyone if worker not in pool]
    while rest and len(pool) < LAST:
        worth = {worker: area(induce(ground, [*pool, worker], _SEARCHED)) for worker in rest}
        ranked = sorted(rest, key=lambda worker: -worth[worker])
        pool, rest = [*pool, ranked[0]], ranked[1:_SHORTLIST]
        found.append(tuple(sorted(pool)))
    return tuple(found)


def skyline(panel: Panel) -> list[int]:
    """Return the workers that nobody beats at the same cost or less, the best first."""
    skill, cost = panel.means(), panel.paid.mean(axis=0)
    return [
        worker
        for worker in _by_skill(panel)
        if not any(cost[other] <= cost[worker] and skill[other] > skill[worker] for other in range(len(skill)))
    ]


def area(fitted: Fitted) -> float:
    """Return the area under what a fit came to on tasks that it has not seen."""
    points = [
        Point(0, setting, float(cost), float(won))
        for setting, (cost, won) in enumerate(zip(fitted.cost.mean(axis=0), fitted.won.mean(axis=0), strict=True))
    ]
    dial = Dial(on_hull(points), 1.0, 0.0)
    places: Sequence[tuple[int, int]] = [(0, setting) for setting in range(fitted.won.shape[1])]
    mean_won, mean_cost = fitted.won.mean(axis=0)[None], fitted.cost.mean(axis=0)[None]
    return frontier(dial, mean_won, mean_cost, places, BUDGETS).area


def _by_skill(panel: Panel) -> list[int]:
    return [int(worker) for worker in np.argsort(-panel.means(), kind="stable")]
