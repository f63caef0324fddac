"""Where a cascade may stop: how sure it is after each sequence of workers, and from which confidence it could ship.

Invariant: a task's own confidence comes from a fit without its fold; no answer has a confidence below every threshold.
What is kept is rounded as a policy file rounds it, so that a cascade decides alike before and after it was saved.
Deliberately absent: which stops a cascade has (`cascading`).
"""

from dataclasses import dataclass, field

import numpy as np

from shikisha.learn.inducing import scales_of
from shikisha.learn.logistic import fit_logistic
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import NOTHING, Seen
from shikisha.policy.cascade import chance, looks
from shikisha.policy.features import Scales

QUANTILES = 20
_RIDGE, _STILL = 3.0, 0.01
_SILENT = -1.0  # the confidence in no answer


@dataclass(frozen=True, slots=True)
class Stop:
    """What is known after one sequence of workers: `weights` [F + 1, p] of fits without each fold and of all tasks.

    `sure` [T] is the confidence, `least` [n] the thresholds to choose from, ascending, and `passed` [T] how many of
    those a task's confidence reaches.
    """

    weights: Floats
    sure: Floats
    least: Floats
    passed: Ints


@dataclass(frozen=True)
class Stops:
    """The stops of a panel, each fitted when it is first asked for."""

    panel: Panel
    folds: Ints
    scales: Scales
    seen: Seen
    _known: dict[tuple[int, ...], Stop] = field(default_factory=dict)

    @classmethod
    def of(cls, panel: Panel, folds: Ints) -> "Stops":
        """Return the stops of a panel."""
        usual = scales_of(panel)
        scales = Scales(_rounded(usual.written), _rounded(usual.spread))
        return cls(panel, folds, scales, panel.seen(np.ones(panel.codes.shape, bool)))

    def after(self, asked: tuple[int, ...]) -> Stop:
        """Return the stop after these workers, in the order in which they are asked."""
        if asked not in self._known:
            self._known[asked] = self._fitted(asked)
        return self._known[asked]

    def _fitted(self, asked: tuple[int, ...]) -> Stop:
        features, won = looks(self.seen, asked, self.scales), self.panel.won[:, asked[-1]]
        answered = self.panel.codes[:, asked[-1]] > NOTHING
        known = answered & ~np.isnan(self.panel.scores[:, asked[-1]])
        penalty = np.full(features.shape[1], _RIDGE)
        penalty[0] = _STILL
        whole = fit_logistic(features[known], won[known], penalty)
        weights, sure = [], np.full(len(won), _SILENT)
        for fold in range(int(self.folds.max()) + 1):
            rows, own = known & (self.folds != fold), answered & (self.folds == fold)
            weights.append(_rounded(fit_logistic(features[rows], won[rows], penalty, whole)))
            sure[own] = chance(features[own], weights[-1])
        least = _thresholds(sure[answered])
        return Stop(np.array([*weights, _rounded(whole)]), sure, least, np.searchsorted(least, sure, side="right"))


def _thresholds(sure: Floats) -> Floats:
    """Return 0, from which any answer is shipped, and some values that lie between confidences that occur."""
    values = np.unique(sure)
    if len(values) < 2:
        return np.zeros(1)
    wanted = np.quantile(sure, np.linspace(0, 1, QUANTILES + 2)[1:-1])
    places = np.clip(np.searchsorted(values, wanted), 1, len(values) - 1)
    return np.unique(np.append(_rounded((values[places - 1] + values[places]) / 2), 0.0))


def _rounded(values: Floats) -> Floats:
    return values.astype(np.float32).astype(np.float64)
