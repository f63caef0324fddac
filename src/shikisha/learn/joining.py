"""Workers that joined late: what a worker with few outcomes would have said to the tasks that it was not asked.

A newcomer is right more often where many known workers are, where those are right that it resembles, and on some types
of task; where it is wrong, it shares the wrong answers of some known workers more than those of others. What is usual
among the known ones, each looked at as if it were new, is the prior (`borrowing`), so that a hundred outcomes go a long
way. One that was kept away from a type of task is taken to have no answer there: nothing says what it can do with such
tasks. Invariants: what was recorded is never changed; what is filled in is told apart by `imputed`, is for fitting
only, and is never evidence; equal panels and seeds give equal fillings; without newcomers a panel is returned as it is.
Deliberately absent: workers with fewer than FEWEST outcomes (those are explored, not learned).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shikisha.learn.borrowing import Context, Likeness
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOTHING

KNOWN = 0.5  # share of the tasks from which on a worker is known
FEWEST = 10  # outcomes below which nothing is filled in
AWAY = 7.0  # outcomes to be expected of a type; where there is none, that is no chance (1 in 1,000)
MANY, MOST_COPIES = 5_000, 4  # tasks from which on one filling is enough, and the most fillings
_SLOPE = 20.0  # outcomes' worth of belief that a newcomer's costs vary over tasks as those of others do
_FREE = 1e-12
_N = TypeVar("_N", np.float64, np.int64)


def newcomers(panel: Panel) -> tuple[int, ...]:
    """Return the workers whose missing outcomes can be filled in, those with most outcomes first.

    They were asked for, and graded in, less than half of what others were, so that none is ever the best single worker.
    There are none where fewer than two workers are known: likeness is likeness to somebody.
    """
    counts, asked = _counts(panel), panel.there.sum(axis=0)
    rare = (counts < KNOWN * counts.max(initial=0)) & (asked < KNOWN * asked.max(initial=0)) & (counts >= FEWEST)
    few = np.flatnonzero(rare).tolist()
    return tuple(sorted(few, key=lambda worker: -int(counts[worker]))) if len(_known(panel)) > 1 else ()


def established(panel: Panel) -> Panel:
    """Return the panel of the workers that are no newcomers; where there are none, the panel as it is."""
    late = newcomers(panel)
    if not late:
        return panel
    return panel.only([name for place, name in enumerate(panel.workers) if place not in late])


def kept_away(panel: Panel, worker: int) -> Ints:
    """Return the types for which this worker was never asked, though by chance it would have been: [n] places."""
    types, kinds = panel.batch.types, len(panel.types.names)
    sizes = np.array([(types == kind).mean() for kind in range(kinds)])
    told = panel.there[:, worker] & ~np.isnan(panel.scores[:, worker])
    asked = np.array([(told & (types == kind)).sum() for kind in range(kinds)])
    return np.flatnonzero((asked == 0) & (sizes * told.sum() >= AWAY)).astype(np.int64)


def likeness_of(panel: Panel) -> Likeness:
    """Return what is usual among the known workers of a panel."""
    return Likeness.among(Context.of(panel, _known(panel)))


def imputed(panel: Panel) -> Flags:
    """[T, J]: which outcomes were filled in and not recorded."""
    flags: Flags = ~panel.there & ~np.isnan(panel.scores)
    return flags


def copies_for(panel: Panel) -> int:
    """Return how often a panel is best filled in: small ones several times, since each filling is drawn by lot."""
    return max(1, min(MOST_COPIES, round(MANY / len(panel)))) if newcomers(panel) else 1


def completed(panel: Panel, seed: int = 0, copies: int = 1) -> Panel:
    """Return the panel with the missing outcomes of its newcomers filled in; all tasks so many times, each anew.

    Folds by content (`fits.folds_of`) keep the copies of a task together.
    """
    late = newcomers(panel)
    if not late:
        return panel
    likeness = likeness_of(panel)
    drawn = [_drawn(panel, late, likeness, (seed, copy)) for copy in range(copies)]
    if copies == 1:
        return drawn[0]
    return replace(
        panel.at(np.tile(np.arange(len(panel)), copies)),
        codes=np.concatenate([each.codes for each in drawn]),
        scores=np.concatenate([each.scores for each in drawn]),
        lengths=np.concatenate([each.lengths for each in drawn]),
        tokens=np.concatenate([each.tokens for each in drawn]),
        dollars=np.concatenate([each.dollars for each in drawn]),
        seconds=np.concatenate([each.seconds for each in drawn]),
    )


def _drawn(panel: Panel, late: Sequence[int], likeness: Likeness, seed: tuple[int, int]) -> Panel:
    found = panel
    for place, worker in enumerate(late):
        random = np.random.default_rng((*seed, place))
        found = _filled(found, worker, _said(found, worker, likeness, random), random)
    return found


@dataclass(frozen=True, slots=True)
class _Said:
    """What a worker is taken to have said to the tasks `rows`: codes, whether that is right, its score (NaN: open)."""

    rows: Ints
    codes: Ints
    right: Flags
    scores: Floats


def _said(panel: Panel, worker: int, likeness: Likeness, random: np.random.Generator) -> _Said:
    rows = np.flatnonzero(~panel.there[:, worker] & np.isnan(panel.scores[:, worker]))
    away = np.isin(panel.batch.types[rows], kept_away(panel, worker))
    right = (random.random(len(rows)) < likeness.chance(worker)[rows]) & ~away
    own = panel.codes[rows].max(axis=1) + 1  # the code of an answer that nobody else gave
    codes, scores = own.copy(), np.full(len(rows), np.nan)
    if panel.answers:
        codes[right], scores[right] = likeness.right_answer(panel, rows[right], own[right])
        codes[~right], scores[~right] = likeness.wrong_answer(worker, rows[~right], own[~right], random)
    codes[away], scores[away] = NOTHING, 0.0
    return _Said(rows, codes, right, scores)


def _filled(panel: Panel, worker: int, said: _Said, random: np.random.Generator) -> Panel:
    """Fill in what was said; costs, tokens and the rest are like those of one of its own outcomes that went alike."""
    like = _alike(panel, worker, said.right, random)
    scores = np.where(np.isnan(said.scores), panel.scores[like, worker], said.scores)
    tokens = _spent(panel.tokens, panel, (worker, said.rows, like))
    dollars = _spent(panel.dollars, panel, (worker, said.rows, like))
    return replace(
        panel,
        codes=_with(panel.codes, worker, said.rows, said.codes),
        scores=_with(panel.scores, worker, said.rows, scores),
        lengths=_with(panel.lengths, worker, said.rows, panel.lengths[like, worker]),
        tokens=_with(panel.tokens, worker, said.rows, np.where(said.codes == NOTHING, np.nan, tokens)),
        dollars=_with(panel.dollars, worker, said.rows, dollars),
        seconds=_with(panel.seconds, worker, said.rows, panel.seconds[like, worker]),
    )


def _alike(panel: Panel, worker: int, right: Flags, random: np.random.Generator) -> Ints:
    """Return for each task to fill in the row of a recorded outcome of this worker that was as right, drawn by lot."""
    recorded = np.flatnonzero(~np.isnan(panel.scores[:, worker]) & panel.there[:, worker])
    was_right = panel.won[recorded, worker] > 0.5
    found = np.zeros(len(right), np.int64)
    for side in (True, False):
        own = recorded[was_right == side]
        found[right == side] = random.choice(own if len(own) else recorded, int((right == side).sum()))
    return found


def _spent(spent: Floats, panel: Panel, who: tuple[int, Ints, Ints]) -> Floats:
    """Return what `worker` is taken to spend on `rows`: what it spent on those that went alike, times what is usual.

    Usual is what the known workers spent on the one task and on the other, to a power that its outcomes tell.
    """
    worker, rows, like = who
    logs = np.log(np.maximum(spent, _FREE))
    others = logs[:, list(_known(panel))]
    known = ~np.isnan(others)
    usual = np.nan_to_num(others).sum(axis=1) / np.maximum(1, known.sum(axis=1))
    usual = np.where(known.any(axis=1), usual, usual[known.any(axis=1)].mean() if known.any() else 0.0)
    told = np.flatnonzero(~np.isnan(logs[:, worker]) & panel.there[:, worker])
    if not len(told):
        return np.asarray(spent[like, worker], np.float64)
    away, own = usual[told] - usual[told].mean(), logs[told, worker] - logs[told, worker].mean()
    belief = _SLOPE * float(usual.var()) + _FREE
    power = float((away @ own + belief) / (away @ away + belief))
    scaled: Floats = spent[like, worker] * np.exp(np.clip(power * (usual[rows] - usual[like]), -5, 5))
    return scaled


def _with(held: NDArray[_N], worker: int, rows: Ints, values: NDArray[_N]) -> NDArray[_N]:
    changed = held.copy()
    changed[rows, worker] = values
    return changed


def _known(panel: Panel) -> tuple[int, ...]:
    return tuple(int(worker) for worker in np.flatnonzero(_counts(panel) >= KNOWN * len(panel)))


def _counts(panel: Panel) -> Ints:
    counts: Ints = (panel.there & ~np.isnan(panel.scores)).sum(axis=0)
    return counts
