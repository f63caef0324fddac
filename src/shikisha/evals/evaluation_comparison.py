"""Compares two evaluations task by task.

Invariants: tasks are the same when their content hashes are, whatever their ids; one id with two contents is an error
and not a pair; every figure is over the tasks that both sides have a score for, and says how many those are.
"""

from collections import Counter
from collections.abc import Sequence

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import asdict, dataclass
from shikisha.evals.entrant_metrics import EvaluationReport, PairedDifference, paired_difference
from shikisha.evals.samples import EntrantRole
from shikisha.evals.statistics import mcnemar, mean


@dataclass(frozen=True, slots=True)
class PairedEntrants:
    """An entrant of B against an entrant of A over `tasks`, by `accuracy` (A's, B's) there.

    `difference` is B - A. `p` is McNemar's exact test, None where scores are not all 0 or 1. `dollars` is B's cost a
    task less A's, over the `priced` tasks where both are known; None without any.
    """

    a: str
    b: str
    accuracy: tuple[float, float]
    difference: PairedDifference
    p: float | None
    dollars: float | None
    priced: int

    @property
    def tasks(self) -> int:
        """How many tasks both have a score for."""
        return self.difference.tasks


@dataclass(frozen=True, slots=True)
class EvaluationComparison:
    """Two evaluations (their tasksets' names), how many tasks are in both and in one only, and the pairs.

    `notes` say which pairs had no task in common, and whose grades a language model gave.
    """

    a: str
    b: str
    common: int
    only_a: int
    only_b: int
    pairs: tuple[PairedEntrants, ...]
    notes: tuple[str, ...] = ()

    def plain(self) -> dict[str, object]:
        """Return it as it goes into JSON."""
        return asdict(self)


def compare_evaluations(
    a: EvaluationReport, b: EvaluationReport, named: Sequence[tuple[str, str]] = (), rigour: str | None = None
) -> EvaluationComparison:
    """Compare the named pairs (A's, B's); else everybody who is in both; else the best of A with the best of B.

    Only tasks graded with this `rigour` count; without it, all common tasks must be graded with one and the same.
    ConfigError where nothing is common, a task's id stands for two contents, or grades of different rigour would be
    averaged; UnknownName for a name without entry.
    """
    places = _one_rigour(a, b, _common_tasks(a, b), rigour)
    found, notes = [], [note for side, report in (("A", a), ("B", b)) for note in _judge_notes(side, report)]
    for mine, other in named or _entrants_in_both(a, b):
        pair = _compare_pair((a, mine), (b, other), places)
        if pair is not None:
            found.append(pair)
        else:
            notes.append(f"no task has a score from {mine} in A and from {other} in B")
    total = len(places)
    return EvaluationComparison(
        a.taskset, b.taskset, total, len(a.tasks) - total, len(b.tasks) - total, tuple(found), tuple(notes)
    )


def _judge_notes(side: str, report: EvaluationReport) -> list[str]:
    """Say what of a side was not graded by executed checks, so that the two are never taken for the same unawares."""
    judged = [entry for entry in report.entries if entry.judged and entry.part is not EntrantRole.ORACLE]
    if not judged:
        return []
    grades, of = sum(entry.judged for entry in judged), sum(entry.tasks for entry in judged)
    return [f"{grades:,} of {of:,} grades in {side} were given by a language model"]


def _common_tasks(a: EvaluationReport, b: EvaluationReport) -> list[tuple[int, int]]:
    """Return the places of the tasks that are in both; the same content several times is matched in order."""
    hashes = dict(zip(a.tasks, a.hashes, strict=True))
    for task, content in zip(b.tasks, b.hashes, strict=True):
        if hashes.get(task, content) != content:
            raise ConfigError(f"task {task!r} is not the same in both: {hashes[task][:12]} in A, {content[:12]} in B")
    there = {key: place for place, key in enumerate(_occurrence_keys(a.hashes))}
    places = [(there[key], place) for place, key in enumerate(_occurrence_keys(b.hashes)) if key in there]
    if not places:
        raise ConfigError(f"none of the {len(a.tasks):,} tasks of A is among the {len(b.tasks):,} of B")
    return places


def _one_rigour(
    a: EvaluationReport, b: EvaluationReport, places: list[tuple[int, int]], rigour: str | None
) -> list[tuple[int, int]]:
    """Return the places whose grades are equally strict; a report from before there was rigour has none to compare."""
    mine, other = a.dimensions.get("rigour"), b.dimensions.get("rigour")
    if mine is None or other is None:
        if rigour is not None:
            side = "A" if mine is None else "B"
            raise ConfigError(f"rigour {rigour}: {side} does not say how its tasks are graded; evaluate it again")
        return places
    kinds = Counter((mine[first], other[second]) for first, second in places)
    if rigour is not None:
        chosen = [(first, second) for first, second in places if (mine[first], other[second]) == (rigour, rigour)]
        if not chosen:
            raise ConfigError(f"no common task is graded with rigour {rigour} in both: {_list_rigours(kinds)}")
        return chosen
    if len(kinds) > 1 or any(one != two for one, two in kinds):
        raise ConfigError(
            f"grades of different rigour are not averaged: {_list_rigours(kinds)}; choose one with --rigour"
        )
    return places


def _list_rigours(kinds: Counter[tuple[str, str]]) -> str:
    return ", ".join(
        f"{count:,} {one}" if one == two else f"{count:,} {one} in A and {two} in B"
        for (one, two), count in sorted(kinds.items())
    )


def _occurrence_keys(hashes: Sequence[str]) -> list[tuple[str, int]]:
    """Return each hash with how often it came before."""
    seen: Counter[str] = Counter()
    keys = []
    for content in hashes:
        keys.append((content, seen[content]))
        seen[content] += 1
    return keys


def _entrants_in_both(a: EvaluationReport, b: EvaluationReport) -> list[tuple[str, str]]:
    names = {entry.name for entry in b.entries}
    both = [(entry.name, entry.name) for entry in a.entries if entry.name in names]
    return both or [(_best_entrant(a), _best_entrant(b))]


def _best_entrant(report: EvaluationReport) -> str:
    """Return who has the highest accuracy among those asked for, or among all that were run."""
    ran = [entry for entry in report.entries if entry.part is not EntrantRole.ORACLE]
    asked = [entry for entry in ran if entry.part is EntrantRole.ASKED] or ran
    if not asked:
        raise ConfigError(f"there is no entrant in the evaluation of {report.taskset}")
    return max(asked, key=lambda entry: entry.accuracy).name


def _compare_pair(
    a: tuple[EvaluationReport, str], b: tuple[EvaluationReport, str], places: Sequence[tuple[int, int]]
) -> PairedEntrants | None:
    """Return an entrant of each report as a pair, over the tasks at these places of the two."""
    for report, name in (a, b):
        if name not in report.scores:
            raise UnknownName("entrant", name, report.scores)
    (first, mine), (second, other) = a, b
    ours, theirs = _values_in_both(second.scores[other], first.scores[mine], places)
    found = paired_difference(ours, theirs, mine)
    if found is None:
        return None
    accuracy = mean(list(theirs.values())), mean(list(ours.values()))
    paid, paid_before = _values_in_both(second.dollars[other], first.dollars[mine], places)
    extra = [cost - paid_before[task] for task, cost in paid.items() if task in ours]
    binary = {*ours.values(), *theirs.values()} <= {0.0, 1.0}
    p = mcnemar(found.better, found.worse) if binary else None
    return PairedEntrants(mine, other, accuracy, found, p, mean(extra) if extra else None, len(extra))


def _values_in_both(
    b: Sequence[float | None], a: Sequence[float | None], places: Sequence[tuple[int, int]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return what B and what A has, by A's place, where both have something."""
    ours: dict[str, float] = {}
    theirs: dict[str, float] = {}
    for mine, other in places:
        before, now = a[mine], b[other]
        if before is not None and now is not None:
            theirs[str(mine)], ours[str(mine)] = before, now
    return ours, theirs
