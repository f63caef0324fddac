"""The first outcomes: what a prior from other people's records adds to the rule, and what the cheapest control adds.

    python benchmarks/first_outcomes.py [--tasks 30 100 300] [--draws 20] [--set MP13 ZE21 LR9 RL]

Needs `../shared/recorded` and the extra `learn`. Every worker is asked for every task of a draw; all other tasks (3,000
at most) are reported. Figures are differences in area to the rule whose settings are chosen by what they reached
outside the fit, at equal spending, paired by draw; intervals are over draws, which share tasks.

    own estimates   the rule as it is shipped: settings are chosen by its own, shrunk estimates (no record of others)
    shrunk          a logistic model of workers and types, shrunk to the mean of this log (no record of others)
    prior           the same, shrunk to abilities and difficulties that were fitted on the three other sets: ability by
                    the words of a worker's name, its size and its price, difficulty by the surface of the prompts
    prior, certain  the same, four times as sure of abilities

The prior of a set is fitted without that set (leave one out). Its file would hold some 200 numbers and no text.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from common import machine
from routers_sets import FOLDER, SETS, recorded
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.combined_dial import CrossFittedRule, setting_points
from shikisha.routing.fit.cost_frontier import BUDGETS, compute_frontier
from shikisha.routing.fit.fit_table import PRICES, build_table, evaluate_table, fit_table
from shikisha.routing.fit.model_selection import assign_folds
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

MOST_REPORTED = 3_000
# Draws from here on were not looked at while entrants were written.
FIRST_DRAW = 6_000
Z = 1.96
# Ridge penalties: size known, its logarithm, constant, logarithm of the price, a word of a name.
PENALTIES, WORD_PENALTY = (1e-3, 0.3, 1e-3, 1.0), 1.0
# Standard deviations of log odds: of abilities around the prior (or mean), of types, of workers within types.
SPREADS = {"shrunk": (0.6, 1.0, 0.3), "prior": (0.45, 1.0, 0.3), "prior, certain": (0.225, 1.0, 0.3)}
ROUNDS = 40
_SIZE = re.compile(r"(?:^|-)(?:(\d+)x)?(\d+(?:\.\d+)?)b(?:-|$)")
_DATE = re.compile(r"-(?:\d{8}|\d{4}-\d\d-\d\d)$")


def described(worker: str) -> tuple[float, list[str]]:
    """Return the logarithm of a worker's size in billions of parameters (0: not told), and the words of its name."""
    name = _DATE.sub("", worker.lower().split("/")[-1].split("@")[0].replace("_", "."))
    found = _SIZE.search(name)
    words = [word for word in name.split("-") if word and not re.fullmatch(r"(\d+x)?\d+(\.\d+)?b", word)]
    words += [family[1] for word in words if (family := re.match(r"([a-z]+)\d", word))]
    pairs = [f"{one} {other}" for one, other in pairwise(words)]
    size = float(np.log2(float(found[1] or 1) * float(found[2]))) if found else 0.0
    return size, list(dict.fromkeys(words + pairs))


def log_odds(share: Floats) -> Floats:
    """Return log odds, kept finite."""
    clipped = np.clip(share, 0.01, 0.99)
    return np.asarray(np.log(clipped / (1 - clipped)), np.float64)


@dataclass(frozen=True)
class Prior:
    """Weights of names, sizes and prices for ability, and of the surface of prompts for difficulty."""

    words: dict[str, int]
    ability: Floats
    surface: Floats

    @classmethod
    def of(cls, panels: Sequence[OutcomeMatrix]) -> "Prior":
        """Fit the prior on some sets, each with a level of its own."""
        known = sorted({word for panel in panels for name in panel.workers for word in described(name)[1]})
        words = {word: place for place, word in enumerate(known)}
        rows = np.concatenate([features(panel, words) for panel in panels])
        sets = np.repeat(np.eye(len(panels)), [len(panel.workers) for panel in panels], axis=0)
        penalty = np.concatenate([PENALTIES, np.full(len(words), WORD_PENALTY), np.full(len(panels), 1e-2)])
        target = np.concatenate([log_odds(panel.mean_scores()) for panel in panels])
        ability = ridge(np.concatenate([rows, sets], axis=1), target - target.mean(), penalty)
        shapes = [panel.batch.shape - panel.batch.shape.mean(axis=0) for panel in panels]
        ease = [log_odds(np.nanmean(panel.scores, axis=1)) for panel in panels]
        ease = [one - one.mean() for one in ease]
        surface = ridge(np.concatenate(shapes), np.concatenate(ease), np.full(4, 10.0))
        return cls(words, ability[: rows.shape[1]], surface)

    def abilities(self, panel: OutcomeMatrix) -> Floats:
        """Return [J], centered."""
        found = features(panel, self.words) @ self.ability
        centered: Floats = found - found.mean()
        return centered

    def eases(self, panel: OutcomeMatrix) -> Floats:
        """Return [D]: how easy the types are by their prompts, centered."""
        own = (panel.batch.shape - panel.batch.shape.mean(axis=0)) @ self.surface
        kinds = range(len(panel.types.names))
        return np.array(
            [own[panel.batch.types == kind].mean() if (panel.batch.types == kind).any() else 0.0 for kind in kinds]
        )


def features(panel: OutcomeMatrix, words: dict[str, int]) -> Floats:
    """Return [J, 4 + W]: what a prior knows of workers."""
    paid = panel.paid.sum(axis=0) / np.maximum(1, panel.there.sum(axis=0))
    prices = np.log(np.maximum(paid, 1e-12))
    usual = prices[paid > 0].mean() if (paid > 0).any() else 0.0
    table = np.zeros((len(panel.workers), 4 + len(words)))
    for row, name in enumerate(panel.workers):
        size, own = described(name)
        price = np.clip(prices[row] - usual, -3, 3) if paid[row] > 0 else 0.0
        table[row, :4] = size > 0, size - 5 if size > 0 else 0.0, 1.0, price
        table[row, [4 + words[word] for word in own if word in words]] = 1.0
    return table


def ridge(rows: Floats, target: Floats, penalty: Floats) -> Floats:
    """Return the weights."""
    return np.asarray(np.linalg.solve(rows.T @ rows + np.diag(penalty), rows.T @ target), np.float64)


def shrunk_success(panel: OutcomeMatrix, ability: Floats, ease: Floats, spreads: tuple[float, float, float]) -> Floats:
    """Return [D + 1, J]: success by type and worker, most probable given the outcomes and these means."""
    types, known = panel.batch.types, ~np.isnan(panel.scores)
    won, count = (np.zeros((len(panel.types.names), len(panel.workers))) for _ in range(2))
    np.add.at(won, types, np.where(known, panel.won, 0.0))
    np.add.at(count, types, known * 1.0)
    least = [1 / spread**2 for spread in spreads]
    level, by_worker, by_type, both = 0.0, ability.copy(), ease.copy(), np.zeros_like(won)

    def slopes() -> tuple[Floats, Floats]:
        chance = 1 / (1 + np.exp(-(level + by_worker + by_type[:, None] + both)))
        return won - count * chance, count * chance * (1 - chance)

    for _ in range(ROUNDS):
        slope, bend = slopes()
        level = float(np.clip(level + slope.sum() / max(bend.sum(), 1e-9), -6, 6))
        slope, bend = slopes()
        by_worker += np.clip(
            (slope.sum(axis=0) - (by_worker - ability) * least[0]) / (bend.sum(axis=0) + least[0]), -1, 1
        )
        slope, bend = slopes()
        by_type += np.clip((slope.sum(axis=1) - (by_type - ease) * least[1]) / (bend.sum(axis=1) + least[1]), -1, 1)
        slope, bend = slopes()
        both += np.clip((slope - both * least[2]) / (bend + least[2]), -1, 1)
    cells = 1 / (1 + np.exp(-(level + by_worker + by_type[:, None] + both)))
    return np.vstack([cells, 1 / (1 + np.exp(-(level + by_worker)))])


def area(table: TableRule, points: Sequence[OperatingPoint], held: OutcomeMatrix, unit: float) -> float:
    """Return the area of these settings on other tasks, at equal spending."""
    won, cost = evaluate_table(table, held, unit)
    spent = cost.mean(axis=0)
    chosen = upper_hull([replace(point, cost=float(spent[point.setting])) for point in upper_hull(points)])
    places = [(0, setting) for setting in range(table.settings)]
    return compute_frontier(TradeOff(chosen, 1.0, 0.0), won, cost, places, BUDGETS).area


def entrants(train: OutcomeMatrix, held: OutcomeMatrix, prior: Prior) -> dict[str, float]:
    """Return the area of each entrant."""
    unit, folds = train.cost_unit(), assign_folds(train.hashes, "fit 0")
    fitted = fit_table(train, folds, unit)
    own = evaluate_table(fitted.part, train, unit)[1].mean(axis=0)
    rule = CrossFittedRule(fitted.part, fitted.won, fitted.cost, own)
    found = {
        "rule": area(fitted.part, setting_points([rule]), held, unit),
        "own estimates": area(fitted.part, setting_points([replace(rule, expected=fitted.expected)]), held, unit),
    }
    cost = build_table(train, unit).cost
    for name, spreads in SPREADS.items():
        known = name.startswith("prior")
        ability = prior.abilities(train) if known else np.zeros(len(train.workers))
        ease = prior.eases(train) if known else np.zeros(len(train.types.names))
        success = shrunk_success(train, ability, ease, spreads)
        table = TableRule(success, cost, np.zeros((len(PRICES), len(train.workers))), PRICES)
        points = []
        for setting in range(table.settings):
            best = table.worth(setting)[train.batch.types].argmax(axis=1)
            cells = (train.batch.types, best)
            points.append(OperatingPoint(0, setting, float(cost[cells].mean()), float(success[cells].mean())))
        found[name] = area(table, points, held, unit)
    return found


def told(values: Floats) -> str:
    """Return a mean with its interval over draws."""
    error = Z * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.4f} [{values.mean() - error:+.4f}, {values.mean() + error:+.4f}]"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", nargs="+", type=int, default=[30, 100, 300])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--set", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        sys.exit(f"no recorded answers in {arguments.folder}")
    print(f"The first outcomes of each worker ({machine()}); costs are derived, see each set")
    panels = {name: recorded(name, arguments.folder).panel for name in SETS}
    priors = {name: Prior.of([panel for other, panel in panels.items() if other != name]) for name in arguments.set}
    for tasks in arguments.tasks:
        gains: dict[str, list[Floats]] = {}
        for name in arguments.set:
            panel, rows = panels[name], []
            for draw in range(FIRST_DRAW, FIRST_DRAW + arguments.draws):
                order = np.random.default_rng(draw).permutation(len(panel))
                held = panel.at(np.sort(order[tasks : tasks + MOST_REPORTED]))
                rows.append(entrants(panel.at(np.sort(order[:tasks])), held, priors[name]))
            base = np.array([row["rule"] for row in rows])
            print(f"{name}, {tasks} outcomes a worker: rule {base.mean():.4f}", flush=True)
            for entrant in list(rows[0])[1:]:
                more = np.array([row[entrant] for row in rows]) - base
                gains.setdefault(entrant, []).append(more)
                print(f"  {entrant:<15} {told(more)}", flush=True)
        print(f"all sets, {tasks} outcomes a worker")
        means = {entrant: np.mean(each, axis=0) for entrant, each in gains.items()}
        for entrant, more in means.items():
            less = "" if entrant == "own estimates" else f"; less own estimates {told(more - means['own estimates'])}"
            print(f"  {entrant:<15} {told(more)}{less}", flush=True)


if __name__ == "__main__":
    main()
