"""The figures of `routers.py`: what entrants came to over several splits, with paired intervals, and the tables.

A task may be held out in several splits, with other fits. Its outcomes are then not independent, so intervals resample
tasks (and take all of a task's outcomes with it), not outcomes. They hold the fits as they are: how a fit would differ
on other training tasks is in the spread of the splits alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from routers_entrants import AT_BUDGETS, AT_FINE, AT_POINTS, AT_SHARES, CASCADE, OURS, PLAIN, RULE, TOLD, Measured
from shikisha.evals.router_curves import aiq, apgr, cpt
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.baselines import BEST_SINGLE
from shikisha.routing.fit.cost_frontier import BUDGETS, REPORTED_BUDGETS

LEVELS = (0.97, 0.99, 1.0, 1.02)
AGAINST = (BEST_SINGLE, RULE, PLAIN, CASCADE)
AT_ITS_COST = int(AT_POINTS[REPORTED_BUDGETS.index(1.0)])
_RESAMPLES = 4_000
_NOTHING = 1e-9
_OVER = 1.1  # how much more than its budget is no longer the budget
_DEAREST = float(BUDGETS[-1])


@dataclass(frozen=True)
class Difference:
    """A mean paired difference in area with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """An entrant's figures over all splits; None where a figure does not apply or is never reached."""

    name: str
    accuracy: tuple[float, ...]
    spent: tuple[float, ...]
    top: tuple[float, float]
    area: float
    areas: tuple[float, ...]
    floor: float
    aiq: float | None
    reached: tuple[float | None, ...]
    against: Mapping[str, Difference]
    pair: tuple[float, float | None, float | None] | None
    seconds: float
    decision: tuple[float, float] | None
    asks: Mapping[float, tuple[float, ...]]
    notes: tuple[str, ...]


Splits = Sequence[Mapping[str, Measured]]


def lines(splits: Splits, ends: tuple[float, float] | None) -> list[Line]:
    """Return a line for each entrant; `ends` are the mean scores of a weak and a strong worker, where they are two."""
    names = list(dict.fromkeys(name for split in splits for name in split))
    return [_line(name, splits, ends) for name in names]


def _line(name: str, splits: Splits, ends: tuple[float, float] | None) -> Line:
    there = [split for split in splits if name in split]
    held = [split[name] for split in there]
    won, spent = (np.concatenate([getattr(one.front, part) for one in held]).mean(axis=0) for part in ("won", "cost"))
    single = float(np.concatenate([split[BEST_SINGLE].top[:, 0] for split in there]).mean())
    top = np.concatenate([one.top for one in held]).mean(axis=0)
    decisions = [value for one in held for value in one.decisions]
    return Line(
        name,
        tuple(won[AT_POINTS].tolist()),
        tuple(spent[AT_POINTS].tolist()),
        (float(top[0]), float(top[1])),
        float(won[AT_BUDGETS].mean()),
        tuple(float(one.front.won[:, AT_BUDGETS].mean()) for one in held),
        max(one.floor for one in held),
        _aiq(won[AT_FINE], spent[AT_FINE]),
        tuple(reaching(won[AT_FINE], spent[AT_FINE], level * single) for level in LEVELS),
        {other: difference(name, other, there) for other in AGAINST if other != name and other in there[0]},
        _pair(won[AT_SHARES], spent[AT_SHARES], ends) if ends and name != BEST_SINGLE else None,
        float(np.mean([one.seconds for one in held])),
        (float(np.quantile(decisions, 0.5)), float(np.quantile(decisions, 0.99))) if decisions else None,
        {budget: tuple(np.mean([one.asks[budget] for one in held], axis=0).tolist()) for budget in TOLD},
        tuple(dict.fromkeys(one.note for one in held if one.note)),
    )


def difference(name: str, other: str, splits: Splits) -> Difference:
    """Return how much larger the area of one is than the other's, resampling tasks.

    Against the best single worker, who has one cost, it is the accuracy within that cost.
    """
    total: dict[str, float] = {}
    count: dict[str, int] = {}
    for split in splits:
        if other == BEST_SINGLE:
            gains = split[name].front.won[:, AT_ITS_COST] - split[other].top[:, 0]
        else:
            gains = (split[name].front.won - split[other].front.won)[:, AT_BUDGETS].mean(axis=1)
        for task, gain in zip(split[name].ids, gains.tolist(), strict=True):
            total[task] = total.get(task, 0.0) + gain
            count[task] = count.get(task, 0) + 1
    sums, counts = np.array(list(total.values())), np.array(list(count.values()))
    low, high = clustered(sums, counts)
    return Difference(float(sums.sum() / counts.sum()), low, high)


def clustered(sums: Floats, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of a mean over outcomes that come in groups, resampling groups."""
    random, means = np.random.default_rng(0), np.empty(_RESAMPLES)
    for place in range(_RESAMPLES):
        drawn = np.bincount(random.integers(0, len(sums), len(sums)), minlength=len(sums))
        means[place] = (drawn @ sums) / (drawn @ counts)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def reaching(won: Floats, spent: Floats, wanted: float) -> float | None:
    """Return the least that was spent where this accuracy was reached, between budgets linearly; None where never."""
    order = np.argsort(spent, kind="stable")
    cost, best = spent[order], np.maximum.accumulate(won[order])
    if best[-1] < wanted:
        return None
    place = int(np.argmax(best >= wanted))
    if place == 0:
        return float(cost[0])
    rise = best[place] - best[place - 1]
    return float(cost[place - 1] + (cost[place] - cost[place - 1]) * (wanted - best[place - 1]) / max(rise, 1e-12))


def _aiq(won: Floats, spent: Floats) -> float | None:
    """Return the AIQ over costs from 0, where nobody is asked and nothing is won, to the dearest budget."""
    inside = spent <= _DEAREST
    if not inside.any():
        return None
    points = [(0.0, 0.0), *zip(spent[inside].tolist(), won[inside].tolist(), strict=True)]
    return aiq([*points, (_DEAREST, float(won[inside].max()))])


def _pair(won: Floats, spent: Floats, ends: tuple[float, float]) -> tuple[float, float | None, float | None]:
    """Return APGR, CPT(50 %) and CPT(80 %): what was spent is the share of strong calls."""
    weak, strong = ends
    shares = dict(sorted(zip(spent.tolist(), won.tolist(), strict=True)))
    points = sorted({0.0: weak, **shares, 1.0: strong}.items())
    return apgr(points, weak, strong), cpt(points, weak, strong, 0.5), cpt(points, weak, strong, 0.8)


# Tables, 110 columns wide at most.


def table(found: Sequence[Line]) -> str:
    """Return the tables of a set as text."""
    parts = [_accuracies(found), _differences(found), _costs(found)]
    if any(line.pair for line in found):
        parts.append(_pairs(found))
    return "\n\n".join(parts)


def _accuracies(found: Sequence[Line]) -> str:
    heads = [f"{100 * point:g} %" for point in REPORTED_BUDGETS]
    rows = []
    for line in found:
        dear = [spent > _OVER * point for spent, point in zip(line.spent, REPORTED_BUDGETS, strict=True)]
        cells = [f"{value:.4f}"[1:] + ("!" if over else " ") for value, over in zip(line.accuracy, dear, strict=True)]
        rows.append([line.name, *cells, f"{line.top[0]:.4f}"[1:], f"{line.top[1]:.2f}", f"{line.area:.4f}"[1:]])
        rows[-1] += ["-" if line.aiq is None else f"{line.aiq:.4f}"[1:]]
    return _text(["accuracy at % of cost", *heads, "best", "at", "area", "AIQ"], rows)


def _differences(found: Sequence[Line]) -> str:
    rows = []
    for line in found:
        held = [line.against.get(other) for other in AGAINST]
        rows.append([line.name, *("-" if one is None else _signed(one) for one in held)])
    return _text(["against", "best single, at 100 %", *(f"{other}, area" for other in AGAINST[1:])], rows)


def _signed(one: Difference) -> str:
    sure = "*" if one.low > _NOTHING or one.high < -_NOTHING else " "
    return f"{one.mean:+.4f} [{one.low:+.4f}, {one.high:+.4f}]{sure}"


def _costs(found: Sequence[Line]) -> str:
    rows = []
    for line in found:
        reached = ["never" if cost is None else f"{cost:.3f}" for cost in line.reached]
        spent = [f"{value:.3f}" for value in line.spent]
        decision = ["-", "-"] if line.decision is None else [f"{value:.2f}" for value in line.decision]
        rows.append([line.name, *reached, *spent, *decision, f"{line.seconds:.1f}"])
    heads = [*(f"{100 * level:g}%" for level in LEVELS), *(f"@{100 * point:g}%" for point in REPORTED_BUDGETS)]
    return _text(["cost to reach / spent", *heads, "ms50", "ms99", "fit s"], rows)


def _pairs(found: Sequence[Line]) -> str:
    rows = []
    for line in found:
        if line.pair is None:
            continue
        area, half, most = line.pair
        shares = ["never" if share is None else f"{100 * share:.1f} %" for share in (half, most)]
        rows.append([line.name, f"{area:.3f}", *shares])
    return _text(["two workers", "APGR", "CPT50", "CPT80"], rows)


def shares(found: Sequence[Line], workers: Sequence[str]) -> str:
    """Return whom ours and the rule ask within some budgets, as text; those who are asked on 1 % of the tasks."""
    rows = []
    for line in found:
        for budget, held in line.asks.items() if line.name in (OURS, RULE) else ():
            ranked = sorted(zip(held, workers, strict=True), reverse=True)
            told = ", ".join(f"{_short(name)} {100 * share:.0f}%" for share, name in ranked if share >= 0.01)
            rows.append(f"  {line.name} at {100 * budget:g} %: {told}")
    return "asked:\n" + "\n".join(rows)


def _short(name: str) -> str:
    return name.rpartition("/")[2][:22]


def _text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    lines_ = [
        " | ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(pairs))
        for pairs in ([*zip(row, widths, strict=True)] for row in (heads, *rows))
    ]
    return "\n".join([lines_[0], "-+-".join("-" * width for width in widths), *lines_[1:]])
