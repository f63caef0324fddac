"""Builds the environment of a training (tasks, pools, budget) from the training file and `shikisha.toml`.

Each task gets a random subset of the workers in random order, half of the time without the most expensive. Paid replies
are kept in the run's folder, so that a run which was killed pays for nothing twice; of several processes each keeps its
own, and may spend an equal share of the dollars.
Invariants: item i is a function of (settings, tasks, workers, i); a worker that needs a person is refused before the
first paid call. Deliberately absent: training itself (`train_session`), so that rewards are had without torch.
"""

import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from shikisha.config.container import Container, load_config
from shikisha.config.grader_services import sandbox_named
from shikisha.core import toml
from shikisha.core.budget import Usage
from shikisha.core.call import ApprovalMode, Card
from shikisha.core.errors import ConfigError
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.evals.graders import GraderTools
from shikisha.evals.response_cache import UNCACHED_KINDS, CachedWorker, EvaluationBudget, ResponseCache
from shikisha.evals.taskset import TaskItem, Taskset, TaskSplit
from shikisha.evals.tasksets.taskset_loader import load_taskset
from shikisha_train.environment import TrainingEnvironment, TrainingOrigin
from shikisha_train.settings import TrainSettings

_NEEDS_DESCRIPTIONS = (
    "model.described: ordinals alone say nothing where each task brings workers of its own: expected true, or tasks "
    "that bring none (tasks.set) and one pool for all of them (tasks.pool)"
)
_DROP_MOST_EXPENSIVE = 0.5  # share of tasks without the most expensive worker
_TYPICAL_USAGE = Usage(100, 20)  # a call, to tell prices apart by


@asynccontextmanager
async def open_environment(
    settings: TrainSettings, folder: Path, file: Path | None, process: tuple[int, int] = (0, 1)
) -> AsyncIterator[TrainingEnvironment]:
    """Yield the environment; its workers are closed afterwards.

    `file` is the configuration of the workers. `process` is the rank of this process and how many train together.
    """
    async with AsyncExitStack() as stack:
        container = load_config(file)
        stack.push_async_callback(container.aclose)
        purse = None
        if container.workers:
            calls, purse = _reply_cache_and_budget(settings, folder, process)
            stack.push_async_callback(calls.aclose)
            container.wrap = partial(_cache_replies, container, calls, purse)
            container.wrap_tool = partial(_cache_replies, container, calls, purse, keeps=False)
        yield _configured_environment(settings, container, purse)


def _reply_cache_and_budget(
    settings: TrainSettings, folder: Path, process: tuple[int, int]
) -> tuple[ResponseCache, EvaluationBudget]:
    """Return the reply cache of this process and its budget; what was paid counts for the main process."""
    (rank, count), cap = process, settings.spend.dollars
    all_paid = _dollars_paid(folder)
    paid = 0.0 if rank else all_paid
    limit = None if cap is None else paid + (cap - all_paid) / count
    return ResponseCache(folder, str(rank)), EvaluationBudget(limit, paid)


def _configured_environment(
    settings: TrainSettings, container: Container, purse: EvaluationBudget | None
) -> TrainingEnvironment:
    table = settings.tasks
    tools = GraderTools(sandbox_named(""), None)
    with toml.error_location("tasks.set"):
        every = [load_taskset(table.set, tools=tools)]
        every[0].only(TaskSplit.TRAIN)
    for place, name in enumerate(table.sets):
        with toml.error_location(f"tasks.sets[{place}]"):
            every.append(load_taskset(name, tools=tools))
            every[-1].only(TaskSplit.TRAIN)
    whole = join_tasksets(every)
    learned = whole.only(TaskSplit.TRAIN) if not table.count else sample_evenly(every, table.count, settings.seed)
    pool = None if whole.items[0].pool is not None else container.pool(table.pool)
    for item in whole.items[:1] if pool is not None else whole.items:
        refuse_pool(item.pool or pool or Pool(()), settings)
    if pool is None and not settings.model.described:
        raise ConfigError(_NEEDS_DESCRIPTIONS)
    judged = _validation_items(settings, whole)
    stream = partial(_training_item, settings, learned.items, pool)
    first = pool or whole.items[0].pool or Pool(())
    return TrainingEnvironment(
        _origin(settings, (whole, len(learned)), first, container, len(judged)),
        {
            "taskset": f"{whole.name} {whole.version[:12]}",
            "pool": _digest(
                [repr((card.name, card.description, card.price)) for card in (first.cards if first is not None else ())]
            ),
        },
        stream,
        largest=min(table.most, len(first)) if settings.model.described else len(first),
        validation_tasks=tuple(
            _with_pool(settings, item, pool, f"judged {place}") for place, item in enumerate(judged)
        ),
        caps=container.caps,
        purse=purse,
        engine=Engine(MemoryRecorder(), secret_store=container.secret_store),
    )


def join_tasksets(sets: Sequence[Taskset]) -> Taskset:
    """Return the tasks of several sets as one; a repeated id is prefixed with the name of the later set."""
    if len(sets) == 1:
        return sets[0]
    items, taken = list[TaskItem](), set[str]()
    for held in sets:
        for item in held:
            own = item.task.id if item.task.id not in taken else f"{held.name}/{item.task.id}"
            items.append(item if own == item.task.id else replace(item, task=replace(item.task, id=own)))
        taken.update(item.task.id for item in items)
    return Taskset(" + ".join(held.name for held in sets), items)


def sample_evenly(sets: Sequence[Taskset], count: int, seed: int) -> Taskset:
    """Return so many training tasks, evenly from all sets; the larger sets make up for the smaller ones."""
    if count < len(sets):
        raise ConfigError(
            f"tasks.count: {count} tasks are fewer than the {len(sets)} sets: expected {len(sets)} or more"
        )
    parts = sorted((held.only(TaskSplit.TRAIN) for held in sets), key=len)
    chosen, left = list[Taskset](), count
    for place, part in enumerate(parts):
        share = min(len(part), left // (len(parts) - place))
        left -= share
        chosen.append(part.sample(share, seed))
    return join_tasksets(chosen)


def _origin(
    settings: TrainSettings, tasks: tuple[Taskset, int], pool: Pool, container: Container, judged: int
) -> TrainingOrigin:
    table, (whole, count) = settings.tasks, tasks
    simulated = container.simulated_pool is not None
    note = f"Each task is shown {table.least} to {min(table.most, len(pool))} of {len(pool)} workers, in random order."
    if not settings.model.described:
        note = f"Each task is shown all {len(pool)} workers in one order, by ordinals alone: it knows no other pool."
    return TrainingOrigin(
        whole.name,
        _splits(f"train ({count} tasks, content hashes {whole.version[:12]})", "dev", judged),
        [{"name": card.name, "description": card.description, "kind": card.kind} for card in pool.cards],
        simulated,
        notes=(note, "Simulated workers answered.") if simulated else (note,),
    )


def _splits(learned: str, judged: str, count: int) -> Mapping[str, str]:
    return {"learned from": learned, "judged by": f"{count} tasks of {judged}" if count else "nothing"}


def _validation_items(settings: TrainSettings, whole: Taskset) -> Sequence[TaskItem]:
    if not settings.tasks.judged:
        return ()
    with toml.error_location("tasks.judged"):
        return whole.only(TaskSplit.DEV).sample(settings.tasks.judged, settings.seed).items


def _training_item(settings: TrainSettings, items: Sequence[TaskItem], pool: Pool | None, index: int) -> TaskItem:
    """Return item `index` of a stream that repeats all tasks, each epoch in another order."""
    epoch, place = divmod(index, len(items))
    order = list(range(len(items)))
    random.Random(f"order {settings.seed} {epoch}").shuffle(order)  # noqa: S311 - an order of tasks, no secret
    return _with_pool(settings, items[order[place]], pool, f"{settings.seed} {index}")


def _with_pool(settings: TrainSettings, item: TaskItem, pool: Pool | None, luck: str) -> TaskItem:
    """Return the item with the pool that it is shown."""
    own = item.pool or pool or Pool(())
    if not settings.model.described:
        return replace(item, pool=own)
    sizes = (settings.tasks.least, settings.tasks.most)
    dice = random.Random(f"pool {luck}")  # noqa: S311 - an order of workers, no secret
    return replace(item, pool=sample_pool(own, sizes, dice))


def sample_pool(pool: Pool, sizes: tuple[int, int], dice: random.Random) -> Pool:
    """Return k workers of the pool in random order, k from `sizes`; half of the time without the most expensive."""
    names, least = list(pool.names), sizes[0]
    most_expensive = _most_expensive(pool.cards)
    if most_expensive is not None and len(names) > least and dice.random() < _DROP_MOST_EXPENSIVE:
        names.remove(most_expensive)
    return pool.subset(dice.sample(names, dice.randint(least, min(sizes[1], len(names)))))


def _most_expensive(cards: Sequence[Card]) -> str | None:
    """Return the worker that is more expensive than all others, if there is one."""
    if any(card.price is None for card in cards):
        return None
    costs = sorted(((card.price.of(_TYPICAL_USAGE), card.name) for card in cards if card.price), reverse=True)
    return costs[0][1] if len(costs) > 1 and costs[0][0] > costs[1][0] else None


def refuse_pool(pool: Pool, settings: TrainSettings) -> None:
    """Refuse workers that training cannot use, and a pool without a choice."""
    table = settings.tasks
    if len(pool) < 2:
        raise ConfigError(
            f"tasks.pool: expected two workers or more to choose from, found {len(pool)} ({', '.join(pool.names)})"
        )
    if not 2 <= table.least <= min(table.most, len(pool)):
        raise ConfigError(
            f"tasks.least: expected from 2 to {min(table.most, len(pool))} (tasks.most, and the {len(pool)} workers), "
            f"found {table.least}"
        )
    counted = settings.reward.cost
    for card in pool.cards:
        if card.kind == "human" or card.approval is not ApprovalMode.NEVER:
            raise ConfigError(f"workers.{card.name}: it waits for a person, and training cannot ask one")
        if card.price is None and card.kind not in UNCACHED_KINDS and (counted or settings.spend.dollars):
            what = "reward.cost counts dollars" if counted else "spend.dollars is a cap"
            raise ConfigError(f"workers.{card.name}: it has no price ({what})")


def _cache_replies(
    container: Container, calls: ResponseCache, purse: EvaluationBudget, member: Member, *, keeps: bool = True
) -> Member:
    """Return the member with a reply cache, where its calls cost anything."""
    fingerprint = container.fingerprint(member.card.name)
    if fingerprint is None or member.card.kind in UNCACHED_KINDS:
        return member
    return replace(member, worker=CachedWorker(member, fingerprint, calls, purse, keeps=keeps))


def _dollars_paid(folder: Path) -> float:
    """Return the dollars that the cached replies in the folder cost."""
    lines = (line for path in sorted(folder.glob("calls-*.jsonl")) for line in path.read_bytes().splitlines())
    return sum(float(json.loads(line).get("dollars") or 0.0) for line in lines if line.endswith(b"}"))


def _digest(data: object) -> str:
    return sha256(json.dumps(data).encode()).hexdigest()[:12]
