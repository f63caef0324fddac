"""What learning ships, over five folds of the recorded sets: each candidate, the dial over all, and what it promised.

    python benchmarks/learned_dial.py [--set MP13 ZE21 LR9 RL] [--plain] [--json FILE]
    python benchmarks/learned_dial.py --subsamples 20 --tasks 300 1000 [--set MP13 ...]

Needs `../shared/recorded` and the extra `learn`. Each fold in turn is reported, with all else to train and choose on.
Cost 1 is the mean cost, in training, of the worker that was best in training.

    area           mean accuracy over 15 budgets from .02 to 2, evenly spaced by logarithm
    top, at        accuracy and cost at the setting that was most accurate in training
    spent          what was spent of what was promised, over the budgets that a setting meets: least and most
    learned vote   all workers asked; the logit of who agrees, and the trees that read the answers

`--plain` fits no trees, as the yardstick of the same run. `--subsamples` draws that many training sets of each size,
reports on all other tasks (3,000 at most), and says what the dial loses against the candidate that turns out best.
`--null` takes away what could be learned: nobody agrees, types are drawn, and there are no texts.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np

from common import machine
from routers_sets import FOLDER, SETS, Split, outer, recorded
from shikisha.routing.arrays import Floats
from shikisha.routing.fit.baselines import ScoredVote
from shikisha.routing.fit.cost_frontier import BUDGETS, mix_for_budget
from shikisha.routing.fit.fit_response_model import fit_response_model
from shikisha.routing.fit.fit_stopping_rule import StoppingConfig, StoppingData, answer_correctness
from shikisha.routing.fit.model_selection import (
    LearningOptions,
    assign_folds,
    candidate_names,
    fit_candidates,
    replay_settings,
    single_threaded_blas,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import COMBINED
from shikisha.routing.state import TaskBatch

MOST_REPORTED = 3_000
Z = 1.96


@single_threaded_blas()
def measured(split: Split, options: LearningOptions, votes: bool = True) -> dict[str, dict[str, Floats]]:
    """Return by candidate what the held-out tasks come to: areas by task, the top setting, promises and spending."""
    begun = process_time()
    names = candidate_names(split.train)[0]
    fitted, unit = fit_candidates(split.train, options, names), split.train.cost_unit()
    found = {}
    for name in names:
        dial = fitted.dials[name]
        came = replay_settings(fitted, dial.points, split.held, unit)
        front = came.frontier(dial, BUDGETS)
        last = came.places.index((dial.points[-1].part, dial.points[-1].setting))
        met = (dial.points[0].cost <= BUDGETS) & (dial.points[-1].cost >= BUDGETS)
        costs = np.array([mix_for_budget(dial, float(budget)).cost for budget in BUDGETS])
        found[name] = {
            "area": front.by_task,
            "top": came.won[:, last],
            "top cost": came.cost[:, last],
            "spent": np.where(met, front.cost.mean(axis=0), np.nan),
            "promised": np.where(met, costs, np.nan),
            "top promised": np.array([dial.points[-1].cost, dial.points[-1].accuracy]),
        }
    found["fit"] = {"seconds": np.array([process_time() - begun])}
    if votes and split.train.answers and split.train.evidence is not None:
        found["vote"] = voted(split, options.config)
    return found


def voted(split: Split, config: StoppingConfig) -> dict[str, Floats]:
    """Return [T] what the most probable answer wins where all workers were asked, without trees and with them."""
    responses, log_odds = fit_response_model(split.train, split.folds)
    heard = split.held.with_response_model(responses)
    plain, right = StoppingData.of(split.train, split.folds, config), answer_correctness(split.held)
    data = StoppingData.of(replace(split.train, tells=log_odds), split.folds, config)
    won = {}
    for name, panel, tally in (
        ("logit", split.held, ScoredVote(plain.scorer)),
        ("logit and words", heard, ScoredVote(data.scorer)),
        ("trees", heard, ScoredVote(data.scorer, data.vote_trees())),
    ):
        codes = tally(panel, tuple(range(len(panel.workers))))
        won[name] = np.where(codes >= 0, right[np.arange(len(codes)), np.maximum(0, codes)], 0.0)
    return won


def report(name: str, found: Sequence[dict[str, dict[str, Floats]]], single: float) -> dict[str, dict[str, float]]:
    """Print the figures of a set over its folds, and return them."""
    figures: dict[str, dict[str, float]] = {}
    print(f"\n{name}: best single worker {single:.4f}; {sum(one['fit']['seconds'][0] for one in found):.0f} s of fits")
    first = next(iter(found[0]))
    for candidate in [key for key in found[0] if key not in ("vote", "fit")]:
        parts = [one[candidate] for one in found]
        area, top, cost, base = (
            np.concatenate(values)
            for values in (
                [part["area"] for part in parts],
                [part["top"] for part in parts],
                [part["top cost"] for part in parts],
                [one[first]["area"] for one in found],
            )
        )
        with np.errstate(invalid="ignore"):
            ratio = np.nansum([part["spent"] for part in parts], axis=0) / np.nansum(
                [part["promised"] for part in parts], 0
            )
        top_ratio = cost.mean() / np.mean([part["top promised"][0] for part in parts])
        gain, error = (area - base).mean(), (area - base).std() / np.sqrt(len(area))
        spent = (float(np.nanmin(ratio)), float(np.nanmax(ratio)))
        print(
            f"  {candidate:<9} area {area.mean():.4f} ({gain:+.4f} [{gain - Z * error:+.4f}, {gain + Z * error:+.4f}]) "
            f"top {top.mean():.4f} at {cost.mean():.2f}; spent {spent[0]:.3f} to {spent[1]:.3f}, top {top_ratio:.3f}"
        )
        figures[candidate] = {
            "area": float(area.mean()),
            "top": float(top.mean()),
            "top cost": float(cost.mean()),
            "least spent": spent[0],
            "most spent": spent[1],
            "top spent": float(top_ratio),
        }
    if "vote" in found[0]:
        votes = {kind: np.concatenate([one["vote"][kind] for one in found]) for kind in ("logit", "trees")}
        more = votes["trees"] - votes["logit"]
        error = more.std() / np.sqrt(len(more))
        figures["vote"] = {kind: float(won.mean()) for kind, won in votes.items()}
        print(
            f"  learned vote: {_short(figures['vote'])} "
            f"({more.mean():+.4f} [{more.mean() - Z * error:+.4f}, {more.mean() + Z * error:+.4f}])"
        )
    sys.stdout.flush()
    return figures


def subsamples(panel: OutcomeMatrix, count: int, tasks: int) -> Iterator[Split]:
    """Yield training sets of so many tasks, with others to report on."""
    for number in range(count):
        order = np.random.default_rng(number).permutation(len(panel))
        train = panel.at(np.sort(order[:tasks]))
        held = panel.at(np.sort(order[tasks : tasks + MOST_REPORTED]))
        yield Split(f"draw {number}", train, assign_folds(train.hashes, "fit 0"), held)


def report_losses(name: str, panel: OutcomeMatrix, tasks: int, count: int) -> dict[str, float]:
    """Print what the dial loses against the candidate that is best on the tasks reported, over subsamples."""
    areas: dict[str, list[float]] = {}
    for split in subsamples(panel, count, tasks):
        for candidate, part in measured(split, LearningOptions(), votes=False).items():
            if candidate != "fit":
                areas.setdefault(candidate, []).append(float(part["area"].mean()))
    table = {candidate: np.array(values) for candidate, values in areas.items()}
    others = np.array([values for candidate, values in table.items() if candidate != COMBINED])
    loss, first = others.max(axis=0) - table[COMBINED], others[0]
    harm = float((table[COMBINED] < first - 0.003).mean())
    means = ", ".join(f"{candidate} {values.mean():.4f}" for candidate, values in table.items())
    print(
        f"{name}, {tasks:,} tasks, {count} draws: {means}; loss {loss.mean():+.4f}; below the table by .003: {harm:.0%}"
    )
    sys.stdout.flush()
    return {"loss": float(loss.mean()), "harm": harm, **{key: float(values.mean()) for key, values in table.items()}}


def emptied(panel: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel without anything to learn: nobody agrees, types are drawn, and there are no texts."""
    types = np.random.default_rng(0).permutation(panel.batch.types)
    codes = np.where(panel.codes >= 0, np.arange(len(panel.workers)), panel.codes)
    tokens = np.full_like(panel.tokens, np.nan)
    batch = TaskBatch(panel.batch.prompts, types)
    return replace(panel, batch=batch, codes=codes, tokens=tokens, texts=(), evidence=None)


def _short(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in figures.items())


def main() -> None:
    """Run what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--set", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--subsamples", type=int, default=0)
    parser.add_argument("--tasks", nargs="+", type=int, default=[300, 1000])
    parser.add_argument("--null", action="store_true", help="take away what could be learned")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        sys.exit(f"no recorded answers in {arguments.folder}")
    print(f"Learned dials on recorded outcomes ({machine()}); costs are derived, see each set")
    options = LearningOptions()
    if arguments.plain:
        options = replace(options, config=replace(options.config, boosting=None))
    told: dict[str, object] = {}
    for name in arguments.set:
        panel = recorded(name, arguments.folder).panel
        panel = emptied(panel) if arguments.null else panel
        if arguments.subsamples:
            sizes = [tasks for tasks in arguments.tasks if tasks <= 0.8 * len(panel)]
            told[name] = {tasks: report_losses(name, panel, tasks, arguments.subsamples) for tasks in sizes}
        else:
            splits = list(outer(panel, 5))
            single = float(np.concatenate([one.held.won[:, one.train.best_worker()] for one in splits]).mean())
            found = []
            for split in splits:
                found.append(measured(split, options, not arguments.plain))
                areas = {key: float(part["area"].mean()) for key, part in found[-1].items() if "area" in part}
                votes = {key: float(won.mean()) for key, won in found[-1].get("vote", {}).items()}
                print(f"  {name}, {split.name}: {_short(areas)}; votes {_short(votes)}", file=sys.stderr, flush=True)
            told[name] = report(name, found, single)
        if arguments.json:
            arguments.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
