"""What a log supports: which pairs of a task and a worker are recorded, why the others are not, and what may be said.

A log is full, or only what somebody chose to ask is known; then the probability with which it was asked decides whether
the rest can be judged. Invariant: a missing pair is unknown, never wrong. Deliberately absent: any estimate of how good
a worker or a policy is (`offpolicy`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from shikisha.learn.joining import newcomers
from shikisha.learn.panel import Panel
from shikisha.learn.turns import begins, begun, in_turn, ordered
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOTHING

WHOLE = 0.98  # share of pairs from which nothing is taken to be missing
SUPPORT = 5  # outcomes of a worker on a type below which nothing is known of it there
COMPLETE = 300  # tasks below which no policy is fitted on those that several workers did
OFF, ERRORS = 0.02, 3.5  # how far from 1 the weights' mean may be: so much, and so many standard errors
_SEVERAL = 0.05  # share of tasks with several workers from which a task with none was drawn as well
_APART, _SIGNS = 0.05, 4.0  # how far, and by how many standard errors, scores differ where a worker was chosen for it
_RARELY, _SMALL = 0.1, 0.02
_MOST = 4


class Kind(StrEnum):
    """How a log came about."""

    FULL = "full"  # the workers that matter did every task, or miss some for reasons that have nothing to do with it
    DRAWN = "drawn"  # partial, and each outcome says with what probability its worker was asked
    UNTOLD = "untold"  # partial, and nobody knows why those who were asked were asked


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a panel supports.

    `recorded` [J] are shares of the tasks, `cells` [D + 1, J] outcomes whose worth is known, by type (last row: all),
    `drawn` [T] the tasks whose outcomes all say with what probability they came about, `least` the smallest such
    probability (1 where there is none), `scored` the share of recorded pairs whose worth is known, `together` the sets
    of workers, one of each size, that did most tasks together, and how many. Of a partial log with turns, `cells` are
    first asks, and `drawn` the tasks whose first ask says so.
    """

    kind: Kind
    recorded: Floats
    cells: Ints
    drawn: Flags
    least: float
    scored: float
    together: tuple[tuple[tuple[str, ...], int], ...]
    findings: tuple[str, ...]


def of(panel: Panel) -> Coverage:
    """Return what a panel supports."""
    held = settled(panel)
    worth = known(held)
    recorded: Floats = held.there.mean(axis=0)
    drawn = begins(held) if in_turn(held) else _drawn(held)
    picked = _picked(held, recorded)
    pairs = int(held.there.sum())
    told = held.there & ~np.isnan(held.propensities)
    least = float(held.propensities[told].min()) if told.any() else 1.0
    scored = float(worth.sum() / max(1, pairs))
    together = _together(held)
    kind = _kind(held, recorded, picked, drawn)
    first = begun(ordered(held)) if kind is Kind.DRAWN else held
    cells = counted(first, known(first))
    findings = [
        f"{pairs:,} of {held.there.size:,} pairs of a task and a worker are recorded ({_percent(recorded.mean())})"
    ]
    findings += _on_propensities(kind, int(told.sum()), pairs, least)
    if scored < WHOLE:
        findings.append(f"{_percent(1 - scored)} of the recorded answers have no score, and count for nothing")
    if kind is not Kind.FULL and in_turn(held):
        findings += _on_turns(held, drawn)
    findings += _on_workers(first, cells)
    findings += [_on_choice(held.workers[worker], *means) for worker, means in picked.items()]
    if kind is Kind.DRAWN:
        findings += _on_weights(first.at(drawn))
    if kind is not Kind.FULL:
        findings += _on_sets(together)
    return Coverage(kind, recorded, cells, drawn, least, scored, together, tuple(findings))


def settled(panel: Panel) -> Panel:
    """Return the panel with answers scored that agree with a scored one of the same task."""
    if not (panel.there & np.isnan(panel.scores) & (panel.codes > NOTHING)).any():
        return panel
    count = int(panel.codes.max()) + 1
    sums, sizes = np.zeros((len(panel), count)), np.zeros((len(panel), count))
    for column in range(len(panel.workers)):
        rows = np.flatnonzero((panel.codes[:, column] > NOTHING) & ~np.isnan(panel.scores[:, column]))
        sums[rows, panel.codes[rows, column]] += panel.scores[rows, column]
        sizes[rows, panel.codes[rows, column]] += 1
    means = np.divide(sums, sizes, out=np.full_like(sums, np.nan), where=sizes > 0)
    found = np.take_along_axis(means, np.maximum(0, panel.codes), axis=1)
    lacks = np.isnan(panel.scores) & (panel.codes > NOTHING)
    return replace(panel, scores=np.where(lacks, found, panel.scores))


def known(panel: Panel) -> Flags:
    """[T, J]: pairs of which it is known what shipping them brings; nothing where an asked worker has no answer."""
    worth: Flags = panel.there & (~np.isnan(panel.scores) | (panel.codes <= NOTHING))
    return worth


def counted(panel: Panel, cells: Flags) -> Ints:
    """[D + 1, J]: how many of these pairs there are by type; the last row: of all types."""
    kinds = len(panel.types.names)
    rows = [cells[panel.batch.types == kind].sum(axis=0) for kind in range(kinds)]
    return np.array([*rows, cells.sum(axis=0)], np.int64).reshape(kinds + 1, -1)


def chances(panel: Panel) -> Floats:
    """[T, J]: the probability with which each recorded pair came about; 1 where none is known, and for others."""
    told: Flags = panel.there & (panel.propensities > 0)
    return np.where(told, panel.propensities, 1.0)


def sized(panel: Panel) -> Ints:
    """[D + 1, J]: how many outcomes are known, by type (last row: of all); 0 where they do not stand for the tasks.

    Weighted by one over their probability they would come to as many as there are tasks, had they been drawn so.
    """
    level, error = _level(panel)
    return np.where(np.abs(level - 1) > OFF + ERRORS * error, 0, counted(panel, known(panel)))


def _level(panel: Panel) -> tuple[Floats, Floats]:
    """[D + 1, J] each: the mean weight of a worker's outcomes by type (last row: of all), and its standard error."""
    weights, kinds = known(panel) / chances(panel), len(panel.types.names)
    member = np.vstack([np.eye(kinds + 1)[panel.batch.types % (kinds + 1)].T[:kinds], np.ones(len(panel))])
    sizes = np.maximum(1.0, member.sum(axis=1))[:, None]
    level, squares = member @ weights / sizes, member @ weights**2 / sizes
    drawn = np.divide(squares, level, out=np.zeros_like(level), where=level > 0) - 1  # variance, were the level 1
    return level, np.sqrt(np.maximum(np.maximum(drawn, squares - level**2), 0.0) / sizes)


def complete(panel: Panel, workers: tuple[int, ...]) -> Flags:
    """[T]: tasks that all of these workers (places) did, and of which it is known what each answer is worth."""
    return np.asarray(known(panel)[:, list(workers)].all(axis=1), bool)


def _drawn(panel: Panel) -> Flags:
    """[T]: tasks of which each recorded pair has a propensity, and those with none where none could be drawn."""
    told = np.asarray((~panel.there | ~np.isnan(panel.propensities)).all(axis=1), bool)
    asked = panel.there.sum(axis=1)
    several = float((asked > 1).sum()) >= _SEVERAL * max(1, int((asked > 0).sum()))
    return told if several else told & (asked > 0)


def _kind(panel: Panel, recorded: Floats, picked: dict[int, tuple[float, float]], drawn: Flags) -> Kind:
    """Full is: most of the workers that have outcomes did all tasks, and the others do not look picked for theirs.

    Newcomers do not count, since it is said what they would have said (`joining`).
    """
    core, some = recorded >= WHOLE, recorded > 0
    late = _late(panel, picked)
    some[late] = False
    picked = {worker: means for worker, means in picked.items() if worker not in late}
    if panel.there[:, some].mean() >= WHOLE if some.any() else False:
        return Kind.FULL
    if core.sum() >= max(2, some.sum() / 2) and not picked:
        return Kind.FULL
    told = drawn & panel.there.any(axis=1)
    return Kind.DRAWN if told.sum() >= min(COMPLETE, WHOLE * panel.there.any(axis=1).sum()) > 0 else Kind.UNTOLD


def _late(panel: Panel, picked: Mapping[int, tuple[float, float]]) -> list[int]:
    """Return the newcomers whose own outcomes are too few, or came about too plainly, for a partial log's learning.

    That can do something with COMPLETE of them where their probabilities are told, or others' outcomes decided.
    """
    worth = known(panel).sum(axis=0)
    told = (panel.there & ~np.isnan(panel.propensities)).sum(axis=0) == panel.there.sum(axis=0)
    return [worker for worker in newcomers(panel) if worth[worker] < COMPLETE or not (told[worker] or worker in picked)]


def _picked(panel: Panel, recorded: Floats) -> dict[int, tuple[float, float]]:
    """Return workers that seem to have been asked because of what others said: others' mean score there and elsewhere.

    Others are those that did nearly all tasks; means are compared within types, so that a worker that is only asked for
    some types is not among these.
    """
    found, core = {}, np.flatnonzero(recorded >= WHOLE)
    for worker in np.flatnonzero((recorded > 0) & (recorded < WHOLE)):
        scores = panel.scores[:, core[core != worker]]
        rated = ~np.isnan(scores).all(axis=1) if scores.size else np.zeros(len(panel), bool)
        there = panel.there[rated, worker]
        if min(there.sum(), (~there).sum()) < SUPPORT:
            continue
        level = np.nansum(scores[rated], axis=1) / (~np.isnan(scores[rated])).sum(axis=1)
        gap, error = _gap(level, there, panel.batch.types[rated])
        if abs(gap) > max(_APART, _SIGNS * error):
            found[int(worker)] = (float(level[there].mean()), float(level[there].mean() - gap))
    return found


def _gap(level: Floats, there: Flags, types: Ints) -> tuple[float, float]:
    """Return how much higher the level is where the flag is set, within types, and its standard error."""
    centred, flag = level.astype(float), there.astype(float)
    for kind in np.unique(types):
        rows = types == kind
        centred[rows] = centred[rows] - centred[rows].mean()
        flag[rows] = flag[rows] - flag[rows].mean()
    spread = float((flag**2).sum())
    if spread <= 0:
        return 0.0, 0.0
    gap = float((flag * centred).sum()) / spread
    return gap, float(np.sqrt(((flag * (centred - gap * flag)) ** 2).sum())) / spread


def _together(panel: Panel) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return those that did most tasks together: the best pair, and whoever is best added to it, one by one."""
    worth = known(panel)
    both = worth.T.astype(np.int64) @ worth
    np.fill_diagonal(both, -1)
    if len(both) < 2:
        return ()
    chosen = [int(place) for place in np.unravel_index(both.argmax(), both.shape)]
    found = [_named(panel, chosen)]
    while len(chosen) < min(_MOST, len(both)):
        counts = worth[complete(panel, tuple(chosen))].sum(axis=0)
        counts[chosen] = -1
        chosen.append(int(counts.argmax()))
        found.append(_named(panel, chosen))
    return tuple(found)


def _named(panel: Panel, workers: list[int]) -> tuple[tuple[str, ...], int]:
    return tuple(panel.workers[place] for place in sorted(workers)), int(complete(panel, tuple(workers)).sum())


def _on_propensities(kind: Kind, told: int, pairs: int, least: float) -> list[str]:
    if kind is Kind.FULL:
        return []
    if not told:
        return ["no outcome says with what probability its worker was asked: what was not asked cannot be judged"]
    words = []
    if told < pairs:
        words.append(f"{pairs - told:,} of {pairs:,} outcomes do not say with what probability their worker was asked")
    small = ", which is little: few outcomes will count for many" if least < _SMALL else ""
    return [*words, f"the smallest probability with which a recorded worker was asked is {least:.3g}{small}"]


def _on_turns(panel: Panel, drawn: Flags) -> list[str]:
    left, later = int((~drawn & panel.there.any(axis=1)).sum()), int((panel.there & ~begun(panel).there).sum())
    words = []
    if left:
        words.append(
            f"of {left:,} tasks nobody knows with what probability the first worker was asked: they are left out"
        )
    if later:
        words.append(
            f"{later:,} outcomes are not of the first ask of a task: they tell what it is worth to ask several, and "
            "nothing of a worker alone"
        )
    first = begun(panel)
    lost = 1 - known(first).sum(axis=0) / np.maximum(1, first.there.sum(axis=0))
    words += [
        f"{lost[worker]:.0%} of the first answers of {panel.workers[worker]} have no score, and its worth may be off "
        "by as much: a grade of another answer tells nothing of them"
        for worker in np.flatnonzero((lost > OFF) & first.there.any(axis=0))
    ]
    chosen = panel.there & ~first.there & ~(panel.propensities >= 1)
    if later and not chosen.any():
        words.append(
            "no further ask was left to chance: whether more of them, or fewer, would be better nobody can tell"
        )
    return words


def _on_workers(panel: Panel, cells: Ints) -> list[str]:
    """Return a line for each worker that is rarely asked, or not at all for some type that there is."""
    types, recorded, how = panel.batch.types, panel.there.mean(axis=0), "asked first" if in_turn(panel) else "asked"
    sizes = np.array([(types == kind).sum() for kind in range(len(panel.types.names))])
    words = []
    for column, name in enumerate(panel.workers):
        dark = [panel.types.names[kind] for kind in np.flatnonzero((cells[:-1, column] < SUPPORT) & (sizes >= SUPPORT))]
        told = f"{name} was {how} for {_percent(recorded[column])} of the tasks"
        if len(dark) == (sizes >= SUPPORT).sum() > 0 or not cells[-1, column]:
            words.append(f"{told}: too little is known about it on any type")
        elif dark:
            more = f" and {len(dark) - 3} more types" if len(dark) > 3 else ""
            words.append(f"{told}; nothing is known about it on {', '.join(dark[:3])}{more}")
        elif recorded[column] < min(_RARELY, recorded.mean() / 2):
            words.append(told)
    return words


def _on_weights(panel: Panel) -> list[str]:
    level, error = _level(panel)
    why = "its probabilities hang on what others had said"
    if in_turn(panel):
        why = "its answers have no score"
    off = np.flatnonzero((np.abs(level[-1] - 1) > OFF + ERRORS * error[-1]) & (level[-1] > 0))
    return [
        f"the outcomes of {panel.workers[worker]}, weighted by their probabilities, stand for {level[-1, worker]:.0%} "
        f"of the tasks: on others it was never asked{' first' * in_turn(panel)}, or {why}"
        for worker in off
    ]


def _on_sets(together: Sequence[tuple[tuple[str, ...], int]]) -> list[str]:
    if together and not together[0][1]:
        return ["no two workers did a task together: nothing is known about asking several"]
    return [f"{' and '.join(names)} did {count:,} tasks together" for names, count in together if count]


def _on_choice(name: str, there: float, elsewhere: float) -> str:
    return (
        f"{name} was asked where the others score {there:.2f} rather than {elsewhere:.2f}: its own record cannot be "
        "compared with theirs"
    )


def _percent(share: float) -> str:
    return f"{min(100 * share, 99.9 if share < 1 else 100):.{2 if share < 0.99 else 3}g} %"
