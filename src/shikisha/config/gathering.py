"""Gathering: the tasks of an evaluation and the workers who stand ready for them, from a log, a taskset, the rehearsal.

Invariant: the tasks to report on and the tasks to choose by are told apart here and nowhere else: `items` are the split
that was asked for (all tasks, where none was), `dev` is the dev split. Deliberately absent: entrants.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shikisha.conductor import Conductor
from shikisha.config.compose import Composition
from shikisha.errors import ConfigError
from shikisha.evaluate.casting import Repertoire, Spec
from shikisha.evaluate.course import Casts
from shikisha.grade import Tools
from shikisha.outcomes import OutcomeLog, open_log
from shikisha.pool import Member, Pool
from shikisha.taskset import Item, Split, Taskset, split_called
from shikisha.workers.replay import ReplayWorker, card_for

if TYPE_CHECKING:
    from shikisha.config.stage import Setup

REHEARSALS = ("rehearsal", "rehearsal-large")
_BROUGHT = "The workers are those that the tasks bring along: what they answered before is replayed."
_NAMED = 20  # tasks that are found again elsewhere
_MOST_DEV = 200  # tasks to choose by, where they cost money


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is gathered. `pool` None: every task brings its own. `notes` say what a reader of figures must know."""

    name: str
    version: str
    items: tuple[Item, ...]
    dev: tuple[Item, ...]
    casts: Casts
    pool: Pool | None = None
    notes: tuple[str, ...] = ()
    own: "Own | None" = None

    def conductor(self, spec: Spec) -> Conductor | None:
        """Return the conductor of a specification if it is one of this taskset's own."""
        return self.own.conductor(spec) if self.own else None

    def pool_of(self, spec: Spec) -> Callable[[Item], Pool]:
        """Return which pool this entrant has for each task, where tasks bring their own."""
        if self.own is None:
            raise ConfigError(f"taskset {self.name}: there are no workers")
        return self.own.pool_of(spec)


class Own(Protocol):
    """A taskset that brings conductors and pools of its own; `counted`: its pools may get counters of votes."""

    @property
    def counted(self) -> bool:
        """Whether counters of votes stand behind its pools, so that fixed topologies can join by them."""
        ...

    def conductor(self, spec: Spec) -> Conductor | None:
        """Return its own conductor, if the specification is one."""
        ...

    def pool_of(self, spec: Spec) -> Callable[[Item], Pool]:
        """Return which pool this entrant has for each task."""
        ...


@dataclass(frozen=True, slots=True)
class ItemPools:
    """The pools that tasks bring, or these workers of them; conductors come from wherever others come from."""

    names: tuple[str, ...]
    counted: bool = True

    def conductor(self, spec: Spec) -> Conductor | None:  # noqa: ARG002 - the protocol's
        """Return none: there are no conductors of its own."""
        return None

    def pool_of(self, spec: Spec) -> Callable[[Item], Pool]:  # noqa: ARG002 - the protocol's
        """Return the task's own pool."""
        return lambda item: (item.pool or Pool(())).subset(self.names)


def gather(setup: "Setup", composition: Composition, tools: Tools) -> Gathered:
    """Return the tasks and the workers; ConfigError when both or neither of log and taskset are named."""
    if (setup.log is None) == (setup.taskset is None):
        raise ConfigError("what is evaluated? expected --log DIR or --taskset NAME, one of them")
    if setup.log is not None:
        return _from_log(setup, composition, Path(setup.log))
    if setup.taskset in REHEARSALS:
        from shikisha.config.rehearsing import gather_rehearsal

        return gather_rehearsal(setup)
    return _from_taskset(setup, composition, tools)


def split_named(name: str | None) -> Split | None:
    """Return the split of this name, None where none was asked for; UnknownName when there is none."""
    return None if name is None else split_called(name)


def _refuse_unpriced(log: OutcomeLog, names: Iterable[str]) -> None:
    """Refuse a reward that counts dollars where the log does not say what an answer cost."""
    for name in names:
        for outcome in log.of(name):
            if outcome.dollars is None and (outcome.usage is None or name not in log.prices):
                raise ConfigError(
                    f"{log.folder}: the reward counts dollars (reward.cost), and it is not known what {name!r} cost on "
                    f"task {outcome.task_id!r}"
                )


def _from_log(setup: "Setup", composition: Composition, folder: Path) -> Gathered:
    from shikisha.tasksets.recorded import taskset

    log = open_log(folder, setup.workers)
    names = setup.workers or log.workers
    pool = Pool([Member(card_for(log, name), ReplayWorker(log, name, setup.reply)) for name in names])
    whole = taskset(log)
    items, dev = parted(setup, whole)
    if composition.settings.reward.cost:
        _refuse_unpriced(log, names)
    notes = ["The workers are replayed: they answered these tasks before, each on its own, and read nobody's answer."]
    kinds = {outcome.cost_kind for name in names for outcome in log.of(name)}
    if "derived" in kinds:
        notes.append("Dollars are derived from approximate list prices and estimated tokens, not billed.")
    elif kinds <= {None}:
        notes.append("This log has no costs.")
    casts = Repertoire(names, talk=False, seed=setup.seed)
    return Gathered(f"log {folder.name}", whole.version, items, dev, casts, pool, tuple(notes))


def _from_taskset(setup: "Setup", composition: Composition, tools: Tools) -> Gathered:
    from shikisha.tasksets.load import load
    from shikisha.tasksets.wanted import Wanted

    wanted = Wanted(checker={"checker": setup.checker} if setup.checker else None)
    whole = load(setup.taskset or "", Path(setup.data) if setup.data else None, wanted=wanted, tools=tools)
    items, dev = parted(setup, whole)
    if items[0].pool is not None:
        names = items[0].pool.subset(setup.workers or items[0].pool.names).names
        casts = Repertoire(names, talk=False, seed=setup.seed)
        brought = (_BROUGHT, *whole.notes)
        return Gathered(whole.name, whole.version, items, dev, casts, notes=brought, own=ItemPools(names))
    pool = composition.pool(setup.workers)
    notes: tuple[str, ...] = ()
    if composition.orchestra is not None:
        notes = ("No workers are configured: the embedded orchestra played, whose language models are simulated.",)
    casts = Repertoire(pool.names, talk=True, seed=setup.seed)
    dev = _some(dev, _MOST_DEV, setup.seed)
    return Gathered(whole.name, whole.version, items, dev, casts, pool, (*notes, *whole.notes))


def parted(setup: "Setup", whole: Taskset) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Return the tasks to report on and those to choose by."""
    split = split_named(setup.split)
    part = whole if split is None else whole.only(split)
    items = part.items if setup.tasks is None else part.sample(setup.tasks, setup.seed).items
    pond: Sequence[Item] = items if split is None else whole.items
    dev = tuple(item for item in pond if item.split is Split.DEV)
    return items, dev if split is None or setup.tasks is None else _some(dev, setup.tasks, setup.seed)


def _some(dev: tuple[Item, ...], count: int, seed: int) -> tuple[Item, ...]:
    """Return so many of the tasks, drawn by the seed: the beginning of a sorted file stands for nothing else."""
    return dev if len(dev) <= count else Taskset("dev", dev).sample(count, seed).items


def overlap(items: Iterable[Item], setup: "Setup", other: str, tools: Tools) -> str:
    """Say which of these tasks are found again in another taskset, word for word or nearly so."""
    from shikisha.tasksets.contamination import Overlap, contamination
    from shikisha.tasksets.load import OWN, load, parse
    from shikisha.tasksets.wanted import Wanted

    known = parse(other).known
    wanted = Wanted(checker={"checker": setup.checker} if setup.checker and known == OWN else None)
    mine = tuple(items)
    found = contamination(mine, load(other, Path(setup.data) if setup.data else None, wanted=wanted, tools=tools))
    best: dict[str, Overlap] = {}
    for pair in found:  # the most similar come first
        best.setdefault(pair.one, pair)
    if not best:
        return f"None of the {len(mine):,} tasks is found again in {other}."
    same = sum(pair.same for pair in best.values())
    named = [f"{one} ({pair.other}, {pair.similarity:.0%})" for one, pair in list(best.items())[:_NAMED]]
    more = f", and {len(best) - _NAMED:,} more" if len(best) > _NAMED else ""
    return (
        f"{len(best):,} of the {len(mine):,} tasks are found again in {other}, {same:,} word for word; on these "
        f"figures say little of what was trained on it: {', '.join(named)}{more}."
    )
