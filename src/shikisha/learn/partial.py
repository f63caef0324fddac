"""Learning from partial logs: the rule from what was asked, a policy from the tasks that some workers did together.

Everything is judged off-policy (`offpolicy`), each task by parts and tables fitted without it; settings that the log
cannot carry stand on no dial, and the policy is kept only where the interval of its gain over the rule excludes harm.
Where one worker was asked after another, the rule is of first asks, which alone tell what a worker is worth alone
(`turns`); the policy is fitted on later outcomes too, and judged by the tasks on which the log asked in its order.
Invariants: a pair that nobody recorded counts for nothing, and a worker of whom the log knows nothing on a type is not
asked there; without propensities nothing is promised. Deliberately absent: cascades, whose settings differ from fold to
fold; and weights in fitting the policy, since only the way it is judged has to be unbiased.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from shikisha.errors import ConfigError
from shikisha.learn.coverage import COMPLETE, SUPPORT, Kind, complete, known, settled
from shikisha.learn.coverage import of as coverage_of
from shikisha.learn.fits import POLICY, TABLE, folds_of
from shikisha.learn.frontier import BUDGETS, POINTS, Frontier, affordable, frontier, met_by
from shikisha.learn.inducing import Ground, induce
from shikisha.learn.offpolicy import (
    EFFECTIVE,
    Expected,
    Interval,
    Split,
    Terms,
    Value,
    expected,
    followed,
    overlap,
    refusal,
    value,
)
from shikisha.learn.panel import Panel
from shikisha.learn.tabling import PRICES
from shikisha.learn.turns import begun, ordered
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.dial import Dial, Point, on_hull
from shikisha.policy.features import Scales
from shikisha.policy.induction import Induction
from shikisha.policy.parts import Part
from shikisha.policy.policy import About, Evidence, Gain, Known, Met, Policy, Rung, best_of
from shikisha.policy.scorer import Scorer
from shikisha.policy.table import Table

MOST = 4  # workers of a policy
_TOLD = np.array((*POINTS, *BUDGETS))
_Z = 1.96
_UNPROVED = "the dial shows what the log says of workers where they were asked, and promises nothing"
_Place = tuple[int, int]  # a part and a setting


@dataclass(frozen=True, slots=True)
class _Trial:
    """A part fitted on all tasks, and for each of its settings the terms of parts that were fitted without the task."""

    part: Part
    terms: tuple[Terms, ...]


@dataclass(frozen=True, slots=True)
class _Stand:
    """What fits on a partial log stand on: its tasks in folds, and the best single worker's dollars and accuracy."""

    panel: Panel
    folds: Ints
    split: Split
    unit: float
    best: float
    seed: int

    @classmethod
    def of(cls, panel: Panel, seed: int) -> "_Stand":
        """Split the tasks, and find the best single worker."""
        folds = folds_of(panel.hashes, f"partial {seed}")
        split = Split.of(panel, folds)
        best, dollars = _best_single(panel, split)
        return cls(panel, folds, split, dollars or 1.0, best, seed)

    @property
    def dollars(self) -> float:
        """One unit of cost for a dial; 0 where nothing costs anything."""
        return self.unit if self.panel.paid.any() else 0.0

    def without(self, fold: int) -> Panel:
        """Return the tasks of the other folds."""
        return self.panel.at(self.folds != fold)


def fit_partial(panel: Panel, seed: int = 0, about: About | None = None) -> Policy:
    """Fit what a partial log supports; ConfigError when it holds no outcome of known worth.

    Its evidence is doubly robust; where there is none (no propensities, too few tasks) the policy's notes say why.
    """
    told, held = coverage_of(panel), replace(settled(panel).heard(None), texts=())
    if not known(held).any():
        raise ConfigError("the log holds no outcome with a score: there is nothing to learn from")
    begun = about or About("outcomes", "", len(panel), seed=seed)
    begun = replace(begun, notes=(*begun.notes, *told.findings))
    if told.kind is Kind.UNTOLD:
        return _unproved(held, begun, "nobody knows with what probability these workers were asked")
    used = ordered(held.at(told.drawn)) if told.kind is Kind.DRAWN else held
    if len(set(used.hashes)) < EFFECTIVE:
        return _unproved(held, begun, f"{len(used)} tasks are too few: {EFFECTIVE:.0f} are the least")
    return _climbed(_Stand.of(used, seed), begun)


def ruled(table: Expected, unit: float) -> Table:
    """Return the rule; a worker of whom nothing is known on a type is worth less there than any that is known.

    That is a success of 0 at the price of the dearest; it is not taken for wrong, but it is not asked either.
    """
    dark = table.cells < SUPPORT
    dark &= ~dark.all(axis=1, keepdims=True)
    cost = np.where(dark, table.dollars.max(axis=1, keepdims=True), table.dollars) / unit
    return Table(np.where(dark, 0.0, table.success), cost, np.zeros((len(PRICES), cost.shape[1])), PRICES)


def _climbed(stand: _Stand, about: About) -> Policy:
    table = _tabled(stand)
    why = _why(table)
    if why:
        return _unproved(stand.panel, about, why)
    boards = {TABLE: _Board.of(stand, [table])}
    notes, parts = [*about.notes, *_as_logged(boards[TABLE])], [table.part]
    induced = _induced(stand)
    why = induced if isinstance(induced, str) else _why(induced)
    if not isinstance(induced, str) and not why:
        both = _Board.of(stand, [table, induced])
        if any(point.part for point in both.dial(np.ones(len(both.won), bool)).points):
            boards[POLICY] = both
            parts.append(induced.part)
        else:
            why = _no_better(induced)
    if why:
        notes.append(f"there is no policy that asks several: {why}")
    rungs = tuple(_rungs(boards))
    kept = POLICY if any(one.low > 0 for rung in rungs for one in _gains(rung)) else TABLE
    workers = _known(stand.panel, expected(stand.panel))
    return Policy(replace(about, notes=tuple(notes)), workers, stand.panel.types, tuple(parts), rungs, kept)


def _gains(rung: Rung) -> tuple[Gain, ...]:
    return rung.evidence.gains if rung.evidence else ()


def _tabled(stand: _Stand) -> _Trial:
    """Try the rule: each fold with a table of the others."""
    parts = [ruled(table, stand.unit) for table in stand.split.tables]
    return _Trial(ruled(expected(stand.panel), stand.unit), _terms(stand.split, parts))


def _induced(stand: _Stand) -> "_Trial | str":
    """Try an induction over workers that did enough tasks together, or say why there is none."""
    if not stand.panel.answers:
        return "the log has no answers, so nothing can be learned from whether they agree"
    part = _induction(stand.panel, expected(stand.panel), stand, COMPLETE)
    if part is None:
        return f"no two workers did {COMPLETE} tasks together"
    parts = []
    for fold, table in enumerate(stand.split.tables):
        rest = stand.without(fold)
        one = _induction(rest, table, stand, COMPLETE * len(rest) // len(stand.panel))
        if one is None:
            return f"hardly more than {COMPLETE} tasks were done by two workers together"
        parts.append(one)
    return _Trial(part, _terms(stand.split, parts))


def _terms(split: Split, parts: Sequence[Part]) -> tuple[Terms, ...]:
    """Return the terms of each setting, each fold followed by its own part."""

    def at(setting: int) -> Terms:
        return split.terms(lambda fold, panel, table: followed(parts[fold], setting, panel, table))

    return tuple(at(setting) for setting in range(parts[0].settings))


def _induction(panel: Panel, table: Expected, stand: _Stand, least: int) -> Induction | None:
    """Fit an induction on the tasks that its workers did together; None where no two of them did as many as `least`."""
    chosen = _together(panel, table, least)
    if len(chosen) < 2:
        return None
    small = panel.at(complete(panel, chosen)).only([panel.workers[place] for place in chosen])
    ground = Ground.of(small, folds_of(small.hashes, f"fit {stand.seed}"))
    part = induce(replace(ground, unit=stand.unit), range(len(chosen))).part
    return widened(part, chosen, len(panel.workers))


def _together(panel: Panel, table: Expected, least: int) -> tuple[int, ...]:
    """Return up to MOST workers that did so many tasks together: those nobody beats at their cost first, best first."""
    skill, cost = table.success[-1], table.dollars[-1]
    beaten = np.array([((cost <= own) & (skill > good)).any() for own, good in zip(cost, skill, strict=True)])
    order = np.lexsort((-skill, beaten))
    for begins in order:
        chosen = [int(begins)]
        for worker in order:
            more = tuple(sorted({*chosen, int(worker)}))
            if len(chosen) < len(more) <= MOST and complete(panel, more).sum() >= least:
                chosen = list(more)
        if len(chosen) > 1:
            return tuple(chosen)
    return ()


def widened(part: Induction, places: Sequence[int], workers: int) -> Induction:
    """Return an induction of a few workers as one of all, among whom they have these places, in ascending order."""
    columns = np.array(places, np.int64)

    def wide(narrow: Floats, otherwise: float = 0.0) -> Floats:
        held = np.full((*narrow.shape[:-1], workers), otherwise)
        held[..., columns] = narrow
        return held

    pairs = np.zeros((workers, workers))
    pairs[np.ix_(columns, columns)] = part.scorer.pairs
    scorer = Scorer(part.scorer.none, wide(part.scorer.support), pairs, wide(part.scorer.sound))
    scales = Scales(wide(part.scales.written), wide(part.scales.spread, 1.0))
    gains = {tuple(places[one] for one in asked): worth for asked, worth in part.gains.items()}
    return Induction(tuple(places), scorer, scales, gains)


def _standing(trials: Sequence[_Trial]) -> Iterator[tuple[_Place, Terms]]:
    """Yield the settings that the log can carry."""
    for place, trial in enumerate(trials):
        for setting, terms in enumerate(trial.terms):
            if refusal(terms) is None:
                yield (place, setting), terms


def _no_better(trial: _Trial) -> str:
    """Return that none of the settings which could be judged is better than the rule, and why others could not be."""
    refused = [one for one in (refusal(terms) for terms in trial.terms) if one]
    if not refused:
        return "the rule is as good at every price"
    nearest = max(refused, key=lambda one: one.overlap.effective).reason
    return f"the rule is as good as those of its settings that can be judged; {len(refused)} cannot: {nearest}"


def _why(trial: _Trial) -> str:
    """Return why no setting can be judged (the one that is nearest to it); nothing where some can."""
    if next(_standing([trial]), None):
        return ""
    refused = (refusal(terms) for terms in trial.terms)
    return max((one for one in refused if one), key=lambda one: one.overlap.effective).reason


@dataclass(frozen=True, slots=True)
class _Board:
    """The settings that some trials stand on: what each came to, [T, n] (cost in units), and their places."""

    stand: _Stand
    places: tuple[_Place, ...]
    won: Floats
    cost: Floats
    effective: Mapping[_Place, float]

    @classmethod
    def of(cls, stand: _Stand, trials: Sequence[_Trial]) -> "_Board":
        """Lay out what the trials can be judged by."""
        standing = dict(_standing(trials))
        won, paid = (np.stack([getattr(one, name) for one in standing.values()], axis=1) for name in ("won", "paid"))
        effective = {place: overlap(terms).effective for place, terms in standing.items()}
        return cls(stand, tuple(standing), won, paid / stand.unit, effective)

    def dial(self, rows: Flags) -> Dial:
        """Return the dial that these tasks make."""
        won, cost = self.won[rows], self.cost[rows]
        errors = won.std(axis=0) / np.sqrt(max(1, len(won)))
        means = zip(self.places, cost.mean(axis=0), won.mean(axis=0), errors, strict=True)
        points = [
            Point(*place, max(0.0, float(paid)), float(right), float(error)) for place, paid, right, error in means
        ]
        return Dial(on_hull(points), self.stand.dollars, self.stand.best)

    def judged(self, budgets: Floats) -> tuple[Frontier, Floats]:
        """Return what budgets come to, each fold's by the dial of the others, and what those had promised [B, 2]."""
        shape = (len(self.won), len(budgets))
        found, promised = Frontier(budgets, np.zeros(shape), np.zeros(shape)), []
        for fold, own in enumerate(self.stand.split.rows):
            dial = self.dial(self.stand.folds != fold)
            part = frontier(dial, self.won[own], self.cost[own], self.places, budgets)
            found.won[own], found.cost[own] = part.won, part.cost
            mixes = [(met_by(dial, float(budget)), affordable(dial, float(budget))) for budget in budgets]
            promised.append([(paid * mix.accuracy, paid * mix.cost) for mix, paid in mixes])
        return found, np.mean(promised, axis=0)


def _rungs(boards: Mapping[str, _Board]) -> Iterator[Rung]:
    """Yield the rungs with their evidence, from the lowest."""
    below: tuple[str, Frontier] | None = None
    for name, board in boards.items():
        dial = board.dial(np.ones(len(board.won), bool))
        front, promised = board.judged(_TOLD)
        area = Frontier(BUDGETS, front.won[:, len(POINTS) :], front.cost[:, len(POINTS) :])
        gains = (_gain(below[0], area, below[1], board.stand.split.rows),) if below else ()
        effective = min(board.effective[point.part, point.setting] for point in dial.points)
        off = np.abs(promised - np.stack([front.won.mean(axis=0), front.cost.mean(axis=0)], axis=1)).mean(axis=0)
        evidence = Evidence(
            area.area,
            tuple(sorted(_met(front), key=lambda met: met.budget)),
            gains,
            (float(off[0]), float(off[1])),
            _needs(gains, int(board.stand.panel.there.sum())),
            f"off-policy (DR), effective sample {effective:,.0f} of {len(board.won):,} tasks",
        )
        yield Rung(name, dial, evidence)
        below = name, area


def _met(front: Frontier) -> Iterator[Met]:
    for place, budget in enumerate(front.budgets):
        right = Interval.of(front.won[:, place])
        yield Met(float(budget), float(front.cost[:, place].mean()), right.mean, right.low, right.high)


def _gain(name: str, one: Frontier, other: Frontier, rows: Sequence[Ints]) -> Gain:
    """Return the paired gain in area over the other: the wider of its intervals over tasks and over folds.

    Folds have dials of their own, and how these come out by chance is not seen in the differences within a fold.
    """
    more = one.by_task - other.by_task
    tasks, folds = Interval.of(more), Interval.of(np.array([more[own].mean() for own in rows]))
    reach = max(tasks.high - tasks.mean, folds.high - folds.mean)
    return Gain(name, tasks.mean, tasks.mean - reach, tasks.mean + reach)


def _needs(gains: Sequence[Gain], outcomes: int) -> int | None:
    """Return how many more outcomes it takes for the gain to show, if it is what it seems; None: if it is none."""
    if not gains or gains[0].low > 0:
        return 0
    if gains[0].mean <= 0:
        return None
    error = (gains[0].high - gains[0].low) / (2 * _Z)
    return ceil(max(0.0, outcomes * ((_Z * error / gains[0].mean) ** 2 - 1)))


def _best_single(panel: Panel, split: Split) -> tuple[float, float]:
    """Return accuracy and dollars of the best single worker: as judged from the log if it can be, else as expected."""
    best = best_of(_known(panel, expected(panel)))
    shares = np.zeros(panel.there.shape)
    shares[:, panel.workers.index(best.name)] = 1.0
    told = value(split.routing(shares))
    return (told.accuracy.mean, told.dollars.mean) if isinstance(told, Value) else (best.score, best.dollars)


def _as_logged(board: _Board) -> list[str]:
    """Return a line on what was asked till now, where one worker was asked for each task, and on the same cost now."""
    panel = board.stand.panel
    if (panel.there.sum(axis=1) != 1).any() or (panel.there & ~known(panel)).any():
        return []
    won, paid = panel.won.sum(axis=1), panel.paid.sum(axis=1) / board.stand.unit
    front, _ = board.judged(np.array([paid.mean()]))
    more = Interval.of(front.won[:, 0] - won)
    till = f"those who were asked for these tasks came to {_shown(Interval.of(won))} at a cost of {paid.mean():.3f}"
    return [f"{till}; at a cost of {front.cost.mean():.3f} the rule comes to {_shown(more, '+')} more"]


def _shown(held: Interval, sign: str = "") -> str:
    return f"{held.mean:{sign}.3f} [{held.low:{sign}.3f}, {held.high:{sign}.3f}]"


def _unproved(panel: Panel, about: About, why: str) -> Policy:
    """Return the rule of what is recorded, with a dial that says what the rule itself expects."""
    table = expected(panel, told=False)
    workers = _known(panel, table)
    best = best_of(workers)
    part = ruled(table, best.dollars or 1.0)
    types, points = panel.batch.types, []
    for setting in range(part.settings):
        asked = part.chosen(panel.batch, setting)
        cost, right = (float(held[types, asked].mean()) for held in (part.cost, part.success))
        points.append(Point(0, setting, cost, right))
    dial = Dial(on_hull(points), best.dollars, best.score)
    notes = (*about.notes, f"nothing could be judged: {why}; {_UNPROVED}")
    rung = Rung(TABLE, dial, None)
    return Policy(replace(about, notes=notes), workers, panel.types, (part,), (rung,), TABLE)


def _known(panel: Panel, table: Expected) -> tuple[Known, ...]:
    """Return the workers; scores and dollars are those of all tasks, not of the ones that each was asked for.

    How many outcomes they stand on does not count those that others' answers led to.
    """
    found, tasks = [], known(begun(panel)).sum(axis=0)
    for column, name in enumerate(panel.workers):
        seconds, tokens = (_mean(held[:, column]) for held in (panel.seconds, panel.tokens))
        score, dollars = float(table.success[-1, column]), float(table.dollars[-1, column])
        found.append(Known(name, score, dollars, int(tasks[column]), seconds, tokens or 0.0))
    return tuple(found)


def _mean(values: Floats) -> float | None:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else None
