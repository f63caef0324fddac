"""The tasks of an evaluation and their workers, from an outcome log or a taskset.

Invariant: the tasks to report on (`items`) and the tasks to choose by (`dev`) are told apart here and nowhere else:
`items` are the requested split (all tasks, where none was), `dev` is the dev split.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from shikisha.config.container import Container
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import asdict, dataclass, replace
from shikisha.engine.pool import Member, Pool
from shikisha.evals.baselines import Baselines, BaselineSource
from shikisha.evals.graders import GraderTools
from shikisha.evals.taskset import TaskItem, Taskset, TaskSplit, parse_split
from shikisha.evals.tasksets.recorded import recorded_taskset
from shikisha.evals.tasksets.taskset_loader import (
    OWN_SET,
    TaskOverlap,
    TaskSelection,
    find_contamination,
    load_taskset,
    parse_taskset_name,
)
from shikisha.outcomes.log_reader import OutcomeLog, open_log
from shikisha.workers.replay import ReplayContent, ReplayWorker, replay_card

_BUNDLED_NOTE = "The workers are those that the tasks bring along: what they answered before is replayed."
_OVERLAPS_SHOWN = 20  # tasks that the note names
_MAX_DEV_TASKS = 200  # tasks to choose by, where workers cost money


@dataclass(frozen=True, slots=True)
class EvaluationSetup:
    """What an evaluation is of, as plain data: an outcome log or a taskset, and who works.

    `keep` is the folder that samples and replies are kept in, and `evaluation` what every run's id begins with.
    `reply` is what a replayed worker answers with: the extracted answer, its full text, or both. `dollars` is the most
    that one command may spend.
    """

    keep: str
    evaluation: str = "evaluation"
    log: str | None = None
    taskset: str | None = None
    data: str | None = None  # the folder of all sets, where $SHIKISHA_DATA is not it
    split: str | None = None
    tasks: int | None = None
    seed: int = 0
    workers: tuple[str, ...] = ()
    config: str | None = None
    judge: str | None = None
    grader: str | None = None
    sandbox: str = ""
    dollars: float | None = None
    journal: str | None = None
    reply: ReplayContent = "answer"

    def dumps(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, line: str) -> "EvaluationSetup":
        """Return the setup that `dumps` wrote."""
        setup = cls(**json.loads(line))
        return replace(setup, workers=tuple(setup.workers))


@dataclass(frozen=True, slots=True)
class EvaluationTasks:
    """Tasks and workers; `pool` None: tasks bring theirs, of workers `bundled`. `notes` are caveats for readers."""

    name: str
    version: str
    items: tuple[TaskItem, ...]
    dev: tuple[TaskItem, ...]
    casts: BaselineSource
    pool: Pool | None = None
    notes: tuple[str, ...] = ()
    bundled: tuple[str, ...] = ()

    def own_pool(self, item: TaskItem) -> Pool:
        """Return the pool that a task brings, reduced to the workers that are evaluated."""
        return (item.pool or Pool(())).subset(self.bundled)


def load_evaluation_tasks(setup: EvaluationSetup, composition: Container, tools: GraderTools) -> EvaluationTasks:
    """Return the tasks and the workers; ConfigError when both or neither of log and taskset are named."""
    if (setup.log is None) == (setup.taskset is None):
        raise ConfigError("expected --log DIR or --taskset NAME, one of them")
    if setup.log is not None:
        return _tasks_from_log(setup, composition, Path(setup.log))
    wanted = TaskSelection(grader={"checker": setup.grader} if setup.grader else None)
    whole = load_taskset(setup.taskset or "", Path(setup.data) if setup.data else None, wanted=wanted, tools=tools)
    items, dev = split_dev(setup, whole)
    if items[0].pool is not None:
        names = items[0].pool.subset(setup.workers or items[0].pool.names).names
        casts = Baselines(names, talk=False, seed=setup.seed)
        brought = (_BUNDLED_NOTE, *whole.notes)
        return EvaluationTasks(whole.name, whole.version, items, dev, casts, notes=brought, bundled=names)
    pool = composition.pool(setup.workers)
    notes: tuple[str, ...] = ()
    if composition.simulated_pool is not None:
        notes = ("Simulated workers answered.",)
    casts = Baselines(pool.names, talk=True, seed=setup.seed)
    dev = _sample_dev(dev, _MAX_DEV_TASKS, setup.seed)
    return EvaluationTasks(whole.name, whole.version, items, dev, casts, pool, (*notes, *whole.notes))


def split_named(name: str | None) -> TaskSplit | None:
    """Return the split of this name, None where none was asked for; UnknownName when there is none."""
    return None if name is None else parse_split(name)


def _refuse_unpriced(log: OutcomeLog, names: Iterable[str]) -> None:
    """Refuse a reward that counts dollars where the log lacks the cost of an answer."""
    for name in names:
        for outcome in log.outcomes_of(name):
            if outcome.dollars is None and (outcome.usage is None or name not in log.prices):
                raise ConfigError(
                    f"{log.folder}: the reward counts dollars (reward.cost), and it is not known what {name!r} cost on "
                    f"task {outcome.task_id!r}"
                )


def _tasks_from_log(setup: EvaluationSetup, composition: Container, folder: Path) -> EvaluationTasks:
    log = open_log(folder, setup.workers)
    names = setup.workers or log.workers
    pool = Pool([Member(replay_card(log, name), ReplayWorker(log, name, setup.reply)) for name in names])
    whole = recorded_taskset(log)
    items, dev = split_dev(setup, whole)
    if composition.settings.reward.cost:
        _refuse_unpriced(log, names)
    notes = ["The workers are replayed: they answered these tasks before, each on its own, and saw no other answer."]
    kinds = {outcome.cost_kind for name in names for outcome in log.outcomes_of(name)}
    if "derived" in kinds:
        notes.append("Dollars are derived from approximate list prices and estimated tokens, not billed.")
    elif kinds <= {None}:
        notes.append("This log has no costs.")
    casts = Baselines(names, talk=False, seed=setup.seed)
    return EvaluationTasks(f"log {folder.name}", whole.version, items, dev, casts, pool, tuple(notes))


def split_dev(setup: EvaluationSetup, whole: Taskset) -> tuple[tuple[TaskItem, ...], tuple[TaskItem, ...]]:
    """Return the tasks to report on and those to choose by."""
    split = split_named(setup.split)
    part = whole if split is None else whole.only(split)
    items = part.items if setup.tasks is None else part.sample(setup.tasks, setup.seed).items
    pond: Sequence[TaskItem] = items if split is None else whole.items
    dev = tuple(item for item in pond if item.split is TaskSplit.DEV)
    return items, dev if split is None or setup.tasks is None else _sample_dev(dev, setup.tasks, setup.seed)


def _sample_dev(dev: tuple[TaskItem, ...], count: int, seed: int) -> tuple[TaskItem, ...]:
    """Return a sample of the tasks; the beginning of a sorted file would not be representative."""
    return dev if len(dev) <= count else Taskset("dev", dev).sample(count, seed).items


def contamination_note(items: Iterable[TaskItem], setup: EvaluationSetup, other: str, tools: GraderTools) -> str:
    """Return a note on which of these tasks are in another taskset, word for word or nearly."""
    known = parse_taskset_name(other).known
    wanted = TaskSelection(grader={"checker": setup.grader} if setup.grader and known == OWN_SET else None)
    mine = tuple(items)
    found = find_contamination(
        mine, load_taskset(other, Path(setup.data) if setup.data else None, wanted=wanted, tools=tools)
    )
    best: dict[str, TaskOverlap] = {}
    for pair in found:  # the most similar come first
        best.setdefault(pair.one, pair)
    if not best:
        return f"None of the {len(mine):,} tasks is found again in {other}."
    same = sum(pair.same for pair in best.values())
    named = [f"{one} ({pair.other}, {pair.similarity:.0%})" for one, pair in list(best.items())[:_OVERLAPS_SHOWN]]
    more = f", and {len(best) - _OVERLAPS_SHOWN:,} more" if len(best) > _OVERLAPS_SHOWN else ""
    return (
        f"{len(best):,} of the {len(mine):,} tasks are found again in {other}, {same:,} word for word; on these "
        f"figures say little of what was trained on it: {', '.join(named)}{more}."
    )
