"""A trained conductor on held-out tasks of the large edition, beside the controls that need no training.

    python benchmarks/conductor_large.py CHECKPOINT ... [--also LABEL=FOLDER] [--tasks 1000] [--seed 1] [--json FILE]

Checkpoints are those of one recipe with other seeds. Names, wordings, three pairs of families and some workers of two
and three skills are held out; plans are greedy and performed by the real engine; all contenders see the same tasks,
pools and luck. Cuts: the standard tasks, with questions of one to five parts each for itself; pools of 9 and 10, more
than training's; pairs of families that training never sees in one question; pools with skilled workers that it never
sees; a specialist missing; pools with two workers of no use. `of no use` is the share of calls that such workers get,
where any stands in the pool. Intervals are paired bootstraps over tasks of the mean over seeds. Workers are simulated.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from common import machine
from conductor_account import OPTIMUM, ROUTER, RULES, SHARE, SINGLE, Cut, figures, told
from conductor_figures import Estimate
from conductor_played import Author, Contender, author, control, trained, who
from shikisha.engine.conductor import Conductor
from shikisha.simulation import baseline_conductors
from shikisha.simulation.editions import LARGE
from shikisha.simulation.task_generator import (
    LARGE_TASKS,
    PoolDistribution,
    SimulatedTask,
    TaskDistribution,
    generate_tasks,
)
from shikisha.simulation.vocabulary import WordingSplit

TRAINED, STANDARD_CUT = "trained", "standard"
MOST = 12  # shapes that are printed
IDLE = frozenset(profile.name for profile in LARGE.extras)
SHOWN = ("right", SHARE, "valid", f"less {RULES}", f"less {SINGLE}")


def _sizes(*sizes: int) -> PoolDistribution:
    return replace(LARGE_TASKS.pool, sizes=sizes)


def idle(item: SimulatedTask) -> int:
    """Return how many workers of no use stand in the pool."""
    return sum(name in IDLE for name, _ in item.workers)


CUTS: dict[str, tuple[TaskDistribution, Callable[[SimulatedTask], bool]]] = {
    STANDARD_CUT: (LARGE_TASKS, lambda _: True),
    "pool of 9": (replace(LARGE_TASKS, pool=_sizes(9)), lambda _: True),
    "pool of 10": (replace(LARGE_TASKS, pool=_sizes(10)), lambda _: True),
    "unseen pairs of families": (replace(LARGE_TASKS, only_pair=True), lambda _: True),
    "new workers of several skills": (
        replace(LARGE_TASKS, pool=replace(LARGE_TASKS.pool, single=0.2, only_new=True)),
        lambda item: item.new_workers,
    ),
    "a specialist missing": (replace(LARGE_TASKS, lacking=1.0), lambda _: True),
    "two workers of no use": (LARGE_TASKS, lambda item: idle(item) > 1),
}
CONTROLS: dict[str, tuple[Conductor, tuple[str, ...]]] = {
    "novice alone": (baseline_conductors.single_worker(LARGE.novice), (LARGE.novice,)),
    SINGLE: (baseline_conductors.single_worker(LARGE.generalist), (LARGE.generalist,)),
    "random plans": (baseline_conductors.RANDOM_LARGE, ()),
    ROUTER: (baseline_conductors.KEYWORD_ROUTER, ()),
    RULES: (baseline_conductors.RULES_LARGE, ()),
    OPTIMUM: (baseline_conductors.OPTIMAL, ()),
}


def drawn(cut: str, split: WordingSplit, seed: int, count: int) -> list[SimulatedTask]:
    """Return so many tasks of a cut."""
    recipe, counts = CUTS[cut]
    return list(islice((item for item in generate_tasks(split, seed, recipe) if counts(item)), count))


def contenders(found: Sequence[SimulatedTask], learned: Mapping[str, Sequence[Author]]) -> dict[str, Contender]:
    """Perform the items with the controls and with what was learned."""
    made = {name: control(found, *what) for name, what in CONTROLS.items()}
    return made | {name: trained(found, authors) for name, authors in learned.items()}


def account(cut: Cut, made: Mapping[str, Contender], name: str) -> dict[str, Estimate]:
    """Return a contender's figures: of all tasks, by number of parts, and how often who is of no use is asked."""
    return figures(cut, made, name, in_full=False) | dict(_besides(cut, made, name))


def _besides(cut: Cut, made: Mapping[str, Contender], name: str) -> Iterator[tuple[str, Estimate]]:
    one, optimum = made[name], made[OPTIMUM]
    for parts in range(1, LARGE.slots + 1):
        inside = np.array([[len(item.kinds) == parts for item in cut.tasks]], float)
        if inside.any():
            yield f"{parts} parts: right", cut.lots.ratio(one.right * inside, np.broadcast_to(inside, one.right.shape))
            yield f"{parts} parts: {SHARE}", cut.lots.ratio(one.right * inside, optimum.right * inside)
    there = cut.where(lambda item, _: idle(item) > 0)
    if there.any():
        asked = np.array([[sum(worker in IDLE for worker in who(trial.run)) for trial in row] for row in one.trials])
        yield "of no use", cut.lots.ratio(asked * there, one.calls * there)


def lines(name: str, one: Contender, found: Mapping[str, Estimate], in_full: bool) -> Iterator[str]:
    """Yield what is printed of a contender."""
    yield f"  {name}, ${found['dollars'].value:.5f} a task"
    yield "      " + "  ".join(f"{what} {found[what]}" for what in SHOWN if what in found)
    if in_full:
        yield from (f"      {what} {each}" for what, each in found.items() if " parts: " in what or what == "of no use")
        shapes = list(one.topologies().items())[:MOST]
        yield f"      plans: {', '.join(f'{shape} {share:.3f}' for shape, share in shapes)}"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="*", type=Path, help="of one recipe, a seed each")
    parser.add_argument("--also", action="append", default=[], metavar="LABEL=FOLDER", help="a row for a checkpoint")
    parser.add_argument("--tasks", type=int, default=1000, help="of each cut")
    parser.add_argument("--seed", type=int, default=1, help="of the tasks")
    parser.add_argument("--cuts", nargs="+", choices=list(CUTS), default=list(CUTS))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def learned_of(given: argparse.Namespace) -> dict[str, list[Author]]:
    """Open every checkpoint, by the name of its row."""
    made = {TRAINED: [author(folder) for folder in given.checkpoints]} if given.checkpoints else {}
    for labelled in given.also:
        label, mark, folder = labelled.partition("=")
        if not mark or not folder or label in (*CONTROLS, TRAINED):
            raise SystemExit(f"--also: expected LABEL=FOLDER with a label of its own, found {labelled!r}")
        made.setdefault(label, []).append(author(Path(folder)))
    return made


def main() -> None:
    """Print the table."""
    given = arguments()
    learned, kept = learned_of(given), dict[str, object]()
    print(f"Conductors on held-out tasks of the large edition, seed {given.seed}, simulated workers ({machine()})")
    for name in given.cuts:
        found = drawn(name, WordingSplit.HELDOUT, given.seed, given.tasks)
        cut, made = Cut.of(found), contenders(found, learned)
        print(f"\n{name}: {len(found)} tasks")
        accounts = {label: account(cut, made, label) for label in made}
        for label, one in made.items():
            print("\n".join(lines(label, one, accounts[label], in_full=name == STANDARD_CUT)), flush=True)
        kept[name] = {label: told(cut, made, label, accounts[label]) for label in made}
    if given.json:
        about = {"edition": LARGE.name, "seed": given.seed, "tasks": given.tasks, "machine": machine()}
        given.json.write_text(json.dumps({"about": about, "cuts": kept}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
