"""What the few outcomes of newcomers leave open: it comes on top of the error of every setting that asks them.

How probably a newcomer is right is a logistic model whose weights are known so well and no better (`borrowing`). Tasks
are filled in and played twice with lots of their own; where both a newcomer and the outcome differ, half the product of
the two differences, times the features, is in the mean how accuracy moves with those weights (the likelihood ratio
identity), so that a setting which never asks a newcomer is not in doubt. Invariant: errors only grow. Deliberately
absent: doubt about costs, and about whose wrong answers a newcomer shares.
"""

from dataclasses import dataclass, replace
from math import hypot

import numpy as np

from shikisha.learn.fits import Fit
from shikisha.learn.joining import completed, likeness_of, newcomers
from shikisha.learn.panel import Panel
from shikisha.learn.play import play
from shikisha.policy.arrays import Floats
from shikisha.policy.dial import Dial
from shikisha.policy.parts import Part

MOST = 3_000  # tasks that are played


def doubted(fitted: Fit, panel: Panel, seed: int = 0) -> Fit:
    """Return the fit with errors that hold how little is known of a panel's newcomers; without any as it is."""
    if not newcomers(panel):
        return fitted
    twice = _Twice.of(replace(panel.heard(fitted.hearing), texts=()), seed)
    places = {(point.part, point.setting) for dial in fitted.dials.values() for point in dial.points}
    more = {place: twice.error(fitted.parts[place[0]], place[1]) for place in sorted(places)}

    def wider(dial: Dial) -> Dial:
        points = [replace(point, error=hypot(point.error, more[point.part, point.setting])) for point in dial.points]
        return replace(dial, points=tuple(points))

    return replace(fitted, dials={rung: wider(dial) for rung, dial in fitted.dials.items()})


@dataclass(frozen=True, slots=True)
class _Twice:
    """The same tasks filled in twice; `doubts` are, for each newcomer, its place, features [T, p] and covariance."""

    one: Panel
    other: Panel
    doubts: tuple[tuple[int, Floats, Floats], ...]

    @classmethod
    def of(cls, panel: Panel, seed: int) -> "_Twice":
        """Fill in, with lots that no fit has seen, and keep at most MOST tasks, drawn by their content."""
        both, count, likeness = completed(panel, seed + 1, 2), len(panel), likeness_of(panel)
        rows = np.sort(np.argsort(np.array(panel.hashes), kind="stable")[:MOST])
        doubts = []
        for worker in newcomers(panel):
            features, covariance = likeness.doubt(worker)
            doubts.append((worker, features[rows], covariance))
        return cls(both.at(rows), both.at(rows + count), tuple(doubts))

    def error(self, part: Part, setting: int) -> float:
        """Return the standard error that newcomers add to what this setting wins."""
        apart = play(part, setting, self.one).won - play(part, setting, self.other).won
        variance = 0.0
        for worker, features, covariance in self.doubts:
            right = (self.one.won[:, worker] > 0.5) * 1.0 - (self.other.won[:, worker] > 0.5)
            slope = (apart * right) @ features / (2 * len(features))
            variance += float(slope @ covariance @ slope)
        return float(np.sqrt(variance))
