"""Statistics of `conductor.py`: means and shares over tasks with paired bootstrap intervals, and what they are held to.

Every figure is a ratio of two sums over tasks (a mean: over their number), so that one set of resampled tasks gives the
interval of each, of differences and of shares of the optimum too. Seeds are averaged within a task before tasks are
drawn: an interval says what other tasks would change, and the seeds' own figures stand beside it. Invariant: the same
tasks and values give the same interval. Deliberately absent: corrections for many comparisons.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from conductor_played import Floats

_RESAMPLES = 2_000
_TAILS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % interval; `seeds` are those of each seed alone."""

    value: float
    low: float
    high: float
    seeds: tuple[float, ...] = ()

    def __str__(self) -> str:
        each = f"  ({', '.join(f'{one:.3f}' for one in self.seeds)})" if len(self.seeds) > 1 else ""
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]{each}"

    def told(self) -> dict[str, object]:
        """Return it as JSON data; what there was nothing to count for is null."""
        value, low, high, *seeds = (one if isfinite(one) else None for one in self._all())
        return {"value": value, "interval": [low, high], "seeds": seeds}

    def _all(self) -> tuple[float, ...]:
        return (self.value, self.low, self.high, *self.seeds)


class Lots:
    """So many resamples of the tasks; all figures of a cut are computed on the same ones."""

    def __init__(self, tasks: int) -> None:
        drawn = np.random.default_rng(0).multinomial(tasks, np.full(tasks, 1 / tasks), size=_RESAMPLES)
        self._weights: Floats = np.vstack([np.ones(tasks), drawn])  # the first row is the tasks as they are

    def ratio(self, over: Floats, under: Floats | None = None) -> Estimate:
        """Return sum(over) / sum(under), each [S, T]; without `under` the mean of `over`."""
        below = np.ones_like(over) if under is None else under
        return self._estimate(lambda pick: self._ratio(pick(over), pick(below)), len(over))

    def rise(self, before: tuple[Floats, Floats], after: tuple[Floats, Floats]) -> Estimate:
        """Return how much greater the second ratio is than the first."""
        return self._estimate(
            lambda pick: self._ratio(pick(after[0]), pick(after[1])) - self._ratio(pick(before[0]), pick(before[1])),
            len(after[0]),
        )

    def less(self, one: Floats, other: Floats) -> Estimate:
        """Return by how much the mean of one exceeds the other's."""
        return self.rise((other, np.ones_like(other)), (one, np.ones_like(one)))

    def entropy(self, one: Floats, other: Floats) -> Estimate:
        """Return the entropy of who was asked, as a share of the other's; counts [S, T, W], of each seed for itself."""

        def bits(counts: Floats) -> Floats:
            found: Floats = np.stack([_bits(self._weights @ row) for row in counts])
            return found

        mine, theirs = bits(one), bits(other).mean(axis=0)
        return self._estimate(lambda pick: pick(mine) / theirs, len(one))

    def _ratio(self, over: Floats, under: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Floats = (self._weights @ over) / (self._weights @ under)
        return found

    @staticmethod
    def _estimate(figure: Callable[[Callable[[Floats], Floats]], Floats], seeds: int) -> Estimate:
        """Compute a figure of the mean over seeds, with its interval, and of each seed alone."""

        def alone(seed: int) -> float:
            return float(figure(lambda rows: rows[min(seed, len(rows) - 1)])[0])  # a control has one row for all seeds

        found = figure(lambda rows: rows.mean(axis=0))
        low, high = np.nanquantile(found[1:], _TAILS) if np.isfinite(found[1:]).any() else (np.nan, np.nan)
        return Estimate(float(found[0]), float(low), float(high), tuple(alone(seed) for seed in range(seeds)))


def _bits(counts: Floats) -> Floats:
    shares = counts / np.maximum(1, counts.sum(axis=-1, keepdims=True))
    found: Floats = -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=-1)
    return found
