"""Everybody who takes part in `routers.py`: fitted and chosen on one part of the tasks, measured on the other.

An entrant is given a split and says what its dial's budgets came to on the part held out. Ours is the rung that
`shikisha.learn.ladder.climb` keeps; the rule and the cascade are fitted on their own, as the ladder fits them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from router_baselines import (
    EstimatorFitter,
    best_by_price,
    fit_factored_router,
    fit_logistic_router,
    fit_nearest_neighbors,
    route_by_estimate,
)
from routers_sets import Split
from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.fit.baselines import (
    LEARNED_VOTE,
    MAJORITY_VOTE,
    ORACLE,
    WEIGHTED_VOTE,
    BaselineFitter,
    BaselineTrial,
    VoteTally,
    WeightedVote,
    fit_scored_vote,
    quick_baselines,
    try_baseline,
    vote_weights,
)
from shikisha.routing.fit.cost_frontier import BUDGETS, REPORTED_BUDGETS, Frontier, compute_frontier, mix_for_budget
from shikisha.routing.fit.fit_cascade import fit_cascade
from shikisha.routing.fit.fit_table import fit_table
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import SHIP, DecisionRule, TaskBatch
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

FINE = np.geomspace(0.01, 3.0, 120)
SHARES = np.linspace(0.0, 1.0, 101)
ALL = np.concatenate([REPORTED_BUDGETS, BUDGETS, FINE, SHARES])
AT_POINTS, AT_BUDGETS, AT_FINE, AT_SHARES = np.split(
    np.arange(len(ALL)), np.cumsum([len(REPORTED_BUDGETS), len(BUDGETS), len(FINE)])
)
TOLD = (0.1, 0.2, 0.5, 1.0)  # budgets at which it is told who is asked
RULE, CASCADE, PLAIN, OURS = "rule by type", "cascade by type", "cascade", "ours"
ONE_ORDER = ((0.0, 1.0),)  # for all types, as FrugalGPT's cascade has it
TIMED = 200
GUESSES: Mapping[str, EstimatorFitter] = {
    "nearest": fit_nearest_neighbors,
    "logistic": fit_logistic_router,
    "factored*": fit_factored_router,
}


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
    for name, yard in quick_baselines(split.train).items():
        if name != ORACLE:
            found[name] = _yardstick(name, yard)
    found |= {name: _yardstick(name, route_by_estimate(guesses)) for name, guesses in GUESSES.items()}
    found[RULE] = _rule
    if split.train.answers:
        found[PLAIN] = _plain
        found[CASCADE] = _cascade
    return {**found, OURS: _ours, ORACLE: _yardstick(ORACLE, quick_baselines(split.train)[ORACLE])}


def by_parts(dial: TradeOff, parts: Sequence[DecisionRule], split: Split) -> Measured:
    """Play every setting on a dial on the part held out."""
    unit = split.train.cost_unit()
    runs = {(point.part, point.setting): replay(parts[point.part], point.setting, split.held) for point in dial.points}
    won = np.stack([run.won for run in runs.values()], axis=1)
    cost = np.stack([run.paid for run in runs.values()], axis=1) / unit
    asks = {}
    for budget in TOLD:
        mix = mix_for_budget(dial, budget)
        low, high = (runs[point.part, point.setting].asked.mean(axis=0) for point in (mix.low, mix.high))
        asks[budget] = (1 - mix.share) * low + mix.share * high
    last = list(runs).index((dial.points[-1].part, dial.points[-1].setting))
    top = np.stack([won[:, last], cost[:, last]], axis=1)
    point = mix_for_budget(dial, 0.2).high
    decisions = list(_acts(parts[point.part], point.setting, split.held))
    front = compute_frontier(dial, won, cost, list(runs), ALL)
    return Measured(split.held.ids, front, top, dial.points[0].cost, asks, decisions=decisions)


def by_trial(found: BaselineTrial, held: OutcomeMatrix) -> Measured:
    """Return what a trial came to."""
    dial = found.dial
    last = dial.points[-1].setting
    top = np.stack([found.won[:, last], found.spent[:, last]], axis=1)
    asks = {budget: found.shares(budget) for budget in TOLD}
    return Measured(held.ids, found.frontier(ALL), top, dial.points[0].cost, asks)


def _ours(split: Split) -> Measured:
    begun = perf_counter()
    policy = select_policy(split.train)
    seconds = perf_counter() - begun
    rung, heard = policy.rung(), replace(split, held=split.held.with_response_model(policy.hearing))
    return replace(by_parts(rung.dial, policy.parts, heard), seconds=seconds, note=rung.name)


def _rule(split: Split) -> Measured:
    begun = perf_counter()
    found = fit_table(split.train, split.folds)
    return _fitted(found.part, (found.won, found.cost), split, begun)


def _plain(split: Split) -> Measured:
    begun = perf_counter()
    found = fit_cascade(split.train, split.folds, split.train.cost_unit(), ONE_ORDER)
    return _fitted(found.part, (found.won, found.cost), split, begun)


def _cascade(split: Split) -> Measured:
    begun = perf_counter()
    found = fit_cascade(split.train, split.folds, split.train.cost_unit())
    return _fitted(found.part, (found.won, found.cost), split, begun)


def _fitted(part: DecisionRule, came: tuple[Floats, Floats], split: Split, begun: float) -> Measured:
    won, cost = (table.mean(axis=0) for table in came)
    points = [OperatingPoint(0, setting, float(cost[setting]), float(won[setting])) for setting in range(len(won))]
    dial = TradeOff(upper_hull(points), split.train.cost_unit(), float(split.train.mean_scores().max()))
    seconds = perf_counter() - begun
    return replace(by_parts(dial, (part,), split), seconds=seconds)


def _yardstick(name: str, yard: BaselineFitter) -> Entrant:
    def entrant(split: Split) -> Measured:
        begun = perf_counter()
        found = by_trial(try_baseline(yard, split.train, split.folds, split.held), split.held)
        seconds = perf_counter() - begun
        return replace(found, seconds=seconds, decisions=list(_decisions(name, split)))

    return entrant


# How long one decision takes, on one task.


def _acts(part: DecisionRule, setting: int, held: OutcomeMatrix) -> Iterator[float]:
    """Yield the milliseconds of each act on some tasks, one task at a time, each played to its end."""
    for row in range(min(TIMED, len(held))):
        one = _alone(held, row)
        asked = np.zeros((1, len(held.workers)), bool)
        while True:
            seen = one.state_after(asked)
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
            best_by_price(guess(batch)[0], dear, 1.0)
            yield 1000 * (perf_counter() - begun)
    if name in (MAJORITY_VOTE, WEIGHTED_VOTE, LEARNED_VOTE):
        tally, everybody = _tally(name, split.train), tuple(range(len(split.train.workers)))
        for row in rows:
            one = _alone(split.held, row)
            begun = perf_counter()
            tally(one, everybody)
            yield 1000 * (perf_counter() - begun)


def _tally(name: str, train: OutcomeMatrix) -> VoteTally:
    if name == LEARNED_VOTE:
        return fit_scored_vote(train)
    workers = len(train.workers)
    ranks: Ints = np.arange(workers)
    return WeightedVote(vote_weights(train) if name == WEIGHTED_VOTE else np.ones(workers), ranks)


def _alone(panel: OutcomeMatrix, row: int) -> OutcomeMatrix:
    """Return a task alone, with nothing known of it that was computed for the whole."""
    one = panel.at(np.array([row], np.int64))
    return replace(one, batch=TaskBatch(one.batch.prompts, one.batch.types))
