"""Which workers an induction gets: the pools that bring most, found by adding and exchanging one worker at a time.

It begins with the best single worker and adds whoever widens the area under accuracy over cost most, on tasks that the
fit has not seen; before a pool is kept, each of its workers is tried against the most promising of the others. Workers
drop out of the search as they turn out to bring little. Invariant: the search sees the training part and nothing else.
Deliberately absent: searching every subset.
"""

from collections.abc import Sequence

import numpy as np

from shikisha.learn.frontier import BUDGETS, frontier
from shikisha.learn.inducing import Fitted, Ground, States, induce
from shikisha.learn.panel import Panel
from shikisha.policy.dial import Dial, Point, on_hull

LEAST, LAST = 4, 6  # workers in the smallest and largest pool that is kept
_SEARCHED = np.geomspace(0.01, 4.0, 8)  # prices while searching
_SHORTLIST = 7  # candidates that are looked at once pools grow dear to fit
_ENOUGH = 1e-4  # of area, which an exchange must bring


class _Search:
    """Areas of pools, each fitted once; what pools that are compared have in common is looked at once."""

    def __init__(self, ground: Ground) -> None:
        self._ground, self._states, self._known = ground, States(ground), dict[tuple[int, ...], float]()

    def worth(self, pool: Sequence[int]) -> float:
        key = tuple(sorted(pool))
        if key not in self._known:
            self._known[key] = area(induce(self._ground, key, _SEARCHED, self._states))
        return self._known[key]

    def grown(self, pool: list[int], rest: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the pool with one worker more, and the others from the most promising."""
        self._states.share(pool)
        ranked = sorted(rest, key=lambda worker: -self.worth([*pool, worker]))
        return [*pool, ranked[0]], ranked[1:]

    def exchanged(self, pool: list[int], rest: Sequence[int]) -> list[int]:
        """Return the pool after one worker after another was exchanged for a better one."""
        for place in range(len(pool)):
            others = [worker for worker in rest if worker not in pool]
            self._states.share([*pool[:place], *pool[place + 1 :]])
            tried = [[*pool[:place], worker, *pool[place + 1 :]] for worker in others]
            best = max(tried, key=self.worth, default=pool)
            if self.worth(best) > self.worth(pool) + _ENOUGH:
                pool = best
        return pool


def pools(ground: Ground) -> tuple[tuple[int, ...], ...]:
    """Return the pools to fit, each with one worker more; one pool of all where there are few workers."""
    everyone = _by_skill(ground.panel)
    if len(everyone) <= LEAST:
        return (tuple(sorted(everyone)),)
    search, found = _Search(ground), []
    pool, rest = everyone[:1], everyone[1:]
    while rest and len(pool) < LAST:
        pool, rest = search.grown(pool, rest)
        if len(pool) >= LEAST:
            rest = rest[:_SHORTLIST]
        if len(pool) == LEAST:
            before = pool
            pool = search.exchanged(pool, rest)
            rest = [worker for worker in (*rest, *before) if worker not in pool]
        if len(pool) >= LEAST:
            found.append(tuple(sorted(pool)))
    return tuple(found)


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
