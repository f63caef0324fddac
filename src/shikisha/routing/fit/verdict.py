"""The verdict: the one sentence that somebody may obey without reading on, from held-out tasks alone.

A policy is advised at one of a few targets that were fixed in advance: as accurate as the best single worker by what
the dial promises, or more accurate by a margin. Of the targets that pass, the cheapest is advised where it saves money,
else the most accurate one that is shown to gain. A target passes where a fresh log of the same size would show a loss
of more than TOLERANCE in at most about 1 of 100 cases. Invariants: the best single worker, the dial and the target's
setting are chosen without the tasks that measure them, at the cost that the advised option has; a gain that the tasks
cannot show is never advised: it is said how many more graded answers would show it, if it is as estimated.
"""

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np

from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.fit.cost_frontier import (
    BUDGETS,
    REPORTED_BUDGETS,
    Frontier,
    affordable_share,
    compute_frontier,
    mix_for_budget,
)
from shikisha.routing.policy_data import FrontierPoint, LogVerdict, VerdictKind
from shikisha.routing.trade_off import OperatingMix, TradeOff, upper_hull

# A loss of accuracy up to this is accepted where a policy saves money, and nothing beyond it.
TOLERANCE = 0.01
# What the dial must promise beyond the best single worker's accuracy, to be advised; the last one is its best setting.
MARGINS = (0.0, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, np.inf)
MEASURED_BUDGETS = np.array((*REPORTED_BUDGETS, *BUDGETS))
# A larger gain than this is not taken for none, and a gain that costs more than this is nobody's default.
_SMALL, _MOST_COST = 0.003, 2.0
# A policy that costs more than this share of the best single worker's cost saves nothing worth a change.
_SAVES = 0.95
_Z = 1.96
# Of one interval to fall outside the tolerance in a second log of the same size: 1.65 * sqrt(2).
_REPEATED_Z = 2.33
# Where the estimate is this many standard errors above harm, more tasks are worth asking for.
_PROMISING_Z = 0.67
# More tasks than so many times those at hand are not asked for.
_MOST_NEEDED = 20


@dataclass(frozen=True, slots=True)
class HeldOutTrial:
    """What one dial did on N tasks that it was not chosen on; costs are in units.

    `frontier` by measured budget, `alike` by budget at equal spending, `promised` [B, 2] accuracy and cost by measured
    budget. `won` and `cost` [N, M] are those of the targets of MARGINS at the cost of the final dial's, `base` [N, 2]
    those of the best single worker, and `rows` [N] the tasks. A budget below `cheapest` does not pay for all tasks.
    """

    frontier: Frontier
    alike: Frontier
    promised: Floats
    won: Floats
    cost: Floats
    base: Floats
    rows: Ints
    cheapest: float

    @classmethod
    def of(
        cls,
        dial: TradeOff,
        final: TradeOff,
        results: tuple[Floats, Floats, Sequence[tuple[int, int]]],
        base: int,
        rows: Ints,
    ) -> "HeldOutTrial":
        """Return the trial of a dial that stands in for the `final` one.

        `results` are scores and costs [N, S] of (rule, setting) pairs, `base` one of them.
        """
        won, cost, places = results
        column = {place: index for index, place in enumerate(places)}
        seen = dict(zip(places, cost.mean(axis=0).tolist(), strict=True))
        points = [replace(point, cost=seen[point.part, point.setting]) for point in dial.points]
        corrected = TradeOff(upper_hull(points), dial.unit, dial.best_single)
        mixes = [mix_for_budget(dial, target_mix(final, margin).cost) for margin in MARGINS]

        def mixed(values: Floats) -> Floats:
            ends = [[values[:, column[point.part, point.setting]] for point in (mix.low, mix.high)] for mix in mixes]
            return np.stack(
                [(1 - mix.share) * low + mix.share * high for mix, (low, high) in zip(mixes, ends, strict=True)], axis=1
            )

        budgets = [(mix_for_budget(dial, float(b)), affordable_share(dial, float(b))) for b in MEASURED_BUDGETS]
        return cls(
            compute_frontier(dial, won, cost, places, MEASURED_BUDGETS),
            compute_frontier(corrected, won, cost, places, BUDGETS),
            np.array([(share * mix.accuracy, share * mix.cost) for mix, share in budgets]),
            mixed(won),
            mixed(cost),
            np.stack([won[:, base], cost[:, base]], axis=1),
            rows,
            dial.points[0].cost,
        )

    @classmethod
    def joined(cls, parts: Sequence["HeldOutTrial"]) -> "HeldOutTrial":
        """Return the trial over the tasks of several, in order."""
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows)

        def joined(name: str) -> Floats:
            values: Floats = np.concatenate([getattr(part, name) for part in parts])[order]
            return values

        def frontier(name: str) -> Frontier:
            held = [getattr(part, name) for part in parts]
            won, cost = (np.concatenate([getattr(one, what) for one in held])[order] for what in ("won", "cost"))
            return Frontier(held[0].budgets, won, cost)

        promised = np.mean([part.promised for part in parts], axis=0)
        return cls(
            frontier("frontier"),
            frontier("alike"),
            promised,
            joined("won"),
            joined("cost"),
            joined("base"),
            rows[order],
            max(part.cheapest for part in parts),
        )

    def points(self) -> tuple[FrontierPoint, ...]:
        """Return the point of each measured budget that pays for all tasks, ascending."""
        found = (met for met in self.frontier.points() if met.budget >= self.cheapest)
        return tuple(sorted(found, key=lambda met: met.budget))


def target_mix(dial: TradeOff, margin: float) -> OperatingMix:
    """Return the cheapest mix that promises the best single worker's accuracy and this margin, or the best setting."""
    wish = min(dial.best_single + margin, dial.points[-1].accuracy)
    return dial.for_accuracy(wish)


@dataclass(frozen=True, slots=True)
class _Target:
    """One target as measured: accuracy less the best single worker's, with its standard error, and relative cost."""

    margin: float
    gain: float
    error: float
    cost: float

    def within(self, z: float, tolerance: float) -> bool:
        """Whether a loss of more than the tolerance is excluded by so many standard errors."""
        return self.gain - z * self.error >= -tolerance

    def needed(self, tasks: int) -> int | None:
        """Return how many more tasks would exclude harm, if the gain is as estimated; None: no number would."""
        if self.gain <= -TOLERANCE:
            return None
        return max(0, ceil(tasks * (_REPEATED_Z * self.error / (self.gain + TOLERANCE)) ** 2) - tasks)


def reach_verdict(
    trial: HeldOutTrial,
    final: TradeOff,
    names: tuple[str, Mapping[float, str]],
    contents: Sequence[str],
    workers: int,
    graded: float = 1.0,
) -> LogVerdict:
    """Return the verdict on a dial; `final` is the one that the file holds.

    `names` are the best single worker's, and those of workers that are asked for everything, by margin. `contents` [N]
    are the tasks' hashes: copies of a task count as one piece of evidence. Of `workers` each is asked for a further
    task. `graded` is the share of outcomes with a grade: others are draws, which tell nothing.
    """
    _, places = np.unique(np.array(contents), return_inverse=True)
    places = places.reshape(-1)
    count = int(places.max(initial=-1)) + 1
    # A target that asks the best single worker for everything is what it is compared with.
    targets = [
        _measure_target(trial, column, target_mix(final, margin).cost, places, count, graded)
        for column, margin in enumerate(MARGINS)
        if names[1].get(margin) != names[0]
    ]
    priced = final.unit > 0 and float(trial.base[:, 1].sum()) > 0
    passed = [one for one in targets if one.within(_REPEATED_Z, TOLERANCE)]
    saving = [one for one in passed if priced and one.cost <= _SAVES]
    gaining = [one for one in passed if one.gain - _REPEATED_Z * one.error > 0 and one.cost <= _MOST_COST]
    if saving or gaining:
        chosen = min(saving, key=lambda one: one.cost) if saving else max(gaining, key=lambda one: one.gain)
        alone = names[1].get(chosen.margin, "")
        mix = target_mix(final, chosen.margin)
        whole = mix.accuracy >= final.points[-1].accuracy
        option = "" if whole or final.best_single <= 0 else f"quality={mix.accuracy / final.best_single:.6g}"
        low, high = chosen.gain - _Z * chosen.error, chosen.gain + _Z * chosen.error
        interval = f"(95 %: {100 * low:+.1f} to {100 * high:+.1f} points)"
        gain = "no loss" if low <= 0 <= chosen.gain + _SMALL else f"{100 * chosen.gain:+.1f} points"
        cost = (
            f"{100 * (chosen.cost - 1):+.0f} %".replace("-", "\N{MINUS SIGN}") + " of the cost, at " if priced else ""
        )
        advice = f"{cost}{gain} {interval}".replace("-", "\N{MINUS SIGN}")
        kind = VerdictKind.SINGLE if alone else VerdictKind.POLICY
        text = f"ask {alone} for everything: {advice}" if alone else f"use this policy: {advice}"
        return LogVerdict(kind, text, option, alone, chosen.gain, low, high, chosen.cost)
    hopeful = [one for one in targets if one.within(_PROMISING_Z, TOLERANCE if priced else 0.0)]
    hopeful = [one for one in hopeful if (priced and one.cost <= _SAVES) or one.gain - _PROMISING_Z * one.error > 0]
    needs = [tasks for one in hopeful if (tasks := one.needed(count)) is not None and tasks <= _MOST_NEEDED * count]
    if needs:
        return untold_verdict(max(1, min(needs)) * workers)
    return LogVerdict(VerdictKind.SINGLE, f"ask {names[0]} for everything: routing gains nothing here", worker=names[0])


def untold_verdict(answers: int, why: str = "") -> LogVerdict:
    """Return the verdict that the log cannot tell, and how many more graded answers would."""
    rounded = int(float(f"{answers:.2g}"))
    text = f"not enough evidence{f' ({why})' if why else ''}: some {rounded:,} more graded answers would tell"
    return LogVerdict(VerdictKind.UNTOLD, text, needs=rounded)


def _measure_target(trial: HeldOutTrial, column: int, cost: float, places: Ints, count: int, graded: float) -> _Target:
    difference = trial.won[:, column] - trial.base[:, 0]
    means = np.bincount(places, difference, count) / np.bincount(places, minlength=count)
    error = float(means.std(ddof=1) / np.sqrt(count * max(graded, 1e-3))) if count > 1 else np.inf
    return _Target(MARGINS[column], float(difference.mean()), error, cost)
