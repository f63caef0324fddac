"""The report: from all samples of an evaluation to its EvaluationReport, and that report as JSON.

Invariants: the order of the samples changes nothing; entrants are compared on the tasks that both have a score for, and
a note says where those are not all tasks; a sample of no task, or a second one of a task, is refused; conductors are
compared with the baselines at equal dollars on the tasks that all of these have a score and a cost for. The oracle is
computed here and its note says that it never ran. JSON holds no NaN, and `load_report` checks all of it.
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import accumulate, pairwise
from math import fsum, inf
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError, describe_invalid
from shikisha.core.fast_dataclass import dataclass, field, fields, is_dataclass, replace
from shikisha.core.toml import dotted_path
from shikisha.evals.entrant_metrics import (
    EntrantFigures,
    EntrantInfo,
    EqualDollars,
    EvaluationReport,
    RouterCurve,
    Scores,
    entrant_figures,
    oracle_samples,
    paired_difference,
    scores_of,
)
from shikisha.evals.samples import EntrantRole, Sample
from shikisha.evals.statistics import Point, hull, mean, mix_for_cost, quantile
from shikisha.evals.taskset import GradeRigour, TaskDimensions

# Routers between a weak and a strong worker: the baselines that RouteLLM and RouterBench compare routers with.
#
#     PGR    performance gap recovered: (router - weak) / (strong - weak), by accuracy    RouteLLM, arXiv 2406.18665
#     APGR   its mean over the share of calls to the strong worker, from 0 to 1: the area under the curve
#     CPT(x) call-performance threshold: the least share of strong calls that recovers x of the gap
#     AIQ    average improvement in quality: the mean height of the hull over dollars     RouterBench, arXiv 2403.12031
#
# The functions take plain sequences, one entry a task. Invariants: where the strong worker is no better there is no gap
# and no curve; a task's random draw and its fold depend on its content hash alone. Single workers are ranked on the
# tasks that every one of them has a score for, the cheaper first where means are equal.

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


FORMAT: Literal["shikisha evaluation 1"] = "shikisha evaluation 1"
ORACLE = EntrantInfo(
    "oracle",
    EntrantRole.ORACLE,
    note="computed, never run: for each task the best score that a single worker had, at the cost of the cheapest of "
    "those who had it",
)
Samples = Mapping[str, Sequence[Sample]]
_CONDUCTS = (EntrantRole.ASKED, EntrantRole.REFERENCE)  # compared with the baselines, and none of them

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class EvaluationInfo:
    """What a report says besides figures; `tasks` are the content hashes by task id, in the taskset's order.

    `dimensions` say where each task stands, by task id too.
    """

    taskset: str
    version: str
    tasks: Mapping[str, str]
    pool: tuple[str, ...]
    created: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    complete: bool = True
    why: str = ""
    dimensions: Mapping[str, TaskDimensions] = field(default_factory=dict)


def build_report(entrants: Sequence[EntrantInfo], samples: Samples, about: EvaluationInfo) -> EvaluationReport:
    """Count everybody's samples, given by entrant's name; ConfigError says which sample is of no task, or there twice.

    An entrant without samples has an entry of zeros. With single workers there is an entry for the oracle, at the end.
    """
    _check_samples(entrants, samples, about.tasks)
    alone = {who.name: samples.get(who.name, ()) for who in entrants if who.part is EntrantRole.SINGLE}
    everybody = [(who, samples.get(who.name, ())) for who in entrants]
    everybody += [(ORACLE, oracle_samples(list(alone.values()), ORACLE.name))] if alone else []
    singles = SingleWorkers(alone)
    best = singles.best
    entries = tuple(
        entrant_figures(who, held, singles.best_scores if who.name != best else None, best or "", about.dimensions)
        for who, held in everybody
    )
    baselines = {who.name: samples.get(who.name, ()) for who in entrants if who.part not in _CONDUCTS}
    entries = tuple(
        replace(each, at_equal_dollars=compare_at_equal_dollars(samples.get(each.name, ()), baselines))
        if each.part in _CONDUCTS
        else each
        for each in entries
    )
    costs = {each.name: each.dollars_a_task for each in entries if each.tasks}
    priced = {each.name: (cost, each.accuracy) for each in entries if (cost := costs.get(each.name)) is not None}
    recovered = {who.name: singles.gap_recovered(scores_of(held)) for who, held in everybody}
    return EvaluationReport(
        about.taskset,
        about.version,
        about.created,
        about.pool,
        entries,
        best,
        tuple(about.tasks),
        tuple(about.tasks.values()),
        {who.name: _in_order(scores_of(held), about.tasks) for who, held in everybody},
        {who.name: _in_order({each.task_id: each.dollars for each in held}, about.tasks) for who, held in everybody},
        _places(about, samples),
        {name: share for name, share in recovered.items() if share is not None},
        hull(priced[name] for name in alone if name in priced),
        singles.curves(),
        aiq(point for name, point in priced.items() if name != ORACLE.name),
        (*about.notes, *_notes(entries, len(about.tasks)), *_rigour_notes(entries), *singles.notes()),
        about.seconds,
        about.complete,
        about.why,
    )


def compare_at_equal_dollars(ours: Sequence[Sample], baselines: Samples) -> EqualDollars | None:
    """Return the baselines' best mix at the dollars of these samples; None where there is no cost to compare by.

    A baseline that has a score and a cost for half of these tasks or fewer takes no part.
    """
    mine = _priced_scores(ours)
    held = {name: _priced_scores(samples) for name, samples in baselines.items()}
    held = {name: found for name, found in held.items() if 2 * len(found.keys() & mine.keys()) > len(mine)}
    if not held:
        return None
    tasks = sorted(mine.keys() & frozenset.intersection(*map(frozenset, held.values())))
    spent = mean([mine[task][1] for task in tasks])
    points: dict[tuple[float, float], str] = {}
    for name, found in held.items():
        points.setdefault((mean([found[task][1] for task in tasks]), mean([found[task][0] for task in tasks])), name)
    if not spent and not any(dollars for dollars, _ in points):
        return None
    low, high, share = mix_for_cost(points, spent)
    mixed = {task: (1 - share) * held[points[low]][task][0] + share * held[points[high]][task][0] for task in tasks}
    difference = paired_difference({task: mine[task][0] for task in tasks}, mixed, "the baselines at equal dollars")
    if difference is None:
        return None
    dollars = low[0] + share * (high[0] - low[0])
    return EqualDollars(points[low], points[high], share, mean(list(mixed.values())), dollars, spent, difference)


def _priced_scores(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Return score and dollars by task, where both are known."""
    return {
        each.task_id: (each.score, each.dollars)
        for each in samples
        if each.score is not None and each.dollars is not None
    }


def _in_order(values: Mapping[str, float | None], tasks: Mapping[str, str]) -> tuple[float | None, ...]:
    return tuple(map(values.get, tasks))


def _places(about: EvaluationInfo, samples: Samples) -> dict[str, tuple[str, ...]]:
    """Return where each task stands, a list a dimension; a task that anybody's judge graded has that rigour."""
    judged = {sample.task_id for held in samples.values() for sample in held if sample.judged}
    said = [(task, about.dimensions.get(task)) for task in about.tasks]
    if any(place is None for _, place in said):
        return {}
    stood = [(task, place) for task, place in said if place is not None]
    return {
        "environment": tuple(str(place.environment) for _, place in stood),
        "specification": tuple(str(place.specification) for _, place in stood),
        "rigour": tuple(str(GradeRigour.JUDGE if task in judged else place.rigour) for task, place in stood),
        "goal": tuple(place.goal for _, place in stood),
    }


def _rigour_notes(entries: Sequence[EntrantFigures]) -> Iterator[str]:
    """Say that an accuracy is over grades of different rigour, where it is."""
    kinds = list(dict.fromkeys(kind for entry in entries for kind in entry.dimensions.get("rigour", ())))
    if len(kinds) > 1:
        yield f"the accuracies are over grades of different rigour ({', '.join(kinds)}); each has its own row below"


def _check_samples(entrants: Sequence[EntrantInfo], samples: Samples, tasks: Mapping[str, str]) -> None:
    names = [who.name for who in entrants]
    names += [ORACLE.name] if any(who.part is EntrantRole.SINGLE for who in entrants) else []
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two entrants have the name {twice[0]!r}")
    if strangers := sorted(samples.keys() - {who.name for who in entrants}):
        raise ConfigError(f"there are samples of {strangers[0]!r}, who is not among the entrants")
    for name, held in samples.items():
        seen: set[str] = set()
        for sample in held:
            if tasks.get(sample.task_id) != sample.task_hash:
                what = "has another content" if sample.task_id in tasks else "is not there"
                raise ConfigError(f"{name} has a sample of task {sample.task_id!r}, which {what} in this evaluation")
            if sample.task_id in seen:
                raise ConfigError(f"{name} has two samples of task {sample.task_id!r}")
            seen.add(sample.task_id)


def _notes(entries: Sequence[EntrantFigures], tasks: int) -> Iterator[str]:
    """Yield what must be said of everybody's figures."""
    fewer = sorted((each.tasks, each.name) for each in entries if each.tasks < tasks)
    if fewer:
        yield f"of the {tasks:,} tasks not all have a score from {_list_some([f'{name} ({n:,})' for n, name in fewer])}"
    uncertain = [f"{each.name} (up to {format_dollars(each.uncertain)})" for each in entries if each.uncertain]
    if uncertain:
        yield f"calls with an unknown outcome may have cost more, which is in no figure here: {_list_some(uncertain)}"
    unpriced = [each.name for each in entries if each.unpriced]
    if unpriced and all(each.dollars_a_task is None for each in entries):
        yield "no cost is known"
    elif unpriced:
        yield f"the cost is not known for every sample of {_list_some(unpriced)}"


def _list_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def dump_report(report: EvaluationReport) -> str:
    """Return the report as JSON: its fields, the format's name first."""
    return json.dumps({"format": FORMAT, **_fields(report)}, default=_fields, ensure_ascii=False, allow_nan=False)


def _fields(data: object) -> dict[str, object]:
    if not is_dataclass(data):
        raise TypeError(f"no part of a report: {data!r}")
    return {each.name: getattr(data, each.name) for each in fields(data)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportFile(EvaluationReport):
    """A report as it is kept."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    format: Literal["shikisha evaluation 1"]


def load_report(text: str | bytes, where: str = "evaluation") -> EvaluationReport:
    """Return the report that `dumps` wrote; ConfigError names `where`, the field, and what was expected there."""
    try:
        file = TypeAdapter(_ReportFile).validate_json(text)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
    else:
        found = EvaluationReport(**{each.name: getattr(file, each.name) for each in fields(EvaluationReport)})
        _check_lengths(found, where)
        return found
    wrong = [detail for detail in details if detail["loc"] == ("format",)] or details
    said = [
        f"{where}: {dotted_path(each['loc']) or 'the file'}: {describe_invalid(each['msg'])}" for each in wrong[:_SHOWN]
    ]
    raise ConfigError("\n".join(said))


def _check_lengths(found: EvaluationReport, where: str) -> None:
    """Check what fields must have in common."""
    names = {each.name for each in found.entries}
    columns: dict[str, Sequence[object]] = {f"scores.{name}": values for name, values in found.scores.items()}
    columns |= {f"dollars.{name}": values for name, values in found.dollars.items()}
    columns |= {f"dimensions.{name}": values for name, values in found.dimensions.items()}
    for name, values in {"hashes": found.hashes, **columns}.items():
        if len(values) != len(found.tasks):
            raise ConfigError(
                f"{where}: {name}: expected one for each of {len(found.tasks)} tasks, found {len(values)}"
            )
    for name, held in {"scores": found.scores, "dollars": found.dollars}.items():
        if held.keys() != names:
            odd = sorted(held.keys() ^ names)[0]
            raise ConfigError(f"{where}: {name}: expected one list for each entry; {odd!r} is in one of the two only")
    if found.best_single is not None and found.best_single not in names:
        raise ConfigError(f"{where}: best_single: there is no entry {found.best_single!r}")
