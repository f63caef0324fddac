"""A changing pool on recorded outcomes: workers added with few outcomes, removed, explored, and drifting.

    python benchmarks/changing_pool.py [--set MP13 ZE21] [--part added removed drift exploring] [--seeds 5]

Needs `../shared/recorded` and the extra `learn`. Each seed holds back another fifth of the tasks, and figures are of
that fifth; 1.0 of cost is the best single worker's mean cost. Fits are short ones (see `changing_fits`).

    added      three of the six best workers are hidden (drawn among the five triples without which the rule loses most
               in training), and then added with 100 outcomes each: what share of the lost area comes back
    removed    the best worker is removed after training: the policy goes on without it; its dial measured again; a
               policy fitted without it; the best single worker that remains
    drift      a worker's right answers turn wrong, with some probability, from some task on (simulated): outcomes until
               that is noticed, false alarms in quiet traffic, and what routing around it brings (two seeds)
    exploring  a worker that the policy does not know is explored with 5 % of what runs cost, as its price and the
               wordiest known worker foretell that: how many tasks 100 outcomes take, and what was really spent
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter

import numpy as np

from changing_fits import hiding, measured, ratio_interval, short_fit, spoilt, with_few, without
from common import machine
from routers_sets import FOLDER, SETS, outer, recorded
from shikisha.core.budget import Price
from shikisha.engine.worker import Card
from shikisha.evals.statistics import difference_interval
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.arrays import Floats
from shikisha.routing.exploration import ExplorationBudget, draw_worker
from shikisha.routing.fit.cost_frontier import Frontier
from shikisha.routing.fit.drift_detection import (
    FALSE_ALARM_INTERVAL,
    MIN_FALL,
    detect_drift,
    expected_by_outcomes,
    expected_by_policy,
    find_alarm,
)
from shikisha.routing.fit.new_workers import impute_outcomes, num_imputations
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.fit.worker_removal import remove_workers as doing_without
from shikisha.routing.fit.worker_removal import reroute_policy
from shikisha.routing.policy_data import Policy

PARTS = ("added", "removed", "drift", "exploring")
FEW = 100
SHARES = (0.15, 0.3, 0.6)
SPENT = np.array([0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
STREAMS = 10


@dataclass(frozen=True)
class Fold:
    """A seed's tasks to train on and to report, and what is fitted on them once for all parts."""

    seed: int
    train: OutcomeMatrix
    held: OutcomeMatrix

    @cached_property
    def unit(self) -> float:
        """What one unit of cost is."""
        return self.train.cost_unit()

    @cached_property
    def policy(self) -> Policy:
        """The policy of all workers."""
        return short_fit(self.train, self.unit)

    @cached_property
    def whole(self) -> Frontier:
        """What it comes to."""
        return measured(self.policy, self.held, self.unit)


def added(folds: Sequence[Fold]) -> Iterator[str]:
    """Hide three, add them with few outcomes, and tell what share of the lost area comes back."""
    lost, gained, shares = [], [], []
    for fold in folds:
        three = hiding(fold.train, fold.seed, fold.unit).workers
        hidden = measured(short_fit(without(fold.train, three), fold.unit), without(fold.held, three), fold.unit)
        few = with_few(fold.train, three, FEW, fold.seed)
        joined = impute_outcomes(few, fold.seed, num_imputations(few))
        back = measured(short_fit(joined, fold.unit), fold.held, fold.unit)
        lost.append(fold.whole.by_task - hidden.by_task)
        gained.append(back.by_task - hidden.by_task)
        shares.append((back.area - hidden.area) / (fold.whole.area - hidden.area))
        areas = f"all {fold.whole.area:.4f}  hidden {hidden.area:.4f}  added {back.area:.4f}"
        yield f"  seed {fold.seed}  {areas}  recovered {shares[-1]:>6.2f}  {', '.join(three)}"
    part, everything = np.concatenate(gained), np.concatenate(lost)
    low, high = ratio_interval(part, everything)
    share = f"{part.sum() / everything.sum():.2f} [{low:.2f}, {high:.2f}]"
    middle = f"median {np.median(shares):.2f}, least {min(shares):.2f}"
    yield f"  share of the lost area ({everything.mean():.4f}) recovered, all seeds together: {share}; {middle}"


def removed(folds: Sequence[Fold]) -> Iterator[str]:
    """Remove the best worker after training."""
    ways: dict[str, list[Frontier]] = {}
    single, paid = [], []
    for fold in folds:
        best = fold.train.workers[fold.train.best_worker()]
        train, held = without(fold.train, [best]), without(fold.held, [best])
        gone = doing_without(fold.policy, [best])
        again = doing_without(fold.policy, [best], fold.train.at(np.arange(len(fold.train)) % 3 == 0))
        for name, policy, panel in (
            ("with everybody", fold.policy, fold.held),
            ("it goes on without", gone, fold.held),
            ("its dial measured again", again, fold.held),
            ("fitted without", short_fit(train, fold.unit), held),
        ):
            ways.setdefault(name, []).append(measured(policy, panel, fold.unit, SPENT))
        rest = train.best_worker()
        single.append(held.won[:, rest])
        paid.append(held.paid[:, rest] / fold.unit)
    alone = np.concatenate(single)
    yield f"  {'best single worker that remains':<32} {alone.mean():.3f} at {np.concatenate(paid).mean():.2f}"
    for name, fronts in ways.items():
        won, cost = _joined(fronts)
        points = "  ".join(
            f"{one:.3f} at {other:.2f}" for one, other in zip(won.mean(axis=0), cost.mean(axis=0), strict=True)
        )
        low, high = difference_interval((won[:, -1] - alone).tolist())
        yield f"  {name:<32} {points}  best less single [{low:+.3f}, {high:+.3f}]"


def drift(folds: Sequence[Fold]) -> Iterator[str]:
    """Simulate drift: how soon it is noticed, how often nothing is mistaken for it, and what routing around brings."""
    fold = folds[0]
    alarms, outcomes = _false_alarms(fold)
    rate = outcomes / alarms if alarms else float("inf")
    stated = f"stated: one in {FALSE_ALARM_INTERVAL:,} at most"
    yield f"  quiet: {alarms} alarms in {outcomes:,} outcomes, one in {rate:,.0f}; {stated}"
    for share in SHARES:
        delays = [_delay(fold, worker, share, seed) for worker in _asked_most(fold) for seed in range(STREAMS)]
        seen = [delay for delay in delays if delay is not None]
        middle, most = np.quantile(seen, (0.5, 0.9)) if seen else (np.nan, np.nan)
        yield (
            f"  {share:.0%} of right answers turn wrong: noticed in {len(seen)} of {len(delays)} streams, "
            f"after {middle:.0f} outcomes (median), {most:.0f} (90 %)"
        )
    for worker in _asked_most(fold):
        for share in SHARES[1:]:
            yield from _routed(folds, worker, share)


def exploring(folds: Sequence[Fold], log: OutcomeLog) -> Iterator[str]:
    """Let a policy explore a worker that it does not know, and count what that takes."""
    fold = folds[0]
    for worker in _asked_most(fold):
        known = replace(fold.policy, workers=tuple(one for one in fold.policy.workers if one.name != worker))
        column = fold.train.workers.index(worker)
        everything, spent, found, asked = fold.train, 0.0, 0, None
        rules = ExplorationBudget(0.05, fold.unit)  # runs at the setting that costs what the best single worker costs
        cards = [Card(name, price=log.prices.get(name, Price())) for name in everything.workers]
        for row, content in enumerate(everything.hashes):
            lots = rules.chances(known, cards, everything.batch.prompts[row])
            if draw_worker(content, lots) is not None and found < FEW:
                found, spent = found + 1, spent + float(everything.paid[row, column])
                asked = row + 1
        share = spent / ((asked or 1) * fold.unit)
        yield f"  {worker}: {found} outcomes after {asked or 0:,} tasks, for {share:.1%} of what their runs cost"


def _false_alarms(fold: Fold) -> tuple[int, int]:
    """Count alarms, and outcomes, over shuffled traffic of training tasks, in which nothing drifts."""
    random, usual = np.random.default_rng(0), expected_by_outcomes(fold.train)
    alarms = outcomes = 0
    for worker in range(len(fold.train.workers)):
        rows = np.flatnonzero(fold.train.there[:, worker])
        for _ in range(3):
            order = random.permutation(rows)
            expected = usual.success[fold.train.batch.types[order], worker] - MIN_FALL
            while len(order):
                place = find_alarm(fold.train.won[order, worker], expected.clip(0.02, 0.98))
                alarms, outcomes = alarms + (place is not None), outcomes + (len(order) if place is None else place + 1)
                cut = len(order) if place is None else place + 1
                order, expected = order[cut:], expected[cut:]
    return alarms, outcomes


def _delay(fold: Fold, worker: str, share: float, seed: int) -> int | None:
    """Return how many outcomes after the drift began it is noticed; None: not in the traffic at hand, or before."""
    order = np.random.default_rng(seed).permutation(len(fold.train))
    begun = len(order) // 4
    stream = fold.train.at(order)
    stream = spoilt(stream, worker, share, np.arange(len(order)) >= begun, seed)
    found = detect_drift(stream.select_workers([worker]), expected_by_outcomes(fold.train.select_workers([worker])))
    place = stream.ids.index(found[0].noticed) if found else -1
    return place - begun if place >= begun else None


def _routed(folds: Sequence[Fold], worker: str, share: float) -> Iterator[str]:
    ways: dict[str, list[Frontier]] = {}
    for fold in folds[:2]:
        now = spoilt(fold.held, worker, share, seed=fold.seed)
        recent = spoilt(fold.train, worker, share, seed=fold.seed + 100).at(np.arange(len(fold.train)) < 1_000)
        found = [each for each in detect_drift(recent, expected_by_policy(fold.policy)) if each.worker == worker]
        around = reroute_policy(fold.policy, found, fold.train.at(np.arange(len(fold.train)) % 3 == 0))
        ways.setdefault("before", []).append(measured(fold.policy, fold.held, fold.unit))
        ways.setdefault("ignored", []).append(measured(fold.policy, now, fold.unit))
        ways.setdefault("routed around", []).append(measured(around, now, fold.unit))
    told = {name: _joined(fronts) for name, fronts in ways.items()}
    words = "  ".join(f"{name} {won.mean():.4f} (cost {cost.mean():.2f})" for name, (won, cost) in told.items())
    difference = (told["routed around"][0] - told["ignored"][0]).mean(axis=1)
    low, high = difference_interval(difference.tolist())
    yield f"  {worker}, {share:.0%}: area {words}  gain {difference.mean():+.4f} [{low:+.4f}, {high:+.4f}]"


def _asked_most(fold: Fold) -> tuple[str, ...]:
    """Return the best single worker, and the best of those that cost at most a tenth of it."""
    best, means = fold.train.best_worker(), fold.train.mean_scores()
    cheap = fold.train.paid.mean(axis=0) <= 0.1 * fold.unit
    return fold.train.workers[best], fold.train.workers[int(np.where(cheap, means, -1.0).argmax())]


def _joined(fronts: Sequence[Frontier]) -> tuple[Floats, Floats]:
    return np.concatenate([front.won for front in fronts]), np.concatenate([front.cost for front in fronts])


def main() -> None:
    """Run the parts that are asked for and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--set", nargs="+", choices=["MP13", "ZE21"], default=["MP13", "ZE21"])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        sys.exit(f"no recorded answers in {arguments.folder}")
    print(f"A changing pool ({machine()}); costs are derived from approximate list prices")
    for name in arguments.set:
        panel = recorded(name, arguments.folder).panel
        splits = list(outer(panel, 5))[: arguments.seeds]
        folds = [Fold(seed, split.train, split.held) for seed, split in enumerate(splits)]
        log = OutcomeLog.read(arguments.folder / SETS[name])
        parts = {
            "added": lambda: added(folds),  # noqa: B023 - used within the turn
            "removed": lambda: removed(folds),  # noqa: B023
            "drift": lambda: drift(folds),  # noqa: B023
            "exploring": lambda: exploring(folds, log),  # noqa: B023
        }
        for part in arguments.part:
            begun = perf_counter()
            print(f"{name}, {part}")
            for line in parts[part]():
                print(line, flush=True)
            print(f"  ({perf_counter() - begun:.0f} s)")


if __name__ == "__main__":
    main()
