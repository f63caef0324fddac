"""Watching a policy's workers: for each, what is usual, what was found since, and whether it has fallen (`drift`).

What is usual is the policy's own word where every worker is asked for every task. Where a policy asks some workers only
for what others could not agree on, and where only what was shipped is graded, its word is about other tasks: there, a
worker's first outcomes of the same traffic tell. Invariants: a worker is judged by outcomes that had no part in telling
what is usual, and by tasks of types of which that is known; a worker that is not to be asked any more raises no alarm.
Deliberately absent: whose traffic it is (`config.traffic`), and what follows (`rerouting`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from shikisha.evaluate.statistics import score_interval
from shikisha.learn.drift import Drift, Usual, drifts, usual_in, usual_of
from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags
from shikisha.policy.policy import Policy
from shikisha.policy.types import UNKNOWN

FIRST = 300  # graded outcomes of a worker that tell what is usual: always the same ones, however long the traffic grows
FEW = 50  # graded outcomes that tell hardly anything
_OF_TYPE = 5  # graded outcomes of a worker on a type without which nothing is known of it there


class Told(StrEnum):
    """Who tells what is usual."""

    POLICY = "policy"  # the policy itself: as its workers were when it was fitted, by type of task
    EARLIER = "earlier"  # an earlier stretch of the same traffic


class State(StrEnum):
    """How a worker stands."""

    FELL = "fell"  # it is worse than usual
    USUAL = "as usual"  # nothing says so
    FEW = "too few"  # outcomes with a score to tell anything
    NONE = "none graded"  # or none at all
    SHUNNED = "not asked"  # any more, by this policy


@dataclass(frozen=True, slots=True)
class Standing:
    """A worker: `outcomes` it was judged by, what was `usual` for them and what was `found`, with its 95 % interval.

    `early` outcomes told what is usual, and `aside` ones are of types of which nobody knows that. For a worker that
    fell, all figures are of what came since (`drift`), the interval as if that time had been given.
    """

    worker: str
    state: State
    outcomes: int
    early: int
    aside: int
    usual: float | None = None
    found: float | None = None
    low: float | None = None
    high: float | None = None
    drift: Drift | None = None


@dataclass(frozen=True, slots=True)
class _Cells:
    """[T, J] each: outcomes that tell what is usual, those to be judged, and those that cannot be compared."""

    early: Flags
    judged: Flags
    aside: Flags


def standings(policy: Policy, traffic: Panel, told: Told, since: int | None = None) -> tuple[Standing, ...]:
    """Return how the policy's workers stand in its traffic, whose tasks are in the order of time.

    Watched are tasks from the place `since` on; what was before it tells what is usual, or is left out where the policy
    tells. Without one each worker's first outcomes tell, half of them at most.
    """
    graded = traffic.there & ~np.isnan(traffic.scores)
    late = np.arange(len(traffic))[:, None] >= (since or 0)
    if told is Told.POLICY:
        usual, unlike = usual_of(policy), (traffic.batch.types == UNKNOWN) & (len(policy.types.names) > 0)
        cells = _parted(np.zeros_like(graded), graded & late, np.broadcast_to(unlike[:, None], graded.shape))
    else:
        early = _first(graded) if since is None else graded & ~late
        usual, unlike = usual_in(traffic.unrecorded(~early)), ~_familiar(traffic, early)
        cells = _parted(early, graded & ~early & late, unlike)
    enough = (cells.early.sum(axis=0) >= FEW) | (told is Told.POLICY)
    asked = np.array([not worker.shunned for worker in policy.workers])
    watched = traffic.unrecorded(~(cells.judged & enough & asked))
    return tuple(_standings(policy, watched, usual, cells))


def fallen(found: Sequence[Standing]) -> tuple[Drift, ...]:
    """Return the falls among these."""
    return tuple(standing.drift for standing in found if standing.drift is not None)


def _parted(early: Flags, late: Flags, unlike: Flags) -> _Cells:
    return _Cells(early, late & ~unlike, late & unlike)


def _first(graded: Flags) -> Flags:
    """[T, J]: each worker's first outcomes."""
    most = np.minimum(FIRST, graded.sum(axis=0) // 2)
    return np.asarray(graded & (graded.cumsum(axis=0) <= most), bool)


def _familiar(traffic: Panel, early: Flags) -> Flags:
    """[T, J]: whether the worker's early outcomes tell what is usual for it on tasks of this type."""
    kinds = traffic.batch.types
    found = np.zeros_like(early)
    for kind in np.unique(kinds):
        found[kinds == kind] = early[kinds == kind].sum(axis=0) >= _OF_TYPE
    return found


def _standings(policy: Policy, watched: Panel, usual: Usual, cells: _Cells) -> Iterator[Standing]:
    drifted = {drift.worker: drift for drift in drifts(watched, usual)}
    for place, worker in enumerate(policy.workers):
        early, judged, aside = (int(each[:, place].sum()) for each in (cells.early, cells.judged, cells.aside))
        standing = Standing(worker.name, State.NONE, judged, early, aside)
        drift = drifted.get(worker.name)
        if worker.shunned:
            yield replace(standing, state=State.SHUNNED)
        elif drift is not None:
            yield _fell(standing, drift)
        elif watched.there[:, place].any():
            yield _usual(standing, watched, usual, place)
        else:
            yield replace(standing, state=State.FEW if early + judged + aside else State.NONE)


def _fell(standing: Standing, drift: Drift) -> Standing:
    figures = replace(standing, usual=drift.usual, found=drift.found, low=drift.low, high=drift.high)
    return replace(figures, state=State.FELL, outcomes=drift.outcomes, drift=drift)


def _usual(standing: Standing, watched: Panel, usual: Usual, place: int) -> Standing:
    rows = np.flatnonzero(watched.there[:, place])
    scores = watched.won[rows, place]
    low, high = score_interval(scores.tolist())
    expected = float(usual.success[watched.batch.types[rows], place].mean())
    state = State.FEW if len(rows) < FEW else State.USUAL
    return replace(standing, state=state, usual=expected, found=float(scores.mean()), low=low, high=high)
