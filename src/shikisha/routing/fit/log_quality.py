"""What a log supports: which pairs of a task and a worker are recorded, why the others are not, and what may be said.

A log is full, or only what somebody chose to ask is known; then the probability with which it was asked decides whether
the rest can be judged. Invariant: a missing pair is unknown, never wrong. Deliberately absent: any estimate of how good
a worker or a policy is (`offpolicy`).

What must be said of a log before anybody learns from it: scores that are all the same, no costs, open answers.

Invariants: nothing is mended here, only said, with counts; what nothing can be learned from is refused. Deliberately
absent: what is malformed (the reader of logs refuses that with file and row), what a log in which few were asked
supports (`coverage`), and logs that are too small (`ladder`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.evals.report_text import percent, plural
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.exploration import ENOUGH_OUTCOMES
from shikisha.routing.fit.new_workers import excluded_types, find_new_workers
from shikisha.routing.fit.outcome_matrix import (
    MISSING_SHARE,
    OutcomeMatrix,
    first_asks,
    has_turns,
    known_first_asks,
    missing_shares,
    ordered_asks,
)
from shikisha.routing.state import NO_ANSWER, OPEN_FORM

FULL_SHARE = 0.98  # share of pairs from which nothing is taken to be missing
MIN_SUPPORT = 5  # outcomes of a worker on a type below which nothing is known of it there
MIN_SHARED_TASKS = 300  # tasks below which no policy is fitted on those that several workers did
WEIGHT_TOLERANCE, WEIGHT_STANDARD_ERRORS = (
    0.02,
    3.5,
)  # how far from 1 the weights' mean may be: so much, and so many standard errors
_SEVERAL_SHARE = 0.05  # share of tasks with several workers from which a task with none was drawn as well
_MIN_SCORE_GAP, _MIN_GAP_ERRORS = (
    0.05,
    4.0,
)  # how far, and by how many standard errors, scores differ where a worker was chosen for it
_RARE_SHARE, _SMALL_PROPENSITY = 0.1, 0.02
_MAX_SHARED_WORKERS = 4


class LogKind(StrEnum):
    """How a log came about."""

    FULL = "full"  # the workers that matter did every task, or miss some for reasons that have nothing to do with it
    DRAWN = "drawn"  # partial, and each outcome says with what probability its worker was asked
    UNTOLD = "untold"  # partial, and nobody knows why those who were asked were asked


@dataclass(frozen=True, slots=True)
class LogCoverage:
    """What a panel supports.

    `recorded` [J] are shares of the tasks, `cells` [D + 1, J] outcomes whose worth is known, by type (last row: all),
    `drawn` [T] the tasks whose outcomes all say with what probability they came about, `least` the smallest such
    probability (1 where there is none), `scored` the share of recorded pairs whose worth is known, `together` the sets
    of workers, one of each size, that did most tasks together, and how many. Of a partial log with turns, `cells` are
    first asks, and `drawn` the tasks whose first ask says so.
    """

    kind: LogKind
    recorded: Floats
    cells: Ints
    drawn: Flags
    least: float
    scored: float
    together: tuple[tuple[tuple[str, ...], int], ...]
    findings: tuple[str, ...]


def measure_coverage(panel: OutcomeMatrix) -> LogCoverage:
    """Return what a panel supports."""
    held = propagate_scores(panel)
    worth = known_outcomes(held)
    recorded: Floats = held.there.mean(axis=0)
    drawn = known_first_asks(held) if has_turns(held) else _tasks_with_propensities(held)
    picked = _selected_workers(held, recorded)
    pairs = int(held.there.sum())
    told = held.there & ~np.isnan(held.propensities)
    least = float(held.propensities[told].min()) if told.any() else 1.0
    scored = float(worth.sum() / max(1, pairs))
    together = _largest_shared_sets(held)
    kind = _classify_log(held, recorded, picked, drawn)
    first = first_asks(ordered_asks(held)) if kind is LogKind.DRAWN else held
    cells = count_by_type(first, known_outcomes(first))
    findings = [
        f"{pairs:,} of {held.there.size:,} pairs of a task and a worker are recorded ({_format_percent(recorded.mean())})"
    ]
    findings += _propensity_findings(kind, int(told.sum()), pairs, least)
    if scored < FULL_SHARE:
        findings.append(f"{_format_percent(1 - scored)} of the recorded answers have no score, and count for nothing")
    if kind is not LogKind.FULL and has_turns(held):
        findings += _turn_findings(held, drawn)
    findings += _worker_findings(first, cells)
    findings += [_selection_finding(held.workers[worker], *means) for worker, means in picked.items()]
    if kind is LogKind.DRAWN:
        findings += _weight_findings(first.at(drawn))
    if kind is not LogKind.FULL:
        findings += _shared_set_findings(together)
    return LogCoverage(kind, recorded, cells, drawn, least, scored, together, tuple(findings))


def propagate_scores(panel: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel with answers scored that agree with a scored one of the same task."""
    if not (panel.there & np.isnan(panel.scores) & (panel.codes > NO_ANSWER)).any():
        return panel
    count = int(panel.codes.max()) + 1
    sums, sizes = np.zeros((len(panel), count)), np.zeros((len(panel), count))
    for column in range(len(panel.workers)):
        rows = np.flatnonzero((panel.codes[:, column] > NO_ANSWER) & ~np.isnan(panel.scores[:, column]))
        sums[rows, panel.codes[rows, column]] += panel.scores[rows, column]
        sizes[rows, panel.codes[rows, column]] += 1
    means = np.divide(sums, sizes, out=np.full_like(sums, np.nan), where=sizes > 0)
    found = np.take_along_axis(means, np.maximum(0, panel.codes), axis=1)
    lacks = np.isnan(panel.scores) & (panel.codes > NO_ANSWER)
    return replace(panel, scores=np.where(lacks, found, panel.scores))


def known_outcomes(panel: OutcomeMatrix) -> Flags:
    """[T, J]: pairs of which it is known what shipping them brings; nothing where an asked worker has no answer."""
    worth: Flags = panel.there & (~np.isnan(panel.scores) | (panel.codes <= NO_ANSWER))
    return worth


def count_by_type(panel: OutcomeMatrix, cells: Flags) -> Ints:
    """[D + 1, J]: how many of these pairs there are by type; the last row: of all types."""
    kinds = len(panel.types.names)
    rows = [cells[panel.batch.types == kind].sum(axis=0) for kind in range(kinds)]
    return np.array([*rows, cells.sum(axis=0)], np.int64).reshape(kinds + 1, -1)


def recorded_propensities(panel: OutcomeMatrix) -> Floats:
    """[T, J]: the probability with which each recorded pair came about; 1 where none is known, and for others."""
    told: Flags = panel.there & (panel.propensities > 0)
    return np.where(told, panel.propensities, 1.0)


def supported_outcomes(panel: OutcomeMatrix) -> Ints:
    """[D + 1, J]: how many outcomes are known, by type (last row: of all); 0 where they do not stand for the tasks.

    Weighted by one over their probability they would come to as many as there are tasks, had they been drawn so.
    """
    level, error = _mean_weights(panel)
    return np.where(
        np.abs(level - 1) > WEIGHT_TOLERANCE + WEIGHT_STANDARD_ERRORS * error,
        0,
        count_by_type(panel, known_outcomes(panel)),
    )


def _mean_weights(panel: OutcomeMatrix) -> tuple[Floats, Floats]:
    """[D + 1, J] each: the mean weight of a worker's outcomes by type (last row: of all), and its standard error."""
    weights, kinds = known_outcomes(panel) / recorded_propensities(panel), len(panel.types.names)
    member = np.vstack([np.eye(kinds + 1)[panel.batch.types % (kinds + 1)].T[:kinds], np.ones(len(panel))])
    sizes = np.maximum(1.0, member.sum(axis=1))[:, None]
    level, squares = member @ weights / sizes, member @ weights**2 / sizes
    drawn = np.divide(squares, level, out=np.zeros_like(level), where=level > 0) - 1  # variance, were the level 1
    return level, np.sqrt(np.maximum(np.maximum(drawn, squares - level**2), 0.0) / sizes)


def tasks_done_by_all(panel: OutcomeMatrix, workers: tuple[int, ...]) -> Flags:
    """[T]: tasks that all of these workers (places) did, and of which it is known what each answer is worth."""
    return np.asarray(known_outcomes(panel)[:, list(workers)].all(axis=1), bool)


def _tasks_with_propensities(panel: OutcomeMatrix) -> Flags:
    """[T]: tasks of which each recorded pair has a propensity, and those with none where none could be drawn."""
    told = np.asarray((~panel.there | ~np.isnan(panel.propensities)).all(axis=1), bool)
    asked = panel.there.sum(axis=1)
    several = float((asked > 1).sum()) >= _SEVERAL_SHARE * max(1, int((asked > 0).sum()))
    return told if several else told & (asked > 0)


def _classify_log(
    panel: OutcomeMatrix, recorded: Floats, picked: dict[int, tuple[float, float]], drawn: Flags
) -> LogKind:
    """Full is: most of the workers that have outcomes did all tasks, and the others do not look picked for theirs.

    Newcomers do not count, since it is said what they would have said (`joining`).
    """
    core, some = recorded >= FULL_SHARE, recorded > 0
    late = _late_workers(panel, picked)
    some[late] = False
    picked = {worker: means for worker, means in picked.items() if worker not in late}
    if panel.there[:, some].mean() >= FULL_SHARE if some.any() else False:
        return LogKind.FULL
    if core.sum() >= max(2, some.sum() / 2) and not picked:
        return LogKind.FULL
    told = drawn & panel.there.any(axis=1)
    return (
        LogKind.DRAWN
        if told.sum() >= min(MIN_SHARED_TASKS, FULL_SHARE * panel.there.any(axis=1).sum()) > 0
        else LogKind.UNTOLD
    )


def _late_workers(panel: OutcomeMatrix, picked: Mapping[int, tuple[float, float]]) -> list[int]:
    """Return the newcomers whose own outcomes are too few, or came about too plainly, for a partial log's learning.

    That can do something with COMPLETE of them where their probabilities are told, or others' outcomes decided.
    """
    worth = known_outcomes(panel).sum(axis=0)
    told = (panel.there & ~np.isnan(panel.propensities)).sum(axis=0) == panel.there.sum(axis=0)
    return [
        worker
        for worker in find_new_workers(panel)
        if worth[worker] < MIN_SHARED_TASKS or not (told[worker] or worker in picked)
    ]


def _selected_workers(panel: OutcomeMatrix, recorded: Floats) -> dict[int, tuple[float, float]]:
    """Return workers that seem to have been asked because of what others said: others' mean score there and elsewhere.

    Others are those that did nearly all tasks; means are compared within types, so that a worker that is only asked for
    some types is not among these.
    """
    found, core = {}, np.flatnonzero(recorded >= FULL_SHARE)
    for worker in np.flatnonzero((recorded > 0) & (recorded < FULL_SHARE)):
        scores = panel.scores[:, core[core != worker]]
        rated = ~np.isnan(scores).all(axis=1) if scores.size else np.zeros(len(panel), bool)
        there = panel.there[rated, worker]
        if min(there.sum(), (~there).sum()) < MIN_SUPPORT:
            continue
        level = np.nansum(scores[rated], axis=1) / (~np.isnan(scores[rated])).sum(axis=1)
        gap, error = _level_gap(level, there, panel.batch.types[rated])
        if abs(gap) > max(_MIN_SCORE_GAP, _MIN_GAP_ERRORS * error):
            found[int(worker)] = (float(level[there].mean()), float(level[there].mean() - gap))
    return found


def _level_gap(level: Floats, there: Flags, types: Ints) -> tuple[float, float]:
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


def _largest_shared_sets(panel: OutcomeMatrix) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return those that did most tasks together: the best pair, and whoever is best added to it, one by one."""
    worth = known_outcomes(panel)
    both = worth.T.astype(np.int64) @ worth
    np.fill_diagonal(both, -1)
    if len(both) < 2:
        return ()
    chosen = [int(place) for place in np.unravel_index(both.argmax(), both.shape)]
    found = [_shared_set(panel, chosen)]
    while len(chosen) < min(_MAX_SHARED_WORKERS, len(both)):
        counts = worth[tasks_done_by_all(panel, tuple(chosen))].sum(axis=0)
        counts[chosen] = -1
        chosen.append(int(counts.argmax()))
        found.append(_shared_set(panel, chosen))
    return tuple(found)


def _shared_set(panel: OutcomeMatrix, workers: list[int]) -> tuple[tuple[str, ...], int]:
    return tuple(panel.workers[place] for place in sorted(workers)), int(tasks_done_by_all(panel, tuple(workers)).sum())


def _propensity_findings(kind: LogKind, told: int, pairs: int, least: float) -> list[str]:
    if kind is LogKind.FULL:
        return []
    if not told:
        return ["no outcome says with what probability its worker was asked: what was not asked cannot be judged"]
    words = []
    if told < pairs:
        words.append(f"{pairs - told:,} of {pairs:,} outcomes do not say with what probability their worker was asked")
    small = ", which is little: few outcomes will count for many" if least < _SMALL_PROPENSITY else ""
    return [*words, f"the smallest probability with which a recorded worker was asked is {least:.3g}{small}"]


def _turn_findings(panel: OutcomeMatrix, drawn: Flags) -> list[str]:
    left, later = int((~drawn & panel.there.any(axis=1)).sum()), int((panel.there & ~first_asks(panel).there).sum())
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
    first = first_asks(panel)
    lost = 1 - known_outcomes(first).sum(axis=0) / np.maximum(1, first.there.sum(axis=0))
    words += [
        f"{lost[worker]:.0%} of the first answers of {panel.workers[worker]} have no score, and its worth may be off "
        "by as much: a grade of another answer tells nothing of them"
        for worker in np.flatnonzero((lost > WEIGHT_TOLERANCE) & first.there.any(axis=0))
    ]
    chosen = panel.there & ~first.there & ~(panel.propensities >= 1)
    if later and not chosen.any():
        words.append(
            "no further ask was left to chance: whether more of them, or fewer, would be better nobody can tell"
        )
    return words


def _worker_findings(panel: OutcomeMatrix, cells: Ints) -> list[str]:
    """Return a line for each worker that is rarely asked, or not at all for some type that there is."""
    types, recorded, how = panel.batch.types, panel.there.mean(axis=0), "asked first" if has_turns(panel) else "asked"
    sizes = np.array([(types == kind).sum() for kind in range(len(panel.types.names))])
    words = []
    for column, name in enumerate(panel.workers):
        dark = [
            panel.types.names[kind]
            for kind in np.flatnonzero((cells[:-1, column] < MIN_SUPPORT) & (sizes >= MIN_SUPPORT))
        ]
        told = f"{name} was {how} for {_format_percent(recorded[column])} of the tasks"
        if len(dark) == (sizes >= MIN_SUPPORT).sum() > 0 or not cells[-1, column]:
            words.append(f"{told}: too little is known about it on any type")
        elif dark:
            more = f" and {len(dark) - 3} more types" if len(dark) > 3 else ""
            words.append(f"{told}; nothing is known about it on {', '.join(dark[:3])}{more}")
        elif recorded[column] < min(_RARE_SHARE, recorded.mean() / 2):
            words.append(told)
    return words


def _weight_findings(panel: OutcomeMatrix) -> list[str]:
    level, error = _mean_weights(panel)
    why = "its probabilities hang on what others had said"
    if has_turns(panel):
        why = "its answers have no score"
    off = np.flatnonzero(
        (np.abs(level[-1] - 1) > WEIGHT_TOLERANCE + WEIGHT_STANDARD_ERRORS * error[-1]) & (level[-1] > 0)
    )
    return [
        f"the outcomes of {panel.workers[worker]}, weighted by their probabilities, stand for {level[-1, worker]:.0%} "
        f"of the tasks: on others it was never asked{' first' * has_turns(panel)}, or {why}"
        for worker in off
    ]


def _shared_set_findings(together: Sequence[tuple[tuple[str, ...], int]]) -> list[str]:
    if together and not together[0][1]:
        return ["no two workers did a task together: nothing is known about asking several"]
    return [f"{' and '.join(names)} did {count:,} tasks together" for names, count in together if count]


def _selection_finding(name: str, there: float, elsewhere: float) -> str:
    return (
        f"{name} was asked where the others score {there:.2f} rather than {elsewhere:.2f}: its own record cannot be "
        "compared with theirs"
    )


def _format_percent(share: float) -> str:
    return f"{min(100 * share, 99.9 if share < 1 else 100):.{2 if share < 0.99 else 3}g} %"


_MAX_LISTED_TYPES = 3  # types that a sentence lists


def find_caveats(panel: OutcomeMatrix) -> tuple[str, ...]:
    """Return sentences about a panel; ConfigError when none of its outcomes is graded."""
    known = ~np.isnan(panel.scores)
    if not known.any():
        outcomes = plural(int(panel.there.sum()), "outcome")
        raise ConfigError(f"none of the {outcomes} has a score: there is nothing to learn from")
    return (*_score_caveats(panel), *_cost_caveats(panel), *_open_answer_caveats(panel))


def _score_caveats(panel: OutcomeMatrix) -> Iterator[str]:
    known = panel.scores[~np.isnan(panel.scores)]
    if (known == known[0]).all():
        yield f"every outcome has the score {known[0]:g}: nothing tells one worker from another but its cost"


def _cost_caveats(panel: OutcomeMatrix) -> Iterator[str]:
    there = int(panel.there.sum())
    unknown = int((panel.there & np.isnan(panel.dollars)).sum())
    if unknown == there:
        yield "the log has no costs, so no budget can be kept and the dial has one end: accuracy"
    elif not panel.paid.any():
        yield "every cost is 0, so no budget can be kept and the dial has one end: accuracy"
    elif unknown:
        yield f"{plural(unknown, 'outcome')} of {there:,} without a cost, which count as free"


def _open_answer_caveats(panel: OutcomeMatrix) -> Iterator[str]:
    forms = np.array([*panel.types.forms, panel.types.form])
    tasks = int((forms[panel.batch.types] == OPEN_FORM).sum())
    if tasks and panel.answers:
        yield (
            f"the answers to {plural(tasks, 'task')} ({percent(tasks / len(panel))}) have no canonical form: two of "
            "them agree only to the letter, so there only checks, judges and feedback count"
        )


def find_gaps(panel: OutcomeMatrix) -> tuple[str, ...]:
    """Return sentences about what a full log lacks here and there, and what that counts as."""
    missing, pairs = int((~panel.there).sum()), panel.there.size
    ungraded = int((panel.there & np.isnan(panel.scores)).sum())
    found = []
    if missing:
        found.append(f"{percent(missing / pairs)} of all pairs of task and worker are not in the log: no answer there")
    found += _missing_notes(panel)
    if ungraded:
        found.append(f"{plural(ungraded, 'outcome')} without a score, which count as not right")
    return tuple(found)


def _missing_notes(panel: OutcomeMatrix) -> Iterator[str]:
    """Yield who lacks a good part of some types: there it is taken to say nothing, for nothing."""
    for worker, lacks in zip(panel.workers, missing_shares(panel).T.tolist(), strict=True):
        ranked = sorted(zip(lacks, panel.types.names, strict=True), reverse=True)
        much = [f"{100 * share:.0f} % of {name}" for share, name in ranked if share > MISSING_SHARE]
        if much:
            some = _join_names([*much[:_MAX_LISTED_TYPES], *(["other types"] if len(much) > _MAX_LISTED_TYPES else [])])
            yield f"{worker} lacks {some}: silent there"


def new_worker_notes(panel: OutcomeMatrix) -> tuple[str, ...]:
    """Return sentences about workers that joined late: what was filled in, and what is to be done about that."""
    late = find_new_workers(panel)
    if not late:
        return ()
    counts = (panel.there & ~np.isnan(panel.scores)).sum(axis=0)
    named = _join_names([f"{panel.workers[worker]} ({plural(int(counts[worker]), 'outcome')})" for worker in late])
    explore = counts[list(late)].min() < ENOUGH_OUTCOMES
    filled = (
        f"new in the pool: {named}; what other tasks would have brought was filled in by likeness to those that are "
        "known, and the dial and what is asked are of all workers"
    )
    next_step = (
        "what was measured on held-back tasks is of the known workers alone: before newcomers are relied on, try this "
        "policy as a canary or a shadow (`policy add`, `policy trial`)"
        + (f", or gather {ENOUGH_OUTCOMES} outcomes of each with ?explore=5%" if explore else "")
    )
    return (filled, next_step, *_excluded_type_notes(panel))


def _excluded_type_notes(panel: OutcomeMatrix) -> Iterator[str]:
    for worker in find_new_workers(panel):
        kinds = [panel.types.names[kind] for kind in excluded_types(panel, worker).tolist()]
        if kinds:
            yield f"{panel.workers[worker]} was never asked for {_join_names(kinds)}: it is taken to have no answer there"


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
