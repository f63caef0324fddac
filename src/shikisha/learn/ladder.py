"""The ladder: fit every rung, measure each on tasks that it has not seen, keep the best that can be defended.

Every rung is fitted anew for each of five outer folds and judged on the fold left out; a higher rung is kept only when
the 95 % interval of its paired gain in area, at equal spending, over the rung kept so far excludes harm. Then all is
fitted on all tasks. Invariant: whatever is said of a rung was found on tasks that neither its fit nor its dial has
seen; where workers joined late (`joining`), that is of the others, and only the last fit and its dials hold newcomers.
Deliberately absent: partial logs (`partial`), files, and words for people (the CLI and the page).
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil

import numpy as np

from shikisha.learn.caveats import joined_late
from shikisha.learn.doubts import doubted
from shikisha.learn.fits import CASCADE, FOLDS, POLICY, ROUTER, TABLE, Fit, Wants, fit, folds_of
from shikisha.learn.frontier import BUDGETS, POINTS, Frontier, affordable, frontier, gain, met_by
from shikisha.learn.joining import completed, copies_for, established, newcomers
from shikisha.learn.panel import Panel
from shikisha.learn.play import play
from shikisha.learn.routing import read
from shikisha.learn.threads import one_on_each_core, one_thread_each
from shikisha.policy.arrays import Flags, Floats
from shikisha.policy.dial import Dial, Point, on_hull
from shikisha.policy.policy import About, Evidence, Gain, Known, Met, Policy, Rung

FEW = 100  # tasks below which nothing but the rule is fitted
_Z = 1.96
_TOLD = (*POINTS, *BUDGETS)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a panel comes from: the log's name and hash, how its costs came about, and what must be said of it."""

    log: str = "outcomes"
    log_hash: str = ""
    cost_kind: str = ""
    notes: tuple[str, ...] = ()


Tell = Callable[[str], None]


@one_thread_each()
def climb(
    panel: Panel, wants: Wants | None = None, source: Source | None = None, tell: Tell = lambda _: None
) -> Policy:
    """Fit the ladder on a full panel and return the policy; `tell` hears how it goes."""
    held, come = wants or Wants(), source or Source()
    others = established(panel)
    rungs, notes = rungs_for(others)
    if held.preference and held.preference.limits:
        rungs, notes = (TABLE,), (*notes, f"load limits are kept by the {TABLE} alone, which is kept for that")
    if ROUTER in rungs:
        read(panel)  # once for all folds
    tell("fitting on all tasks")
    with one_on_each_core() as threads:
        fitting = threads.submit(_final, panel, held, rungs)
        evidence = _measured(others, _without(panel, others, held), rungs, (tell, threads))
        final = fitting.result()
    kept = kept_rung(rungs, evidence)
    about = About(
        come.log,
        come.log_hash,
        len(panel),
        f"{datetime.now(UTC):%Y-%m-%d}",
        come.cost_kind,
        held.seed,
        (*joined_late(panel), *come.notes, *notes),
    )
    evidence = _noted(evidence, [name for name in panel.workers if name not in others.workers])
    made = tuple(Rung(name, final.dials[name], evidence.get(name)) for name in rungs)
    return Policy(about, known(panel), panel.types, final.parts, made, kept, hearing=final.hearing)


def _final(panel: Panel, wants: Wants, rungs: Sequence[str]) -> Fit:
    """Fit on all tasks, with all that newcomers were not asked filled in."""
    if not newcomers(panel):
        return fit(panel, wants, rungs)
    filled = completed(replace(panel, texts=()), wants.seed, copies_for(panel))
    return doubted(fit(panel, wants, rungs, filled), panel, wants.seed)


def _without(panel: Panel, others: Panel, wants: Wants) -> Wants:
    """Return what is wanted of the others alone: where all have load limits, they share what newcomers would take."""
    held = wants.preference
    if held is None or not held.limits or others is panel:
        return wants
    late = set(panel.workers).difference(others.workers)
    limits = {name: share for name, share in held.limits.items() if name not in late}
    total = sum(limits.values()) if len(limits) == len(others.workers) else 1.0
    if 0 < total < 1:
        limits = {name: share / total for name, share in limits.items()}
    return replace(wants, preference=replace(held, limits=limits))


def _noted(evidence: dict[str, Evidence], late: Sequence[str]) -> dict[str, Evidence]:
    """Return the evidence with whom it leaves out."""
    note = f"measured without {', '.join(late)}, of whom too few outcomes are known; the dial has them" if late else ""
    return {name: replace(one, note=note) for name, one in evidence.items()}


def rungs_for(panel: Panel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which rungs this panel can carry, and what must be said of those that it cannot."""
    if len(panel) < FEW:
        return (TABLE,), (f"{len(panel)} tasks are too few to learn more than the rule from: {FEW} are the least",)
    if len(panel.workers) < 2:
        return (TABLE,), ("one worker leaves nothing to choose",)
    if not panel.answers:
        return (TABLE, ROUTER), ("the log has no answers, so nothing can be learned from whether they agree",)
    return (TABLE, CASCADE, POLICY), ()


def known(panel: Panel) -> tuple[Known, ...]:
    """Return the workers as the panel knows them."""
    means, found = panel.means(), []
    for column, name in enumerate(panel.workers):
        there = panel.there[:, column]
        seconds = panel.seconds[there, column]
        tokens = panel.tokens[there, column]
        found.append(
            Known(
                name,
                float(means[column]),
                float(panel.paid[there, column].mean()) if there.any() else 0.0,
                int((~np.isnan(panel.scores[:, column])).sum()),
                float(np.nanmean(seconds)) if not np.isnan(seconds).all() else None,
                float(np.nanmean(tokens)) if not np.isnan(tokens).all() else 0.0,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What the rungs came to on one outer fold: what budgets came to, and what the dial had promised ([B, 2]).

    `alike` are frontiers at equal spending: a rung whose dial overspends must not look better for that.
    """

    contents: tuple[str, ...]
    frontiers: dict[str, Frontier]
    alike: dict[str, Frontier]
    promised: dict[str, Floats]


def _measured(
    panel: Panel, wants: Wants, rungs: Sequence[str], beside: tuple[Tell, ThreadPoolExecutor]
) -> dict[str, Evidence]:
    """Return the evidence for each rung; none where there are too few tasks to hold some back."""
    tell, threads = beside
    if len(set(panel.hashes)) < 2 * FOLDS:
        return {}
    folds = folds_of(panel.hashes, f"outer {wants.seed}")

    def one(fold: int) -> _Judged:
        tell(f"fold {fold + 1} of {FOLDS}")
        return _judged(panel, folds == fold, wants, rungs)

    judged = list(threads.map(one, range(FOLDS)))
    return _evidence(judged, rungs, len(panel.workers))


def _judged(panel: Panel, held: Flags, wants: Wants, rungs: Sequence[str]) -> _Judged:
    train, rest = panel.at(np.flatnonzero(~held)), panel.at(np.flatnonzero(held))
    fitted, unit = fit(train, wants, rungs), train.unit()
    judged = _Judged(rest.hashes, {}, {}, {})
    for rung in rungs:
        dial = fitted.dials[rung]
        trial = tried(fitted, dial.points, rest, unit)
        judged.frontiers[rung] = trial.frontier(dial, np.array(_TOLD))
        judged.alike[rung] = trial.frontier(trial.corrected(dial), BUDGETS)
        mixes = [met_by(dial, budget) for budget in _TOLD]
        paid = [affordable(dial, budget) for budget in _TOLD]
        judged.promised[rung] = np.array(
            [(share * mix.accuracy, share * mix.cost) for share, mix in zip(paid, mixes, strict=True)]
        )
    return judged


@dataclass(frozen=True, slots=True)
class Trial:
    """What (part, setting) pairs came to on some tasks: won and cost (units), [T, n]."""

    places: tuple[tuple[int, int], ...]
    won: Floats
    cost: Floats

    def frontier(self, dial: Dial, budgets: Floats) -> Frontier:
        """Return what a dial's budgets come to."""
        return frontier(dial, self.won, self.cost, self.places, budgets)

    def corrected(self, dial: Dial) -> Dial:
        """Return the dial with what its points cost on these tasks; what they win stays as it was promised."""
        costs = dict(zip(self.places, self.cost.mean(axis=0).tolist(), strict=True))
        points = [replace(point, cost=costs[point.part, point.setting]) for point in dial.points]
        return replace(dial, points=on_hull(points))


def tried(fitted: Fit, points: Sequence[Point], panel: Panel, unit: float) -> Trial:
    """Play these points on the tasks of a panel."""
    places = tuple(sorted({(point.part, point.setting) for point in points}))
    heard = panel.heard(fitted.hearing)
    runs = [play(fitted.parts[part], setting, heard) for part, setting in places]
    won, cost = (np.stack([getattr(run, name) for run in runs], axis=1) for name in ("won", "paid"))
    return Trial(places, won, cost / unit)


def played(fitted: Fit, dial: Dial, panel: Panel, unit: float, budgets: Floats) -> Frontier:
    """Return what a dial's budgets come to on these tasks."""
    mixes = [met_by(dial, float(budget)) for budget in budgets]
    points = [point for mix in mixes for point in (mix.low, mix.high)]
    return tried(fitted, points, panel, unit).frontier(dial, budgets)


def _evidence(judged: Sequence[_Judged], rungs: Sequence[str], workers: int) -> dict[str, Evidence]:
    whole = {rung: joined([fold.frontiers[rung] for fold in judged]) for rung in rungs}
    areas = {rung: joined([fold.alike[rung] for fold in judged]) for rung in rungs}
    contents = [content for fold in judged for content in fold.contents]
    found = {}
    for place, rung in enumerate(rungs):
        below = rungs[:place]
        gains = tuple(gain(name, areas[rung], areas[name], contents) for name in reversed(below))
        promised = np.mean([fold.promised[rung] for fold in judged], axis=0)
        front = whole[rung]
        off = np.abs(promised - np.stack([front.won.mean(axis=0), front.cost.mean(axis=0)], axis=1)).mean(axis=0)
        found[rung] = Evidence(
            areas[rung].area,
            _told(front),
            gains,
            (float(off[0]), float(off[1])),
            _needs(gains, len(front.won), workers),
        )
    return found


def joined(parts: Sequence[Frontier]) -> Frontier:
    """Return one frontier over the tasks of several."""
    won, cost = (np.concatenate([getattr(part, name) for part in parts]) for name in ("won", "cost"))
    return Frontier(parts[0].budgets, won, cost)


def _told(front: Frontier) -> tuple[Met, ...]:
    return tuple(sorted(front.met(), key=lambda met: met.budget))


def _needs(gains: Sequence[Gain], tasks: int, workers: int) -> int | None:
    """Return how many more outcomes it would take for the gain over the rung below to show, if it is what it seems."""
    if not gains or gains[0].low > 0:
        return 0
    nearest = gains[0]
    if nearest.mean <= 0:
        return None
    error = (nearest.high - nearest.low) / (2 * _Z)
    return ceil(max(0.0, tasks * ((_Z * error / nearest.mean) ** 2 - 1)) * workers)


def kept_rung(rungs: Sequence[str], evidence: Mapping[str, Evidence]) -> str:
    """Return the highest rung whose gain over the one kept before it excludes harm."""
    kept = rungs[0]
    for rung in rungs[1:]:
        proof = evidence.get(rung)
        if proof and any(one.over == kept and one.low > 0 for one in proof.gains):
            kept = rung
    return kept
