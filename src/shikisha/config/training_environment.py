"""The ground that training stands on: tasks, pools and the purse, from the training file and `shikisha.toml`.

The rehearsal's tasks bring their pools; for any other taskset each task is shown k of the n workers, drawn anew, in an
order drawn anew, and half of the time without the dearest. Replies that cost money are kept in the run's folder, so
that a run which was killed pays for nothing twice. Of several processes each keeps its own replies there, and may spend
an equal share of the dollars. Invariants: item i is a function of (settings, tasks, workers, i); a worker that needs a
person is refused before anything is paid for. Deliberately absent: models, and steps.

A process that makes lessons for another one: `python -m shikisha.config.lessons`, started by `train.slates`.

It is told the settings of a training and the tokenizer, and knows no more of the run. Invariant: its chunks are those
that the training would make itself. Deliberately absent: torch.
"""

import json
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

from shikisha.config.container import Container, load_config
from shikisha.config.grader_services import sandbox_named
from shikisha.core import toml
from shikisha.core.call import ApprovalMode, Card
from shikisha.core.errors import ConfigError
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import Member, Pool
from shikisha.evals.graders import GradeMark, GraderTools, no_answer_grade
from shikisha.evals.response_cache import UNCACHED_KINDS, CachedWorker, EvaluationBudget, ResponseCache
from shikisha.evals.taskset import TaskItem, Taskset, TaskSplit, content_key
from shikisha.training.settings import TrainSettings
from shikisha.training.sft_data import ChunkSource, make_chunk, parse_tokenizer, serve_chunks

if TYPE_CHECKING:
    from shikisha.simulation.task_generator import TaskDistribution
    from shikisha.simulation.worker_profiles import WorkerProfile
    from shikisha.training.environment import SFTSource, TrainingEnvironment
    from shikisha.training.model_card import TrainingOrigin
    from shikisha.training.settings import TrainSettings
    from shikisha.training.training_run import TrainingJob, TrainingResult

REHEARSAL = "rehearsal"
REHEARSALS = (REHEARSAL, f"{REHEARSAL}-large")
_NEEDS_DESCRIPTIONS = (
    "model.described: ordinals alone say nothing where each task brings workers of its own: expected true, or tasks "
    "that bring none (tasks.set) and one pool for all of them (tasks.pool)"
)
_DROP_MOST_EXPENSIVE = 0.5  # how often the dearest worker is left out
_VALIDATION_SEED = 0  # of the rehearsal's development tasks: the same for every seed, so that runs can be compared
_VOCABULARY_PROMPTS = 20_000  # lessons that words are counted in
_MIN_WORD_COUNT = dict(zip(REHEARSALS, (60, 30), strict=True))  # how often a word must stand there, names less often
_VOCABULARY_SEED = 999
_IDENTITY_TASKS = 32  # tasks of the rehearsal by which another version of it is told


async def train_configured(
    order: "Callable[[TrainingEnvironment], TrainingJob]", settings: "TrainSettings", folder: Path, file: Path | None
) -> "TrainingResult":
    """Train in a folder; `order` says what is to be done once the ground is there. `file`: the configuration."""
    from shikisha.training import training_run
    from shikisha.training.checkpoint import claim_folder
    from shikisha.training.preflight_checks import refuse_settings
    from shikisha.training.process_group import current_process_group

    crew = current_process_group()
    async with AsyncExitStack() as stack:
        with crew.raise_together():
            refuse_settings(settings, crew.count)
            if crew.main:
                stack.enter_context(claim_folder(folder))
        with crew.raise_together():  # so that nobody spends before all know what was paid
            ground = await stack.enter_async_context(open_environment(settings, folder, file))
        return await training_run.train(order(ground))


@asynccontextmanager
async def open_environment(
    settings: "TrainSettings", folder: Path, file: Path | None
) -> "AsyncIterator[TrainingEnvironment]":
    """Yield the ground; what it was built of is closed afterwards."""
    async with AsyncExitStack() as stack:
        composition = load_config(file)
        stack.push_async_callback(composition.aclose)
        if settings.tasks.set in REHEARSALS:
            yield _simulated_environment(settings, composition)
            return
        purse = None
        if composition.workers:
            calls, purse = _reply_cache_and_budget(settings, folder)
            stack.push_async_callback(calls.aclose)
            composition.wrap = partial(_cache_replies, composition, calls, purse)
        yield _configured_environment(settings, composition, purse)


def _reply_cache_and_budget(settings: "TrainSettings", folder: Path) -> tuple[ResponseCache, EvaluationBudget]:
    """Return where this process keeps replies, and its share of the dollars; the main one has paid what was paid."""
    from shikisha.training.process_group import current_process_group

    crew, cap = current_process_group(), settings.spend.dollars
    all_paid = _dollars_paid(folder)
    paid = all_paid if crew.main else 0.0
    limit = None if cap is None else paid + (cap - all_paid) / crew.count
    return ResponseCache(folder, str(crew.rank)), EvaluationBudget(limit, paid)


def _simulated_environment(settings: "TrainSettings", composition: Container) -> "TrainingEnvironment":
    from shikisha.evals.tasksets.simulated import SIMULATED_DISTRIBUTIONS, simulated_item
    from shikisha.training.environment import TrainingEnvironment
    from shikisha.training.model_card import TrainingOrigin

    if settings.tasks.pool:
        raise ConfigError("tasks.pool: the rehearsal's tasks bring their own workers: expected none")
    if settings.tasks.sets or settings.tasks.count:
        key = "sets" if settings.tasks.sets else "count"
        raise ConfigError(f"tasks.{key}: the rehearsal has tasks without end, and none beside it: expected none")
    if not settings.model.described:
        raise ConfigError(_NEEDS_DESCRIPTIONS)
    name = settings.tasks.set
    standard = SIMULATED_DISTRIBUTIONS[name]
    tasks = settings.tasks
    recipe = replace(standard, parts=tasks.parts, lacking=tasks.lacking, noisy=tasks.noisy)
    stream = partial(simulated_item, TaskSplit.TRAIN, settings.seed, recipe=recipe)
    judged = tuple(
        simulated_item(TaskSplit.DEV, _VALIDATION_SEED, place, standard) for place in range(settings.tasks.judged)
    )
    probed = [stream(place) for place in range(_IDENTITY_TASKS)]
    origin = TrainingOrigin(
        name,
        _splits(f"train (seed {settings.seed}, without end)", f"dev (seed {_VALIDATION_SEED})", len(judged)),
        [{"name": profile.name, "description": _describe_profile(profile)} for profile in standard.edition.everyone],
        simulated=True,
        lessons=_describe_sft(settings),
    )
    return TrainingEnvironment(
        origin,
        {"taskset": name, "pool": _digest([[one.task.content_hash, *_pool_identity(one.pool)] for one in probed])},
        stream,
        largest=max(len(one.pool) for one in (*probed, *judged) if one.pool is not None),
        validation_tasks=judged,
        caps=composition.caps,
        sft_source=sft_source(settings),
        baselines=partial(_baseline_accuracies, judged, composition, standard),
    )


def _describe_profile(profile: "WorkerProfile") -> str:
    from shikisha.simulation.vocabulary import WordingSplit as Wording

    return " and ".join(offer.by_split[Wording.TRAIN][0] for offer in profile.descriptions)


def sft_source(settings: "TrainSettings") -> "SFTSource":
    """Return the lessons of the embedded orchestra, and what makes their tokenizer."""
    from shikisha.evals.tasksets.simulated import SIMULATED_DISTRIBUTIONS
    from shikisha.simulation import chain_of_thought, plan_templates, sft_examples
    from shikisha.simulation.sft_examples import (
        copy_examples,
        example_schedule,
        generate_example,
        mixture_of,
        plan_subtasks,
        reading_examples,
    )
    from shikisha.training.environment import SFTSource
    from shikisha.training.sft_data import plan_pieces, word_tokenizer

    edition = SIMULATED_DISTRIBUTIONS[settings.tasks.set].edition
    drawn = mixture_of(edition)
    return SFTSource(
        example_schedule(settings.seed, *settings.warm.follow, settings.warm.demonstrations, edition),
        reading_examples(settings.seed, edition),
        copy_examples(settings.seed, edition),
        lambda: word_tokenizer(
            (generate_example(_VOCABULARY_SEED, place, drawn).prompt for place in range(_VOCABULARY_PROMPTS)),
            [
                *chain_of_thought.thought_tokens(edition),
                *plan_templates.form_tokens(edition),
                *sft_examples.OUTCOME_TOKENS,
                *plan_pieces(plan_subtasks(edition)),
            ],
            _MIN_WORD_COUNT[settings.tasks.set],
        ),
        "shikisha.config.training_environment",
        {"settings": settings.model_dump(mode="json")},
    )


def _describe_sft(settings: "TrainSettings") -> str:
    table, beside = settings.warm, settings.replay
    told: list[str] = []
    if table.steps:
        begin, end = table.follow
        share = table.demonstrations
        shown = f"; {share:.0%} of the plans are the optimal policy's instead" if share else ""
        told.append(
            f"{table.steps * table.batch:,} of the embedded orchestra's training split (how questions and descriptions "
            f"are read, how plans are written); a plan follows its thought in {begin:.0%} of those with both at the "
            f"beginning and {end:.0%} at the end, the others are drawn by lot{shown}"
        )
    for count, what in ((beside.lessons, "reading such pools"), (beside.copies, "writing an ordinal of such pools")):
        if count and settings.grpo.steps:
            told.append(f"{count} a step beside reinforcement in {what} as its tasks do not bring")
    return "; ".join(told)


def _configured_environment(
    settings: "TrainSettings", composition: Container, purse: EvaluationBudget | None
) -> "TrainingEnvironment":
    from shikisha.engine.engine import Engine
    from shikisha.engine.recorder import MemoryRecorder
    from shikisha.evals.tasksets.taskset_loader import load_taskset as load_tasks
    from shikisha.training.environment import TrainingEnvironment

    table = settings.tasks
    tools = GraderTools(sandbox_named(""), None)
    with toml.error_location("tasks.set"):
        every = [load_tasks(table.set, tools=tools)]
        every[0].only(TaskSplit.TRAIN)
    for place, name in enumerate(table.sets):
        with toml.error_location(f"tasks.sets[{place}]"):
            every.append(load_tasks(name, tools=tools))
            every[-1].only(TaskSplit.TRAIN)
    whole = join_tasksets(every)
    learned = whole.only(TaskSplit.TRAIN) if not table.count else sample_evenly(every, table.count, settings.seed)
    pool = None if whole.items[0].pool is not None else composition.pool(table.pool)
    for item in whole.items[:1] if pool is not None else whole.items:
        refuse_pool(item.pool or pool or Pool(()), settings)
    if pool is None and not settings.model.described:
        raise ConfigError(_NEEDS_DESCRIPTIONS)
    judged = _validation_items(settings, whole)
    stream = partial(_training_item, settings, learned.items, pool)
    first = pool or whole.items[0].pool or Pool(())
    return TrainingEnvironment(
        _origin(settings, (whole, len(learned)), first, composition, len(judged)),
        {"taskset": f"{whole.name} {whole.version[:12]}", "pool": _digest(_pool_identity(first))},
        stream,
        largest=min(table.most, len(first)) if settings.model.described else len(first),
        validation_tasks=tuple(
            _with_pool(settings, item, pool, f"judged {place}") for place, item in enumerate(judged)
        ),
        caps=composition.caps,
        purse=purse,
        engine=Engine(MemoryRecorder(), vault=composition.vault),
    )


def join_tasksets(sets: Sequence[Taskset]) -> Taskset:
    """Return the tasks of several sets as one; of two sets that use one id, the later's is told apart by its set."""
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
    """Return so many training tasks of all sets together, as many of each; what one lacks, the larger ones give."""
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
    settings: "TrainSettings", tasks: tuple[Taskset, int], pool: Pool, composition: Container, judged: int
) -> "TrainingOrigin":
    from shikisha.training.model_card import TrainingOrigin

    table, (whole, count) = settings.tasks, tasks
    simulated = composition.simulated_pool is not None
    note = f"Each task is shown {table.least} to {min(table.most, len(pool))} of {len(pool)} workers, in random order."
    if not settings.model.described:
        note = f"Each task is shown all {len(pool)} workers in one order, by ordinals alone: it knows no other pool."
    return TrainingOrigin(
        whole.name,
        _splits(f"train ({count} tasks, content hashes {whole.version[:12]})", "dev", judged),
        [{"name": card.name, "description": card.description, "kind": card.kind} for card in pool.cards],
        simulated,
        notes=(note, "No workers are configured: the embedded orchestra played.") if simulated else (note,),
    )


def _splits(learned: str, judged: str, count: int) -> Mapping[str, str]:
    return {"learned from": learned, "judged by": f"{count} tasks of {judged}" if count else "nothing"}


def _validation_items(settings: "TrainSettings", whole: Taskset) -> Sequence[TaskItem]:
    if not settings.tasks.judged:
        return ()
    with toml.error_location("tasks.judged"):
        return whole.only(TaskSplit.DEV).sample(settings.tasks.judged, settings.seed).items


def _training_item(settings: "TrainSettings", items: Sequence[TaskItem], pool: Pool | None, index: int) -> TaskItem:
    """Return item `index` of a stream that goes through all tasks again and again, each time in another order."""
    epoch, place = divmod(index, len(items))
    order = list(range(len(items)))
    random.Random(f"order {settings.seed} {epoch}").shuffle(order)  # noqa: S311 - an order of tasks, no secret
    return _with_pool(settings, items[order[place]], pool, f"{settings.seed} {index}")


def _with_pool(settings: "TrainSettings", item: TaskItem, pool: Pool | None, luck: str) -> TaskItem:
    """Return the item with the workers that it is shown."""
    own = item.pool or pool or Pool(())
    if not settings.model.described:
        return replace(item, pool=own)
    return replace(
        item,
        pool=sample_pool(own, (settings.tasks.least, settings.tasks.most), random.Random(f"pool {luck}")),  # noqa: S311
    )


def sample_pool(pool: Pool, sizes: tuple[int, int], dice: random.Random) -> Pool:
    """Return k of the pool's workers in random order, k from `sizes`; half of the time not the dearest."""
    names, least = list(pool.names), sizes[0]
    dear = _most_expensive(pool.cards)
    if dear is not None and len(names) > least and dice.random() < _DROP_MOST_EXPENSIVE:
        names.remove(dear)
    return pool.subset(dice.sample(names, dice.randint(least, min(sizes[1], len(names)))))


def _most_expensive(cards: Sequence[Card]) -> str | None:
    """Return the one worker that is dearer than all others, if there is one."""
    from shikisha.core.prompts import price_level

    if any(card.price is None for card in cards):
        return None
    levels = sorted(((price_level(card.price), card.name) for card in cards), reverse=True)
    return levels[0][1] if len(levels) > 1 and levels[0][0] != levels[1][0] else None


def refuse_pool(pool: Pool, settings: "TrainSettings") -> None:
    """Refuse workers that training cannot use, and fewer than there must be to choose from."""
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
    counted = settings.reward.cost or any(phase.cost for phase in settings.grpo.phases)
    for card in pool.cards:
        if card.kind == "human" or card.approval is not ApprovalMode.NEVER:
            raise ConfigError(f"workers.{card.name}: it waits for a person, and training has nobody to ask")
        if card.price is None and card.kind not in UNCACHED_KINDS and (counted or settings.spend.dollars):
            what = "reward.cost counts dollars" if counted else "spend.dollars is a cap"
            raise ConfigError(f"workers.{card.name}: it has no price ({what})")


def _cache_replies(composition: Container, calls: ResponseCache, purse: EvaluationBudget, member: Member) -> Member:
    """Return the member with its replies kept, where they cost anything."""
    fingerprint = composition.fingerprint(member.card.name)
    if fingerprint is None or member.card.kind in UNCACHED_KINDS:
        return member
    return replace(member, worker=CachedWorker(member, fingerprint, calls, purse))


def _dollars_paid(folder: Path) -> float:
    """Return the dollars that the replies kept in the folder came to."""
    lines = (line for path in sorted(folder.glob("calls-*.jsonl")) for line in path.read_bytes().splitlines())
    return sum(float(json.loads(line).get("dollars") or 0.0) for line in lines if line.endswith(b"}"))


def _pool_identity(pool: Pool | None) -> list[str]:
    """Return what tells one pool from another: names, descriptions and prices, in order."""
    return [repr((card.name, card.description, card.price)) for card in (pool.cards if pool is not None else ())]


def _digest(data: object) -> str:
    return sha256(json.dumps(data).encode()).hexdigest()[:12]


async def _baseline_accuracies(
    items: Sequence[TaskItem], composition: Container, recipe: "TaskDistribution"
) -> Mapping[str, float]:
    """Return how often the generalist alone and the hand-written conductors are right on these tasks."""
    from shikisha.evals.tasksets.simulated import simulated_items
    from shikisha.simulation import baseline_conductors

    generalist = recipe.edition.generalist
    drawn = simulated_items("dev", _VALIDATION_SEED, len(items), recipe)
    alone = [replace(item, pool=one.with_workers(generalist).pool) for item, one in zip(items, drawn, strict=True)]
    conductors: dict[str, Conductor] = {
        "random": baseline_conductors.random_baseline(recipe.edition),
        "keyword router": baseline_conductors.KEYWORD_ROUTER,
        "rules": baseline_conductors.rules_baseline(recipe.edition),
        "optimum": baseline_conductors.OPTIMAL,
    }
    found = {"generalist": await _accuracy(baseline_conductors.single_worker(generalist), alone, composition)}
    return found | {name: await _accuracy(conductor, items, composition) for name, conductor in conductors.items()}


async def _accuracy(conductor: Conductor, items: Sequence[TaskItem], composition: Container) -> float:
    from shikisha.engine.engine import Engine
    from shikisha.engine.recorder import MemoryRecorder

    count = 0
    for item in items:
        key = f"{content_key(item.task)[:24]}-{conductor.name}"
        run = await Engine(MemoryRecorder()).run(
            item.task, item.pool or Pool(()), conductor, composition.caps, run_id=key
        )
        grade = no_answer_grade(item.checker.name, "") if run.answer is None else await item.checker.grade(run.answer)
        count += grade.mark is GradeMark.RIGHT
    return count / max(1, len(items))


def chunk_maker(told: object) -> ChunkSource:
    """Return what makes chunks for the training that was told of."""
    given = cast("Mapping[str, object]", told)
    settings = TrainSettings.model_validate(given["settings"])
    tokenizer, lessons = parse_tokenizer(str(given["tokenizer"])), sft_source(settings).examples
    return lambda number: make_chunk(number, lessons, tokenizer, settings.warm)


if __name__ == "__main__":
    serve_chunks(sys.stdin, sys.stdout, chunk_maker)
