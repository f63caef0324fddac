"""A trained conductor on held-out tasks of the embedded orchestra, beside every control, in one run.

    python benchmarks/conductor.py CHECKPOINT [CHECKPOINT ...] [--tasks 1000] [--seed 1] [--json FILE]

Checkpoints are those of one recipe with other seeds. Names, wordings, some compositions and some workers are held out;
plans are greedy and performed by the real engine; all contenders see the same tasks, pools and luck. Cuts: the standard
tasks and their kinds; pools of 3, 7 and 8; the pair of families that training never sees in one question; pools with
two-skilled workers that training never sees; a specialist missing. Intervals are paired bootstraps over tasks. Workers
are simulated: small tools, and two language models by lot.
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from common import machine
from shikisha.brief import brief
from shikisha.conductor import Conductor
from shikisha.evaluate.statistics import bootstrap, entropy
from shikisha.orchestra import yardsticks
from shikisha.orchestra.cast import GENERALIST, JUDGE, NOVICE
from shikisha.orchestra.optimal import best, profiles
from shikisha.orchestra.pools import Auditions
from shikisha.orchestra.tasks import STANDARD, Item, Recipe, items
from shikisha.orchestra.trials import Trial, rehearse
from shikisha.orchestra.wording import Split
from shikisha.reward import performers
from shikisha.train.advantage import Floats
from shikisha.train.rollout import sample
from shikisha.train.scoring import Written, shape_of

BATCH, LONGEST = 128, 96
OPTIMUM, RULES, ROUTER, SINGLE = (
    "optimum (is told all skills)",
    "hand-written rules",
    "keyword router",
    "generalist alone",
)
CUTS: dict[str, tuple[Recipe, Callable[[Item], bool]]] = {
    "standard": (STANDARD, lambda _: True),
    "pool of 3": (Recipe(auditions=Auditions((3,))), lambda _: True),
    "pool of 7": (Recipe(auditions=Auditions((7,))), lambda _: True),
    "pool of 8": (Recipe(auditions=Auditions((8,))), lambda _: True),
    "unseen pair of families": (Recipe(only_pair=True), lambda _: True),
    "new two-skilled workers": (Recipe(auditions=Auditions(single=0.3, only_new=True)), lambda item: item.new_workers),
    "a specialist missing": (replace(STANDARD, lacking=1.0), lambda _: True),
}
CONTROLS: dict[str, tuple[Conductor, tuple[str, ...]]] = {
    "novice alone": (yardsticks.ONLY_NOVICE, (NOVICE,)),
    SINGLE: (yardsticks.ONLY_GENERALIST, (GENERALIST,)),
    "generalist × 3, then a vote": (yardsticks.SELF_CONSISTENCY, (GENERALIST, JUDGE)),
    "planner → executor → verifier": (yardsticks.PLANNER_EXECUTOR_VERIFIER, (GENERALIST, NOVICE)),
    "random plans": (yardsticks.RANDOM, ()),
    ROUTER: (yardsticks.KEYWORD_ROUTER, ()),
    RULES: (yardsticks.RULES, ()),
    OPTIMUM: (yardsticks.OPTIMAL, ()),
}


@dataclass
class Contender:
    """Trials of one contender over a cut's items, in order."""

    trials: list[Trial]
    shapes: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.shapes = [
            shape_of(t.run.rounds[0].plan) if t.run.rounds and t.run.rounds[0].plan else "no plan" for t in self.trials
        ]

    @property
    def right(self) -> Floats:
        """[T]: whether each answer was right."""
        return np.array([trial.right for trial in self.trials], float)

    @property
    def dollars(self) -> float:
        """Mean dollars a task."""
        return float(np.mean([trial.dollars for trial in self.trials]))

    @property
    def bits(self) -> float:
        """Entropy of who was asked, in bits."""
        asked = Counter(worker for trial in self.trials for worker in performers(trial.run))
        return entropy(list(asked.values()))


def written(folder: Path, found: Sequence[Item]) -> list[str]:
    """Return the plans that a checkpoint writes, greedily."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.train(mode=False)
    texts: list[str] = []
    for first in range(0, len(found), BATCH):
        part = found[first : first + BATCH]
        prompts = [tokenizer.encode(brief(item.task, item.pool.cards)).ids for item in part]
        rows = sample(model, prompts, 1, LONGEST, temperature=0.0).rows()
        texts += [tokenizer.decode(row[0], skip_special_tokens=False) for row in rows]
    return texts


async def performed(found: Sequence[Item], conductors: Sequence[Conductor]) -> list[Trial]:
    """Perform each item with its own conductor."""
    lists = await asyncio.gather(*(rehearse([item], one) for item, one in zip(found, conductors, strict=True)))
    return [trials[0] for trials in lists]


def contenders(found: Sequence[Item], folders: Sequence[Path], controls: Sequence[str]) -> dict[str, Contender]:
    """Perform the items with every contender."""
    made: dict[str, Contender] = {}
    for name in controls:
        conductor, cast = CONTROLS[name]
        staged = [item.cast(*cast) for item in found] if cast else found
        made[name] = Contender(asyncio.run(rehearse(staged, conductor)))
    for folder in folders:
        texts = written(folder, found)
        made[str(folder)] = Contender(asyncio.run(performed(found, [Written((text,)) for text in texts])))
    return made


def said(what: Sequence[float]) -> str:
    """Return a mean with its interval."""
    low, high = bootstrap(list(what))
    return f"{np.mean(what):.3f} [{low:+.3f}, {high:+.3f}]"


def of_shapes(found: Sequence[Item], mine: Contender) -> dict[str, float]:
    """Return how often the shape is right where the optimal policy's shape is one call, a chain, or a join or vote."""
    plans = [best(item.question, profiles(item.pool.cards)).plan for item in found]
    groups: dict[str, list[bool]] = {}
    for item, plan, shape in zip(found, plans, mine.shapes, strict=True):
        if len(plan) == 1 and len(item.kinds) == 1:
            groups.setdefault("one-part tasks in one shot", []).append(shape == "one-shot 1")
        elif plan.topology() == "chain":
            groups.setdefault("chains of the right length", []).append(shape == shape_of(plan))
        elif plan.topology() == "fan-out+join":
            groups.setdefault("fan-out and join where it pays", []).append(shape.startswith("fan-out+join"))
    return {name: float(np.mean(hits)) for name, hits in sorted(groups.items())}


def parts(found: Sequence[Item], one: Contender) -> dict[str, float]:
    """Return the share of right answers by kind of question."""
    groups: dict[str, list[float]] = {}
    for item, right in zip(found, one.right.tolist(), strict=True):
        groups.setdefault(kind_of(item), []).append(right)
    return {kind: float(np.mean(hits)) for kind, hits in sorted(groups.items())}


def kind_of(item: Item) -> str:
    """Name the kind of a question."""
    if item.lacking:
        return "a specialist missing"
    if item.question.noisy:
        return "noisy"
    return "join" if item.question.joined else f"{len(item.kinds)} part{'s' if len(item.kinds) > 1 else ''}"


def lines(found: Sequence[Item], name: str, made: dict[str, Contender], in_full: bool) -> Iterator[str]:
    """Yield what is told of a contender."""
    one, optimum = made[name], made[OPTIMUM]
    share = one.right.mean() / optimum.right.mean()
    right, cost = one.right.mean(), f"${one.dollars:.5f}"
    yield f"  {name[-34:]:<34} right {right:.3f}  of optimum {share:.3f}  {cost}  {one.bits:.2f} bits"
    if name in CONTROLS:
        return
    for other in (SINGLE, ROUTER, RULES):
        yield f"      less {other}: {said((one.right - made[other].right).tolist())}"
    if not in_full:
        return
    yield from (f"      {what}: {value:.3f}" for what, value in of_shapes(found, one).items())
    valid = np.mean([shape != "no plan" for shape in one.shapes])
    yield f"      valid {valid:.4f}, shapes {dict(Counter(one.shapes).most_common(8))}"
    yield f"      worker entropy, of the optimum's: {one.bits / optimum.bits:.3f}"
    yield f"      cost, of the rules': {one.dollars / made[RULES].dollars:.2f}"
    theirs, rules = parts(found, optimum), parts(found, made[RULES])
    for kind, right in parts(found, one).items():
        yield f"      {kind}: {right:.3f} (optimum {theirs[kind]:.3f}, rules {rules[kind]:.3f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="*", type=Path)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", default="heldout")
    parser.add_argument("--cuts", nargs="+", default=list(CUTS))
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    torch.set_num_threads(1)
    print(f"Conductors on {told.split} tasks, seed {told.seed}, simulated workers ({machine()})")
    kept: dict[str, object] = {}
    for cut in told.cuts:
        recipe, counts = CUTS[cut]
        found = [item for item in items(Split(told.split), told.seed, recipe, told.tasks) if counts(item)]
        in_full = cut == "standard"
        made = contenders(found, told.checkpoints, list(CONTROLS) if in_full else [SINGLE, ROUTER, RULES, OPTIMUM])
        print(f"\n{cut}: {len(found)} tasks")
        for name, one in made.items():
            print("\n".join(lines(found, name, made, in_full)), flush=True)
            kept[f"{cut}/{name}"] = {"right": one.right.mean(), "dollars": one.dollars, "bits": one.bits}
    if told.json:
        told.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
