"""The rehearsal as an evaluation: tasks with their own pools, and hand-written yardsticks beside those asked for.

Invariant: workers and language models are simulated, and the notes say so. Deliberately absent: choices that read a
worker's name (in the rehearsal a name would give its skill away): a single worker is the novice or the generalist.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shikisha.conductor import Conductor
from shikisha.config.gathering import Gathered, split_named
from shikisha.evaluate.casting import Spec
from shikisha.evaluate.samples import Part
from shikisha.orchestra.cast import JUDGE
from shikisha.orchestra.edition import Edition
from shikisha.orchestra.tasks import Item as Rehearsed
from shikisha.orchestra.yardsticks import random_of, single
from shikisha.pool import Pool
from shikisha.taskset import Item, Split
from shikisha.tasksets.rehearsal import NAME, SETS, rehearsal, taskset

if TYPE_CHECKING:
    from shikisha.config.stage import Setup

_TASKS, _DEV = 120, 60
_WORLDS = {Split.TRAIN: "train", Split.DEV: "dev", Split.TEST: "heldout"}
_FIXED = ("single", "vote", "fan-out-join", "chain", "planner-executor-verifier")
_NOTE = "The workers are simulated: small real tools that slip by lot, and two simulated language models."


def gather_rehearsal(setup: "Setup") -> Gathered:
    """Return held-out (or the split's) rehearsal tasks and dev tasks to choose by."""
    split = split_named(setup.split) or Split.TEST
    count = setup.tasks or _TASKS
    name = setup.taskset or NAME
    recipe = SETS[name]
    found = taskset(split, setup.seed, count, name)
    dev = taskset(Split.DEV, setup.seed, min(count, _DEV), name)
    originals = {
        each.task.id: each
        for part, many in ((split, count), (Split.DEV, min(count, _DEV)))
        for each in rehearsal(_WORLDS[part], setup.seed, many, recipe)
    }
    own = RehearsalsOwn(originals)
    return Gathered(found.name, found.version, found.items, dev.items, Yardsticks(recipe.edition), None, (_NOTE,), own)


@dataclass(frozen=True, slots=True)
class RehearsalsOwn:
    """Single workers are cast for each task, whether they stand in its pool or not."""

    originals: Mapping[str, Rehearsed]
    counted: bool = False

    def conductor(self, spec: Spec) -> Conductor | None:
        """Return the conductor that asks one worker for everything."""
        return single(spec.worker) if spec.part is Part.SINGLE and spec.worker else None

    def pool_of(self, spec: Spec) -> Callable[[Item], Pool]:
        """Return the task's own pool, or one of the workers that this entrant is cast with."""
        worker = spec.worker
        if spec.part is Part.SINGLE and worker:
            return lambda item: self.originals[item.task.id].cast(worker).pool
        if spec.pool:
            return lambda item: self.originals[item.task.id].cast(*spec.pool).pool
        return lambda item: item.pool or self.originals[item.task.id].pool


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """The entrants of an edition's rehearsal besides those asked for."""

    edition: Edition

    def singles(self) -> list[Spec]:
        """Return the two simulated language models."""
        return [
            Spec(name, f"rehearsal:{name}", Part.SINGLE, name)
            for name in (self.edition.novice, self.edition.generalist)
        ]

    def random(self) -> Spec:
        """Return plans drawn by lot, instructions included."""
        return Spec("random plans", random_of(self.edition).name, Part.RANDOM)

    def candidates(self, skill: Mapping[str, float]) -> list[Spec]:  # noqa: ARG002 - they are cast by price
        """Return fixed topologies, cast by price from each task's pool, and from both models and the judge.

        Three of five pools lack the generalist, which is the best single worker: a control without it is none.
        """
        note = "chosen on the dev split"
        own = [Spec(f"best fixed (fixed:{name})", f"fixed:{name}", Part.FIXED, note=note) for name in _FIXED]
        models = (self.edition.generalist, self.edition.novice, JUDGE)
        over = [replace(spec, name=f"{spec.name[:-1]} over both models)", pool=models) for spec in own]
        return [*own, *over]

    def consistency(self, worker: str, alone: float, others: Sequence[float]) -> Spec:  # noqa: ARG002 - always three
        """Return the strongest model asked three times."""
        note = "three answers of the generalist, which stands ready for every task, and a vote"
        pool = (self.edition.generalist, JUDGE)
        return Spec("self-consistency × 3", "rehearsal:self-consistency", Part.CONSISTENCY, note=note, pool=pool)
