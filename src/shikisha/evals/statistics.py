"""Statistics over plain sequences of numbers: intervals, tests and summaries, as tables quote them.

Invariants: no result is NaN or infinite, whatever the data; an interval holds its mean, and none of scores has width 0:
a resample of few tasks, or of tasks with one result, shows no variation, so pseudo-observations stand for what was not
seen (`benchmarks/counting.py` measures the coverage); equal data give equal results in whatever order they come,
because sums are exact and the data's hash seeds the resampling. `scipy.stats` has no bootstrap that is seeded by its
data and quick for few distinct values, and would change the published figures. No correction for multiple comparisons
is made: each interval stands for itself.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from math import exp, fsum, lgamma, log, log2, sqrt

from shikisha.core.budget import wilson
from shikisha.core.errors import MissingExtra

Bounds = tuple[float, float]
Point = tuple[float, float]

_Z = 1.96  # of a 95 % interval
_TAILS = (0.025, 0.975)
# Below so many tasks the percentile bootstrap covers too little.
_SMALL = 30
# With so many resamples an end of an interval is off by about 4 % of a standard error.
_RESAMPLES = 4_000
# Up to so many distinct values, a multinomial of their counts is drawn instead of tasks: equal, and far quicker.
_FEW = 64
# Indices held at once, so that a quarter of a million tasks do not need gigabytes.
_CHUNK = 2**18
# With fewer differing pairs not even the exact sign test can tell (2 / 2**5 > 0.05).
_FEWEST = 6
_BIN_ENDS = [tenth / 10 for tenth in range(1, 11)]


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 of none."""
    return fsum(values) / len(values) if values else 0.0


def score_interval(scores: Sequence[float]) -> Bounds:
    """Return the 95 % interval of the mean of scores in [0, 1].

    Wilson's for shares; a bootstrap for scores in between, and below 30 tasks Agresti and Coull's (1998), which adds
    two scores of 0 and two of 1. Scores that are all equal do not show how they vary: they get Wilson's too, which is
    too wide rather than too narrow, since no score in [0, 1] varies more than a 0 or 1.
    """
    distinct = set(scores)
    if len(distinct) < 2 or distinct <= {0.0, 1.0}:
        return wilson(fsum(scores), len(scores))
    return _augmented(scores, (0.0, 0.0, 1.0, 1.0), (0.0, 1.0)) if len(scores) < _SMALL else bootstrap(scores)


def difference_interval(differences: Sequence[float]) -> Bounds:
    """Return the 95 % paired interval of a mean difference of scores, one difference a task; (-1, 1) of none.

    A bootstrap; below 30 tasks, and where all differ by the same, Bonett and Price's (2012), which adds a pair that is
    better by 1 and one that is worse by 1. With fewer than six differing pairs, too few for the exact sign test as
    well, the interval is stretched to hold 0.
    """
    if not differences:
        return -1.0, 1.0
    if len(differences) < _SMALL or len(set(differences)) == 1:
        low, high = _augmented(differences, (-1.0, 1.0), (-1.0, 1.0))
    else:
        low, high = bootstrap(differences)
    if sum(1 for value in differences if value) < _FEWEST:
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high


def mean_interval(values: Sequence[float]) -> Bounds:
    """Return the 95 % interval of the mean of values without a known range (dollars, rewards); ValueError of none.

    A bootstrap; below 30 values, and where all are equal, the normal one with two values added that lie as far from the
    mean as the largest value is from 0. Only where all are 0 (what is free) is its width 0.
    """
    if not values:
        raise ValueError("there is no interval of no values")
    if len(values) >= _SMALL and len(set(values)) > 1:
        return bootstrap(values)
    middle, reach = mean(values), max(map(abs, values))
    return _augmented(values, (middle - reach, middle + reach), (min(0.0, *values) - reach, max(0.0, *values) + reach))


def _augmented(values: Sequence[float], added: Sequence[float], within: Bounds) -> Bounds:
    """Return the normal 95 % interval of the mean with these pseudo-observations added, within what is possible."""
    middle, everything = mean(values), [*values, *added]
    centre, count = mean(everything), len(everything)
    spread = _Z * sqrt(fsum((value - centre) ** 2 for value in everything)) / count
    return max(within[0], min(centre - spread, middle)), min(within[1], max(centre + spread, middle))


def bootstrap(values: Sequence[float]) -> Bounds:
    """Return the 95 % percentile bootstrap interval of the mean (Efron 1979), 4,000 resamples; ValueError of none.

    It cannot see what did not occur: of equal values its width is 0. What people are shown is what is above.
    Where there are few distinct values (right or wrong; better, worse, the same), drawing how often each occurs is the
    same as drawing tasks, and a thousand times quicker.
    """
    if not values:
        raise ValueError("there is no interval of no values")
    counts = sorted(Counter(values).items())
    middle = mean(values)
    if len(counts) == 1:
        return middle, middle
    low, high = _percentiles(counts, len(values))
    return min(low, middle), max(high, middle)


def _percentiles(counts: Sequence[tuple[float, int]], total: int) -> Bounds:
    try:
        import numpy as np
    except ImportError:
        raise MissingExtra("eval", "the bootstrap") from None
    values, occurs = np.array([value for value, _ in counts]), np.array([count for _, count in counts])
    seed = sha256(array("d", (float(number) for pair in counts for number in pair)).tobytes()).digest()
    random = np.random.default_rng(int.from_bytes(seed[:16], "little"))
    if len(counts) <= _FEW:
        means = random.multinomial(total, occurs / total, size=_RESAMPLES) @ values / total
    else:
        every, means = np.repeat(values, occurs), np.empty(_RESAMPLES)
        rows = max(1, _CHUNK // total)
        for start in range(0, _RESAMPLES, rows):
            part = means[start : start + rows]
            part[:] = every.take(random.integers(0, total, size=(len(part), total), dtype=np.int32)).mean(axis=1)
    low, high = np.quantile(means, _TAILS)
    return float(low), float(high)


def mcnemar(better: int, worse: int) -> float:
    """Return the two-sided p of McNemar's exact test for pairs that differ; 1 where none does.

    It is the binomial probability of a split at least this uneven among `better + worse` tosses of a fair coin.
    """
    tosses, fewer = better + worse, min(better, worse)
    ways = lgamma(tosses + 1) - tosses * log(2)
    tail = fsum(exp(ways - lgamma(heads + 1) - lgamma(tosses - heads + 1)) for heads in range(fewer + 1))
    return min(1.0, 2 * tail)


def entropy(weights: Iterable[float]) -> float:
    """Return the entropy in bits of shares in proportion to these weights (from 0); 0 of none."""
    positive = sorted(weight for weight in weights if weight > 0)
    total = fsum(positive)
    return max(0.0, -fsum(weight / total * log2(weight / total) for weight in positive))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies, interpolated linearly; 0 of none."""
    if not values:
        return 0.0
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])


def confidence_bins(confidences: Sequence[float], scores: Sequence[float]) -> list[tuple[int, float, float]]:
    """Return ten equal bins of confidence in [0, 1], as (how many, mean confidence, mean score).

    A bin holds its upper end; empty bins are (0, 0, 0).
    """
    bins: list[tuple[list[float], list[float]]] = [([], []) for _ in _BIN_ENDS]
    for confidence, score in zip(confidences, scores, strict=True):
        place = min(bisect_left(_BIN_ENDS, confidence), len(_BIN_ENDS) - 1)
        bins[place][0].append(confidence)
        bins[place][1].append(score)
    return [(len(stated), mean(stated), mean(found)) for stated, found in bins]


def calibration_error(bins: Sequence[tuple[int, float, float]]) -> float:
    """Return the expected calibration error (Guo et al., arXiv 1706.04599): mean |confidence - score| over the bins."""
    total = sum(count for count, _, _ in bins)
    return fsum(count * abs(stated - found) for count, stated, found in bins) / total if total else 0.0


def hull(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the upper left convex hull of (cost, accuracy) points, from the cheapest to the most accurate.

    Mixing the points at random reaches what lies on it and nothing above it. Points that cost more than a point
    that is as accurate are not on it.
    """
    found: list[Point] = []
    for point in sorted(set(points), key=lambda point: (point[0], -point[1])):
        if found and point[1] <= found[-1][1]:
            continue
        while len(found) > 1 and not _turns_right(found[-2], found[-1], point):
            found.pop()
        found.append(point)
    return tuple(found)


def mix_for_cost(points: Iterable[Point], cost: float) -> tuple[Point, Point, float]:
    """Return two of these points and the share of the second, whose mix costs so much and is the most accurate.

    Where more cost buys no accuracy, or no point is as cheap, both are the nearest one on the hull and the share is 0.
    """
    best = hull(points)
    low = max((point for point in best if point[0] <= cost), default=best[0])
    dearer = [point for point in best if point[0] > cost >= low[0]]
    if not dearer:
        return low, low, 0.0
    return low, dearer[0], (cost - low[0]) / (dearer[0][0] - low[0])


def _turns_right(first: Point, middle: Point, last: Point) -> bool:
    rise = (middle[1] - first[1]) * (last[0] - first[0])
    return rise > (last[1] - first[1]) * (middle[0] - first[0])
