"""The metrics of training: one record a step (`StepMetrics`), what they add up to, and signs of a collapse.

A record holds what was counted in that step and nothing smoothed; it is JSON data, so every view can be drawn from a
run's `steps.jsonl` (`metrics_log`). Summaries compare the first steps with the latest, as means over several: one odd
step is no alarm. Invariants: shares sum to 1 over what they are of; dollars of simulated workers are called simulated;
warnings are pure functions of the steps, and few steps warn of nothing. Deliberately absent: views, and remedies: a
person decides.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, log2, sqrt
from statistics import fmean, median, variance
from typing import Protocol, TypedDict

import numpy as np

from shikisha.core.budget import format_dollars
from shikisha.plots.format import percent, plural, points
from shikisha_train.plan_reward import NO_PLAN, ScoredPlan

SAMPLES_PER_STEP = 4


@dataclass(frozen=True, slots=True)
class CompletionSample:
    """A completion, its task and its score."""

    task: str
    text: str
    reward: float | None
    shape: str
    right: bool


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The policy on tasks that it does not learn from, with greedy decoding: `right` of `count`, dollars a task."""

    count: int
    right: float
    valid: float
    dollars: float
    shapes: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, float] = field(default_factory=dict)  # other policies' right answers on the same tasks


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One step of GRPO.

    `reward` and `parts` are means over what was scored; `right` of all, `right_if_valid` of valid plans; `masked` is
    the share of runs that a worker's fault spoiled, `even` of groups without variance; `workers` and `shapes` are
    shares; `entropy` of the policy's tokens (nats), `worker_entropy` of calls over workers (bits); `seconds` by phase.
    """

    number: int
    of: int
    reward: float
    parts: Mapping[str, float]
    right: float
    valid: float
    right_if_valid: float
    several_steps: float
    masked: float
    even: float
    workers: Mapping[str, float]
    worker_entropy: float
    shapes: Mapping[str, float]
    entropy: float
    kl: float
    loss: float
    gradient: float
    rate: float
    tokens: int
    dollars: float
    seconds: Mapping[str, float]
    second_round: Mapping[str, float] = field(default_factory=dict)  # shares kept, repaired, broken
    samples: tuple[CompletionSample, ...] = ()
    judged: ValidationResult | None = None
    replay: float = 0.0  # mean loss of auxiliary SFT (nats a token)

    def dumps(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def loads(cls, line: str) -> "StepMetrics":
        """Return what `dumps` wrote."""
        data = json.loads(line)
        data["samples"] = tuple(CompletionSample(**one) for one in data["samples"])
        data["judged"] = None if data["judged"] is None else ValidationResult(**data["judged"])
        return cls(**data)


class RolloutMetrics(TypedDict):
    """The fields of `StepMetrics` that are counted from scored plans."""

    reward: float
    parts: dict[str, float]
    right: float
    valid: float
    right_if_valid: float
    several_steps: float
    masked: float
    workers: dict[str, float]
    worker_entropy: float
    shapes: dict[str, float]


class StepCallback(Protocol):
    """Is called after every step."""

    def __call__(self, step: StepMetrics) -> None:
        """Take note of a step."""
        ...


def rollout_metrics(found: Sequence[ScoredPlan]) -> RolloutMetrics:
    """Return the fields of `StepMetrics` that are counted from scored plans."""
    known = [one for one in found if one.total is not None]
    valid = [one for one in known if one.valid]
    names = sorted({name for one in known for name in one.parts})
    asked = Counter(worker for one in valid for worker in one.workers)
    return {
        "reward": _mean([one.total or 0.0 for one in known]),
        "parts": {name: _mean([one.parts.get(name, 0.0) for one in known]) for name in names},
        "right": _mean([one.right for one in known]),
        "valid": _mean([one.valid for one in known]),
        "right_if_valid": _mean([one.right for one in valid]),
        "several_steps": _mean([one.multi_step for one in valid]),
        "masked": 1 - len(known) / max(1, len(found)),
        "workers": _shares(asked),
        "worker_entropy": entropy_bits(asked),
        "shapes": _shares(Counter(one.shape for one in known)),
    }


def second_round_shares(found: Sequence[tuple[bool, ScoredPlan]]) -> dict[str, float]:
    """Return the shares kept, repaired and broken of second rounds, each with whether the answer at hand was right."""
    if not found:
        return {}
    return {
        "kept": _mean([one.shape == "ship" for _, one in found]),
        "repaired": _mean([one.right and not right for right, one in found]),
        "broken": _mean([right and not one.right for right, one in found]),
    }


def entropy_bits(counts: Mapping[str, int]) -> float:
    """Return the entropy of counts, in bits."""
    total = sum(counts.values())
    return -sum(count / total * log2(count / total) for count in counts.values() if count) if total else 0.0


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return {name: count / total for name, count in ordered}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


OPTIMUM = "optimum"
_MIN_WINDOW, _MAX_WINDOW = 3, 20  # steps at either end
# How the names of simulated workers begin.
_SIMULATED_PREFIX = "simulated"

Metric = Callable[[StepMetrics], float]


def averaging_window(count: int) -> int:
    """Return over how many steps at either end of `count` steps a mean is taken."""
    return max(1, min(max(_MIN_WINDOW, min(_MAX_WINDOW, count // 5)), count))


def mean_at_start(steps: Sequence[StepMetrics], figure: Metric) -> float:
    """Return the mean of a metric over the first steps."""
    return fmean(map(figure, steps[: averaging_window(len(steps))]))


def mean_at_end(steps: Sequence[StepMetrics], figure: Metric) -> float:
    """Return the mean of a metric over the latest steps."""
    return fmean(map(figure, steps[-averaging_window(len(steps)) :]))


def mean_change(steps: Sequence[StepMetrics], figure: Metric) -> tuple[float, float]:
    """Return how much a metric has risen, with its standard error as if steps were independent."""
    width = averaging_window(len(steps))
    ends = [[figure(step) for step in part] for part in (steps[:width], steps[-width:])]
    error = sqrt(sum(variance(end) / width for end in ends)) if width > 1 else 0.0
    return fmean(ends[1]) - fmean(ends[0]), error


def tokens_per_second(step: StepMetrics) -> float:
    """Return tokens sampled a second of the whole step."""
    taken = sum(step.seconds.values())
    return step.tokens / taken if taken > 0 else 0.0


def total_dollars(steps: Iterable[StepMetrics]) -> float:
    """Return what the calls of workers have cost."""
    return sum(step.dollars for step in steps)


def total_seconds(steps: Iterable[StepMetrics]) -> float:
    """Return the seconds that the steps took."""
    return sum(sum(step.seconds.values()) for step in steps)


def remaining_seconds(steps: Sequence[StepMetrics]) -> float:
    """Return how many seconds the remaining steps take at the speed of the latest."""
    latest = steps[-_MAX_WINDOW:]
    return max(0, steps[-1].of - steps[-1].number) * total_seconds(latest) / len(latest)


def uses_simulated_workers(steps: Iterable[StepMetrics]) -> bool:
    """Whether simulated workers were called, as their names say; then dollars are simulated too."""
    return any(name.startswith(_SIMULATED_PREFIX) for step in steps for name in step.workers)


def describe_cost(steps: Sequence[StepMetrics]) -> str:
    """Return what was spent so far, in words."""
    return f"{format_dollars(total_dollars(steps))}{' (simulated)' if uses_simulated_workers(steps) else ''}"


def validation_history(steps: Iterable[StepMetrics]) -> list[tuple[int, ValidationResult]]:
    """Return the steps after which the policy was validated, with the results."""
    return [(step.number, step.judged) for step in steps if step.judged is not None]


def share_of_optimum(found: ValidationResult) -> float | None:
    """Return the policy's right answers as a share of the optimal policy's."""
    best = found.beside.get(OPTIMUM, 0.0)
    return found.right / best if best > 0 else None


def valid_shapes(step: StepMetrics) -> dict[str, float]:
    """Return the shares of shapes among valid plans."""
    known = {name: share for name, share in step.shapes.items() if name != NO_PLAN}
    total = sum(known.values())
    return {name: share / total for name, share in known.items()} if total > 0 else {}


def mean_shares(shares: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of shares by name, the largest first; a name that is missing counts as 0."""
    names = {name for each in shares for name in each}
    means = {name: fmean(each.get(name, 0.0) for each in shares) for name in names}
    return dict(sorted(means.items(), key=lambda pair: (-pair[1], pair[0])))


def running_means(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return running means over so many values around each; gaps and non-finite values stay gaps."""
    half = width // 2
    found: list[float | None] = []
    for place, value in enumerate(values):
        near = [each for each in values[max(0, place - half) : place + half + 1] if each is not None and isfinite(each)]
        found.append(fmean(near) if near and value is not None and isfinite(value) else None)
    return found


def training_headline(steps: Sequence[StepMetrics]) -> list[str]:
    """Describe in sentences how far training has come."""
    last, width = steps[-1], averaging_window(len(steps))
    ends = {
        name: (percent(mean_at_start(steps, figure)), percent(mean_at_end(steps, figure)))
        for name, figure in (("right", _right), ("if valid", _right_if_valid), ("valid", _valid))
    }
    right = (
        f"After {last.number:,} of {plural(last.of, 'step')}, {ends['right'][1]} of the sampled plans lead to right "
        f"answers, {ends['right'][0]} did at the beginning."
    )
    valid = (
        f"Of the valid plans it is {ends['if valid'][1]} ({ends['if valid'][0]} at the beginning); valid are "
        f"{ends['valid'][1]} ({ends['valid'][0]}). These are means over {plural(width, 'step')} at either end."
    )
    return [right, valid, *(_describe_validation(*pair) for pair in validation_history(steps)[-1:])]


def _right(step: StepMetrics) -> float:
    return step.right


def _right_if_valid(step: StepMetrics) -> float:
    return step.right_if_valid


def _valid(step: StepMetrics) -> float:
    return step.valid


def _describe_validation(number: int, found: ValidationResult) -> str:
    share = share_of_optimum(found)
    reached = "" if share is None else f", {percent(share)} of what the best possible plans reach"
    return (
        f"After step {number:,}, with greedy decoding, {percent(found.right)} of {plural(found.count, 'task')} that it "
        f"does not learn from{reached}; {format_dollars(found.dollars)} a task."
    )


_MIN_STEPS = 6  # steps
_MIN_ENTROPY_RATIO = 0.25  # of the beginning's
# Bits: who begins with less had no choice to lose.
_MIN_INITIAL_BITS = 0.1
_MAX_SHAPE_SHARE = 0.9
_MIN_RISE = 0.05  # right answers
# Of the rise, at least, should come from better plans.
_MIN_ROUTING_SHARE = 0.25
_STANDARD_ERRORS = 2.0  # standard errors
# Of the beginning's valid plans.
_MIN_VALID_RATIO = 0.75
_MAX_MASKED = 0.1
_MAX_ZERO_VARIANCE = 0.9

Steps = Sequence[StepMetrics]


def collapse_warnings(steps: Steps) -> list[str]:
    """Return the signs of a collapse, or of learning nothing, the gravest first."""
    if len(steps) < _MIN_STEPS:
        return []
    return [warning for detect in _DETECTORS for warning in detect(steps)]


def _one_worker(steps: Steps) -> Iterator[str]:
    began, left = (
        mean_at_start(steps, lambda step: step.worker_entropy),
        mean_at_end(steps, lambda step: step.worker_entropy),
    )
    if began >= _MIN_INITIAL_BITS and left < _MIN_ENTROPY_RATIO * began:
        worker, share = next(iter(mean_shares([step.workers for step in _latest(steps)]).items()), ("nobody", 0.0))
        yield (
            f"Collapse onto few workers: the entropy of calls over workers fell from {began:.2f} to {left:.2f} bits; "
            f"{worker} gets {percent(share)} of the calls."
        )


def _one_shape(steps: Steps) -> Iterator[str]:
    for shape, share in mean_shares([found for step in _latest(steps) if (found := valid_shapes(step))]).items():
        if share > _MAX_SHAPE_SHARE:
            yield f"Collapse onto one shape: {percent(share)} of the valid plans are {shape}."


def _format_lost(steps: Steps) -> Iterator[str]:
    began, left = mean_at_start(steps, lambda step: step.valid), mean_at_end(steps, lambda step: step.valid)
    fall, error = mean_change(steps, lambda step: step.valid)
    if left < _MIN_VALID_RATIO * began and -fall > _STANDARD_ERRORS * error:
        yield f"The format is being lost: {percent(left)} of the texts are valid plans, down from {percent(began)}."


def _format_only(steps: Steps) -> Iterator[str]:
    """Split the rise of right = valid × right given valid into its two parts, each with the other's mean."""
    risen, error = mean_change(steps, lambda step: step.right)
    if risen < _MIN_RISE or risen <= _STANDARD_ERRORS * error:
        return
    better, _ = mean_change(steps, lambda step: step.right_if_valid)
    chosen = better * (mean_at_start(steps, lambda step: step.valid) + mean_at_end(steps, lambda step: step.valid)) / 2
    if chosen < _MIN_ROUTING_SHARE * risen:
        yield (
            f"Only the format is learned: right answers rose by {points(risen)} points, but given a valid plan by "
            f"{points(better)}; nearly all of the rise is plans that are valid now."
        )


def _worker_failures(steps: Steps) -> Iterator[str]:
    share = median(step.masked for step in _latest(steps))
    if share > _MAX_MASKED:
        yield f"Workers fail: their faults spoiled {percent(share)} of the plans, from which nothing is learned."


def _zero_variance(steps: Steps) -> Iterator[str]:
    share = median(step.even for step in _latest(steps))
    if share > _MAX_ZERO_VARIANCE:
        yield f"Little to learn from: in {percent(share)} of the groups all plans have the same reward."


def _harmful_second_rounds(steps: Steps) -> Iterator[str]:
    known = [step.second_round for step in steps if step.second_round][-averaging_window(len(steps)) :]
    if len(known) >= _MIN_STEPS // 2:
        means = mean_shares(known)
        repaired, broken = means.get("repaired", 0.0), means.get("broken", 0.0)
        if broken > repaired:
            yield f"Second rounds do harm: {percent(broken)} broke a right answer, {percent(repaired)} repaired one."


def _latest(steps: Steps) -> Steps:
    return steps[-averaging_window(len(steps)) :]


_DETECTORS: tuple[Callable[[Steps], Iterator[str]], ...] = (
    _one_worker,
    _one_shape,
    _format_lost,
    _format_only,
    _worker_failures,
    _zero_variance,
    _harmful_second_rounds,
)
