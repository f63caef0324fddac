"""The cost-quality trade-off: which settings of a policy meet a target, as measured on held-out tasks.

A budget between two operating points is met by mixing them: each task draws its point by its content hash, so the same
task is always treated the same. Invariants: points are on the upper convex hull of (cost, accuracy), from the cheapest
to the most accurate; cost 1.0 is the mean cost of the best single worker. Hard caps are the run's budget, not this one,
which holds on average.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass

_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A setting of a rule, and its results on held-out tasks: mean cost (units), accuracy, standard error."""

    part: int
    setting: int
    cost: float
    accuracy: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class OperatingMix:
    """Take `high` for this share of the tasks and `low` for the others, with the expected results."""

    low: OperatingPoint
    high: OperatingPoint
    share: float

    @property
    def cost(self) -> float:
        """The mean cost."""
        return self.low.cost + self.share * (self.high.cost - self.low.cost)

    @property
    def accuracy(self) -> float:
        """The mean accuracy."""
        return self.low.accuracy + self.share * (self.high.accuracy - self.low.accuracy)

    def of(self, content_hash: str) -> OperatingPoint:
        """Return the point for the task of this content."""
        return self.high if hash_to_unit(content_hash) < self.share else self.low


class TargetMetric(StrEnum):
    """The quantity that a target states."""

    COST = "max_cost"  # mean cost, as a share of the best single worker's
    QUALITY = "quality"  # accuracy, as a share of the best single worker's
    BUDGET = "budget_per_1k"  # dollars for a thousand tasks
    PRICE = "lambda"  # Prices: the accuracy that one unit of cost must bring.
    BEST = "best"  # the most accurate setting


@dataclass(frozen=True, slots=True)
class OperatingTarget:
    """The cost or quality to aim for."""

    aim: TargetMetric = TargetMetric.BEST
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class TradeOff:
    """Points on the hull, the `unit` in dollars (0: nothing costs anything), and the best single worker's accuracy."""

    points: tuple[OperatingPoint, ...]
    unit: float
    best_single: float

    def at(self, wish: OperatingTarget) -> OperatingMix:
        """Return the mix that meets the target; ConfigError, with the nearest possible, where none does."""
        match wish.aim:
            case TargetMetric.COST:
                return self.for_cost(wish.value)
            case TargetMetric.BUDGET:
                if self.unit <= 0:
                    raise ConfigError("budget_per_1k: this policy's log has no costs, so budgets do not apply")
                return self.for_cost(wish.value / 1000 / self.unit)
            case TargetMetric.QUALITY:
                return self.for_accuracy(wish.value * self.best_single)
            case TargetMetric.PRICE:
                best = max(self.points, key=lambda point: (point.accuracy - wish.value * point.cost, -point.cost))
                return OperatingMix(best, best, 0.0)
            case TargetMetric.BEST:
                best = max(self.points, key=lambda point: (point.accuracy, -point.cost))
                return OperatingMix(best, best, 0.0)

    def for_cost(self, cost: float) -> OperatingMix:
        """Return the most accurate mix whose mean cost is at most this; ConfigError below the cheapest setting."""
        cheapest = self.points[0].cost
        if cost < cheapest - _TINY:
            dollars = f", ${1000 * cheapest * self.unit:.3g} for 1,000 tasks" if self.unit > 0 else ""
            wanted = f"a mean cost of {cost:.3g} of the best single worker's"
            raise ConfigError(f"{wanted} is below the cheapest setting ({cheapest:.3g}{dollars})")
        index = bisect_right([point.cost for point in self.points], cost) - 1
        low = self.points[max(0, index)]
        if index + 1 >= len(self.points):
            return OperatingMix(low, low, 0.0)
        high = self.points[index + 1]
        return OperatingMix(low, high, max(0.0, min(1.0, (cost - low.cost) / max(_TINY, high.cost - low.cost))))

    def for_accuracy(self, accuracy: float) -> OperatingMix:
        """Return the cheapest mix whose accuracy is at least this; ConfigError where no setting reaches it."""
        if accuracy > self.points[-1].accuracy + _TINY:
            most = self.points[-1].accuracy
            raise ConfigError(
                f"an accuracy of {accuracy:.4f} was not reached on held-out tasks: the highest was {most:.4f}, "
                f"which is a quality of {most / max(_TINY, self.best_single):.3f}"
            )
        for low, high in zip(self.points, self.points[1:], strict=False):
            if low.accuracy >= accuracy - _TINY:
                return OperatingMix(low, low, 0.0)
            if high.accuracy > accuracy + _TINY:
                return OperatingMix(low, high, (accuracy - low.accuracy) / (high.accuracy - low.accuracy))
        return OperatingMix(self.points[-1], self.points[-1], 0.0)


def upper_hull(points: Iterable[OperatingPoint]) -> tuple[OperatingPoint, ...]:
    """Return the points on the upper left convex hull, from the cheapest to the most accurate."""
    hull: list[OperatingPoint] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.accuracy)):
        if hull and point.accuracy <= hull[-1].accuracy:
            continue
        while len(hull) > 1 and _is_below(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return tuple(hull)


def hash_to_unit(content_hash: str) -> float:
    """Return a task's position in [0, 1), deterministic everywhere."""
    return int.from_bytes(sha256(f"dial\0{content_hash}".encode()).digest()[:6]) / 2**48


def _is_below(first: OperatingPoint, middle: OperatingPoint, last: OperatingPoint) -> bool:
    rise = (middle.accuracy - first.accuracy) * (last.cost - first.cost)
    return rise <= (last.accuracy - first.accuracy) * (middle.cost - first.cost)


def parse_target(options: Sequence[tuple[str, str]]) -> OperatingTarget:
    """Return the target of an option such as (`quality`, `0.99`) or (`max_cost`, `20%`); default: the best setting."""
    if len(options) > 1:
        raise ConfigError(
            f"one of {', '.join(_TARGET_OPTIONS)} at a time, not {' and '.join(name for name, _ in options)}"
        )
    for name, text in options:
        try:
            value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{name}: expected a number from 0 (or a percentage), not {text!r}")
        return OperatingTarget(TargetMetric(name), value)
    return OperatingTarget()


_TARGET_OPTIONS = tuple(aim.value for aim in TargetMetric if aim is not TargetMetric.BEST)
