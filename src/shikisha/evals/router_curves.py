"""Routers between a weak and a strong worker: the baselines that RouteLLM and RouterBench compare routers with.

    PGR    performance gap recovered: (router - weak) / (strong - weak), by accuracy    RouteLLM, arXiv 2406.18665
    APGR   its mean over the share of calls to the strong worker, from 0 to 1: the area under the curve
    CPT(x) call-performance threshold: the least share of strong calls that recovers x of the gap
    AIQ    average improvement in quality: the mean height of the hull over dollars     RouterBench, arXiv 2403.12031

The functions take plain sequences, one entry a task. Invariants: where the strong worker is no better there is no gap
and no curve; a task's random draw and its fold depend on its content hash alone. Single workers are ranked on the tasks
that every one of them has a score for, the cheaper first where means are equal.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import accumulate, pairwise
from math import fsum, inf

from shikisha.core.fast_dataclass import dataclass
from shikisha.evals.entrant_metrics import RouterCurve, Scores, scores_of
from shikisha.evals.samples import Sample
from shikisha.evals.statistics import Point, hull, mean, quantile

# Thresholds at the tenths, as RouteLLM takes them.
_STEPS = 10
# One draw of 10,000 tasks has an APGR that is off by 0.01; the mean of 16 is off by 0.003.
_DRAWS = 16
_FOLDS = 5


@dataclass(frozen=True, slots=True)
class WorkerOutcomes:
    """One of the two workers: its name, and its score and dollars for each task (no dollars: not all known)."""

    worker: str
    scores: Sequence[float]
    dollars: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class RouterPoint:
    """A router at one threshold: its share of strong calls, mean score, and mean dollars where those are known."""

    share: float
    score: float
    dollars: float | None


def pgr(score: float, weak: float, strong: float) -> float:
    """Return the share of the gap that a mean score recovers; ValueError where there is no gap."""
    if strong <= weak:
        raise ValueError(f"a mean score of {strong:g} leaves no gap over {weak:g}")
    return (score - weak) / (strong - weak)


def apgr(points: Sequence[Point], weak: float, strong: float) -> float:
    """Return the mean PGR over a curve of (share of strong calls, mean score) points, which go from share 0 to 1."""
    recovered = [(share, pgr(score, weak, strong)) for share, score in sorted(points)]
    return _area(recovered) / (recovered[-1][0] - recovered[0][0])


def cpt(points: Sequence[Point], weak: float, strong: float, gap: float) -> float | None:
    """Return the least share of strong calls that recovers this share of the gap, between points linearly.

    None where the curve never gets there.
    """
    recovered = [(share, pgr(score, weak, strong)) for share, score in sorted(points)]
    if recovered and recovered[0][1] >= gap:
        return recovered[0][0]
    for (share, low), (more, high) in pairwise(recovered):
        if low < gap <= high:
            return share + (more - share) * (gap - low) / (high - low)
    return None


def aiq(points: Iterable[Point]) -> float | None:
    """Return the mean height of the non-decreasing convex hull of (dollars, mean score) points over their dollars.

    Beyond the most accurate point the hull continues level to the most expensive. At one cost it is the best score;
    None without points.
    """
    held = list(points)
    if not held:
        return None
    edge, highest = list(hull(held)), max(dollars for dollars, _ in held)
    if highest <= edge[0][0]:
        return edge[-1][1]
    return _area([*edge, (highest, edge[-1][1])]) / (highest - edge[0][0])


def _area(points: Sequence[Point]) -> float:
    return fsum((more - x) * (y + height) / 2 for (x, y), (more, height) in pairwise(points))


def threshold_sweep(weak: WorkerOutcomes, strong: WorkerOutcomes, rates: Sequence[float]) -> list[RouterPoint]:
    """Return what comes of a router as its threshold goes down the tenths of the rates, from no strong call to all.

    Tasks whose rate reaches the threshold go to the strong worker; tasks of one rate go together, so that steps are
    uneven, or empty, where rates are equal.
    """
    priced = bool(weak.dollars and strong.dollars)
    gains, extras = _gains(weak.scores, strong.scores), _gains(weak.dollars, strong.dollars) if priced else ()
    tasks = sorted(zip(rates, gains, extras or gains, strict=True), reverse=True)
    won = list(accumulate((gain for _, gain, _ in tasks), initial=0.0))
    spent = list(accumulate((extra for _, _, extra in tasks), initial=0.0))
    ranked, total = [rate for rate, _, _ in reversed(tasks)], len(tasks)
    sent = [0, *(total - bisect_left(ranked, quantile(ranked, step / _STEPS)) for step in reversed(range(_STEPS)))]
    score, dollars = mean(weak.scores), mean(weak.dollars)
    return [
        RouterPoint(count / total, score + won[count] / total, dollars + spent[count] / total if priced else None)
        for count in sent
    ]


def _gains(weak: Sequence[float], strong: Sequence[float]) -> list[float]:
    return [high - low for low, high in zip(weak, strong, strict=True)]


def hash_fraction(key: str, salt: str) -> float:
    """Return a key's place in [0, 1) for this salt, the same everywhere."""
    return int.from_bytes(sha256(f"{salt}\0{key}".encode()).digest()[:6]) / 2**48


def cross_fitted_gains(groups: Sequence[Hashable], gains: Sequence[float], keys: Sequence[str]) -> list[float]:
    """Return for each task the mean gain of its group over tasks in other folds than its own, by the keys' places.

    A group that occurs in no other fold has the mean gain of all tasks there. So no task's own outcome is in its rate.
    """
    folds = [int(hash_fraction(key, "fold") * _FOLDS) for key in keys]
    rates = [0.0] * len(keys)
    for fold in range(_FOLDS):
        known: dict[Hashable, list[float]] = defaultdict(list)
        for group, gain, own in zip(groups, gains, folds, strict=True):
            if own != fold:
                known[group].append(gain)
        overall = mean([gain for held in known.values() for gain in held])
        means = {group: mean(held) for group, held in known.items()}
        for index, own in enumerate(folds):
            if own == fold:
                rates[index] = means.get(groups[index], overall)
    return rates


def router_curves(
    weak: WorkerOutcomes, strong: WorkerOutcomes, keys: Sequence[str], domains: Sequence[str]
) -> tuple[RouterCurve, ...]:
    """Return the curves of random routers (expected and drawn) and, with more than one domain, by domain.

    `keys` are the tasks' content hashes. The rule by domain sends first the domains in which the strong worker gains
    most, as known from the other folds. No curve where the strong worker is not better.
    """
    if mean(strong.scores) <= mean(weak.scores):
        return ()
    lots = [
        threshold_sweep(weak, strong, [hash_fraction(key, f"lot {draw}") for key in keys]) for draw in range(_DRAWS)
    ]
    drawn = [_mean_point(steps, [1 / _DRAWS] * _DRAWS) for steps in zip(*lots, strict=True)]
    neither, *_, both = drawn
    shares = [step / _STEPS for step in range(_STEPS + 1)]
    expected = [_mean_point((neither, both), (1 - share, share)) for share in shares]
    routers = {"random, expected": expected, "random, drawn": drawn}
    if len(set(domains)) > 1:
        routers["by domain"] = threshold_sweep(
            weak, strong, cross_fitted_gains(domains, _gains(weak.scores, strong.scores), keys)
        )
    return tuple(_curve(name, weak, strong, steps) for name, steps in routers.items())


def _mean_point(steps: Sequence[RouterPoint], shares: Sequence[float]) -> RouterPoint:
    """Return the mean result of taking each of these points for its share of the tasks."""
    dollars = [step.dollars for step in steps if step.dollars is not None]
    return RouterPoint(
        _weighted_sum([step.share for step in steps], shares),
        _weighted_sum([step.score for step in steps], shares),
        _weighted_sum(dollars, shares) if len(dollars) == len(steps) else None,
    )


def _weighted_sum(values: Sequence[float], shares: Sequence[float]) -> float:
    return fsum(value * share for value, share in zip(values, shares, strict=True))


def _curve(name: str, weak: WorkerOutcomes, strong: WorkerOutcomes, steps: Sequence[RouterPoint]) -> RouterCurve:
    ends = mean(weak.scores), mean(strong.scores)
    points = tuple(dict.fromkeys((step.share, step.score) for step in steps))
    paid = [(step.dollars, step.score) for step in steps if step.dollars is not None]
    half, most = (cpt(points, *ends, gap) for gap in (0.5, 0.8))
    return RouterCurve(name, weak.worker, strong.worker, points, apgr(points, *ends), half, most, aiq(paid))


class SingleWorkers:
    """The single workers' samples by entrant's name, in the pool's order."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]]) -> None:
        self._samples = {
            name: {sample.task_id: sample for sample in held if sample.score is not None}
            for name, held in samples.items()
        }
        self._samples = {name: held for name, held in self._samples.items() if held}
        self._scores = {name: scores_of(held.values()) for name, held in self._samples.items()}
        self._common = _in_all(list(self._scores.values()))
        self._means = {
            name: mean([held[task] for task in self._common] if self._common else list(held.values()))
            for name, held in self._scores.items()
        }

    @cached_property
    def best(self) -> str | None:
        """The one with the highest mean score; None where there is none."""
        return max(self._means, key=lambda name: (self._means[name], -self._cost(name)), default=None)

    @cached_property
    def weakest(self) -> str | None:
        """The one with the lowest mean score."""
        return min(self._means, key=lambda name: (self._means[name], -self._cost(name)), default=None)

    @cached_property
    def cheapest(self) -> str | None:
        """The one with the lowest mean cost; None where not every cost is known."""
        costs = {name: self._cost(name) for name in self._means}
        return (
            None
            if inf in costs.values()
            else min(costs, key=lambda name: (costs[name], self._means[name]), default=None)
        )

    @property
    def best_scores(self) -> Scores | None:
        """The best one's scores."""
        return None if self.best is None else self._scores[self.best]

    def gap_recovered(self, scores: Scores) -> float | None:
        """Return the share of the gap from the weakest to the best that these scores recover.

        It is over the tasks that all three have a score for; None where there is no gap or no such task.
        """
        if self.best is None or self.weakest is None:
            return None
        ends = self._scores[self.weakest], self._scores[self.best]
        tasks = _in_all([scores, *ends])
        weak, strong = (mean([end[task] for task in tasks]) for end in ends)
        return pgr(mean([scores[task] for task in tasks]), weak, strong) if strong > weak else None

    def curves(self) -> tuple[RouterCurve, ...]:
        """Return the curves of routers between the weaker of two and the better, of more: the cheapest and the best.

        Where not every cost is known, the weakest stands for the cheapest. None where the two are one.
        """
        weak = self.weakest if len(self._means) == 2 else self.cheapest or self.weakest
        if weak is None or self.best is None or weak == self.best:
            return ()
        pair = self._samples[weak], self._samples[self.best]
        tasks = _in_all(pair)
        samples, others = ([held[task] for task in tasks] for held in pair)
        keys, domains = [sample.task_hash for sample in samples], [sample.domain for sample in samples]
        return router_curves(_worker_outcomes(weak, samples), _worker_outcomes(self.best, others), keys, domains)

    def notes(self) -> Iterator[str]:
        """Yield what must be said of the ranking."""
        if self._means and not self._common:
            yield "no task has a score from every single worker: they are ranked by the tasks that each did"
        elif self._means and len(self._common) < max(map(len, self._scores.values())):
            yield f"the single workers are ranked on the tasks that all of them have a score for: {len(self._common):,}"
        if len(self._means) > 2 and self.cheapest is None:
            yield "not every cost is known: router curves begin at the weakest single worker, not at the cheapest"
        elif len(self._means) > 2 and self.cheapest == self.best:
            yield "the cheapest single worker is the best one: there is nothing for a router to weigh"

    def _cost(self, name: str) -> float:
        held = self._samples[name]
        costs = [held[task].dollars for task in self._common or held]
        known = [cost for cost in costs if cost is not None]
        return mean(known) if len(known) == len(costs) else inf


def _in_all(held: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the keys of the first that all others have."""
    return [key for key in held[0] if all(key in other for other in held[1:])] if held else []


def _worker_outcomes(name: str, samples: Sequence[Sample]) -> WorkerOutcomes:
    dollars = [sample.dollars for sample in samples if sample.dollars is not None]
    scores = [sample.score for sample in samples if sample.score is not None]
    return WorkerOutcomes(name, scores, dollars if len(dollars) == len(samples) else ())
