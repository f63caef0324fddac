"""Partial logs made of recorded answers: what off-policy values and policies learned from them are worth.

    python benchmarks/offpolicy.py [--sets MP13 ZE21] [--logs 200] [--learned 5] [--json]

A recorded set is cut in two by hash. On one half the policies to judge are fitted; the other is the population whose
mean is the truth. A simulated log draws 3,000 tasks from it with replacement, asks as a logging policy would, and keeps
those outcomes and their propensities alone. `holds` is the share of logs whose 95 % interval holds the truth, `as seen`
what the plain mean over the tasks that the log happens to hold is off by; refused logs are in no other figure. Then
policies are learned from partial logs of the first half's tasks, each once, and judged on the other half with all that
is known, beside what full information gives. No model is called; dollars are derived from approximate list prices.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter

import numpy as np

from common import machine
from routers_sets import recorded
from shikisha.routing.arrays import Flags, Floats
from shikisha.routing.fit.cost_frontier import BUDGETS, compute_frontier, mix_for_budget
from shikisha.routing.fit.fit_stopping_rule import StoppingData, fit_stopping
from shikisha.routing.fit.fit_table import fit_table
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import POLICY, assign_folds
from shikisha.routing.fit.off_policy import CrossFitSplit, OffPolicyMethod, PolicyTerms, PolicyValue, estimate_value
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.fit.partial_logs import fit_partial_log
from shikisha.routing.state import NO_ANSWER, DecisionRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

SETS = ("MP13", "ZE21")
TASKS = 3_000
FOLDS = 5
EXPLORED = 0.1
POOL = 4
SEVERAL = ("each apart", "in turn")  # logs that hold several answers to a task
RANDOM = np.random.Generator
Draw = Callable[[OutcomeMatrix, RANDOM], OutcomeMatrix]


@dataclass(frozen=True)
class Half:
    """A set's two halves, the best workers by the first, and policies that were fitted on it (part, setting)."""

    name: str
    train: OutcomeMatrix
    rest: OutcomeMatrix
    pool: tuple[int, ...]
    unit: float
    rule: DecisionRule
    policy: DecisionRule

    @property
    def targets(self) -> dict[str, tuple[DecisionRule, int]]:
        """What is judged: settings at prices of about 0.05 and 1 of accuracy for a unit of cost."""
        prices = {"dear": 0.05, "cheap": 1.0}
        table = np.geomspace(0.002, 20.0, self.rule.settings)
        steps = np.geomspace(0.004, 6.0, self.policy.settings)
        rules = {f"rule, {name}": (self.rule, int(np.abs(table - at).argmin())) for name, at in prices.items()}
        policies = {name: (self.policy, int(np.abs(steps - at).argmin())) for name, at in prices.items()}
        return rules | {f"policy, {name}": at for name, at in policies.items()}

    def judged_from(self, logged: str) -> dict[str, tuple[DecisionRule, int]]:
        """Return what is judged from this kind of log: where one worker is asked, policies that ask one."""
        return self.targets if logged in SEVERAL else {name: at for name, at in self.targets.items() if "rule" in name}


@dataclass(frozen=True)
class Judged:
    """How one estimator did on one policy from many logs by one way of logging; accuracies, and shares of logs."""

    set: str
    logged: str
    policy: str
    method: str
    logs: int
    refused: float
    effective: float
    truth: float
    bias: float
    spread: float
    half: float
    holds: float
    cost_bias: float
    cost_holds: float
    as_seen: float


@dataclass(frozen=True)
class Learned:
    """What was learned from a log: the kept rung's area on the other half, and a policy's, in the set's unit of cost.

    `off` is by how much the area that the log promised is above the one on the other half, both in the log's own unit.
    """

    set: str
    logged: str
    area: float
    off: float
    policy_area: float
    kept: str
    seconds: float


def halves(name: str) -> Half:
    """Cut a set in two, and fit a rule and a policy on the first half."""
    panel = replace(recorded(name).panel, texts=())
    side = assign_folds(panel.hashes, "off-policy", 2)
    train, rest = panel.at(side == 0), panel.at(side == 1)
    pool = unbeaten(train)
    unit, folds = train.cost_unit(), assign_folds(train.hashes, "fit")
    _ = rest.batch.shape  # made once for all logs
    rule = fit_table(train, folds, unit).part
    return Half(name, train, rest, pool, unit, rule, fit_stopping(StoppingData.of(train, folds), pool).part)


def unbeaten(panel: OutcomeMatrix) -> tuple[int, ...]:
    """Return the best of those workers that nobody beats at their cost."""
    skill, cost = panel.mean_scores(), panel.paid.mean(axis=0)
    beaten = np.array([((cost <= own) & (skill > good)).any() for own, good in zip(cost, skill, strict=True)])
    return tuple(sorted(int(worker) for worker in np.lexsort((-skill, beaten))[:POOL]))


def ways(half: Half) -> dict[str, Draw]:
    """Return the ways of logging."""
    workers = len(half.train.workers)
    favourite, setting = half.targets["rule, cheap"]

    def uniform(panel: OutcomeMatrix) -> Floats:
        return np.full(panel.there.shape, 1 / workers, np.float64)

    def exploring(panel: OutcomeMatrix) -> Floats:
        return np.asarray(EXPLORED / workers + (1 - EXPLORED) * replay(favourite, setting, panel).asked, np.float64)

    def skewed(panel: OutcomeMatrix) -> Floats:
        ranks = np.random.default_rng(0).permutation(workers) + 1.0
        long = panel.batch.shape[:, :1] > np.median(half.train.batch.shape[:, 0])
        weights = np.where(long, 1 / ranks, 1 / ranks[::-1])
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float64)

    def apart(panel: OutcomeMatrix) -> Floats:
        return np.broadcast_to(np.where(np.isin(np.arange(workers), half.pool), 0.6, 0.25), panel.there.shape)

    one = {"uniform": uniform, "rule, 10 % explored": exploring, "skewed": skewed}
    drawn: dict[str, Draw] = {name: _one_each(chances) for name, chances in one.items()}
    return drawn | {
        "each apart": lambda panel, random: kept(panel, random.random(panel.there.shape) < apart(panel), apart(panel)),
        "in turn": lambda panel, random: in_turn(panel, half.pool, random),
    }


def _one_each(chances: Callable[[OutcomeMatrix], Floats]) -> Draw:
    def draw(panel: OutcomeMatrix, random: RANDOM) -> OutcomeMatrix:
        shares = chances(panel)
        chosen = (shares.cumsum(axis=1) < random.random((len(panel), 1))).sum(axis=1)
        there = np.arange(shares.shape[1]) == np.minimum(chosen, shares.shape[1] - 1)[:, None]
        return kept(panel, there, shares)

    return draw


def in_turn(panel: OutcomeMatrix, pool: Sequence[int], random: RANDOM) -> OutcomeMatrix:
    """Ask workers of the pool in random order; after each, go on with a chance of 0.95 if it is silent, else of 0.8."""
    order = np.array([random.permutation(pool) for _ in range(len(panel))])
    rows, chances, turns = np.arange(len(panel)), np.ones(panel.there.shape), np.full(panel.there.shape, -1, np.int64)
    goes, on = np.ones(len(panel)), np.ones(len(panel), bool)
    for turn in range(len(pool)):
        asked = order[:, turn]
        chances[rows, asked] = goes / (len(pool) - turn)
        turns[rows, asked] = np.where(on, turn, -1)
        goes = np.where(panel.codes[rows, asked] <= NO_ANSWER, 0.95, 0.8)
        on = on & (random.random(len(panel)) < goes)
    return kept(replace(panel, turns=turns), turns >= 0, chances)


def kept(panel: OutcomeMatrix, there: Flags, chances: Floats) -> OutcomeMatrix:
    """Return what is left of a panel when these pairs were asked, with their chances."""
    gone = ~(there & panel.there)
    return replace(panel.without_outcomes(gone), propensities=np.where(gone, np.nan, chances))


def judged(half: Half, logs: int) -> Iterator[Judged]:
    """Simulate the logs of every way, and judge every policy from each."""
    for logged, draw in ways(half).items():
        targets = half.judged_from(logged)
        truths = {name: replay(part, setting, half.rest) for name, (part, setting) in targets.items()}
        random, found = np.random.default_rng(1), {name: list[tuple[PolicyTerms, float]]() for name in truths}
        for _ in range(logs):
            panel = draw(half.rest.at(random.integers(0, len(half.rest), TASKS)), random)
            split = CrossFitSplit.of(panel, random.permutation(TASKS) % FOLDS)
            for name, (part, setting) in targets.items():
                terms = split.rule_terms(part, setting)
                through = terms.weight > 0
                seen = float((terms.gained[through] / terms.weight[through]).mean()) if through.any() else np.nan
                found[name].append((terms, seen))
        for name, truth in truths.items():
            for method in OffPolicyMethod:
                yield _summed(
                    (half.name, logged, name), method, found[name], (float(truth.won.mean()), float(truth.paid.mean()))
                )


def _summed(
    what: tuple[str, str, str],
    method: OffPolicyMethod,
    found: Sequence[tuple[PolicyTerms, float]],
    truth: tuple[float, float],
) -> Judged:
    values = [
        (told, seen)
        for terms, seen in found
        for told in (estimate_value(terms, method),)
        if isinstance(told, PolicyValue)
    ]
    count = len(values)
    if not count:
        nothing = np.nan
        return Judged(*what, method, len(found), 1.0, nothing, truth[0], *[nothing] * 7)
    right, dollars = (
        np.array([[one.mean, one.low, one.high] for one in held])
        for held in ([told.accuracy for told, _ in values], [told.dollars for told, _ in values])
    )
    return Judged(
        *what,
        method,
        len(found),
        1 - count / len(found),
        float(np.mean([told.overlap.effective for told, _ in values])),
        truth[0],
        float(right[:, 0].mean() - truth[0]),
        float(right[:, 0].std()),
        float((right[:, 2] - right[:, 1]).mean() / 2),
        float(((right[:, 1] <= truth[0]) & (truth[0] <= right[:, 2])).mean()),
        float(dollars[:, 0].mean() / truth[1] - 1),
        float(((dollars[:, 1] <= truth[1]) & (truth[1] <= dollars[:, 2])).mean()),
        float(np.mean([seen for _, seen in values]) - truth[0]),
    )


def learned(half: Half, logs: int) -> Iterator[Learned]:
    """Learn from partial logs of the first half, and judge on the other."""
    for logged, draw in ways(half).items():
        for seed in range(logs):
            panel = draw(half.train, np.random.default_rng([seed, 7]))
            begun = perf_counter()
            policy = fit_partial_log(panel, seed).policy
            seconds = perf_counter() - begun
            areas = {rung.name: _area(half, policy.parts, rung.dial, half.unit) for rung in policy.rungs}
            kept_area, policy_area, evidence = areas[policy.kept], areas.get(POLICY, np.nan), policy.rung().evidence
            dial = policy.rung().dial
            off = evidence.area - _area(half, policy.parts, dial, dial.unit) if evidence else np.nan
            yield Learned(half.name, logged, kept_area, off, policy_area, policy.kept, seconds)


def full(half: Half) -> dict[str, float]:
    """Return the areas of a rule, and of a policy over the pool beside it, learned with all that is known."""
    folds = assign_folds(half.train.hashes, "fit")
    tabled, induced = (
        fit_table(half.train, folds, half.unit),
        fit_stopping(StoppingData.of(half.train, folds), half.pool),
    )
    rule, more = _points(0, tabled.won, tabled.cost), _points(1, induced.won, induced.cost)
    dials = {
        "rule": TradeOff(upper_hull(rule), half.unit, 0.0),
        "policy": TradeOff(upper_hull([*rule, *more]), half.unit, 0.0),
    }
    return {name: _area(half, (tabled.part, induced.part), dial, half.unit) for name, dial in dials.items()}


def _points(part: int, won: Floats, cost: Floats) -> list[OperatingPoint]:
    means = zip(cost.mean(axis=0), won.mean(axis=0), strict=True)
    return [OperatingPoint(part, setting, float(paid), float(right)) for setting, (paid, right) in enumerate(means)]


def _area(half: Half, parts: Sequence[DecisionRule], dial: TradeOff, unit: float) -> float:
    """Return what a dial comes to on the other half, its costs counted in this unit."""
    points = tuple(replace(point, cost=point.cost * dial.unit / unit) for point in dial.points)
    moved = TradeOff(points, unit, dial.best_single)
    mixes = [mix_for_budget(moved, float(budget)) for budget in BUDGETS]
    places = sorted({(point.part, point.setting) for mix in mixes for point in (mix.low, mix.high)})
    runs = [replay(parts[part], setting, half.rest) for part, setting in places]
    won, paid = np.stack([run.won for run in runs], axis=1), np.stack([run.paid for run in runs], axis=1)
    return compute_frontier(moved, won, paid / unit, places, BUDGETS).area


def _print_judged(found: Sequence[Judged]) -> None:
    print(f"{'logged':<20} {'policy':<14} {'by':<6} refused  worth  truth    bias  spread   ±half  holds", end="")
    print("   cost, holds  as seen")
    for one in found:
        head = f"{one.logged:<20} {one.policy:<14} {one.method:<6} {one.refused:>6.0%}"
        if one.refused == 1:
            print(head)
            continue
        right = f"{one.truth:.3f} {one.bias:+.4f}  {one.spread:.4f}  {one.half:.4f} {one.holds:6.1%}"
        print(
            f"{head} {one.effective:>7,.0f}  {right}  {one.cost_bias:+5.1%} {one.cost_holds:6.1%}  {one.as_seen:+.4f}"
        )


def _print_learned(found: Sequence[Learned], areas: dict[str, float]) -> None:
    print(f"areas on the other half; with all known: rule {areas['rule']:.4f}, policy {areas['policy']:.4f}")
    for logged in dict.fromkeys(one.logged for one in found):
        own = [one for one in found if one.logged == logged]
        area, off = np.array([one.area for one in own]), np.array([one.off for one in own if not np.isnan(one.off)])
        told = f"promised {off.mean():+.4f} ± {off.std():.4f} too much" if len(off) else "nothing promised"
        policies = [one.policy_area for one in own if not np.isnan(one.policy_area)]
        kept_policy = sum(one.kept == POLICY for one in own)
        more = f"; policy in {len(policies)} logs ({np.mean(policies):.4f}), kept in {kept_policy}" if policies else ""
        took = np.mean([one.seconds for one in own])
        print(f"{logged:<20} {area.mean():.4f} ({area.min():.4f} to {area.max():.4f}), {told}{more}; {took:.1f} s")


def main() -> None:
    """Judge and learn on each set, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--learned", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    begun, out = perf_counter(), []
    for name in options.sets:
        half = halves(name)
        values, policies, areas = list(judged(half, options.logs)), list(learned(half, options.learned)), full(half)
        told = {"judged": [asdict(one) for one in values], "learned": [asdict(one) for one in policies]}
        out.append({"set": name, "full": areas, **told})
        if not options.json:
            sizes = f"{len(half.train):,} tasks to fit on, logs draw {TASKS:,} of {len(half.rest):,}"
            print(f"\n{name}: {sizes}; {options.logs} logs each")
            _print_judged(values)
            _print_learned(policies, areas)
    print(json.dumps(out, indent=1) if options.json else f"\n{machine()}; {perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
