"""Everybody who takes part in `routers.py`: fitted and chosen on one part of the tasks, measured on the other.

An entrant is given a split and says what its dial's budgets came to on the part held out. Ours is the rung that
`shikisha.learn.ladder.climb` keeps; the rule and the cascade are fitted on their own, as the ladder fits them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from routers_sets import Split
from shikisha.learn.cascading import cascade
from shikisha.learn.frontier import BUDGETS, POINTS, Frontier, frontier, met_by
from shikisha.learn.ladder import climb
from shikisha.learn.panel import Panel
from shikisha.learn.play import play
from shikisha.learn.scoring import fit_scorer
from shikisha.learn.tabling import tabulate
from shikisha.learn.yard_routers import Guesses, best, factored, logistic, nearest, routed
from shikisha.learn.yard_trials import Trial, Yard, trial
from shikisha.learn.yard_votes import Scored, Tally, Weighted, weights
from shikisha.learn.yardsticks import LEARNED, MAJORITY, ORACLE, WEIGHTED, quick
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.batch import SHIP, Batch
from shikisha.policy.dial import Dial, Point, on_hull
from shikisha.policy.parts import Part

FINE = np.geomspace(0.01, 3.0, 120)
SHARES = np.linspace(0.0, 1.0, 101)
ALL = np.concatenate([POINTS, BUDGETS, FINE, SHARES])
AT_POINTS, AT_BUDGETS, AT_FINE, AT_SHARES = np.split(
    np.arange(len(ALL)), np.cumsum([len(POINTS), len(BUDGETS), len(FINE)])
)
TOLD = (0.1, 0.2, 0.5, 1.0)  # budgets at which it is told who is asked
RULE, CASCADE, PLAIN, OURS = "rule by type", "cascade by type", "cascade", "ours"
ONE_ORDER = ((0.0, 1.0),)  # for all types, as FrugalGPT's cascade has it
TIMED = 200
GUESSES: Mapping[str, Guesses] = {"nearest": nearest, "logistic": logistic, "factored*": factored}


@dataclass(frozen=True)
class Measured:
    """What an entrant came to on one split; `ids` of the tasks held out, `floor` the cost of its cheapest setting.

    `front` is over ALL budgets; `top` are score and cost at its most accurate setting, [T, 2]; `asks` by budget [J];
    `seconds` to fit it and to choose its settings; `decisions` in milliseconds; `note`: what it was, where that varies.
    """

    ids: tuple[str, ...]
    front: Frontier
    top: Floats
    floor: float
    asks: Mapping[float, Floats] = field(default_factory=dict)
    seconds: float = 0.0
    decisions: Sequence[float] = ()
    note: str = ""


Entrant = Callable[[Split], Measured]


def entrants(split: Split) -> dict[str, Entrant]:
    """Return everybody who can take part on such a panel, by name."""
    found: dict[str, Entrant] = {}
    for name, yard in quick(split.train).items():
        if name != ORACLE:
            found[name] = _yardstick(name, yard)
    found |= {name: _yardstick(name, routed(guesses)) for name, guesses in GUESSES.items()}
    found[RULE] = _rule
    if split.train.answers:
        found[PLAIN] = _plain
        found[CASCADE] = _cascade
    return {**found, OURS: _ours, ORACLE: _yardstick(ORACLE, quick(split.train)[ORACLE])}


def by_parts(dial: Dial, parts: Sequence[Part], split: Split) -> Measured:
    """Play every setting on a dial on the part held out."""
    unit = split.train.unit()
    runs = {(point.part, point.setting): play(parts[point.part], point.setting, split.held) for point in dial.points}
    won = np.stack([run.won for run in runs.values()], axis=1)
    cost = np.stack([run.paid for run in runs.values()], axis=1) / unit
    asks = {}
    for budget in TOLD:
        mix = met_by(dial, budget)
        low, high = (runs[point.part, point.setting].asked.mean(axis=0) for point in (mix.low, mix.high))
        asks[budget] = (1 - mix.share) * low + mix.share * high
    last = list(runs).index((dial.points[-1].part, dial.points[-1].setting))
    top = np.stack([won[:, last], cost[:, last]], axis=1)
    point = met_by(dial, 0.2).high
    decisions = list(_acts(parts[point.part], point.setting, split.held))
    front = frontier(dial, won, cost, list(runs), ALL)
    return Measured(split.held.ids, front, top, dial.points[0].cost, asks, decisions=decisions)


def by_trial(found: Trial, held: Panel) -> Measured:
    """Return what a trial came to."""
    dial = found.dial
    last = dial.points[-1].setting
    top = np.stack([found.won[:, last], found.spent[:, last]], axis=1)
    asks = {budget: found.shares(budget) for budget in TOLD}
    return Measured(held.ids, found.frontier(ALL), top, dial.points[0].cost, asks)


def _ours(split: Split) -> Measured:
    begun = perf_counter()
    policy = climb(split.train)
    seconds = perf_counter() - begun
    rung, heard = policy.rung(), replace(split, held=split.held.heard(policy.hearing))
    return replace(by_parts(rung.dial, policy.parts, heard), seconds=seconds, note=rung.name)


def _rule(split: Split) -> Measured:
    begun = perf_counter()
    found = tabulate(split.train, split.folds)
    return _fitted(found.part, (found.won, found.cost), split, begun)


def _plain(split: Split) -> Measured:
    begun = perf_counter()
    found = cascade(split.train, split.folds, split.train.unit(), ONE_ORDER)
    return _fitted(found.part, (found.won, found.cost), split, begun)


def _cascade(split: Split) -> Measured:
    begun = perf_counter()
    found = cascade(split.train, split.folds, split.train.unit())
    return _fitted(found.part, (found.won, found.cost), split, begun)


def _fitted(part: Part, came: tuple[Floats, Floats], split: Split, begun: float) -> Measured:
    won, cost = (table.mean(axis=0) for table in came)
    points = [Point(0, setting, float(cost[setting]), float(won[setting])) for setting in range(len(won))]
    dial = Dial(on_hull(points), split.train.unit(), float(split.train.means().max()))
    seconds = perf_counter() - begun
    return replace(by_parts(dial, (part,), split), seconds=seconds)


def _yardstick(name: str, yard: Yard) -> Entrant:
    def entrant(split: Split) -> Measured:
        begun = perf_counter()
        found = by_trial(trial(yard, split.train, split.folds, split.held), split.held)
        seconds = perf_counter() - begun
        return replace(found, seconds=seconds, decisions=list(_decisions(name, split)))

    return entrant


# How long one decision takes, on one task.


def _acts(part: Part, setting: int, held: Panel) -> Iterator[float]:
    """Yield the milliseconds of each act on some tasks, one task at a time, each played to its end."""
    for row in range(min(TIMED, len(held))):
        one = _alone(held, row)
        asked = np.zeros((1, len(held.workers)), bool)
        while True:
            seen = one.seen(asked)
            begun = perf_counter()
            acts = part.act(seen, setting)
            yield 1000 * (perf_counter() - begun)
            if acts.ask[0] == SHIP:
                break
            asked[0, acts.ask[0]] = True


def _decisions(name: str, split: Split) -> Iterator[float]:
    """Yield the milliseconds of one decision of a router, or of one count of a vote; of the others nothing."""
    rows = range(min(TIMED, len(split.held)))
    if name in GUESSES:
        guess = GUESSES[name](split.train)
        dear = np.ones((1, len(split.train.workers)))
        for row in rows:
            batch = _alone(split.held, row).batch
            begun = perf_counter()
            best(guess(batch)[0], dear, 1.0)
            yield 1000 * (perf_counter() - begun)
    if name in (MAJORITY, WEIGHTED, LEARNED):
        tally, everybody = _tally(name, split.train), tuple(range(len(split.train.workers)))
        for row in rows:
            one = _alone(split.held, row)
            begun = perf_counter()
            tally(one, everybody)
            yield 1000 * (perf_counter() - begun)


def _tally(name: str, train: Panel) -> Tally:
    if name == LEARNED:
        return Scored(fit_scorer(train))
    workers = len(train.workers)
    ranks: Ints = np.arange(workers)
    return Weighted(weights(train) if name == WEIGHTED else np.ones(workers), ranks)


def _alone(panel: Panel, row: int) -> Panel:
    """Return a task alone, with nothing known of it that was computed for the whole."""
    one = panel.at(np.array([row], np.int64))
    return replace(one, batch=Batch(one.batch.prompts, one.batch.types))
