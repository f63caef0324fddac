"""Comparing: what yardsticks come to on the very tasks that the rungs of a ladder were judged on.

Invariant: the folds are the ladder's own, so that a yardstick's figures stand beside a rung's, and each is fitted on
the tasks outside its fold alone. Deliberately absent: yardsticks that take minutes (they are the benchmarks').
"""

from collections.abc import Callable

import numpy as np

from shikisha.learn.fits import FOLDS, folds_of
from shikisha.learn.frontier import BUDGETS, POINTS, Frontier
from shikisha.learn.ladder import joined
from shikisha.learn.panel import Panel
from shikisha.learn.threads import one_on_each_core, one_thread_each
from shikisha.learn.yardsticks import told, yardsticks
from shikisha.policy.policy import Yardstick

_TOLD = np.array((*POINTS, *BUDGETS))


@one_thread_each()
def compared(panel: Panel, seed: int, tell: Callable[[str], None]) -> tuple[Yardstick, ...]:
    """Return all that is quick to try, judged on the folds of a ladder with this seed; nothing where tasks are few."""
    if len(set(panel.hashes)) < 2 * FOLDS:
        return ()
    folds = folds_of(panel.hashes, f"outer {seed}")

    def one(fold: int) -> dict[str, Frontier]:
        tell(f"comparing: fold {fold + 1} of {FOLDS}")
        train, held = panel.at(np.flatnonzero(folds != fold)), panel.at(np.flatnonzero(folds == fold))
        return yardsticks(train, folds_of(train.hashes, f"fit {seed}"), held, _TOLD)

    with one_on_each_core() as threads:
        found = list(threads.map(one, range(FOLDS)))
    whole = told({name: joined([fold[name] for fold in found]) for name in found[0]}, len(POINTS))
    return tuple(_sorted(one) for one in whole)


def _sorted(one: Yardstick) -> Yardstick:
    return Yardstick(one.name, one.area, tuple(sorted(one.frontier, key=lambda met: met.budget)), one.note)
