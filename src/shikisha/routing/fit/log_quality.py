"""Log quality: which outcomes a log holds, why others are missing, and what can be concluded from it.

A log is full, or partial, where only some workers were asked; then the recorded propensities decide whether the rest
can be evaluated. Invariants: a missing outcome is unknown, never wrong; problems are reported with counts and never
repaired; a log without any score is refused. Malformed files are refused by the reader of logs.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.plots.format import percent, plural
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.outcome_matrix import (
    MISSING_SHARE,
    OutcomeMatrix,
    first_asks,
    has_turns,
    known_first_asks,
    late_workers,
    missing_shares,
    propagate_scores,
)
from shikisha.routing.state import NO_ANSWER, OPEN_FORM

# A log with this share of its outcomes counts as full.
FULL_SHARE = 0.98
# With fewer outcomes of a worker on a type it is unknown there.
MIN_SUPPORT = 5
# Tasks with propensities, or outcomes of a late worker, that support learning from a partial log.
MIN_DRAWN_TASKS = 300
# The mean weight may differ from 1 by this much plus this many standard errors.
WEIGHT_TOLERANCE, WEIGHT_STANDARD_ERRORS = 0.02, 3.5
# With this share of tasks with several workers, workers were drawn independently, so a task may have none.
_SEVERAL_SHARE = 0.05
# Others' scores differ by this much and this many standard errors where a worker was selected by them.
_MIN_SCORE_GAP, _MIN_GAP_ERRORS = 0.05, 4.0
_RARE_SHARE = 0.1
# Costs of a worker that lie so many decades apart, with this share of them on either side, are of two units.
_COST_DECADES, _COST_SHARE, _MIN_COSTS = 2.0, 0.05, 20
# Dollars for a million tokens that no model costs less, or more, than.
_LEAST_RATE, _MOST_RATE = 0.001, 2_000.0
# A sentence lists at most this many types.
_MAX_LISTED_TYPES = 3


class LogKind(StrEnum):
    """How a log came about."""

    FULL = "full"  # relevant workers did every task, or miss some for unrelated reasons
    DRAWN = "drawn"  # partial, and each outcome has its propensity
    UNTOLD = "untold"  # partial, with unknown propensities


@dataclass(frozen=True, slots=True)
class LogCoverage:
    """What a matrix supports.

    `drawn` [T] are tasks whose outcomes all have propensities, or with turns their first ask, `scored` the share of
    recorded outcomes of known value, `findings` sentences for readers.
    """

    kind: LogKind
    drawn: Flags
    scored: float
    findings: tuple[str, ...]


def measure_coverage(matrix: OutcomeMatrix) -> LogCoverage:
    """Return what a matrix supports."""
    filled = propagate_scores(matrix)
    recorded: Floats = filled.there.mean(axis=0)
    if not has_turns(filled):
        # [T]: tasks whose recorded outcomes all have a propensity, and empty ones where none could be drawn
        complete = np.asarray((~filled.there | ~np.isnan(filled.propensities)).all(axis=1), bool)
        asked = filled.there.sum(axis=1)
        several = float((asked > 1).sum()) >= _SEVERAL_SHARE * max(1, int((asked > 0).sum()))
        drawn = complete if several else complete & (asked > 0)
    else:
        drawn = known_first_asks(filled)
    selected = _selected_workers(filled, recorded)
    kind = _classify_log(filled, recorded, selected, drawn)
    pairs, told = int(filled.there.sum()), int((filled.there & ~np.isnan(filled.propensities)).sum())
    scored = float(known_outcomes(filled).sum() / max(1, pairs))
    findings = [f"{pairs:,} of {filled.there.size:,} outcomes are recorded ({_format_percent(recorded.mean())})"]
    if kind is not LogKind.FULL and told < pairs:
        findings.append(f"{pairs - told:,} of {pairs:,} outcomes have no propensity: what was not recorded is unknown")
    if scored < FULL_SHARE:
        findings.append(f"{_format_percent(1 - scored)} of the recorded answers have no score and are ignored")
    first = first_asks(filled) if kind is LogKind.DRAWN else filled
    if later := int((filled.there & ~first.there).sum()):
        findings.append(f"{later:,} outcomes are not of the first ask of a task, and say nothing about a worker alone")
    findings += _worker_findings(first)
    findings += [
        f"{filled.workers[worker]} was asked where the others score {there:.2f} rather than {elsewhere:.2f}: its own "
        "record cannot be compared with theirs"
        for worker, (there, elsewhere) in selected.items()
    ]
    return LogCoverage(kind, drawn, scored, tuple(findings))


def known_outcomes(matrix: OutcomeMatrix) -> Flags:
    """Return [T, J]: outcomes whose value when shipped is known; 0 where an asked worker has no answer."""
    known: Flags = matrix.there & (~np.isnan(matrix.scores) | (matrix.codes <= NO_ANSWER))
    return known


def count_by_type(matrix: OutcomeMatrix, cells: Flags) -> Ints:
    """Return [D + 1, J]: the number of these outcomes by type; the last row: of all types."""
    kinds = len(matrix.types.names)
    rows = [cells[matrix.batch.types == kind].sum(axis=0) for kind in range(kinds)]
    return np.array([*rows, cells.sum(axis=0)], np.int64).reshape(kinds + 1, -1)


def recorded_propensities(matrix: OutcomeMatrix) -> Floats:
    """Return [T, J]: the propensity of each recorded outcome; 1 where unknown or not recorded."""
    valid: Flags = matrix.there & (matrix.propensities > 0)
    return np.where(valid, matrix.propensities, 1.0)


def supported_outcomes(matrix: OutcomeMatrix) -> Ints:
    """Return [D + 1, J]: known outcomes by type (last row: all); 0 where they do not represent the tasks.

    Weighted by inverse propensity they must add up to the number of tasks.
    """
    level, error = _mean_weights(matrix)
    return np.where(
        np.abs(level - 1) > WEIGHT_TOLERANCE + WEIGHT_STANDARD_ERRORS * error,
        0,
        count_by_type(matrix, known_outcomes(matrix)),
    )


def _mean_weights(matrix: OutcomeMatrix) -> tuple[Floats, Floats]:
    """Return [D + 1, J] each: the mean weight of outcomes by type (last row: all), and its standard error."""
    weights, kinds = known_outcomes(matrix) / recorded_propensities(matrix), len(matrix.types.names)
    member = np.vstack([np.eye(kinds + 1)[matrix.batch.types % (kinds + 1)].T[:kinds], np.ones(len(matrix))])
    sizes = np.maximum(1.0, member.sum(axis=1))[:, None]
    level, squares = member @ weights / sizes, member @ weights**2 / sizes
    drawn = np.divide(squares, level, out=np.zeros_like(level), where=level > 0) - 1  # variance if the level were 1
    return level, np.sqrt(np.maximum(np.maximum(drawn, squares - level**2), 0.0) / sizes)


def _classify_log(
    matrix: OutcomeMatrix, recorded: Floats, picked: dict[int, tuple[float, float]], drawn: Flags
) -> LogKind:
    """Return FULL where most workers with outcomes did all tasks, and the others do not look selected.

    Late workers do not count, since nothing is learned of them.
    """
    core, some = recorded >= FULL_SHARE, recorded > 0
    late = _unsupported_late_workers(matrix, picked)
    some[late] = False
    picked = {worker: means for worker, means in picked.items() if worker not in late}
    if matrix.there[:, some].mean() >= FULL_SHARE if some.any() else False:
        return LogKind.FULL
    if core.sum() >= max(2, some.sum() / 2) and not picked:
        return LogKind.FULL
    supported = drawn & matrix.there.any(axis=1)
    return (
        LogKind.DRAWN
        if supported.sum() >= min(MIN_DRAWN_TASKS, FULL_SHARE * matrix.there.any(axis=1).sum()) > 0
        else LogKind.UNTOLD
    )


def _unsupported_late_workers(matrix: OutcomeMatrix, picked: Mapping[int, tuple[float, float]]) -> list[int]:
    """Return the late workers whose own outcomes cannot support learning from a partial log.

    That takes MIN_DRAWN_TASKS of them, with propensities or chosen by others' outcomes.
    """
    known = known_outcomes(matrix).sum(axis=0)
    with_propensity = (matrix.there & ~np.isnan(matrix.propensities)).sum(axis=0) == matrix.there.sum(axis=0)
    return [
        worker
        for worker in np.flatnonzero(late_workers(matrix)).tolist()
        if known[worker] < MIN_DRAWN_TASKS or not (with_propensity[worker] or worker in picked)
    ]


def _selected_workers(matrix: OutcomeMatrix, recorded: Floats) -> dict[int, tuple[float, float]]:
    """Return workers that seem to have been asked because of others' answers: others' mean score there and elsewhere.

    Others are workers that did nearly all tasks. Means are compared within types, so a worker that is only asked for
    some types is not among these.
    """
    selected, core = {}, np.flatnonzero(recorded >= FULL_SHARE)
    for worker in np.flatnonzero((recorded > 0) & (recorded < FULL_SHARE)):
        scores = matrix.scores[:, core[core != worker]]
        rated = ~np.isnan(scores).all(axis=1) if scores.size else np.zeros(len(matrix), bool)
        asked = matrix.there[rated, worker]
        if min(asked.sum(), (~asked).sum()) < MIN_SUPPORT:
            continue
        level = np.nansum(scores[rated], axis=1) / (~np.isnan(scores[rated])).sum(axis=1)
        gap, error = _level_gap(level, asked, matrix.batch.types[rated])
        if abs(gap) > max(_MIN_SCORE_GAP, _MIN_GAP_ERRORS * error):
            selected[int(worker)] = (float(level[asked].mean()), float(level[asked].mean() - gap))
    return selected


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


def _worker_findings(matrix: OutcomeMatrix) -> list[str]:
    """Return a line for each worker that is rarely asked, or never for some type."""
    types, recorded, how = (
        matrix.batch.types,
        matrix.there.mean(axis=0),
        "asked first" if has_turns(matrix) else "asked",
    )
    cells = count_by_type(matrix, known_outcomes(matrix))
    sizes = np.array([(types == kind).sum() for kind in range(len(matrix.types.names))])
    words = []
    for column, name in enumerate(matrix.workers):
        unknown = [
            matrix.types.names[kind]
            for kind in np.flatnonzero((cells[:-1, column] < MIN_SUPPORT) & (sizes >= MIN_SUPPORT))
        ]
        summary = f"{name} was {how} for {_format_percent(recorded[column])} of the tasks"
        if len(unknown) == (sizes >= MIN_SUPPORT).sum() > 0 or not cells[-1, column]:
            words.append(f"{summary}: too few outcomes on any type")
        elif unknown:
            more = f" and {len(unknown) - 3} more types" if len(unknown) > 3 else ""
            words.append(f"{summary}; too few outcomes on {', '.join(unknown[:3])}{more}")
        elif recorded[column] < min(_RARE_SHARE, recorded.mean() / 2):
            words.append(summary)
    return words


def _format_percent(share: float) -> str:
    return f"{min(100 * share, 99.9 if share < 1 else 100):.{2 if share < 0.99 else 3}g} %"


def find_caveats(matrix: OutcomeMatrix) -> tuple[str, ...]:
    """Return caveats about a matrix; ConfigError when none of its outcomes is graded."""
    known = ~np.isnan(matrix.scores)
    if not known.any():
        outcomes = plural(int(matrix.there.sum()), "outcome")
        raise ConfigError(f"none of the {outcomes} has a score: there is nothing to learn from")
    return (*_score_caveats(matrix), *_cost_caveats(matrix), *_open_answer_caveats(matrix))


def _score_caveats(matrix: OutcomeMatrix) -> Iterator[str]:
    known = matrix.scores[~np.isnan(matrix.scores)]
    if (known == known[0]).all():
        yield f"every outcome has the score {known[0]:g}: workers differ in cost only"


def _cost_caveats(matrix: OutcomeMatrix) -> Iterator[str]:
    there = int(matrix.there.sum())
    unknown = int((matrix.there & np.isnan(matrix.dollars)).sum())
    if unknown == there:
        yield "the log has no costs, so budgets do not apply and only accuracy counts"
    elif not matrix.paid.any():
        yield "every cost is 0, so budgets do not apply and only accuracy counts"


def _open_answer_caveats(matrix: OutcomeMatrix) -> Iterator[str]:
    forms = np.array([*matrix.types.forms, matrix.types.form])
    tasks = int((forms[matrix.batch.types] == OPEN_FORM).sum())
    if tasks and matrix.answers:
        yield (
            f"the answers to {plural(tasks, 'task')} ({percent(tasks / len(matrix))}) have no canonical form: "
            "they agree only if identical, so there only checks, judges and feedback count"
        )


def find_cost_oddities(log: OutcomeLog) -> tuple[str, ...]:
    """Return sentences about costs that look like two units or currencies, or like none in dollars."""
    found, rates = [], {}
    for worker in log.workers:
        values = [
            one.dollars / max(1, one.usage.input_tokens + one.usage.output_tokens) if one.usage else one.dollars
            for one in log.outcomes_of(worker)
            if one.dollars
        ]
        if len(values) < _MIN_COSTS:
            continue
        ordered = np.sort(np.log10(values))
        steps = np.diff(ordered)
        place = int(steps.argmax())
        if steps[place] >= _COST_DECADES and _COST_SHARE <= (place + 1) / len(values) <= 1 - _COST_SHARE:
            factor = 10 ** float(steps[place])
            found.append(
                f"the costs of {worker} are of two sizes, {factor:,.0f} times apart: are there two units or currencies?"
            )
        if any(one.usage is not None for one in log.outcomes_of(worker)):
            rates[worker] = 1e6 * 10 ** float(np.median(ordered))
    for worker, rate in rates.items():
        if not _LEAST_RATE <= rate <= _MOST_RATE:
            found.append(f"{worker} costs ${rate:,.6g} for a million tokens: is the column in dollars?")
    return tuple(found)


def find_gaps(matrix: OutcomeMatrix) -> tuple[str, ...]:
    """Return sentences about outcomes missing from a full log, and how they are treated."""
    missing, pairs = int((~matrix.there).sum()), matrix.there.size
    notes = []
    if missing:
        notes.append(
            f"{percent(missing / pairs)} of all pairs of task and worker are not in the log and count as no answer"
        )
    notes += _missing_notes(matrix)
    return tuple(notes)


def _missing_notes(matrix: OutcomeMatrix) -> Iterator[str]:
    """Yield workers that lack a good part of some types: they count as not answering there."""
    for worker, lacks in zip(matrix.workers, missing_shares(matrix).T.tolist(), strict=True):
        ranked = sorted(zip(lacks, matrix.types.names, strict=True), reverse=True)
        listed = [f"{100 * share:.0f} % of {name}" for share, name in ranked if share > MISSING_SHARE]
        if listed:
            names = [*listed[:_MAX_LISTED_TYPES], *(["other types"] if len(listed) > _MAX_LISTED_TYPES else [])]
            joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
            yield f"{worker} lacks {joined}: it counts as not answering there"
