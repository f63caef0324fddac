"""The report: from all samples of an evaluation to its EvaluationReport, and that report as JSON.

Invariants: the order of the samples changes nothing; entrants are compared on the tasks that both have a score for, and
a note says where those are not all tasks; a sample of no task, or a second one of a task, is refused; conductors are
compared with the baselines at equal dollars on the tasks that all of these have a score and a cost for. The oracle is
computed here and its note says that it never ran. JSON holds no NaN, and `load_report` checks all of it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
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
    entrant_figures,
    oracle_samples,
    paired_difference,
    scores_of,
)
from shikisha.evals.router_curves import SingleWorkers, aiq
from shikisha.evals.samples import EntrantRole, Sample
from shikisha.evals.statistics import hull, mean, mix_for_cost
from shikisha.evals.taskset import GradeRigour, TaskDimensions

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
