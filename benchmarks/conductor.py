"""A trained conductor on held-out tasks of the embedded orchestra, beside every control, in one run.

    python benchmarks/conductor.py CHECKPOINT ... [--before FOLDER] [--also LABEL=FOLDER] [--rounds 2] [--json FILE]
    python benchmarks/conductor.py shipped --cuts standard --seed 2 --tasks 3000     # the one in the package, no torch

Checkpoints are those of one recipe with other seeds; so are several folders `--also` under one label, and several
`--before` GRPO. Names, wordings, some compositions and some workers are held out; plans are greedy and performed by the
real engine; all contenders see the same tasks, pools and luck. Cuts: the standard tasks and their kinds; pools of 3, 7
and 8; the pair of families that training never sees in one question; pools with two-skilled workers that training
never sees, and questions for which the optimum asks one; a specialist missing. In the held-out split no worker's
description has a wording of training's. Intervals are paired bootstraps over tasks of the mean over seeds; the seeds'
own figures stand in brackets. Workers are simulated: small tools, and two language models by lot.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from common import machine
from conductor_account import (
    ALL_AT_EQUAL_DOLLARS,
    OPTIMUM,
    ROUTER,
    ROUTER_AT_EQUAL_DOLLARS,
    ROW,
    RULES,
    SINGLE,
    Cut,
    figures,
    told,
)
from conductor_aims import AIMS, RECURSION, RISE, STANDARD_CUT
from conductor_controls import at_cost, at_equal_dollars, best_fixed, by_lot, checked_router
from conductor_figures import Estimate
from conductor_played import Author, Contender, author, control, trained
from conductor_rounds import recursion
from shikisha.engine.conductor import Conductor
from shikisha.simulation import baseline_conductors
from shikisha.simulation.baseline_conductors import best_plan, profiles_of
from shikisha.simulation.task_generator import (
    SMALL_TASKS,
    PoolDistribution,
    SimulatedTask,
    TaskDistribution,
    generate_tasks,
)
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.simulation.worker_profiles import GENERALIST, HELD_OUT_NAMES, JUDGE, NOVICE

TRAINED, BEFORE = "trained", "before GRPO"
NOVICE_ALONE, THREE, VERIFIED = "novice alone", "generalist × 3, then a vote", "planner → executor → verifier"
MOST = 9  # shapes and workers that are printed
_NEW = TaskDistribution(pool=PoolDistribution(single=0.3, only_new=True))
_DEV = 300  # tasks to choose a topology by


def asks_new(item: SimulatedTask) -> bool:
    """Whether the optimal policy asks a worker that training never meets."""
    plan = best_plan(item.question, profiles_of(item.pool.cards)).plan
    return any(item.workers[step.worker][0] in HELD_OUT_NAMES for step in plan.steps)


CUTS: dict[str, tuple[TaskDistribution, Callable[[SimulatedTask], bool]]] = {
    STANDARD_CUT: (SMALL_TASKS, lambda _: True),
    "pool of 3": (TaskDistribution(pool=PoolDistribution((3,))), lambda _: True),
    "pool of 7": (TaskDistribution(pool=PoolDistribution((7,))), lambda _: True),
    "pool of 8": (TaskDistribution(pool=PoolDistribution((8,))), lambda _: True),
    "unseen pair of families": (TaskDistribution(only_pair=True), lambda _: True),
    "new two-skilled workers": (_NEW, lambda item: item.new_workers),
    "new two-skilled workers, asked by the optimum": (_NEW, asks_new),
    "a specialist missing": (replace(SMALL_TASKS, lacking=1.0), lambda _: True),
}
CONTROLS: dict[str, tuple[Conductor, tuple[str, ...]]] = {
    NOVICE_ALONE: (baseline_conductors.ONLY_NOVICE, (NOVICE,)),
    SINGLE: (baseline_conductors.ONLY_GENERALIST, (GENERALIST,)),
    THREE: (baseline_conductors.SELF_CONSISTENCY, (GENERALIST, JUDGE)),
    VERIFIED: (baseline_conductors.PLANNER_EXECUTOR_VERIFIER, (GENERALIST, NOVICE)),
    "random plans": (baseline_conductors.RANDOM, ()),
    ROUTER: (baseline_conductors.KEYWORD_ROUTER, ()),
    RULES: (baseline_conductors.RULES, ()),
    OPTIMUM: (baseline_conductors.OPTIMAL, ()),
}
BESIDE = (SINGLE, ROUTER, RULES, OPTIMUM)  # on every cut
Learned = Mapping[str, Sequence[Author]]


def drawn(cut: str, split: WordingSplit, seed: int, count: int) -> list[SimulatedTask]:
    """Return so many tasks of a cut."""
    recipe, counts = CUTS[cut]
    return list(islice((item for item in generate_tasks(split, seed, recipe) if counts(item)), count))


def contenders(found: Sequence[SimulatedTask], learned: Learned, in_full: bool) -> dict[str, Contender]:
    """Perform the items with the controls and with what was learned."""
    made = {name: control(found, *CONTROLS[name]) for name in (CONTROLS if in_full else BESIDE)}
    return made | {name: trained(found, authors) for name, authors in learned.items()}


def beside(
    found: Sequence[SimulatedTask], one: Contender, dev: Sequence[SimulatedTask], controls: Mapping[str, Contender]
) -> Iterator[tuple[str, Contender]]:
    """Yield the controls that are made for a contender: its cost, its shapes, what development tasks would choose."""
    fixed, checked = best_fixed(dev, found), checked_router(found)
    yield "best fixed topology", fixed
    yield "keyword router, checked by the generalist", checked
    dollars = float(one.dollars.mean())
    forms = {ROUTER: controls[ROUTER], "the same, checked": checked}
    yield ROUTER_AT_EQUAL_DOLLARS, at_equal_dollars(forms, dollars)
    forms |= {name: controls[name] for name in (NOVICE_ALONE, SINGLE, THREE, VERIFIED)} | {fixed.note: fixed}
    yield ALL_AT_EQUAL_DOLLARS, at_equal_dollars(forms, dollars)
    yield "self-consistency at equal cost", at_cost(found, dollars, anew=False)
    yield "self-consistency at equal cost, attempts anew and votes counted", at_cost(found, dollars, anew=True)
    yield "its own plans, workers by lot", by_lot(found, one)


def row(name: str, found: Mapping[str, Estimate]) -> str:
    """Return what stands of every contender."""
    right, share, dollars, cost, entropy, valid = (found[what] for what in ROW)
    return (
        f"  {name}\n      right {right}  of the optimum {share}\n      ${dollars.value:.5f}, {cost.value:.2f} of the "
        f"rules'  worker entropy {entropy.value:.3f} of the optimum's  valid {valid.value:.4f}"
    )


def details(one: Contender, found: Mapping[str, Estimate]) -> Iterator[str]:
    """Yield what is told besides of the one that all this is about."""
    yield from (f"      {what}: {each}" for what, each in found.items() if what not in ROW)
    for what, shares in (("plans", one.topologies()), ("workers", one.shares())):
        yield f"      {what}: {', '.join(f'{name} {share:.3f}' for name, share in list(shares.items())[:MOST])}"


def play(cut: str, cuts: Cut, made: Mapping[str, Contender]) -> tuple[dict[str, Estimate], dict[str, object]]:
    """Print a cut's table; return the trained contender's figures, and all of it as JSON data."""
    in_full, kept, mine = cut == STANDARD_CUT, dict[str, object](), dict[str, Estimate]()
    print(f"\n{cut}: {len(cuts.tasks)} tasks")
    for name, one in made.items():
        found = figures(cuts, made, name, in_full)
        if name == TRAINED:
            mine = found | dict(rises(cuts, made))
            found = mine
        kept[name] = told(cuts, made, name, found)
        print(row(f"{name}{one.note and f' ({one.note})'}", found), flush=True)
        if name == TRAINED:
            print("\n".join(details(one, found)), flush=True)
    return mine, kept


def rises(cuts: Cut, made: Mapping[str, Contender]) -> Iterator[tuple[str, Estimate]]:
    """Yield by how much the share of right answers, given a valid plan, rose."""
    now = made[TRAINED]
    for name, gone in made.items():
        if name.startswith(BEFORE):
            rise = cuts.lots.rise((gone.right * gone.valid, gone.valid), (now.right * now.valid, now.valid))
            yield RISE + name.removeprefix(BEFORE), rise


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="*", type=Path, help="of one recipe, a seed each; or `shipped`")
    parser.add_argument(
        "--before", action="append", type=Path, default=[], help="what GRPO began with; may be repeated"
    )
    parser.add_argument("--also", action="append", default=[], metavar="LABEL=FOLDER", help="a row for a checkpoint")
    parser.add_argument("--rounds", type=int, choices=(1, 2), default=1, help="2: ask once more after the first round")
    parser.add_argument("--tasks", type=int, default=1000, help="of each cut")
    parser.add_argument("--seed", type=int, default=1, help="of the tasks")
    parser.add_argument("--split", choices=[split.value for split in WordingSplit], default="heldout")
    parser.add_argument("--cuts", nargs="+", choices=list(CUTS), help="all that the split has, by default")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    known = [name for name, (recipe, _) in CUTS.items() if given.split == WordingSplit.HELDOUT or not _held_out(recipe)]
    given.cuts = given.cuts or known
    if missing := set(given.cuts) - set(known):
        parser.error(f"the split {given.split} has no {', '.join(sorted(missing))}")
    return given


def _held_out(recipe: TaskDistribution) -> bool:
    return recipe.only_pair or recipe.pool.only_new


def learned_of(given: argparse.Namespace) -> dict[str, list[Author]]:
    """Open every checkpoint, by the name of its row."""
    made = {TRAINED: [author(folder) for folder in given.checkpoints]} if given.checkpoints else {}
    if given.before:
        made[BEFORE] = [author(folder) for folder in given.before]
        made[f"{BEFORE}, by lot"] = [author(folder, temperature=1.0) for folder in given.before]
    for labelled in given.also:
        label, mark, folder = labelled.partition("=")
        if not mark or not folder or label in (*CONTROLS, TRAINED) or label.startswith(BEFORE):
            raise SystemExit(f"--also: expected LABEL=FOLDER with a label of its own, found {labelled!r}")
        made.setdefault(label, []).append(author(Path(folder)))
    return made


def main() -> None:
    """Print the table."""
    given = arguments()
    split, learned = WordingSplit(given.split), learned_of(given)
    print(f"Conductors on {split} tasks, seed {given.seed}, simulated workers ({machine()})")
    reached, kept = dict[str, dict[str, Estimate]](), dict[str, object]()
    for cut in given.cuts:
        found = drawn(cut, split, given.seed, given.tasks)
        cuts, in_full = Cut.of(found), cut == STANDARD_CUT
        shown = learned if in_full else {name: each for name, each in learned.items() if not name.startswith(BEFORE)}
        made = contenders(found, shown, in_full)
        if in_full and TRAINED in made:
            dev = drawn(cut, WordingSplit.DEV, given.seed + 1, min(_DEV, given.tasks))
            made |= beside(found, made[TRAINED], dev, made)
        reached[cut], kept[cut] = play(cut, cuts, made)
        if in_full and given.rounds > 1 and TRAINED in made:
            reached[RECURSION] = recursion(found, made[TRAINED], learned[TRAINED]).figures(cuts.lots)
            kept[RECURSION] = {what: each.told() for what, each in reached[RECURSION].items()}
            print("\n".join(["\nrecursion", *(f"  {what}: {each}" for what, each in reached[RECURSION].items())]))
    print("\nfigures to reach")
    for aim in AIMS:
        if aim.what in reached.get(aim.cut, {}):
            print(f"  {aim.cut}: {aim.what}: {aim.line(reached[aim.cut][aim.what])}")
    if given.json:
        about = {"split": split, "seed": given.seed, "tasks": given.tasks, "machine": machine()}
        given.json.write_text(json.dumps({"about": about, "cuts": kept}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
