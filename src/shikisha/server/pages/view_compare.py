"""Two runs side by side, or two ways of conducting over their recent runs.

Invariant: a share or a mean stands beside the number of runs that it was counted from; runs of which nobody can say
what they cost are left out of the mean and counted. What is better is marked only where both sides have a figure.
Deliberately absent: whether a difference is more than chance (`shikisha eval` says that, with intervals).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shikisha.server.pages.view_run import RunView
from shikisha.server.pages.view_runs import status_of
from shikisha.server.pages.view_workers import quantile
from shikisha.server.store import Served, State


@dataclass(frozen=True, slots=True)
class Way:
    """A way of conducting, over its recent runs."""

    name: str
    runs: int
    answered: int
    graded: int
    right: float | None
    dollars: float | None
    unpriced: int
    p50: float | None
    p95: float | None
    tokens: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of both sides in words; `better` is 0 or 1, None where neither is."""

    name: str
    values: tuple[float | None, float | None]
    form: str
    better: int | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A task that both did: a run of each."""

    task: str
    left: Served
    right: Served


def ways(served: Sequence[Served], scores: Mapping[str, float], by: str) -> dict[str, Way]:
    """Return the ways in which runs that are over were conducted: `by` is `model` or `conductor`."""
    groups: dict[str, list[Served]] = {}
    for each in served:
        groups.setdefault(each.model if by == "model" else each.conductor, []).append(each)
    return {name: _way(name, group, scores) for name, group in sorted(groups.items())}


def _way(name: str, served: Sequence[Served], scores: Mapping[str, float]) -> Way:
    over = [each for each in served if each.state is State.ENDED]
    times = sorted(each.updated - each.created for each in over)
    costs = [each.dollars for each in over if each.dollars is not None]
    marks = [scores[each.run] for each in over if each.run in scores]
    return Way(
        name=name,
        runs=len(over),
        answered=sum(status_of(each) == "done" for each in over),
        graded=len(marks),
        right=_mean(marks),
        dollars=_mean(costs),
        unpriced=len(over) - len(costs),
        p50=quantile(times, 0.5),
        p95=quantile(times, 0.95),
        tokens=_mean([float(each.tokens) for each in over]),
    )


def lines(one: Way, other: Way) -> tuple[Line, ...]:
    """Return two ways' figures side by side."""
    shares = tuple(way.answered / way.runs if way.runs else None for way in (one, other))
    return (
        _line("ended with an answer", (shares[0], shares[1]), "share", more=True),
        _line("right, of those graded", (one.right, other.right), "share", more=True),
        _line("cost, mean", (one.dollars, other.dollars), "money"),
        _line("time, p50", (one.p50, other.p50), "lasting"),
        _line("time, p95", (one.p95, other.p95), "lasting"),
        _line("tokens, mean", (one.tokens, other.tokens), "count"),
    )


def run_lines(one: RunView, other: RunView) -> tuple[Line, ...]:
    """Return two runs' figures side by side."""
    totals = one.story.totals, other.story.totals
    grades = tuple(view.run.grade.score if view.run.grade else None for view in (one, other))
    return (
        _line("grade", (grades[0], grades[1]), "share", more=True),
        _line("cost", (totals[0].dollars, totals[1].dollars), "money"),
        _line("time", (one.seconds, other.seconds), "lasting"),
        _line("tokens", (totals[0].tokens, totals[1].tokens), "count"),
        Line("rounds", (totals[0].rounds, totals[1].rounds), "count", None),
        Line("steps", (totals[0].steps, totals[1].steps), "count", None),
        Line("calls", (totals[0].calls, totals[1].calls), "count", None),
    )


def pairs(served: Sequence[Served], names: tuple[str, str], by: str, most: int = 20) -> tuple[Pair, ...]:
    """Return tasks that both ways did lately, the newest first; tasks are the same when their beginnings are."""
    latest: dict[str, dict[str, Served]] = {}
    for each in served:  # newest first
        name = each.model if by == "model" else each.conductor
        if each.excerpt and name in names:
            latest.setdefault(each.excerpt, {}).setdefault(name, each)
    both = [(task, found) for task, found in latest.items() if len(found) == len(set(names)) > 1]
    return tuple(Pair(task, found[names[0]], found[names[1]]) for task, found in both[:most])


def _line(name: str, values: tuple[float | None, float | None], form: str, *, more: bool = False) -> Line:
    one, other = values
    if one is None or other is None or one == other:
        return Line(name, values, form, None)
    return Line(name, values, form, int((other > one) is more))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
