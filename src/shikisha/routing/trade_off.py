"""The dial: which settings of a policy meet a budget, as measured on tasks that they were not fitted on.

A budget between two settings is met by taking each for a share of the tasks; which task gets which is drawn by the
task's content, so that the same task is always treated the same. Invariants: points stand on the upper hull of
(cost, accuracy), from the cheapest to the most accurate; cost 1.0 is what the best single worker costs in the mean.
Deliberately absent: hard caps (a run's budget holds those; a dial holds a mean).
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from shikisha.core.errors import ConfigError

_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A setting of a part, and what it came to on held-back tasks: mean cost (units), accuracy, its error."""

    part: int
    setting: int
    cost: float
    accuracy: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class OperatingMix:
    """Take `high` for this share of the tasks and `low` for the others; what that should come to."""

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
    """What a wish is stated in."""

    COST = "max_cost"  # mean cost, as a share of what the best single worker costs
    QUALITY = "quality"  # accuracy, as a share of the best single worker's
    BUDGET = "budget_per_1k"  # dollars for a thousand tasks
    PRICE = "lambda"  # accuracy that one unit of cost must bring
    BEST = "best"  # the most accurate setting


@dataclass(frozen=True, slots=True)
class OperatingTarget:
    """Where the dial is to stand."""

    aim: TargetMetric = TargetMetric.BEST
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class TradeOff:
    """Points on the hull, the `unit` in dollars (0: nothing costs anything), and the best single worker's accuracy."""

    points: tuple[OperatingPoint, ...]
    unit: float
    best_single: float

    def at(self, wish: OperatingTarget) -> OperatingMix:
        """Return what meets the wish; ConfigError where nothing does, which says what would."""
        match wish.aim:
            case TargetMetric.COST:
                return self.for_cost(wish.value)
            case TargetMetric.BUDGET:
                if self.unit <= 0:
                    raise ConfigError("budget_per_1k: this policy's log has no costs, so no budget can be kept")
                return self.for_cost(wish.value / 1000 / self.unit)
            case TargetMetric.QUALITY:
                return self.for_accuracy(wish.value * self.best_single)
            case TargetMetric.PRICE:
                best = max(self.points, key=lambda point: (point.accuracy - wish.value * point.cost, -point.cost))
                return OperatingMix(best, best, 0.0)
            case TargetMetric.BEST:
                return OperatingMix(self.points[-1], self.points[-1], 0.0)

    def for_cost(self, cost: float) -> OperatingMix:
        """Return the most accurate mix whose mean cost is at most this; ConfigError below the cheapest setting."""
        cheapest = self.points[0].cost
        if cost < cheapest - _TINY:
            dollars = f", ${1000 * cheapest * self.unit:.3g} for 1,000 tasks" if self.unit > 0 else ""
            wanted = f"a mean cost of {cost:.3g} of the best single worker's"
            raise ConfigError(f"{wanted} is below the cheapest setting ({cheapest:.3g}{dollars})")
        place = bisect_right([point.cost for point in self.points], cost) - 1
        low = self.points[max(0, place)]
        if place + 1 >= len(self.points):
            return OperatingMix(low, low, 0.0)
        high = self.points[place + 1]
        return OperatingMix(low, high, max(0.0, min(1.0, (cost - low.cost) / max(_TINY, high.cost - low.cost))))

    def for_accuracy(self, accuracy: float) -> OperatingMix:
        """Return the cheapest mix whose accuracy is at least this; ConfigError where no setting has it."""
        if accuracy > self.points[-1].accuracy + _TINY:
            most = self.points[-1].accuracy
            raise ConfigError(
                f"an accuracy of {accuracy:.4f} was not reached on held-back tasks: the most was {most:.4f}, "
                f"which is a quality of {most / max(_TINY, self.best_single):.3f}"
            )
        for low, high in zip(self.points, self.points[1:], strict=False):
            if low.accuracy >= accuracy:
                return OperatingMix(low, low, 0.0)
            if high.accuracy >= accuracy:
                return OperatingMix(low, high, (accuracy - low.accuracy) / (high.accuracy - low.accuracy))
        return OperatingMix(self.points[-1], self.points[-1], 0.0)


def upper_hull(points: Iterable[OperatingPoint]) -> tuple[OperatingPoint, ...]:
    """Return the points on the upper left convex hull, from the cheapest to the most accurate."""
    held: list[OperatingPoint] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.accuracy)):
        if held and point.accuracy <= held[-1].accuracy:
            continue
        while len(held) > 1 and _is_below(held[-2], held[-1], point):
            held.pop()
        held.append(point)
    return tuple(held)


def hash_to_unit(content_hash: str) -> float:
    """Return a task's place in [0, 1), the same everywhere and always."""
    return int.from_bytes(sha256(f"dial\0{content_hash}".encode()).digest()[:6]) / 2**48


def _is_below(first: OperatingPoint, middle: OperatingPoint, last: OperatingPoint) -> bool:
    rise = (middle.accuracy - first.accuracy) * (last.cost - first.cost)
    return rise <= (last.accuracy - first.accuracy) * (middle.cost - first.cost)


def parse_target(options: Sequence[tuple[str, str]]) -> OperatingTarget:
    """Return the wish that an option states, as (`quality`, `0.99`) or (`max_cost`, `20%`); none: the best setting."""
    if len(options) > 1:
        raise ConfigError(
            f"one of {', '.join(_TARGET_OPTIONS)} at a time, not {' and '.join(name for name, _ in options)}"
        )
    for name, text in options:
        return OperatingTarget(TargetMetric(name), _parse_number(name, text))
    return OperatingTarget()


_TARGET_OPTIONS = tuple(aim.value for aim in TargetMetric if aim is not TargetMetric.BEST)


def _parse_number(name: str, text: str) -> float:
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{name}: expected a number from 0 (or a percentage), not {text!r}")
    return value
