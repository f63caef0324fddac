"""What `changing_pool.py` fits and measures: short fits of the rule and some inductions, and their areas.

A short fit searches for pools on some of the tasks and workers, so that dozens of fits take minutes; it is otherwise
what the ladder fits. All costs are in one unit, whoever is in the pool: the mean cost of the best single worker of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from shikisha.routing.arrays import Flags, Floats
from shikisha.routing.fit.combined_dial import CrossFittedRule, setting_points
from shikisha.routing.fit.cost_frontier import BUDGETS, Frontier, compute_frontier, mix_for_budget
from shikisha.routing.fit.fit_stopping_rule import StoppingData, fit_stopping, search_pools
from shikisha.routing.fit.fit_table import fit_table
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import assign_folds, known_workers
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Candidate, Policy, PolicyOrigin
from shikisha.routing.state import NO_ANSWER
from shikisha.routing.trade_off import TradeOff, upper_hull

SEARCHED = 1_500  # tasks on which pools are searched for
LOOKED_AT = 12  # workers among whom
BEST, HIDDEN, COSTLIEST = 6, 3, 5


@dataclass(frozen=True)
class Hiding:
    """Three workers to hide, and how much area the rule loses without them on the training part."""

    workers: tuple[str, ...]
    lost: float


def short_fit(panel: OutcomeMatrix, unit: float) -> Policy:
    """Return a policy of one rung whose parts are the rule and two inductions."""
    folds = assign_folds(panel.hashes, "short")
    tabled = fit_table(panel, folds, unit)
    tried = [CrossFittedRule(tabled.part, tabled.won, tabled.cost, tabled.cost.mean(axis=0))]
    ground = replace(StoppingData.of(panel, folds), unit=unit)
    for pool in _pools(panel, unit)[-2:]:
        one = fit_stopping(ground, [panel.workers.index(name) for name in pool])
        tried.append(CrossFittedRule(one.part, one.won, one.cost, one.spent))
    dial = TradeOff(upper_hull(setting_points(tried)), unit, float(panel.mean_scores().max()))
    about = PolicyOrigin("benchmark", "", len(panel))
    return Policy(
        about,
        known_workers(panel),
        panel.types,
        tuple(one.part for one in tried),
        (Candidate("policy", dial),),
        "policy",
    )


def measured(policy: Policy, held: OutcomeMatrix, unit: float, budgets: Floats = BUDGETS) -> Frontier:
    """Return what the policy's dial comes to on these tasks, of whose workers some may be missing or shunned."""
    dial, there = policy.rung().dial, policy.may_ask(_there(held))
    mixes = [mix_for_budget(dial, float(budget)) for budget in budgets]
    places = sorted({(point.part, point.setting) for mix in mixes for point in (mix.low, mix.high)})
    runs = [replay(policy.parts[part], setting, held, there) for part, setting in places]
    won, paid = np.stack([run.won for run in runs], axis=1), np.stack([run.paid for run in runs], axis=1)
    return compute_frontier(dial, won, paid / unit, places, budgets)


def rule_area(panel: OutcomeMatrix, unit: float) -> float:
    """Return the area of the rule, as found on folds."""
    tabled = fit_table(panel, assign_folds(panel.hashes, "short"), unit)
    rule = CrossFittedRule(tabled.part, tabled.won, tabled.cost, tabled.cost.mean(axis=0))
    dial = TradeOff(upper_hull(setting_points([rule])), unit, 0.0)
    return float(np.mean([mix_for_budget(dial, float(budget)).accuracy for budget in BUDGETS]))


def hiding(train: OutcomeMatrix, seed: int, unit: float) -> Hiding:
    """Draw three of the six best workers, among the five triples without which the rule loses most in training."""
    best = [train.workers[place] for place in np.argsort(-train.mean_scores(), kind="stable")[:BEST]]
    whole = rule_area(train, unit)
    found = [Hiding(three, whole - rule_area(without(train, three), unit)) for three in combinations(best, HIDDEN)]
    found.sort(key=lambda each: -each.lost)
    return found[int(np.random.default_rng(seed).integers(COSTLIEST))]


def without(panel: OutcomeMatrix, workers: Sequence[str]) -> OutcomeMatrix:
    """Return the panel of the other workers."""
    return panel.select_workers([name for name in panel.workers if name not in workers])


def with_few(panel: OutcomeMatrix, workers: Sequence[str], count: int, seed: int) -> OutcomeMatrix:
    """Return the panel in which these workers have so many outcomes each, on tasks drawn for each anew."""
    random, gone = np.random.default_rng((seed, 1)), np.zeros(panel.codes.shape, bool)
    for name in workers:
        column = panel.workers.index(name)
        gone[:, column] = True
        gone[random.choice(np.flatnonzero(panel.there[:, column]), count, replace=False), column] = False
    return panel.without_outcomes(gone)


def spoilt(panel: OutcomeMatrix, worker: str, share: float, rows: Flags | None = None, seed: int = 0) -> OutcomeMatrix:
    """Return the panel in which this share of the worker's right answers (in these rows) has become wrong: simulated.

    Half of the wrong answers are those of other workers who are wrong, where there are any.
    """
    random, column = np.random.default_rng(seed), panel.workers.index(worker)
    hit = (random.random(len(panel)) < share) & (panel.won[:, column] > 0) & (panel.codes[:, column] > NO_ANSWER)
    codes, scores = panel.codes.copy(), panel.scores.copy()
    for row in np.flatnonzero(hit if rows is None else hit & rows):
        right = set(panel.codes[row][panel.won[row] > 0].tolist())
        wrong = sorted({int(code) for code in panel.codes[row] if code > NO_ANSWER} - right)
        shared = wrong and random.random() < 0.5
        codes[row, column] = random.choice(wrong) if shared else panel.codes[row].max() + 1
        scores[row, column] = 0.0
    return replace(panel, codes=codes, scores=scores)


def ratio_interval(part: Floats, whole: Floats) -> tuple[float, float]:
    """Return the 95 % bootstrap interval, over tasks [T], of the ratio of the sums."""
    random = np.random.default_rng(0)
    drawn = random.integers(0, len(part), (2_000, len(part)))
    low, high = np.quantile(part[drawn].sum(axis=1) / whole[drawn].sum(axis=1), (0.025, 0.975))
    return float(low), float(high)


def _pools(panel: OutcomeMatrix, unit: float) -> list[tuple[str, ...]]:
    """Return pools found among the best workers on the first tasks by hash."""
    names = [panel.workers[place] for place in np.argsort(-panel.mean_scores(), kind="stable")[:LOOKED_AT]]
    first = sorted(set(panel.hashes))[:SEARCHED]
    rows = np.flatnonzero(np.isin(panel.hashes, first))  # a task that was filled in several times is there as often
    small = panel.at(rows).select_workers(names)
    ground = replace(StoppingData.of(small, assign_folds(small.hashes, "short")), unit=unit)
    return [tuple(names[place] for place in pool) for pool in search_pools(ground)]


def _there(panel: OutcomeMatrix) -> tuple[str, ...]:
    return tuple(name for place, name in enumerate(panel.workers) if panel.there[:, place].any())
