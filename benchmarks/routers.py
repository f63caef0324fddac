"""Ours beside everybody else's on the recorded sets, in one run: accuracy at a cost, intervals, times, plots.

    python benchmarks/routers.py [--set MP13 ...] [--seeds 3 | --outer 5] [--json FILE] [--plots DIR]
    python benchmarks/routers.py --curve [--set MP13 ...]

Needs `../shared/recorded` and the extra `learn`. A seed sends 80 % of the tasks, by SHA-256 of seed and id, to train
and choose on; figures are of the other 20 %, and of each of five folds in turn with `--outer 5`. Cost 1 is the mean
cost, in training, of the worker that was best in training. A budget is met by a mixture of two settings chosen in
training, or by the cheapest setting for as many of the tasks as it pays for; `!` where more than 110 % of it was spent.

    area           mean accuracy over 15 budgets from .02 to 2, evenly spaced by logarithm
    best, at       accuracy and cost at the setting that was most accurate in training
    cost to reach  the least that was spent where 97 to 102 % of the best single worker's accuracy held; this alone
                   is read off the curve of the part reported
    AIQ            mean height of the hull over costs from 0 (nobody asked, nothing won) to 2
    fit s          training, folds and choosing; ms: one act on one task (median, 99 %), all features computed

    against        paired differences: to the best single worker in accuracy at 100 % of its cost, to others in area

`*` marks intervals (paired, 95 %, resampling tasks) that exclude 0. `factored*` is after RouteLLM's matrix
factorisation, restated here on words and types. `--curve` gives the rung that the ladder ships fewer tasks to learn
from.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from common import machine
from routers_curve import curve
from routers_entrants import OURS, Measured, entrants
from routers_figures import Line, lines, shares, table
from routers_plot import plot
from routers_sets import FOLDER, SETS, Recorded, Split, outer, recorded, seeded
from shikisha.routing.fit.baselines import BEST_SINGLE


def main() -> None:
    """Run what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--set", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--outer", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[], help="entrants, by name; the best single worker always")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plots", type=Path)
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        sys.exit(f"no recorded answers in {arguments.folder}")
    print(f"Routers on recorded outcomes ({machine()}); costs are derived, see each set")
    told: dict[str, object] = {}
    for name in arguments.set:
        one = recorded(name, arguments.folder)
        told[name] = curve(one) if arguments.curve else _plain(compared(one, arguments))
        if arguments.json:  # after every set: they take minutes
            arguments.json.write_text(json.dumps(told, indent=1))


def compared(one: Recorded, arguments: argparse.Namespace) -> dict[str, list[Line]]:
    """Run everybody on a set, print the tables, draw the plots."""
    panel, splits = one.panel, list(_splits(one, arguments))
    measured = [_measured(split, arguments) for split in splits]
    found = {"all": lines(measured, _ends(splits))}
    unique, best = len({task for split in splits for task in split.held.ids}), panel.workers[panel.best_worker()]
    print(
        f"\n{one.name}: {len(panel):,} tasks, {len(panel.workers)} workers, best {best}; {len(splits)} splits, ", end=""
    )
    print(f"{unique:,} tasks reported\ncosts: {one.costs}\n")
    print(table(found["all"]) + "\n\n" + shares(found["all"], panel.workers))
    print("notes:", "; ".join(f"{line.name}: {' / '.join(line.notes)}" for line in found["all"] if line.notes))
    _plot(f"{one.name}, tasks held out", measured, arguments.plots and arguments.plots / f"{one.name}.svg")
    sys.stdout.flush()
    return found


def _plain(found: Mapping[str, Sequence[Line]]) -> Mapping[str, object]:
    return {part: [asdict(line) for line in held] for part, held in found.items()}


def _ends(splits: Sequence[Split]) -> tuple[float, float] | None:
    """Return the mean scores of the weak and the strong worker over what is reported, where there are two."""
    means = sorted(np.concatenate([split.held.won for split in splits]).mean(axis=0).tolist())
    return (means[0], means[1]) if len(means) == 2 else None


def _plot(title: str, measured: Sequence[Mapping[str, Measured]], path: Path | None) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(plot(title, [(name, [split[name] for split in measured]) for name in measured[0]]))


def _splits(one: Recorded, arguments: argparse.Namespace) -> Iterator[Split]:
    if arguments.outer:
        yield from outer(one.panel, arguments.outer)
    else:
        yield from (seeded(one.panel, seed) for seed in range(arguments.seeds))


def _measured(split: Split, arguments: argparse.Namespace) -> Mapping[str, Measured]:
    found = {}
    for name, entrant in entrants(split).items():
        if arguments.only and name not in (*arguments.only, BEST_SINGLE):
            continue
        found[name] = entrant(split)
        kept = f" ({found[name].note})" if name == OURS else ""
        print(f"  {split.name}: {name}{kept}, {found[name].seconds:.1f} s", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main()
