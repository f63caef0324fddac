"""What people's choices between two answers say a right answer, speed and money are worth to them.

RouterLLM's utility is w1 · success + w2 / latency - w3 · cost. Each choice is a pair of answers with these three
numbers; the weights are those of a conditional logit over the differences (Bradley and Terry 1952), none below 0. A
policy needs ratios: `speed` = w2 / w1 (for `learn --speed`) and `price` = w3 / w1 in accuracy a dollar, from which
`?lambda` follows. Invariants: a weight whose interval reaches 0 counts as 0; weights are kept only if they foretell
held-out choices no worse than success alone does, with an interval that excludes harm. Deliberately absent: ties, and
who the people are.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.core.text import one_line
from shikisha.evals.statistics import difference_interval
from shikisha.routing.arrays import Floats
from shikisha.routing.policy_data import KnownWorker

MIN_CHOICES, MAX_CHOICES = 50, 1_000_000
FEATURES = ("success", "speed", "cost")
_LEAST_SECONDS = 1e-3
_FOLDS, _DRAWS, _ROUNDS = 5, 200, 60
_RIDGE = 1e-3
_INTERVAL = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """An answer that a person could choose: how likely it was right (0 to 1), its seconds, its dollars."""

    success: float
    seconds: float
    dollars: float

    @property
    def features(self) -> tuple[float, float, float]:
        """Success, 1 / seconds, and dollars, which count against it."""
        return self.success, 1 / max(_LEAST_SECONDS, self.seconds), -self.dollars


@dataclass(frozen=True, slots=True)
class LearnedWeights:
    """The ratios with their 95 % intervals, from `choices` of which `foretold` are told right by folds.

    `speed` is in accuracy times seconds, `price` in accuracy a dollar. `alone` is the share foretold by success alone,
    `gain` the interval of the difference; `kept` says whether the weights may be used.
    """

    speed: float
    speed_interval: tuple[float, float]
    price: float
    price_interval: tuple[float, float]
    choices: int
    foretold: float
    alone: float
    gain: tuple[float, float]

    @property
    def kept(self) -> bool:
        """Whether harm is excluded, and anything but success counts."""
        return self.gain[0] >= 0 and (self.speed > 0 or self.price > 0)

    def price_of_unit(self, unit: float) -> float:
        """Return `?lambda` for a policy whose unit of cost is so many dollars."""
        return self.price * unit


def fit_preference(choices: Sequence[tuple[AnswerFacts, AnswerFacts]]) -> LearnedWeights:
    """Fit the weights to (chosen, rejected) pairs; ConfigError where they are too few, or do not follow success."""
    if not MIN_CHOICES <= len(choices) <= MAX_CHOICES:
        raise ConfigError(f"{len(choices):,} choices: expected {MIN_CHOICES} to {MAX_CHOICES:,}")
    pairs = np.array([[one.features, other.features] for one, other in choices])
    differences: Floats = pairs[:, 0] - pairs[:, 1]
    scale = np.where((spread := differences.std(axis=0)) > 0, spread, 1.0)
    scaled = differences / scale
    rng = np.random.default_rng(0)
    draws = np.array([_fit(scaled[rng.integers(0, len(scaled), len(scaled))]) / scale for _ in range(_DRAWS)])
    low = np.quantile(draws, _INTERVAL[0], axis=0)
    if low[0] <= 0:
        raise ConfigError(
            "people's choices do not follow how likely answers are right: no weight can be put in accuracy"
        )
    weights = np.where(low > 0, _fit(scaled) / scale, 0.0)
    ratios = draws[:, 1:] / np.maximum(draws[:, :1], 1e-12)
    bounds = np.quantile(ratios, _INTERVAL, axis=0)
    told, alone = _foretold(scaled)
    gain = difference_interval((told - alone).tolist())
    speed, price = (float(weights[at] / weights[0]) for at in (1, 2))
    return LearnedWeights(
        speed,
        (float(bounds[0, 0]), float(bounds[1, 0])),
        price,
        (float(bounds[0, 1]), float(bounds[1, 1])),
        len(choices),
        float(told.mean()),
        float(alone.mean()),
        (float(gain[0]), float(gain[1])),
    )


def _fit(scaled: Floats) -> Floats:
    """Return the weights [3] of a logit without an intercept, none below 0: projected Newton steps."""
    weights = np.full(scaled.shape[1], 0.1)
    for _ in range(_ROUNDS):
        chance = 1 / (1 + np.exp(-np.clip(scaled @ weights, -30, 30)))
        slope = scaled.T @ (1 - chance) / len(scaled) - _RIDGE * weights
        curve = (scaled * (chance * (1 - chance))[:, None]).T @ scaled / len(scaled) + _RIDGE * np.eye(len(weights))
        free = (weights > 0) | (slope > 0)
        if not free.any():
            break
        step = np.zeros_like(weights)
        step[free] = np.linalg.solve(curve[np.ix_(free, free)], slope[free])
        moved = np.maximum(0.0, weights + step)
        if np.abs(moved - weights).max() < 1e-8:
            break
        weights = moved
    return weights


def _foretold(scaled: Floats) -> tuple[Floats, Floats]:
    """Return for each choice whether weights of other folds tell it, and whether success alone does; .5 for ties."""
    folds, found = np.arange(len(scaled)) % _FOLDS, np.zeros(len(scaled))
    for fold in range(_FOLDS):
        found[folds == fold] = scaled[folds == fold] @ _fit(scaled[folds != fold])
    told, alone = ((values > 0) + 0.5 * (values == 0) for values in (found, scaled[:, 0]))
    return told, alone


def read_choices(
    lines: Iterable[str], source: str, workers: Sequence[KnownWorker] = ()
) -> list[tuple[AnswerFacts, AnswerFacts]]:
    """Return the choices of JSON lines: `{"chosen": {"worker": …}, "rejected": {…}}`.

    An answer has `success`, `seconds` and `dollars`; what it lacks is the mean of its `worker`. ConfigError with the
    line for any other.
    """
    known, found = {each.name: each for each in workers}, list[tuple[AnswerFacts, AnswerFacts]]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if len(found) >= MAX_CHOICES:
            raise ConfigError(f"{source}: more than {MAX_CHOICES:,} choices")
        try:
            row = json.loads(line)
            found.append((_facts(row["chosen"], known), _facts(row["rejected"], known)))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ConfigError(f"{source}:{number}: {one_line(why, 160)}") from None
    return found


def _facts(given: object, known: Mapping[str, KnownWorker]) -> AnswerFacts:
    if not isinstance(given, dict):
        raise TypeError(f"expected an object with worker, success, seconds, dollars, found {given!r:.40}")
    worker = given.get("worker")
    mean = known.get(worker) if isinstance(worker, str) else None
    if isinstance(worker, str) and known and mean is None:
        raise ValueError(f"unknown worker {worker!r}: known are {', '.join(known)}")
    usual = {} if mean is None else {"success": mean.score, "seconds": mean.seconds, "dollars": mean.dollars}
    values = []
    for name, most in (("success", 1.0), ("seconds", 1e6), ("dollars", 1e6)):
        value = given.get(name, usual.get(name))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ValueError(f"{name}: expected a number from 0 to {most:g}, found {value!r:.40}")
        values.append(float(value))
    return AnswerFacts(*values)
